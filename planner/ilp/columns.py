"""Columns: what layers cost on groups of ranks, for many configurations at once.

Arrays end in the axis of rows, and begin with that of choices where they have one: the least of all
choices is then found in one sweep. What configurations share is priced once: a configuration's
place in the sheets (`planner.ilp.sheet`) is `Ranks.table_rows`.
"""

from __future__ import annotations

from collections.abc import Sequence
from dataclasses import dataclass
from typing import Any, Protocol

import numpy as np
from numpy.typing import NDArray

from planner.cost.configuration import Booleans, Floats, Integers
from planner.ilp.grouping import Ranks, of_rows
from planner.ilp.sheet import Held, Spent

_COMPARED_FIRST = 4


@dataclass(frozen=True, slots=True, kw_only=True)
class PlainLayer:
    """Seconds of a layer under the quick bounds' choices on one kind of device.

    `paces` and `ends` [stages, prices] are the least of each ZeRO stage; `parts` are seconds
    forward, of inputs' gradients and of weights', each [choices, prices].
    """

    paces: Floats
    ends: Floats
    parts: tuple[Floats, Floats, Floats]
    least_total: Floats

    @staticmethod
    def of(costs: Spent, stage_count: int) -> PlainLayer:
        """Return the least of a layer's seconds, in the order that `quick_bounds` asks for."""
        ends = costs.end[stage_count:]
        return PlainLayer(
            paces=costs.pace[:stage_count],
            ends=ends.reshape(-1, stage_count, ends.shape[1]).min(axis=0),
            parts=_parts(costs.values),
            least_total=costs.pace.min(axis=0),
        )

    def omega(self, ranks: Ranks) -> Floats:
        """Return the least repeats x pace + end, [rows]."""
        own = ranks.table_rows
        paces, ends = (each.take(own, axis=1) for each in (self.paces, self.ends))
        omega: Floats = (ranks.repeats * paces + ends).min(axis=0)
        return omega

    def fill(self, ranks: Ranks) -> Floats:
        """Return the least seconds of fill and drain, [rows].

        Where forward and gradients weigh alike, the total is all that matters.
        """
        least: Floats = ranks.forms[0, 0] * self.least_total[ranks.table_rows]
        rows = np.flatnonzero(~weighs_alike(ranks))
        if len(rows):
            own = ranks.table_rows[rows]
            parts = [part.take(own, axis=1) for part in self.parts]
            least[rows] = _largest_form(parts, ranks.forms.take(rows, axis=2)).min(axis=0)
        return least


class Column(Protocol):
    """Something of each choice of a layer on groups of ranks."""

    def compared(self) -> list[Floats]:
        """Return what grows with it, [choices, ...] each: least in all is least anywhere."""

    def of(self, choices: Integers) -> Floats:
        """Return it for some of the choices, [choices, groups, rows]."""


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


@dataclass(frozen=True, slots=True, kw_only=True)
class Joined:
    """What a layer adds to a fill, and a share of its omega: `share` [groups, rows]."""

    fill: Column
    omega: Column
    share: Floats

    def compared(self) -> list[Floats]:
        """Return both at all prices."""
        return [*self.fill.compared(), *self.omega.compared()]

    def of(self, choices: Integers) -> Floats:
        """Return fill + share x omega."""
        return np.asarray(self.fill.of(choices) + self.share * self.omega.of(choices))


@dataclass(frozen=True, slots=True, kw_only=True)
class Shared:
    """Bytes of a layer with its share of what its transient has beyond the rank's least.

    A rank's transient is the largest of its layers', and so no less than their mean: where it
    holds `rooms` [groups, rows] layers at most, each counts for one in as many of what its own has
    beyond `counted` [groups, rows]. `transients` [choices, prices] are by kind of device.
    """

    bytes: Linear
    transients: Sequence[Floats]
    counted: Floats
    rooms: Floats

    def compared(self) -> list[Floats]:
        """Return the bytes and the transients at all prices."""
        return [*self.bytes.compared(), *self.transients]

    def of(self, choices: Integers) -> Floats:
        """Return bytes + (transient - counted)+ / rooms."""
        ranks = self.bytes.ranks
        own = priced_on_groups([values[choices] for values in self.transients], ranks)
        beyond = np.maximum(own - self.counted, 0.0) / np.maximum(self.rooms, 1.0)
        return np.asarray(self.bytes.of(choices) + beyond)


@dataclass(frozen=True, slots=True, kw_only=True)
class Options:
    """The choices of a layer that may have the least price: cost and memory.

    Both are [choices, groups, rows]; groups may be one in the place of all.
    """

    cost: Floats
    memory: Floats

    @staticmethod
    def of(
        cost: Column, memory: Column, refused: Booleans, *, kept: Integers | None = None
    ) -> Options:
        """Return the choices that no other beats everywhere; `refused` is [choices, rows].

        They are `kept` if they are known, maybe from more rows.
        """
        kept = unbeaten(cost, memory, refused) if kept is None else kept
        return Options(cost=_allowed(cost, kept, refused), memory=memory.of(kept))

    @staticmethod
    def lone(cost: Column, refused: Booleans) -> Options:
        """Return the same where nothing but the cost matters."""
        kept = _kept(cost.compared(), refused)
        allowed = _allowed(cost, kept, refused)
        return Options(cost=allowed, memory=np.zeros((1, 1, 1)))

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


def unbeaten(cost: Column, memory: Column, refused: Booleans) -> Integers:
    """Return the choices that no other beats in cost and memory everywhere."""
    return _kept([*cost.compared(), *memory.compared()], refused)


