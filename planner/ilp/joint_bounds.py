"""Joint bounds: closer lower bounds of dozens of configurations at once.

Stack: the ranks of many instances side by side, and what any load costs on each of them.

All instances have as many ranks, the same chain and the same least of blocks on a rank, so that the
loads that a rank may have are the same. A member is one rank of one instance.

Prices of memory lambda are multiples of a member's range of costs over that of bytes. Two bounds of
a load, n_k layers of kind k, come of them; c is the cost of a choice and m its bytes:

K1. Linear, at any lambda: own + sum_k n_k min_s (c_s + lambda m_s) - lambda (capacity - least w).
K2. By transient, as in `planner.ilp.stage_knapsack`: of packings whose largest transient of a block
is w,
    with those choices alone that have no more,
    own + sum_k n_k min_s (c_s + lambda m_s) - lambda (capacity - w) + the least that a layer with w
    itself costs beyond the least of its kind, and inf where the leanest of them do not fit; the
    largest over lambda is a bound of such packings, and the least of these over w one of all.

Crowd ways: how loads make up the chain, for many instances with the same loads at once.

A state is an instance with what its first ranks hold together: a place along the chain where cuts
decide or only the number of blocks matters, layers of every kind otherwise.

Crowd: which of many configurations have no plan below their limits, all at once.

With a limit Z on the step, the fills S, the largest pace rho T, the largest end U and the largest
omega W of any plan below it, S + max(W, rho T + U) < Z. Each is bounded from what loads cost on
every rank (Stack), by what ranks can hold together; in turn the bounds leave fewer
loads and fewer choices:

G1. A rank's omega is at most Z - S, its pace Z - S - U, its end Z - S - rho T, and its fill what
    the least fills of the others leave.
G2. What a rank holds of anything, in layers of a kind or in all, is no less than what the others
    leave at their most, and no more than what they leave at their least.
G3. A choice is in no such plan if one layer of it, beside the least of all that its rank surely
    holds, exceeds a limit of G1 or the memory.
G4. Over all ways in which loads make up the chain, the least maxima of pace, end and omega, and the
    least sum of fills, by dynamic programming (Crowd ways).
"""

from __future__ import annotations

from collections.abc import Sequence
from dataclasses import dataclass, field, fields, replace
from functools import cached_property, lru_cache
from typing import Any

import numpy as np

from planner.cost.configuration import Booleans, Floats, Integers
from planner.ilp.instance import Instance
from planner.ilp.lagrangian_bound import everything
from planner.ilp.settings import (
    JOINT_CELLS,
    JOINT_LOADS,
    JOINT_MEMORY_PRICES,
    JOINT_MOVES,
    JOINT_ROUNDS,
    JOINT_SUMMED_LOADS,
    JOINT_TURNS,
    LAYOUTS_KEPT,
    MEMORY_PRICES,
    NEVER,
    ROUNDING,
    STACKED_CELLS,
)
from planner.ilp.stage_loads import loads_of


@dataclass(frozen=True, slots=True, kw_only=True)
class Layers:
    """Choices of layers on members, each [columns]; `kind` counts free kinds, or pinned ones."""

    member: Integers
    kind: Integers
    pace: Floats
    fill: Floats
    end: Floats
    memory: Floats
    transient: Floats
    host: Floats

    @staticmethod
    def of(instances: Sequence[Instance], kinds: Sequence[int]) -> Layers:
        """Return the choices of some kinds of all instances."""
        parts: dict[str, list[Any]] = {each.name: [] for each in fields(Layers)}
        for place, instance in enumerate(instances):
            ranks = np.arange(instance.stage_count) + place * instance.stage_count
            for number, k in enumerate(kinds):
                kind = instance.kinds[k]
                rows = slice(None) if kind.pinned_stage is None else [kind.pinned_stage]
                choices = len(kind.choice)
                parts["member"].append(np.repeat(ranks[rows], choices))
                parts["kind"].append(np.full(len(parts["member"][-1]), number))
                for name in ("pace", "fill", "end", "memory", "transient", "host"):
                    parts[name].append(getattr(kind, name)[rows].ravel())
        return Layers(**{name: np.concatenate(each) for name, each in parts.items()})

    def taken(self, places: Integers | Booleans) -> Layers:
        """Return some of the columns."""
        return Layers(**{each.name: getattr(self, each.name)[places] for each in fields(Layers)})


@dataclass(frozen=True, slots=True, kw_only=True)
class Cost:
    """What choices cost, free and pinned ones [columns], and members by themselves [members]."""

    free: Floats
    pinned: Floats
    own: Floats


