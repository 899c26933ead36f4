"""Batched chains: the ranks of thousands of configurations in arrays of one shape.

Ranks are taken in groups. Those that hold the embedding and the head are groups of their own; the
others are grouped by their kind of device and, as far as groups last, by their micro-batches in
flight. What is said of a group is a lower bound of each of its ranks.

Arrays end in the axis of rows, one a configuration, and begin with that of choices where they have
one: the least of all choices is then found in one sweep. What configurations share is priced once:
a configuration's place in the sheets (`planner.ilp.cost_arrays`) is `Ranks.table_rows`.

`Pools` says how low the largest rank of many chains can be, and the sum of their ranks, as
`planner.ilp.lagrangian_bound.PoolLevels` does of one. A layer of kind k costs price[k, i, g, row]
on a rank of group g at grid point i. A rank costs its offset and the sum of its layers at the
dearest grid point: c_g. Every rank holds `least` blocks or more.

P1. Alone: each rank's c_g with its least blocks at the cheapest kind's price.
P2. Counted: at level W a rank holds n_g(W) blocks at most, if all were of the cheapest kind; the
    least W at which that is room for all blocks, a whole number on each rank. Each round raises W
    to the least c_g(n_g(W) + 1), below which no rank can take one block more.
P3. Pooled: a mean with weights y_g that make a layer cost the same on any rank,
    W >= sum_g y_g offset_g + sum_k L_k min_g (y_g price[k, g]) at any one grid point of each group.
P4. Sum: by duality, for any alpha and beta >= 0 with alpha_k + beta_g <= price[k, g], the sum of
    c_g is at least sum_g offset_g + sum_k L_k alpha_k + sum_g least beta_g.
"""

from __future__ import annotations

from collections.abc import Sequence
from dataclasses import dataclass, fields, replace
from functools import cached_property
from typing import Any

import numpy as np
from numpy.typing import NDArray

from planner.cost.configuration import Booleans, Floats, Integers
from planner.ilp.cost_arrays import Held, Spent
from planner.ilp.instance import Shape
from planner.ilp.settings import COMPARED_CHOICES, LEVEL_RISES, ROUNDING, TINY


@dataclass(frozen=True, slots=True, kw_only=True)
class Ranks:
    """What the screen needs to know of configurations; [rows] or [groups, rows].

    `table_rows` is the row of each in the cost tables; `devices` the kind of device of a group.
    `first` and `last` are the groups that hold the embedding and the head. `least_blocks` is what
    every rank holds at the least, `meets` how many exchanges a rank takes part in. A group without
    ranks has a `size` of 0 and repeats another one's numbers.
    """

    table_rows: Integers
    least_blocks: Floats
    repeats: Floats
    forms: Floats  # [forms, 3, rows]: fill weights of forward, input and weight gradient
    pace_share: Floats
    fill_share: Floats
    size: Floats
    devices: Integers
    in_flight: Floats
    meets: Floats
    first: Integers
    last: Integers


def picked(ranks: Ranks, members: Integers, table_rows: Integers) -> Ranks:
    """Return the ranks of configurations: `members` [rows] are their places in `ranks`."""
    columns = {
        field.name: getattr(ranks, field.name).take(members, axis=-1)
        for field in fields(Ranks)
        if field.name != "table_rows"
    }
    return Ranks(table_rows=table_rows, **columns)


def of_rows(ranks: Ranks, rows: Integers) -> Ranks:
    """Return some of the rows."""
    return picked(ranks, rows, ranks.table_rows[rows])