def _kept(compared: list[Floats], refused: Booleans) -> Integers:
    """Return the choices that matter; one that is refused beats none that is not.

    Those that all rows refuse matter to none, unless there are no others.
    """
    if not refused.any():
        return undominated(compared)
    allowed = np.flatnonzero(~refused.all(axis=1))
    if not len(allowed):
        return undominated(compared)
    some = [values[allowed] for values in (*compared, refused)]
    return allowed[undominated(some)]


def _allowed(cost: Column, kept: Integers, refused: Booleans) -> Floats:
    """Return the cost of some choices, inf where they are refused, [choices, groups, rows]."""
    own = cost.of(kept)
    if not refused.any() or not refused[kept].any():
        return own
    return own + np.where(refused[kept], np.inf, 0.0)[:, None]


@dataclass(frozen=True, slots=True, kw_only=True)
class Layer:
    """What one kind of layer holds, by kind of device, on the groups of `ranks`.

    `refused` is [choices, 1], the same for all rows.
    """

    held: Sequence[Held]
    ranks: Ranks
    refused: Booleans

    def of_rows(self, rows: Integers) -> Layer:
        """Return the layer for some of the rows."""
        return Layer(held=self.held, ranks=of_rows(self.ranks, rows), refused=self.refused)

    def memory(self) -> Linear:
        """Return device bytes with the activations in flight."""
        return Linear(
            base=[own.static for own in self.held],
            slope=[own.activations for own in self.held],
            times=self.ranks.in_flight,
            ranks=self.ranks,
        )

    def host(self) -> Linear:
        """Return host bytes with the activations in flight."""
        return Linear(
            base=[own.host for own in self.held],
            slope=[own.host_activations for own in self.held],
            times=self.ranks.in_flight,
            ranks=self.ranks,
        )

    def shared(self, counted: Floats, rooms: Floats) -> Shared:
        """Return device bytes with the share of a transient, of `rooms` blocks on a rank at most.

        Both are [groups, rows]; `counted` are the bytes of the transient that are counted anyhow.
        """
        transients = [own.transient for own in self.held]
        return Shared(bytes=self.memory(), transients=transients, counted=counted, rooms=rooms)

    def transient(self) -> Floats:
        """Return the least transient of any choice, [groups, rows]."""
        each = np.stack([own.transient.min(axis=0) for own in self.held])
        return np.asarray(each[self.ranks.devices, self.ranks.table_rows])


def undominated(columns: Sequence[NDArray[Any]]) -> Integers:
    """Return choices without those that another one is no worse than in all columns.

    Columns are [choices, ...] each. Some of their places say which choices are worth comparing in
    all of them; what is left out is beaten by one that stays, so that no least changes.
    """
    count = len(columns[0])
    some = [
        values[:, np.arange(_COMPARED_FIRST) * (values.shape[1] - 1) // (_COMPARED_FIRST - 1)]
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
    fills = [_fill(own.values[:3].take(ranks.table_rows, axis=2), ranks) for own in spent]
    return Plain(values=on_groups(fills, ranks))


def _fill(values: Floats, ranks: Ranks) -> Floats:
    """Return seconds of fill and drain, [choices, rows], of `values` [numbers, choices, rows]."""
    fill: Floats = ranks.forms[0, 0] * values[0]
    rows = np.flatnonzero(~weighs_alike(ranks))
    if len(rows) == fill.shape[1]:
        return _largest_form(_parts(values), ranks.forms)
    if len(rows):
        forms = ranks.forms.take(rows, axis=2)
        fill[:, rows] = _largest_form(_parts(values.take(rows, axis=2)), forms)
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


def _parts(values: Floats) -> tuple[Floats, Floats, Floats]:
    """Return seconds forward, of inputs' gradients and of weights', each [choices, rows].

    `values` [numbers, choices, rows] begin with the pace, its forward part and that of weights.
    """
    total, forward, weight = values[:3]
    return forward, total - forward - weight, weight


def _largest_form(parts: Sequence[Floats], forms: Floats) -> Floats:
    """Return the largest weighted sum of the parts [choices, rows], and not less than 0."""
    fill = np.zeros_like(parts[0])
    for form in forms:
        weighted = form[0] * parts[0]
        weighted += form[1] * parts[1]
        weighted += form[2] * parts[2]
        np.maximum(fill, weighted, out=fill)
    return fill


def weighs_alike(ranks: Ranks) -> Booleans:
    """Return where forward and both gradients have one weight in all forms of the fill, [rows]."""
    alike: Booleans = (ranks.forms == ranks.forms[0, 0]).all(axis=(0, 1))
    return alike


def price_scale(options: Sequence[Options], totals: Integers) -> Floats:
    """Return the blocks' cost range over their memory range, [rows]: a price of memory."""
    cost, memory = (
        sum(count * _range(values) for count, values in zip(totals, each, strict=True))
        for each in zip(*((own.cost, own.memory) for own in options), strict=True)
    )
    scale: Floats = np.divide(cost, memory, out=np.zeros_like(cost), where=memory > 0.0)
    return scale


def _range(values: Floats) -> Floats:
    """Return the most less the least of what is not refused, [rows]."""
    most = values.max(axis=(0, 1))
    if np.isinf(most).any():
        most = np.where(np.isfinite(values), values, -np.inf).max(axis=(0, 1))
    spread: Floats = most - values.min(axis=(0, 1))
    return spread