@dataclass(frozen=True, slots=True, kw_only=True)
class Prices:
    """A cost with memory priced, of a layer and of a member without one.

    `least` [members, kinds, transients, prices] is of a layer whose transient is no larger, and
    `offset` [members, transients, prices] of a member. `beyond` [columns, prices] is what choices
    cost beyond the least of their kind, free ones and pinned ones.
    """

    least: Floats
    offset: Floats
    beyond: tuple[Floats, Floats]

    def linear(self, loads: Integers) -> Floats:
        """Return K1 of `loads` [loads, kinds], [members, loads], where all transients are eased."""
        number = np.ascontiguousarray(loads.T, dtype=np.float64)
        most = np.full((len(self.offset), len(loads)), -np.inf)
        for price in range(self.offset.shape[2]):
            cost = self.least[:, :, 0, price] @ number
            cost += self.offset[:, :, price]
            np.maximum(most, cost, out=most)
        return most

    def by_transient(self, member: int, loads: Floats) -> Floats:
        """Return K2 of loads [loads, kinds] on a member, [loads, transients], fit or not."""
        least, offset = self.least[member], self.offset[member]
        beside = np.ascontiguousarray(np.swapaxes(least, 1, 2)).reshape(len(least), -1)
        cost = loads @ beside
        cost += offset.T.ravel()
        most: Floats = cost.reshape(len(loads), offset.shape[1], len(offset)).max(axis=1)
        return most


