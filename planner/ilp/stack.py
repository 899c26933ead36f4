"""Stack: the ranks of many instances side by side, and what any load costs on each of them.

All instances have as many ranks, the same chain and the same least of blocks on a rank, so that the
loads that a rank may have are the same. A member is one rank of one instance.

Prices of memory lambda are multiples of a member's range of costs over that of bytes. Two bounds of
a load, n_k layers of kind k, come of them; c is the cost of a choice and m its bytes:

K1. Linear, at any lambda: own + sum_k n_k min_s (c_s + lambda m_s) - lambda (capacity - least w).
K2. By transient, as in `planner.ilp.knapsack`: of packings whose largest transient of a block is w,
    with those choices alone that have no more,
    own + sum_k n_k min_s (c_s + lambda m_s) - lambda (capacity - w) + the least that a layer with w
    itself costs beyond the least of its kind, and inf where the leanest of them do not fit; the
    largest over lambda is a bound of such packings, and the least of these over w one of all.
"""

from __future__ import annotations

from collections.abc import Sequence
from dataclasses import dataclass, fields, replace
from functools import cached_property
from typing import Any

import numpy as np

from planner.cost.configuration import Booleans, Floats, Integers
from planner.ilp.instance import Instance

_MULTIPLES = np.array([0.0, *(2.0**e for e in range(-6, 6))])
_FEW_MULTIPLES = _MULTIPLES[[0, 3, 5, 7, 9, 11]]
_NEVER = 1e200
_ROUNDING = 1e-9
_CELLS_MOST = 60_000  # what caches hold
_TINY = 1e-300


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
            room=capacity * (1.0 + _ROUNDING) - _joined(instances, "stage_bytes"),
            host_room=_joined(instances, "host_capacity_bytes") * (1.0 + _ROUNDING),
            counts=np.array([first.kinds[k].count for k in first.free_kinds]),
            multiples=_MULTIPLES,
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
        return replace(self, free=lowered, multiples=_FEW_MULTIPLES)

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
        size = max(_CELLS_MOST // prices[0].offset[0].size, 1)
        ends = np.append(np.flatnonzero(np.diff(member)) + 1, len(member)).tolist()
        start = 0
        for end in ends:
            for first in range(start, end, size):
                part = slice(first, min(first + size, end))
                own, some = int(member[first]), number[part]
                fits = self._fits(own, some)
                for one, each in zip(found, prices, strict=True):
                    least = np.where(fits, each.by_transient(own, some), np.inf).min(axis=1)
                    one[part] = np.where(least < _NEVER / 2.0, least, np.inf)
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
        table = np.full((int(np.prod(shape)), *values.shape[1:]), _NEVER)
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
