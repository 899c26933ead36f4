"""Labels: sets of layers beside those that a rank is filled up with, enumerated by reduced cost.

A label stands for some layers of choices other than the bases, with the rest of every kind filled
up by its base. It is a row of numbers that grow by the same with every layer of a choice, so that
layers are added to all labels at once; which layers they are is said by the turns they came from.

What is left out cannot be part of a packing that is sought:
L1. a label whose reduced cost, with what its memory costs at the least, exceeds the gap (`_Waste`);
L2. one that exceeds a limit even if the rest of each kind takes the least of it that there is;
L3. one that another with as many layers of each kind equals or beats in cost, in memory and in what
    it takes of every limit that binds: whatever completes the one completes the other, at no more
    cost. The reduced cost is the cost and a price, not below 0, of the memory, so that the other
    is within the gap too. The other may have fewer layers: more are left to its bases then.
Where one of some choices is needed, labels begin with a layer of each.
A limit that nothing within the gap can exceed is not looked at: of the layers of each kind
no more than there are take the most, and the reduced costs of all of them fit into the gap.
"""

from __future__ import annotations

from collections.abc import Sequence
from dataclasses import dataclass, field
from typing import NamedTuple

import numpy as np

from planner.cost.configuration import Booleans, Floats, Integers
from planner.ilp.dominance import unbeaten_by_neighbours
from planner.ilp.shelf import Shelf

_NEVER = 1e200
_WHOLE = 1e-9
_COMPARED_FROM = 96
_CROWD = 512
_REDUCED, _COST, _FULL, _LIGHT, _FIXED = 0, 1, 2, 3, 4  # as in `Shelf.start`

_GROWTH = 2.0


class Turn(NamedTuple):
    """What became of labels: the first `stayed` are as they were, and those behind them new.

    Of the latter, `before` says which label each was, and `number` how many layers of the `column`
    it has more.
    """

    column: int
    stayed: int
    before: Integers
    number: Integers

    @staticmethod
    def left(kept: Integers) -> Turn:
        """Return the turn after which some labels are left."""
        return Turn(column=0, stayed=0, before=kept, number=np.zeros(len(kept), dtype=np.int64))


@dataclass(frozen=True, slots=True, kw_only=True)
class Labels:
    """Labels [labels, numbers], the limits that are among these, and the turns that made them."""

    shelf: Shelf
    rows: Floats
    binding: Integers
    turns: tuple[Turn, ...] = ()

    def cost(self) -> Floats:
        """Return the cost of labels filled up with the bases, [labels]."""
        cost: Floats = self.rows[:, _COST]
        return cost

    def memory(self) -> Floats:
        """Return the memory of labels filled up with the bases, [labels]."""
        memory: Floats = self.rows[:, _FULL]
        return memory

    def taken(self) -> Floats:
        """Return what they take of each binding limit, [binding limits, labels]."""
        first = _FIXED + len(self.shelf.used)
        taken: Floats = self.rows[:, first : first + len(self.binding)].T
        return taken

    def filled(self) -> Floats:
        """Return how many layers of the filler's kind its base fills up, [labels]."""
        place = _FIXED + self.shelf.place_of[self.shelf.filler]
        left: Floats = float(self.shelf.held[self.shelf.filler]) - self.rows[:, place]
        return left

    def counts(self, label: int) -> Integers:
        """Return the layers of a label by column, filled up with the bases, [columns]."""
        shelf = self.shelf
        counts = np.zeros(len(shelf.kinds), dtype=np.int64)
        for turn in reversed(self.turns):
            if (place := label - turn.stayed) >= 0:
                counts[turn.column] += turn.number[place]
                label = int(turn.before[place])
        left = shelf.held.copy()
        np.subtract.at(left, shelf.kinds, counts)
        for kind in shelf.used.tolist():
            counts[shelf.bases[kind]] += left[kind]
        return counts


def bases_alone(shelf: Shelf) -> Labels:
    """Return the one label of no other layers at all, under all limits."""
    every = np.arange(len(shelf.limits))
    return Labels(shelf=shelf, rows=shelf.start(every), binding=every)