@dataclass(frozen=True, kw_only=True, eq=False)
class Stack:
    """Members in the order of instances and ranks, each [members]; `shape` is how many of both.

    `free` are choices of blocks, `pinned` of the others; `counts` are the blocks of each kind.
    """

    shape: tuple[int, int]
    free: Layers
    pinned: Layers
    repeats: Floats
    pace: Floats
    fill: Floats
    end: Floats
    room: Floats
    host_room: Floats
    counts: Integers
    multiples: Floats

    @staticmethod
    def of(instances: Sequence[Instance]) -> Stack:
        """Return the ranks of instances that have the same loads."""
        first = instances[0]
        pinned = [k for k in range(len(first.kinds)) if k not in first.free_kinds]
        capacity = _joined(instances, "capacity_bytes")
        return Stack(
            shape=(len(instances), first.stage_count),
            free=Layers.of(instances, first.free_kinds),
            pinned=Layers.of(instances, pinned),
            repeats=np.repeat([each.repeat_count for each in instances], first.stage_count),
            pace=_joined(instances, "stage_pace"),
            fill=_joined(instances, "stage_fill"),
            end=_joined(instances, "stage_end"),
            room=capacity * (1.0 + ROUNDING) - _joined(instances, "stage_bytes"),
            host_room=_joined(instances, "host_capacity_bytes") * (1.0 + ROUNDING),
            counts=np.array([first.kinds[k].count for k in first.free_kinds]),
            multiples=MEMORY_PRICES,
        )

    def of_rows(self, rows: Integers, is_dead: tuple[Booleans, Booleans]) -> Stack:
        """Return some of the instances without some choices, free and pinned ones [columns]."""
        ranks = self.shape[1]
        members = (rows[:, None] * ranks + np.arange(ranks)).ravel()
        number = np.full(len(self.room), -1)
        number[members] = np.arange(len(members))
        free, pinned = (
            replace(own, member=number[own.member])
            for own in (
                layers.taken(~dead & (number[layers.member] >= 0))
                for layers, dead in zip((self.free, self.pinned), is_dead, strict=True)
            )
        )
        alone = ("repeats", "pace", "fill", "end", "room", "host_room")
        return Stack(
            shape=(len(rows), ranks),
            free=free,
            pinned=pinned,
            counts=self.counts,
            multiples=self.multiples,
            **{name: getattr(self, name)[members] for name in alone},
        )

    def eased(self) -> Stack:
        """Return the stack with the least transient of a member for all its blocks: K2 is K1."""
        free = self.free
        least = np.full(len(self.room), np.inf)
        np.minimum.at(least, free.member, free.transient)
        lowered = replace(free, transient=least[free.member])
        return replace(self, free=lowered, multiples=JOINT_MEMORY_PRICES)

    def leanest(self) -> Floats:
        """Return the least bytes of a layer, [members, kinds]."""
        return np.asarray(self._leanest[0][:, :, -1])

    def paces(self) -> Cost:
        """Return rho tau."""
        repeats = self.repeats
        return Cost(
            free=repeats[self.free.member] * self.free.pace,
            pinned=repeats[self.pinned.member] * self.pinned.pace,
            own=repeats * self.pace,
        )

    def ends(self) -> Cost:
        """Return u."""
        return Cost(free=self.free.end, pinned=self.pinned.end, own=self.end)

    def fills(self) -> Cost:
        """Return phi."""
        return Cost(free=self.free.fill, pinned=self.pinned.fill, own=self.fill)

    def both(self) -> Cost:
        """Return omega = rho tau + u."""
        pace, end = self.paces(), self.ends()
        return Cost(
            free=pace.free + end.free, pinned=pace.pinned + end.pinned, own=pace.own + end.own
        )

    def priced(self, cost: Cost) -> Prices:
        """Return a cost with memory priced."""
        free, pinned = self.free, self.pinned
        paid = self._scale(cost)[:, None] * self.multiples
        each = cost.free[:, None] + paid[free.member] * free.memory[:, None]
        own = self._least_at(each)
        least = np.minimum.accumulate(own, axis=2)
        alone = np.repeat(cost.own[:, None], len(self.multiples), axis=1)
        edges = cost.pinned[:, None] + paid[pinned.member] * pinned.memory[:, None]
        if len(pinned.member):
            least_edges = self._least_pinned(edges)
            alone += least_edges.sum(axis=0)
            edges = edges - least_edges[pinned.kind, pinned.member]
        offset = alone[:, None] - paid[:, None] * self._rooms[:, :, None]
        offset += (own - least).min(axis=1)
        return Prices(
            least=least,
            offset=offset,
            beyond=(each - least[free.member, free.kind, -1], edges),
        )

    def fits(self, loads: Integers) -> Booleans:
        """Return whether the leanest choices of `loads` [loads, kinds] fit, [members, loads]."""
        found = np.zeros((len(self.room), len(loads)), dtype=bool)
        rooms, host_rooms = self._free_rooms
        for level in range(self._rooms.shape[1]):
            held, host = (
                np.einsum("lk,mk->ml", loads, lean[:, :, level]) for lean in self._leanest
            )
            found |= (held <= rooms[:, level, None]) & (host <= host_rooms[:, None])
        return found

    def tables(self, prices: Sequence[Prices], member: Integers, loads: Integers) -> list[Floats]:
        """Return K2 of loads [loads, kinds] on a member each at all prices, [loads] each.

        The loads of a member follow one another.
        """
        found, number = [np.empty(len(loads)) for _ in prices], loads.astype(np.float64)
        size = max(STACKED_CELLS // prices[0].offset[0].size, 1)
        ends = np.append(np.flatnonzero(np.diff(member)) + 1, len(member)).tolist()
        start = 0
        for end in ends:
            for first in range(start, end, size):
                part = slice(first, min(first + size, end))
                own, some = int(member[first]), number[part]
                fits = self._fits(own, some)
                for one, each in zip(found, prices, strict=True):
                    least = np.where(fits, each.by_transient(own, some), np.inf).min(axis=1)
                    one[part] = np.where(least < NEVER / 2.0, least, np.inf)
            start = end
        return found

    def _fits(self, member: int, loads: Floats) -> Booleans:
        """Return whether the leanest choices of loads [loads, kinds] fit, [loads, transients]."""
        held, host = (loads @ lean[member] for lean in self._leanest)
        rooms, host_rooms = self._free_rooms
        return np.asarray((held <= rooms[member]) & (host <= host_rooms[member]))

    @cached_property
    def _levels(self) -> tuple[Integers, Floats]:
        """Return the place of every column's transient among its member's, and these.

        Shapes are [columns] and [members, transients]; where there are fewer, the last is repeated.
        """
        free = self.free
        order = np.lexsort((free.transient, free.member))
        member, transient = free.member[order], free.transient[order]
        is_first = np.diff(member, prepend=-1) != 0
        count = np.cumsum(is_first | (np.diff(transient, prepend=-1.0) != 0.0)) - 1
        starts = np.maximum.accumulate(np.where(is_first, count, 0))
        level = np.empty_like(count)
        level[order] = count - starts
        transients = np.zeros((len(self.room), int(level.max(initial=0)) + 1))
        transients[free.member, level] = free.transient
        return level, np.maximum.accumulate(transients, axis=1)

    @cached_property
    def _cells(self) -> tuple[Integers, Integers, Integers]:
        """Return columns by member, kind and transient, where each cell begins, and the cells."""
        level, transients = self._levels
        cell = (self.free.member * len(self.counts) + self.free.kind) * transients.shape[1] + level
        order, starts = _sorted(cell)
        return order, starts, cell[order][starts]

    def _least_at(self, values: Floats) -> Floats:
        """Return the least of values [columns, ...] by member, kind and transient itself."""
        order, starts, cells = self._cells
        shape = (len(self.room), len(self.counts), self._levels[1].shape[1])
        table = np.full((int(np.prod(shape)), *values.shape[1:]), NEVER)
        if len(cells):
            table[cells] = np.minimum.reduceat(values[order], starts, axis=0)
        return table.reshape(*shape, *values.shape[1:])

    def _least_pinned(self, values: Floats) -> Floats:
        """Return the least of values [columns, ...] of each pinned layer, 0 where it is not.

        Shape [pinned kinds, members, ...].
        """
        members, (order, starts, cells) = len(self.room), self._pinned_sorted
        found = np.zeros(((int(self.pinned.kind.max()) + 1) * members, *values.shape[1:]))
        found[cells] = np.minimum.reduceat(values[order], starts, axis=0)
        return found.reshape(-1, members, *values.shape[1:])

    @cached_property
    def _pinned_sorted(self) -> tuple[Integers, Integers, Integers]:
        """Return pinned columns by layer and member, where each of these begins, and its place."""
        cell = self.pinned.kind * len(self.room) + self.pinned.member
        order, starts = _sorted(cell)
        return order, starts, cell[order][starts]

    @cached_property
    def _rooms(self) -> Floats:
        """Return the bytes left for blocks beside each transient, [members, transients]."""
        transients, room = self._levels[1], self.room
        if len(self.pinned.member):
            pinned = self._least_pinned(self.pinned.transient).max(axis=0)
            transients = np.maximum(transients, pinned[:, None])
        return np.asarray(room[:, None] - transients)

    @cached_property
    def _free_rooms(self) -> tuple[Floats, Floats]:
        """Return bytes left beside pinned layers, [members, transients], and those of the host."""
        if not len(self.pinned.member):
            return self._rooms, self.host_room
        held, host = (
            self._least_pinned(values).sum(axis=0)
            for values in (self.pinned.memory, self.pinned.host)
        )
        return self._rooms - held[:, None], self.host_room - host

    @cached_property
    def _leanest(self) -> tuple[Floats, Floats]:
        """Return the least bytes, and host bytes, of a layer, [members, kinds, transients]."""
        held, host = (
            np.minimum.accumulate(self._least_at(values), axis=2)
            for values in (self.free.memory, self.free.host)
        )
        return held, host

    def _scale(self, cost: Cost) -> Floats:
        """Return the blocks' range of costs over that of bytes, [members]: a price of memory."""
        costs, held = self._range(cost.free), self._memory_range
        return np.divide(costs, held, out=np.zeros_like(costs), where=held > 0.0)

    @cached_property
    def _memory_range(self) -> Floats:
        return self._range(self.free.memory)

    def _range(self, values: Floats) -> Floats:
        """Return the most less the least of values [columns] over all blocks, [members]."""
        order, starts = self._kinds_sorted
        ordered, span = values[order], np.zeros(len(self.room) * len(self.counts))
        if len(starts):
            cells = (self.free.member * len(self.counts) + self.free.kind)[order][starts]
            most, least = (own.reduceat(ordered, starts) for own in (np.maximum, np.minimum))
            span[cells] = most - least
        return np.asarray(span.reshape(len(self.room), -1) @ self.counts)

    @cached_property
    def _kinds_sorted(self) -> tuple[Integers, Integers]:
        """Return columns by member and kind, and where each of these begins."""
        return _sorted(self.free.member * len(self.counts) + self.free.kind)


def _joined(instances: Sequence[Instance], name: str) -> Floats:
    return np.concatenate([getattr(each, name) for each in instances])


def _sorted(cell: Integers) -> tuple[Integers, Integers]:
    """Return an order by cell, and where in it each cell begins."""
    order = np.argsort(cell, kind="stable")
    return order, np.flatnonzero(np.diff(cell[order], prepend=-1))


@dataclass(frozen=True, slots=True, kw_only=True)
class Layout:
    """What ranks may hold: `loads` [loads, kinds] in all, `allowed` [ranks, loads] on each.

    Where places along the chain are states, `between` [blocks + 1, blocks + 1] is the load from one
    to another, -1 where there is none.
    """

    loads: Integers
    allowed: Booleans
    counts: Integers
    between: Integers | None


@dataclass(frozen=True, slots=True, kw_only=True)
class _States:
    """States by the row of their instance, each [states]."""

    row: Integers
    state: Integers


@dataclass(frozen=True, slots=True, kw_only=True)
class _Step:
    """Moves of one rank, sorted by the state reached; `cell` are places in tables, raveled."""

    before: Integers
    after: Integers
    cell: Integers
    starts: Integers


@dataclass(frozen=True, slots=True, kw_only=True)
class Ways:
    """The moves of all ranks on whole ways; `ended` are the rows that have one."""

    rows: int
    steps: tuple[_Step, ...]
    ended: Integers

    def least_maximum(self, table: Floats) -> Floats:
        """Return the least maximum of a table [rows, ranks, loads], [rows], inf without a way."""
        flat, reached = table.ravel(), np.full(len(self.ended), -np.inf)
        for step in self.steps:
            most = np.maximum(reached[step.before], flat[step.cell])
            reached = np.minimum.reduceat(most, step.starts)
        return self._by_row(reached)

    def sums_through(self, table: Floats) -> tuple[Floats, Floats]:
        """Return the least sum [rows], and the least with each load [rows, ranks, loads]."""
        flat, before = table.ravel(), [np.zeros(len(self.ended))]
        for step in self.steps:
            sums = before[-1][step.before] + flat[step.cell]
            before.append(np.minimum.reduceat(sums, step.starts))
        through, behind = np.full(flat.shape, np.inf), np.zeros(len(self.ended))
        for step, reached in zip(reversed(self.steps), reversed(before[:-1]), strict=True):
            left = flat[step.cell] + behind[step.after]
            np.minimum.at(through, step.cell, reached[step.before] + left)
            behind = np.full(len(reached), np.inf)
            np.minimum.at(behind, step.before, left)
        return self._by_row(before[-1]), through.reshape(table.shape)

    def _by_row(self, values: Floats) -> Floats:
        found = np.full(self.rows, np.inf)
        found[self.ended] = values
        return found


@dataclass(frozen=True, slots=True)
class Likeness:
    """What instances share whose ranks may have the same loads; `instance` is any of them."""

    holders: tuple[int, ...]
    chain: tuple[tuple[int, int], ...]
    free_kinds: tuple[int, ...]
    instance: Instance = field(compare=False)

    @staticmethod
    def of(instance: Instance) -> Likeness:
        """Return what an instance shares with others."""
        return Likeness(instance.holders, instance.chain, instance.free_kinds, instance)


@lru_cache(maxsize=LAYOUTS_KEPT)
def layout_of(likeness: Likeness) -> Layout | None:
    """Return what ranks of such instances may hold, None where that is too much."""
    instance = likeness.instance
    by_rank = loads_of(instance, everything(instance), most=JOINT_LOADS * instance.stage_count)
    if by_rank is None:
        return None
    every = sorted(set().union(*by_rank))
    if len(every) > JOINT_LOADS:
        return None
    number = {load: place for place, load in enumerate(every)}
    allowed = np.zeros((len(by_rank), len(every)), dtype=bool)
    for rank, own in enumerate(by_rank):
        allowed[rank, [number[load] for load in own]] = True
    between = _between(instance, number)
    if between is None and allowed.sum() > JOINT_SUMMED_LOADS:
        return None
    return Layout(
        loads=np.array(every, dtype=np.int64),
        allowed=allowed,
        counts=np.array([instance.kinds[k].count for k in instance.free_kinds]),
        between=between,
    )


def _between(instance: Instance, number: dict[tuple[int, ...], int]) -> Integers | None:
    """Return the load between every two places, None where places do not say enough."""
    if not (instance.is_in_order or len(instance.free_kinds) == 1):
        return None
    blocks = instance.block_count
    prefix = instance.prefix_counts[:, list(instance.free_kinds)].tolist()
    between = np.full((blocks + 1, blocks + 1), -1, dtype=np.int64)
    for start in range(blocks):
        for end in range(start + 1, blocks + 1):
            load = tuple(b - a for a, b in zip(prefix[start], prefix[end], strict=True))
            between[start, end] = number.get(load, -1)
    return between


def ways_of(layout: Layout, mask: Booleans) -> Ways | None:
    """Return all ways with loads of `mask` [rows, ranks, loads]; None where they are too many."""
    rows, ranks, count = mask.shape
    states = _States(row=np.arange(rows), state=np.zeros(rows, dtype=np.int64))
    joined = _by_sums if layout.between is None else _along
    moves = []
    for rank in range(ranks):
        found = joined(layout, mask, rank, states)
        if found is None:
            return None
        before, load, after = found
        cell = (states.row[before] * ranks + rank) * count + load
        states, reached = _numbered(states.row[before], after)
        moves.append((before, reached, cell))
    weights = 1 if layout.between is not None else _weights(layout)
    alive = np.flatnonzero(states.state == (layout.counts * weights).sum())
    return _whole(rows, moves, alive, states.row[alive])


def _along(
    layout: Layout, mask: Booleans, rank: int, states: _States
) -> tuple[Integers, Integers, Integers] | None:
    """Return the moves of a rank along the chain: the states' places, loads and places reached."""
    assert layout.between is not None  # noqa: S101 - see `ways_of`
    if len(states.row) * layout.between.shape[1] > JOINT_MOVES:
        return None
    load = layout.between[states.state]
    inside = (load >= 0) & mask[states.row[:, None], rank, load]
    before, after = np.nonzero(inside)
    return before, load[before, after], after


def _by_sums(
    layout: Layout, mask: Booleans, rank: int, states: _States
) -> tuple[Integers, Integers, Integers] | None:
    """Return the moves of a rank between sums, those whose rest the ranks behind it can hold."""
    own_row, own_load = np.nonzero(mask[:, rank])
    first = np.searchsorted(own_row, np.arange(len(mask) + 1))
    number = np.diff(first)[states.row]
    if number.sum() > JOINT_MOVES:
        return None
    before = np.repeat(np.arange(len(number)), number)
    within = np.arange(len(before)) - np.repeat(np.cumsum(number) - number, number)
    row, weights = states.row[before], _weights(layout)
    load = own_load[first[row] + within]
    after = states.state[before] + (layout.loads @ weights)[load]
    left = layout.counts - after[:, None] // weights % (layout.counts.sum() + 1)
    least, most = _behind(layout, mask, rank)
    inside = ((left >= least[row]) & (left <= most[row])).all(axis=1)
    return before[inside], load[inside], after[inside]


def _behind(layout: Layout, mask: Booleans, rank: int) -> tuple[Integers, Integers]:
    """Return the least and the most of each kind on all ranks behind one, [rows, kinds]."""
    least = np.zeros((len(mask), len(layout.counts)), dtype=np.int64)
    most = least.copy()
    for kind, total in enumerate(layout.counts.tolist()):
        held = layout.loads[:, kind]
        behind = mask[:, rank + 1 :]
        least[:, kind] = np.where(behind, held, total).min(axis=2, initial=total).sum(axis=1)
        most[:, kind] = np.where(behind, held, 0).max(axis=2, initial=0).sum(axis=1)
    return least, most


def _weights(layout: Layout) -> Integers:
    """Return numbers that make a sum of loads one number."""
    return np.asarray((layout.counts.sum() + 1) ** np.arange(len(layout.counts)))


def _numbered(row: Integers, state: Integers) -> tuple[_States, Integers]:
    """Return the different states by row, and which each one is."""
    width = int(state.max(initial=0)) + 1
    names, places = np.unique(row * width + state, return_inverse=True)
    return _States(row=names // width, state=names % width), places


def _whole(
    rows: int,
    moves: Sequence[tuple[Integers, Integers, Integers]],
    alive: Integers,
    ended: Integers,
) -> Ways:
    """Return the ways of moves that lead to the last states `alive`, of the rows `ended`."""
    steps = []
    for before, after, cell in reversed(moves):
        place = np.full(int(max(after.max(initial=0), alive.max(initial=0))) + 1, -1)
        place[alive] = np.arange(len(alive))
        kept = np.flatnonzero(place[after] >= 0)
        reached = place[after[kept]]
        order = np.argsort(reached, kind="stable")
        alive, first = np.unique(before[kept], return_inverse=True)
        steps.append(
            _Step(
                before=first[order],
                after=reached[order],
                cell=cell[kept][order],
                starts=np.flatnonzero(np.diff(reached[order], prepend=-1)),
            )
        )
    return Ways(rows=rows, steps=tuple(reversed(steps)), ended=ended)


_NAMES = ("fill", "pace", "end", "both")


@dataclass(frozen=True, slots=True, kw_only=True)
class Parts:
    """Of the fills, the largest pace, the largest end and the largest omega, what is known."""

    fill: Floats
    pace: Floats
    end: Floats
    both: Floats

    def rest(self) -> Floats:
        """Return the bound of all but the fills, where these are bounds [rows]."""
        return np.asarray(np.maximum(self.both, self.pace + self.end))

    def step(self) -> Floats:
        """Return the bound of the step, where these are bounds [rows]."""
        return np.asarray(self.fill + self.rest())

    def raised(self, **found: Floats) -> Parts:
        """Return bounds that are no less than some others."""
        return replace(
            self, **{name: np.maximum(getattr(self, name), own) for name, own in found.items()}
        )


@dataclass(slots=True, kw_only=True)
class _Left:
    """What plans below the `limits` [rows] may have: loads in `mask` [rows, ranks, loads].

    `parts` are bounds of them, [rows]. `measures` [rows, measures, loads] is what G2 counts of
    loads, `totals` [rows, measures] of the chain.
    """

    limits: Floats
    mask: Booleans
    parts: Parts
    measures: Floats
    totals: Floats

    @staticmethod
    def of(limits: Floats, mask: Booleans, measured: tuple[Floats, Floats]) -> _Left:
        """Return all plans."""
        none = np.zeros(len(limits))
        parts = Parts(fill=none, pace=none, end=none, both=none)
        measures, totals = measured
        return _Left(limits=limits, mask=mask, parts=parts, measures=measures, totals=totals)

    def of_rows(self, rows: Integers) -> _Left:
        """Return what is left of some rows."""
        parts = Parts(**{name: getattr(self.parts, name)[rows] for name in _NAMES})
        return _Left(
            limits=self.limits[rows],
            mask=self.mask[rows],
            parts=parts,
            measures=self.measures[rows],
            totals=self.totals[rows],
        )

    def is_open(self) -> Booleans:
        """Return which rows may have a plan, [rows]."""
        return np.asarray(self.parts.step() < self.limits)

    def most(self) -> Parts:
        """Return G1, [rows] each: the fill's is what is left for all ranks."""
        eased, known = self.limits * (1.0 + ROUNDING), self.parts
        room = eased - known.fill
        return Parts(
            fill=eased - known.rest(), pace=room - known.end, end=room - known.pace, both=room
        )

    def limit(self, tables: Parts) -> None:
        """Leave the loads that keep G1 alone, and bound the parts by each rank's least."""
        least = {name: self._least(getattr(tables, name)) for name in _NAMES}
        fill = least.pop("fill")
        highest = {name: own.max(axis=1) for name, own in least.items()}
        self.parts = self.parts.raised(fill=fill.sum(axis=1), **highest)
        others = fill.sum(axis=1, keepdims=True) - fill
        self._keep(tables, tables.fill + others[:, :, None])

    def _keep(self, tables: Parts, through: Floats) -> None:
        """Leave the loads that keep G1: `through` [rows, ranks, loads] is a sum of all fills."""
        most = self.most()
        self.mask &= through <= most.fill[:, None, None]
        for name in _NAMES[1:]:
            self.mask &= getattr(tables, name) <= getattr(most, name)[:, None, None]

    def _least(self, table: Floats) -> Floats:
        """Return the least of each rank, the limit where it has no load, [rows, ranks]."""
        least = np.where(self.mask, table, np.inf).min(axis=2)
        return np.where(np.isfinite(least), least, self.limits[:, None])

    def share(self) -> None:
        """Leave the loads that keep G2."""
        for place in range(self.measures.shape[1]):
            own, total = self.measures[:, place, None], self.totals[:, place, None]
            most = np.where(self.mask, own, 0.0).max(axis=2)
            least = np.where(self.mask, own, np.inf).min(axis=2)
            least = np.where(np.isfinite(least), least, 0.0)
            rounding = ROUNDING * total
            fewest = total - (most.sum(axis=1, keepdims=True) - most) - rounding
            largest = total - (least.sum(axis=1, keepdims=True) - least) + rounding
            self.mask &= (own >= fewest[:, :, None]) & (own <= largest[:, :, None])

    def follow(self, ways: Ways, tables: Parts) -> None:
        """Bound the parts over all ways (G4), and leave the loads of those that keep G1."""
        own = {name: np.where(self.mask, getattr(tables, name), np.inf) for name in _NAMES}
        fill, through = ways.sums_through(own.pop("fill"))
        found = {name: ways.least_maximum(table) for name, table in own.items()} | {"fill": fill}
        self.parts = self.parts.raised(
            **{n: np.where(np.isfinite(v), v, self.limits) for n, v in found.items()}
        )
        self._keep(tables, through)


def bounds_below(instances: Sequence[Instance], limits: Sequence[float]) -> Floats:
    """Return a number for each instance that no plan below its limit is below, the limit at most.

    It is 0 where nothing is known. Limits are finite.
    """
    bounds, most = np.zeros(len(instances)), np.array(limits, dtype=np.float64)
    alike: dict[Likeness, list[int]] = {}
    for place, instance in enumerate(instances):
        alike.setdefault(Likeness.of(instance), []).append(place)
    for likeness, places in alike.items():
        layout = layout_of(likeness)
        if layout is None:
            continue
        size = max(JOINT_CELLS // (12 * layout.allowed.size), 1)
        for start in range(0, len(places), size):
            own = places[start : start + size]
            bounds[own] = _bounds([instances[place] for place in own], layout, most[own])
    return bounds


def _bounds(instances: Sequence[Instance], layout: Layout, limits: Floats) -> Floats:
    """Return the bounds of instances with one layout, [rows]."""
    stack, loads = Stack.of(instances), layout.loads
    shape, eased = (len(instances), *layout.allowed.shape), stack.eased()
    prices = _priced(eased)
    linear = Parts(**{name: own.linear(loads).reshape(shape) for name, own in prices.items()})
    mask = layout.allowed & eased.fits(loads).reshape(shape)
    left = _Left.of(limits, mask, _measured(eased, prices["both"], layout))
    for _ in range(JOINT_ROUNDS):
        left.limit(linear)
        left.share()
    bounds, rows = np.minimum(left.parts.step(), limits), np.arange(len(limits))
    for _ in range(JOINT_TURNS):
        own = np.flatnonzero(left.is_open())
        if not len(own):
            break
        is_dead = _is_dead(stack, prices, left, layout)
        rows, stack, left = rows[own], stack.of_rows(own, is_dead), left.of_rows(own)
        prices = _priced(stack)
        _follow(stack, prices, left, layout)
        bounds[rows] = np.minimum(left.parts.step(), left.limits)
    return bounds


def _follow(stack: Stack, prices: dict[str, Prices], left: _Left, layout: Layout) -> None:
    """Bound what is left by every load's transients, and over all ways."""
    tables = _tables(stack, prices, left.mask, layout)
    for _ in range(JOINT_ROUNDS):
        left.limit(tables)
        left.share()
    ways = ways_of(layout, left.mask & left.is_open()[:, None, None])
    if ways is not None:
        for _ in range(JOINT_ROUNDS):
            left.follow(ways, tables)


def _priced(stack: Stack) -> dict[str, Prices]:
    """Return what layers cost with memory priced, by part."""
    costs = (stack.fills(), stack.paces(), stack.ends(), stack.both())
    return {name: stack.priced(cost) for name, cost in zip(_NAMES, costs, strict=True)}


def _tables(stack: Stack, prices: dict[str, Prices], mask: Booleans, layout: Layout) -> Parts:
    """Return what the loads of a mask cost at the least, inf elsewhere."""
    row, rank, load = np.nonzero(mask)
    member, held = row * mask.shape[1] + rank, layout.loads[load]
    found = {}
    tables = stack.tables(list(prices.values()), member, held)
    for name, least in zip(prices, tables, strict=True):
        found[name] = np.full(mask.shape, np.inf)
        found[name][row, rank, load] = least
    return Parts(**found)


def _measured(stack: Stack, prices: Prices, layout: Layout) -> tuple[Floats, Floats]:
    """Return what G2 counts of loads, [rows, measures, loads], and of the whole chain.

    They are the blocks, those of each kind, and what these cost and hold at the least anywhere.
    """
    kinds = len(layout.counts)
    shape = (*stack.shape, kinds)
    omega = prices.least[:, :, -1, 0].reshape(shape).min(axis=1)
    held = stack.leanest().reshape(shape).min(axis=1)
    plain = np.broadcast_to(
        np.vstack([np.ones(kinds), np.eye(kinds)]), (len(held), kinds + 1, kinds)
    )
    weights = np.concatenate([plain, omega[:, None], held[:, None]], axis=1)
    return weights @ layout.loads.T, weights @ layout.counts


def _is_dead(
    stack: Stack, prices: dict[str, Prices], left: _Left, layout: Layout
) -> tuple[Booleans, Booleans]:
    """Return the choices that G3 leaves out, free and pinned ones [columns]."""
    held = np.where(left.mask[..., None], layout.loads, layout.counts)
    sure, most = held.min(axis=2).reshape(-1, len(layout.counts)), left.most()
    free, pinned = (np.zeros(len(each.member), dtype=bool) for each in (stack.free, stack.pinned))
    for name in _NAMES[1:]:
        own, limit = prices[name], np.repeat(getattr(most, name), stack.shape[1])[:, None]
        base = own.offset[:, 0]
        surely = base + np.einsum("mk,mki->mi", sure, own.least[:, :, -1])
        rounding = ROUNDING * (np.abs(limit) + np.abs(surely) + np.abs(base))
        spare = limit - surely + rounding
        free |= (own.beyond[0] > spare[stack.free.member]).any(axis=1)
        pinned |= (own.beyond[1] > spare[stack.pinned.member]).any(axis=1)
    return free, pinned