def ranks_of(shapes: Sequence[Shape], *, part_count: int) -> Ranks:
    """Return ranks in groups, not placed in tables yet.

    Ranks on one kind of device are in up to `part_count` groups beside those of the embedding and
    the head.
    """
    members = [_groups(shape, part_count) for shape in shapes]
    grouped = [_grouped(*each) for each in zip(shapes, members, strict=True)]
    groups = max(len(own) for own in grouped)
    padded = [own + [(0.0, *own[-1][1:])] * (groups - len(own)) for own in grouped]
    columns = np.ascontiguousarray(np.transpose(np.array(padded), (2, 1, 0)))
    size, devices, in_flight, meets = columns
    is_same = np.array([shape.holders[0] == shape.holders[-1] for shape in shapes])
    return Ranks(
        table_rows=np.zeros(len(shapes), dtype=np.int64),
        least_blocks=np.array([float(len(shape.holders) // shape.degree) for shape in shapes]),
        repeats=np.array([shape.repeat_count for shape in shapes]),
        forms=_padded_forms(shapes),
        pace_share=np.array([shape.shares.pace for shape in shapes]),
        fill_share=np.array([shape.shares.fill for shape in shapes]),
        size=size,
        devices=devices.astype(np.int64),
        in_flight=in_flight,
        meets=meets,
        first=np.zeros(len(shapes), dtype=np.int64),
        last=np.where(is_same, 0, 1),
    )


def _grouped(shape: Shape, members: list[list[int]]) -> list[tuple[float, float, float, float]]:
    """Return size, kind of device, least in flight and fewest exchanges of each group."""
    flight, met = shape.in_flight.tolist(), shape.exchanges.meets
    return [
        (
            float(len(ranks)),
            float(shape.device_kinds[ranks[0]]),
            min(flight[rank] for rank in ranks),
            float(min(met[rank] for rank in ranks)),
        )
        for ranks in members
    ]


def _groups(shape: Shape, part_count: int) -> list[list[int]]:
    """Return the rank of the embedding, that of the head, and the others in parts."""
    flight = shape.in_flight.tolist()
    first, last = shape.holders[0], shape.holders[-1]
    found = [[first]] if first == last else [[first], [last]]
    own: dict[int, list[int]] = {}
    for rank, kind in enumerate(shape.device_kinds):
        if rank not in (first, last):
            own.setdefault(kind, []).append(rank)
    for ranks in own.values():
        ranks.sort(key=flight.__getitem__)
        parts = min(part_count, len({flight[rank] for rank in ranks}))
        ends = [len(ranks) * part // parts for part in range(parts + 1)]
        found.extend(ranks[ends[part] : ends[part + 1]] for part in range(parts))
    return found


def _padded_forms(shapes: Sequence[Shape]) -> Floats:
    """Return every shape's forms of the fill, the last repeated up to one number of them."""
    most = max(len(shape.weights.forms) for shape in shapes)
    rows = [
        [*shape.weights.forms, *([shape.weights.forms[-1]] * (most - len(shape.weights.forms)))]
        for shape in shapes
    ]
    return np.ascontiguousarray(np.transpose(np.array(rows), (1, 2, 0)))


def least_repeated_pace(costs: Spent, ranks: Ranks) -> Floats:
    """Return the least repeats x pace of a layer, [rows]."""
    return np.asarray(ranks.repeats * costs.pace.min(axis=0)[ranks.table_rows])


def least_fill(costs: Spent, ranks: Ranks) -> Floats:
    """Return the least seconds of fill and drain of a layer that may take longer, [rows].

    Where forward and gradients weigh alike, the total is all that matters. Forms are left out that
    fall with the seconds of forward or of the inputs' gradients; those of the weights' stay.
    """
    least: Floats = ranks.forms[0, 0] * costs.pace.min(axis=0)[ranks.table_rows]
    rows = np.flatnonzero(~weighs_alike(ranks))
    if len(rows):
        some = of_rows(ranks, rows)
        rises = (some.forms[:, :2] >= 0.0).all(axis=1, keepdims=True)
        least[rows] = _fill(costs, replace(some, forms=some.forms * rises)).min(axis=0)
    return least


@dataclass(frozen=True, slots=True, kw_only=True)
class Linear:
    """Something that grows with a number of the rank: base + times x slope.

    `base` and `slope` [choices, prices] are by kind of device, `times` is [groups, rows] or [rows]
    and not negative.
    """

    base: Sequence[Floats]
    slope: Sequence[Floats]
    times: Floats
    ranks: Ranks

    def compared(self) -> list[Floats]:
        """Return base and slope at all prices."""
        return [*self.base, *self.slope]

    def of(self, choices: Integers) -> Floats:
        """Return base + times x slope; with one kind of device groups may be one."""
        base, slope = (
            priced_on_groups([own[choices] for own in values], self.ranks)
            for values in (self.base, self.slope)
        )
        total: Floats = slope * self.times
        total += base
        return total


@dataclass(frozen=True, slots=True, kw_only=True)
class Plain:
    """Something that is known of all choices, [choices, groups, rows]."""

    values: Floats

    def compared(self) -> list[Floats]:
        """Return all values."""
        return [self.values.reshape(len(self.values), -1)]

    def of(self, choices: Integers) -> Floats:
        """Return those of some choices."""
        return self.values[choices]


Column = Linear | Plain
"""Something of each choice of a layer on groups of ranks.

What is `compared`, [choices, ...] each, grows with it: least in all is least anywhere. `of` says it
for some of the choices, [choices, groups, rows].
"""


@dataclass(frozen=True, slots=True, kw_only=True)
class Options:
    """The choices of a layer that may have the least price: cost and memory.

    Both are [choices, groups, rows]; groups may be one in the place of all.
    """

    cost: Floats
    memory: Floats

    @staticmethod
    def of(cost: Column, memory: Column) -> Options:
        """Return the choices that no other beats in cost and memory everywhere."""
        kept = undominated([*cost.compared(), *memory.compared()])
        return Options(cost=cost.of(kept), memory=memory.of(kept))

    def least(self, grid: Floats) -> Floats:
        """Return the least cost + lambda x memory of the choices, [grid, groups, rows].

        `grid` is [grid, rows].
        """
        priced = np.empty(np.broadcast_shapes(self.cost.shape, self.memory.shape))
        least = np.empty((len(grid), *priced.shape[1:]))
        for place, price in enumerate(grid):
            np.multiply(self.memory, price, out=priced)
            np.add(priced, self.cost, out=priced)
            least[place] = priced.min(axis=0)
        return least


@dataclass(frozen=True, slots=True, kw_only=True)
class Layer:
    """What one kind of layer holds, by kind of device, on the groups of `ranks`."""

    held: Sequence[Held]
    ranks: Ranks

    def memory(self) -> Linear:
        """Return device bytes with the activations in flight."""
        return self._in_flight("static", "activations")

    def host(self) -> Linear:
        """Return host bytes with the activations in flight."""
        return self._in_flight("host", "host_activations")

    def _in_flight(self, base: str, slope: str) -> Linear:
        return Linear(
            base=[getattr(own, base) for own in self.held],
            slope=[getattr(own, slope) for own in self.held],
            times=self.ranks.in_flight,
            ranks=self.ranks,
        )

    def transient(self) -> Floats:
        """Return the least transient of any choice, [groups, rows]."""
        each = np.stack([own.transient.min(axis=0) for own in self.held])
        return np.asarray(each[self.ranks.devices, self.ranks.table_rows])


def undominated(columns: Sequence[NDArray[Any]]) -> Integers:
    """Return choices without those that another one is no worse than in all columns.

    Columns are [choices, ...] each. At COMPARED_CHOICES of their places it is seen which choices
    are worth comparing at all of them; what is left out is beaten by one that stays, so that no
    least changes.
    """
    count = len(columns[0])
    some = [
        values[:, np.arange(COMPARED_CHOICES) * (values.shape[1] - 1) // (COMPARED_CHOICES - 1)]
        for values in columns
    ]
    first = np.concatenate(some, axis=1)
    no_worse = (first[:, None] <= first[None]).all(axis=2)
    earlier = np.arange(count)[:, None] < np.arange(count)[None]
    beats = no_worse & (earlier | ~no_worse.T)
    stays: Booleans = np.logical_not(beats.any(axis=0))
    beaten = np.flatnonzero(~stays)
    by = (beats & stays[:, None]).argmax(axis=0)[beaten]
    is_so = [(values[by] <= values[beaten]).all(axis=1) for values in columns]
    stays[beaten] = ~np.all(is_so, axis=0)
    return np.flatnonzero(stays)


def layer_omega(spent: Sequence[Spent], ranks: Ranks) -> Linear:
    """Return repeats x pace + end of a layer."""
    return Linear(
        base=[own.end for own in spent],
        slope=[own.pace for own in spent],
        times=ranks.repeats,
        ranks=ranks,
    )


def layer_fill(spent: Sequence[Spent], ranks: Ranks) -> Plain:
    """Return seconds of fill and drain of a layer."""
    fills = [_fill(own, ranks) for own in spent]
    return Plain(values=on_groups(fills, ranks))


def _fill(costs: Spent, ranks: Ranks) -> Floats:
    """Return seconds of fill and drain of a layer, its largest form, [choices, rows]."""
    pace, forward, weight, _ = (each.take(ranks.table_rows, axis=1) for each in costs)
    fill = np.zeros_like(pace)
    for form in ranks.forms:
        weighted = form[0] * forward
        weighted += form[1] * (pace - forward - weight)
        weighted += form[2] * weight
        np.maximum(fill, weighted, out=fill)
    return fill


def on_groups(values: Sequence[Floats], ranks: Ranks) -> Floats:
    """Return what each kind of device has, [..., rows], on every group, [..., groups, rows].

    With one kind, all groups have the same, once.
    """
    if len(values) == 1:
        return values[0][..., None, :]
    places = ranks.devices * len(ranks.table_rows) + np.arange(len(ranks.table_rows))
    return np.asarray(np.concatenate(values, axis=-1).take(places, axis=-1))


def priced_on_groups(values: Sequence[Floats], ranks: Ranks) -> Floats:
    """Return the same of what each kind of device has by price, [..., prices].

    Unlike places in brackets, `take` leaves the rows next to one another in memory.
    """
    if len(values) == 1:
        return np.asarray(values[0].take(ranks.table_rows, axis=-1)[..., None, :])
    places = ranks.devices * values[0].shape[-1] + ranks.table_rows
    return np.asarray(np.concatenate(values, axis=-1).take(places, axis=-1))


def weighs_alike(ranks: Ranks) -> Booleans:
    """Return where forward and both gradients have one weight in all forms of the fill, [rows]."""
    return np.asarray((ranks.forms == ranks.forms[0, 0]).all(axis=(0, 1)))


def price_scale(options: Sequence[Options], totals: Integers) -> Floats:
    """Return the blocks' cost range over their memory range, [rows]: a price of memory."""
    cost, memory = (
        sum(count * _range(values) for count, values in zip(totals, each, strict=True))
        for each in zip(*((own.cost, own.memory) for own in options), strict=True)
    )
    return np.asarray(np.divide(cost, memory, out=np.zeros_like(cost), where=memory > 0.0))


def _range(values: Floats) -> Floats:
    """Return the most less the least, [rows]."""
    return np.asarray(values.max(axis=(0, 1)) - values.min(axis=(0, 1)))


@dataclass(frozen=True, kw_only=True)
class Pools:
    """Prices [kinds, grid, groups, rows] and offsets [grid, groups, rows] of many chains.

    `counts` [kinds] are the layers of each kind, `size` [groups, rows] the ranks of each group and
    `least` [rows] the blocks that each rank holds in any case.
    """

    prices: Floats
    offset: Floats
    counts: Integers
    size: Floats
    least: Floats

    @staticmethod
    def of_ranks(ranks: Ranks, counts: Integers, priced: Sequence[Floats], own: Floats) -> Pools:
        """Return the pools of layers at their least prices [grid, groups, rows].

        The last two are pinned. `own` [grid, groups, rows] is what ranks cost by themselves.
        """
        shape = (len(own), *ranks.size.shape)
        offset = np.broadcast_to(own, shape).copy()
        rows = np.arange(shape[-1])
        every = [np.broadcast_to(price, shape) for price in priced]
        for group, price in zip((ranks.first, ranks.last), every[-2:], strict=True):
            offset[:, group, rows] += price[:, group, rows]
        return Pools(
            prices=np.stack(every[:-2]),
            offset=offset,
            counts=counts,
            size=ranks.size,
            least=ranks.least_blocks,
        )

    def of_rows(self, rows: Integers) -> Pools:
        """Return the pools of some rows."""
        return Pools(
            prices=self.prices.take(rows, axis=-1),
            offset=self.offset.take(rows, axis=-1),
            counts=self.counts,
            size=self.size.take(rows, axis=-1),
            least=self.least[rows],
        )

    def least_level(self) -> Floats:
        """Return a level that the largest rank of any plan reaches (P1 to P3), [rows]."""
        pooled = self._pooled_level(self._even())
        alone = np.where(self._used, self._alone(), -np.inf).max(axis=0)
        return self._risen(np.maximum(pooled, alone))

    def least_sum(self) -> Floats:
        """Return what the sum over ranks reaches (P4), [rows]."""
        found = np.where(self._used, self.size * self._alone(), 0.0).sum(axis=0)
        found = np.maximum(found, self._priced_sum(self._even()))
        if not self._is_flat:
            found = np.maximum(found, self._priced_sum(np.zeros_like(self.size)))
        return np.asarray(found)

    def rooms(self, limit: Floats) -> Floats:
        """Return the most blocks on a rank of each group with c_g within `limit`, [groups, rows].

        -1 where not even an empty rank is within it.
        """
        price = self._cheapest
        spare = limit - self.offset
        spare += ROUNDING * (np.abs(limit) + np.abs(self.offset))
        room = np.where(spare >= 0.0, np.inf, -1.0)
        np.divide(spare, price, out=room, where=(price > 0.0) & (spare >= 0.0))
        rooms: Floats = np.floor(room.min(axis=0) * (1.0 + ROUNDING))
        return np.minimum(rooms, self._ceiling)

    def has_room(self, rooms: Floats) -> Booleans:
        """Return whether ranks with these rooms hold all blocks, and each what it must, [rows]."""
        enough = (self.size * np.maximum(rooms, 0.0)).sum(axis=0) >= self.counts.sum()
        each = ((rooms >= self.least) | ~self._used).all(axis=0)
        return np.asarray(enough & each)

    @property
    def _is_flat(self) -> bool:
        """Return whether there is one grid point, at which shares decide nothing."""
        return len(self.offset) == 1

    @cached_property
    def _used(self) -> Booleans:
        """Return which groups have ranks, [groups, rows]."""
        return np.asarray(self.size > 0.0)

    @cached_property
    def _cheapest(self) -> Floats:
        """Return the least price of any kind, [grid, groups, rows]."""
        return np.asarray(self.prices.min(axis=0) if len(self.prices) > 1 else self.prices[0])

    @cached_property
    def _mean(self) -> Floats:
        """Return the price of a block on average, [grid, groups, rows]."""
        return self._summed(self.prices) / float(self.counts.sum())

    def _summed(self, prices: Floats) -> Floats:
        """Return the price of all blocks together, without the first axis."""
        total = self.counts[0] * prices[0]
        for count, price in zip(self.counts[1:], prices[1:], strict=True):
            total = total + count * price
        return np.asarray(total)

    @cached_property
    def _ranks(self) -> Floats:
        """Return the ranks of all groups, [rows]."""
        return np.asarray(self.size.sum(axis=0))

    @cached_property
    def _ceiling(self) -> Floats:
        """Return the blocks that the others leave to a rank, [rows]."""
        return np.asarray(self.counts.sum() - self.least * (self._ranks - 1.0))

    def _even(self) -> Floats:
        """Return an even share of all blocks, [groups, rows]."""
        return np.asarray(np.broadcast_to(self.counts.sum() / self._ranks, self.size.shape))

    def _alone(self) -> Floats:
        """Return P1 of each group, [groups, rows]."""
        return np.asarray((self.offset + self.least * self._cheapest).max(axis=0))

    def _risen(self, level: Floats) -> Floats:
        """Return P2 or a level below it, but no less than a `level` known to be reached, [rows]."""
        found = level.copy()
        rows, left = np.arange(len(level)), self
        for _ in range(LEVEL_RISES):
            rooms = left.rooms(found[rows])
            open_rows = np.flatnonzero(~left.has_room(rooms))
            if not len(open_rows):
                break
            if len(open_rows) < len(rows):
                rows, left, rooms = rows[open_rows], left.of_rows(open_rows), rooms[:, open_rows]
            found[rows] = np.maximum(found[rows], left._next_level(rooms))  # noqa: SLF001
        return found

    def _next_level(self, rooms: Floats) -> Floats:
        """Return the least c_g of a rank with one block more than its room, [rows]."""
        fuller = (self.offset + (rooms + 1.0) * self._cheapest).max(axis=0)
        can_grow = self._used & (rooms < self._ceiling)
        least: Floats = np.where(can_grow, fuller, np.inf).min(axis=0)
        return np.where(np.isfinite(least), least, -np.inf)

    def _at(self, blocks: Floats) -> tuple[Floats, Floats]:
        """Return offsets [groups, rows] and prices [kinds, groups, rows] at one grid point.

        It is the dearest for `blocks` [groups, rows] of all kinds alike.
        """
        if self._is_flat:
            return self.offset[0], self.prices[:, 0]
        dearest = (self.offset + blocks * self._mean).argmax(axis=0)[None]
        offset = np.take_along_axis(self.offset, dearest, axis=0)[0]
        prices = np.take_along_axis(self.prices, dearest[None], axis=1)[:, 0]
        return offset, prices

    def _pooled_level(self, blocks: Floats) -> Floats:
        """Return P3 at the grid points that are dearest for `blocks`, [rows]."""
        offset, prices = self._at(blocks)
        weight = self._weights(prices)
        level: Floats = (self.size * weight * offset).sum(axis=0)
        for count, price in zip(self.counts, prices, strict=True):
            level = level + count * np.where(self._used, weight * price, np.inf).min(axis=0)
        return level

    def _weights(self, prices: Floats) -> Floats:
        """Return weights at which all blocks cost the same on any rank, [groups, rows]."""
        inverse = np.where(self._used, 1.0 / np.maximum(self._summed(prices), TINY), 0.0)
        return np.asarray(inverse / (self.size * inverse).sum(axis=0))

    def _priced_sum(self, blocks: Floats) -> Floats:
        """Return P4 at the grid points that are dearest for `blocks`, [rows]."""
        offset, prices = self._at(blocks)
        dear = np.where(self._used, prices, np.inf)
        alpha = dear.min(axis=1)  # [kinds, rows]
        beta = np.where(self._used, (dear - alpha[:, None]).min(axis=0), 0.0)
        own = np.where(self._used, self.size * (offset + self.least * beta), 0.0)
        return np.asarray(self.counts @ alpha + own.sum(axis=0))