def labels_within(shelf: Shelf, gap: float, *, most: int) -> tuple[Labels, float]:
    """Return all labels with a reduced cost within `gap`, or within less.

    Where there are more than `most` as they are compared, only those within a smaller gap are kept,
    which is returned.
    """
    order = np.argsort(shelf.reduced, kind="stable")
    known = {*shelf.bases[shelf.used].tolist(), shelf.light}
    columns = [c for c in order[shelf.reduced[order] <= gap].tolist() if c not in known]
    order = np.array(columns, dtype=np.int64)
    binding = shelf.binding(order, gap)
    walk = _Walk(shelf=shelf, binding=binding, added=shelf.added(binding))
    rows, turns = walk.start(gap)
    found = _Found(walk=walk, waste=_Waste.of(shelf, order), gap=gap, rows=rows, turns=turns)
    slack = _WHOLE * gap
    for place, column in enumerate(columns):
        if shelf.reduced[column] > found.gap - found.least + slack:
            break
        found.extend(column, place)
        if len(found.rows) > found.crowd:
            found.thin(place, most)
    if columns:
        found.keep(found.affordable(len(columns) - 1))
    labels = Labels(shelf=shelf, rows=found.rows, binding=binding, turns=tuple(found.turns))
    return labels, found.gap


@dataclass(slots=True, kw_only=True)
class _Found:
    """Labels that were found so far, within a gap, and the turns that made them.

    `least` is the least reduced cost of any; they are compared when they are more than a `crowd`.
    """

    walk: _Walk
    waste: _Waste
    gap: float
    rows: Floats
    turns: list[Turn]
    least: float = field(init=False)
    crowd: int = _COMPARED_FROM

    def __post_init__(self) -> None:
        """Find the least reduced cost."""
        self.least = float(self.rows[:, _REDUCED].min(initial=np.inf))

    def extend(self, column: int, place: int) -> None:
        """Add the labels with layers of one more column, at a place in their order."""
        before, number = self.walk.further(self.rows, column, self.gap)
        if not len(before):
            return
        more = self.rows.take(before, axis=0) + number[:, None] * self.walk.added[column]
        is_apt = self.waste.reduced(more, place) <= self.gap
        own = (is_apt & self.walk.keeps_limits(more)).nonzero()[0]
        if len(own):
            self.turns.append(Turn(column, len(self.rows), before[own], number[own]))
            self.rows = np.concatenate([self.rows, more[own]])

    def affordable(self, place: int) -> Integers:
        """Return the labels that are within the gap with what memory costs them (L1)."""
        return (self.waste.reduced(self.rows, place) <= self.gap).nonzero()[0]

    def thin(self, place: int, most: int) -> None:
        """Keep what nothing beats; where that is more than `most`, what is in a smaller gap."""
        kept = self.affordable(place)
        kept = kept[self.walk.unbeaten(self.rows[kept])]
        if len(kept) > most:
            reduced = self.rows[kept, _REDUCED]
            self.gap = float(np.partition(reduced, most // 4)[most // 4])
            kept = kept[reduced < self.gap]
        self.keep(kept)
        self.least = float(self.rows[:, _REDUCED].min(initial=np.inf))
        self.crowd = max(_COMPARED_FROM, int(_GROWTH * len(self.rows)))

    def keep(self, kept: Integers) -> None:
        """Keep some of the labels alone."""
        self.turns.append(Turn.left(kept))
        self.rows = self.rows[kept]


@dataclass(frozen=True, kw_only=True)
class _Walk:
    """What labels grow by, turn after turn; `added` is [columns, numbers]."""

    shelf: Shelf
    binding: Integers
    added: Floats

    def start(self, gap: float) -> tuple[Floats, list[Turn]]:
        """Return the labels with a layer of a needed column each; without any, that of none."""
        shelf, rows = self.shelf, self.shelf.start(self.binding)
        turns: list[Turn] = []
        if not len(shelf.needed):
            return rows, turns
        columns = shelf.needed[shelf.reduced[shelf.needed] <= gap]
        one, none = np.ones(1, dtype=np.int64), np.zeros(1, dtype=np.int64)
        for stayed, column in enumerate(columns.tolist(), start=1):
            rows = np.concatenate([rows, rows[:1] + self.added[column]])
            turns.append(Turn(column, stayed, none, one))
        turns.append(Turn.left(np.arange(1, len(rows))))
        return rows[1:], turns

    def further(self, rows: Floats, column: int, gap: float) -> tuple[Integers, Integers]:
        """Return which labels can have layers of one more column, and how many: all numbers."""
        shelf = self.shelf
        kind, cost = int(shelf.kinds[column]), float(shelf.reduced[column])
        most = float(shelf.held[kind]) - rows[:, _FIXED + shelf.place_of[kind]]
        if cost > 0.0:
            most = np.minimum(most, (gap - rows[:, _REDUCED]) * ((1.0 + _WHOLE) / cost))
        before = (most >= 1.0).nonzero()[0]
        times = most[before].astype(np.int64)
        if len(before) and int(times.max()) > 1:
            before = before.repeat(times)
            return before, np.arange(1, len(before) + 1) - (times.cumsum() - times).repeat(times)
        return before, times

    def keeps_limits(self, rows: Floats) -> Booleans:
        """Return which labels keep the limits, with the least of what they are filled up with."""
        if not len(self.binding):
            return np.ones(len(rows), dtype=bool)
        least = rows[:, -len(self.binding) :]
        return np.asarray((least <= self.shelf.limits[self.binding]).all(axis=1))

    def unbeaten(self, rows: Floats) -> Integers:
        """Return the labels that no other of as many layers beats, in order (L3).

        Where limits bind, it has to beat them in these too, with as many layers or fewer.
        """
        if len(self.binding):
            return self._unbeaten_within(rows)
        used = len(self.shelf.used)
        base = float(self.shelf.held.max()) + 1.0
        layers = rows[:, _FIXED : _FIXED + used] @ base ** np.arange(used)
        order = np.lexsort((rows[:, _FULL], rows[:, _COST], layers))
        rank = np.empty(len(rows), dtype=np.int64)
        rank[np.argsort(rows[order, _FULL], kind="stable")] = np.arange(len(rows))
        group = np.cumsum(np.diff(layers[order], prepend=layers[order[0]]) != 0.0)
        place = rank - group * (len(rows) + 1)
        return np.sort(order[place <= np.minimum.accumulate(place)])

    def _unbeaten_within(self, rows: Floats) -> Integers:
        """Return the labels that none near them beats in cost, limits, memory and layers."""
        if len(rows) <= _CROWD:
            return np.arange(len(rows))
        first = _FIXED + len(self.shelf.used)
        limited = rows[:, first : first + len(self.binding)]
        whole = rows[:, [_COST]], limited, rows[:, [_FULL]], rows[:, _FIXED:first]
        measures = np.concatenate(whole, axis=1).T
        return unbeaten_by_neighbours(measures, eased=1 + len(self.binding))


@dataclass(frozen=True, slots=True, kw_only=True)
class _Waste:
    """What memory that is left free, or missing, costs a label at the least.

    `less` and `more` [turns] are the least reduced cost of a byte, saved or added, by the columns
    whose turn is yet to come.
    """

    room: float
    less: Floats
    more: Floats

    @staticmethod
    def of(shelf: Shelf, order: Sequence[int] | Integers) -> _Waste:
        columns = np.asarray(order, dtype=np.int64)
        memory, reduced = shelf.memory[columns], shelf.reduced[columns]
        added = memory - shelf.memory[shelf.own_base[columns]]
        saved = shelf.lighter[shelf.kinds[columns]] - memory
        return _Waste(
            room=shelf.room,
            less=_least_behind(reduced, saved, np.inf),
            more=_least_behind(reduced, added, shelf.price),
        )

    def reduced(self, rows: Floats, turn: int) -> Floats:
        """Return the reduced cost that labels come to at the least, [labels]."""
        paid = np.maximum(self.room - rows[:, _FULL], 0.0) * self.more[turn]
        less = min(float(self.less[turn]), _NEVER)
        paid += np.maximum(rows[:, _LIGHT] - self.room, 0.0) * less
        return np.asarray(rows[:, _REDUCED] + paid)


def _least_behind(cost: Floats, change: Floats, known: float) -> Floats:
    """Return the least cost of a byte by the columns behind each, `known` at most, [columns]."""
    rate = np.full(len(cost), np.inf)
    np.divide(cost, change, out=rate, where=change > 0.0)
    behind = np.append(rate[1:], known)[::-1]
    least: Floats = np.minimum.accumulate(behind)[::-1]
    return least
