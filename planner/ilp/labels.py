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
from functools import cached_property

import numpy as np

from planner.cost.configuration import Floats, Integers
from planner.ilp.dominance import unbeaten_by_neighbours

_NEVER = 1e200
_WHOLE = 1e-9
_COMPARED_FROM = 48
_CROWD = 512
_REDUCED, _COST, _FULL, _LIGHT, _FIXED = 0, 1, 2, 3, 4

Turn = tuple[int, Integers, Integers]
"""A column, and for each label after its turn the label before and the layers added."""


@dataclass(frozen=True, kw_only=True)
class Shelf:
    """The choices that labels are made of and what they are filled up with.

    `kinds`, `cost`, `memory` and `reduced` are [columns], `taken` [limits, columns] what a layer
    takes of the `limits` [limits] beside the memory, `held` [kinds] the layers. `bases` [kinds] are
    columns; the one of the kind `filler` can be changed for `light`, which saves memory. Labels
    have a layer of a `needed` [needed columns] one, of which none is a base, if there are any.
    """

    kinds: Integers
    cost: Floats
    memory: Floats
    taken: Floats
    limits: Floats
    reduced: Floats
    held: Integers
    room: float
    price: float
    bases: Integers
    filler: int
    light: int
    needed: Integers = field(default_factory=lambda: np.zeros(0, dtype=np.int64))

    @cached_property
    def used(self) -> Integers:
        """Return the kinds that have layers, [used kinds]."""
        return np.flatnonzero(self.held)

    @cached_property
    def place_of(self) -> dict[int, int]:
        """Return the places of the kinds among those that are used."""
        return {kind: place for place, kind in enumerate(self.used.tolist())}

    @cached_property
    def own_base(self) -> Integers:
        """Return the base of every column's kind, [columns]."""
        return self.bases[self.kinds]

    @cached_property
    def lightest(self) -> Floats:
        """Return the least that a layer of each kind takes, [limits, kinds]; 0 of absent kinds."""
        least = np.full((len(self.held), len(self.limits)), np.inf)
        np.minimum.at(least, self.kinds, self.taken.T)
        return np.where(np.isfinite(least), least, 0.0).T

    @cached_property
    def lighter(self) -> Floats:
        """Return the memory of a layer of the lighter base of each kind, [kinds]."""
        lighter = self.memory[self.bases].copy()
        lighter[self.filler] = self.memory[self.light]
        return lighter

    def start(self, binding: Integers) -> Floats:
        """Return the label of no other layers at all, [1, numbers]."""
        held = self.held[self.used].astype(np.float64)
        bases = self.bases[self.used]
        first = [0.0, held @ self.cost[bases], held @ self.memory[bases]]
        first += [held @ self.lighter[self.used], *np.zeros(len(self.used))]
        filled = self.taken[binding][:, bases] @ held
        least = self.lightest[binding][:, self.used] @ held
        return np.concatenate([first, filled, least])[None, :]

    def added(self, binding: Integers) -> Floats:
        """Return what a layer of each choice adds to the numbers of a label, [columns, numbers]."""
        taken, base = self.taken[binding], self.own_base
        one_hot = self.kinds[:, None] == self.used[None, :]
        fixed = [self.reduced, self.cost - self.cost[base], self.memory - self.memory[base]]
        fixed.append(self.memory - self.lighter[self.kinds])
        filled = taken - taken[:, base]
        least = taken - self.lightest[binding][:, self.kinds]
        return np.concatenate([np.stack(fixed), one_hot.T, filled, least]).T

    def binding(self, order: Integers, gap: float) -> Integers:
        """Return the limits that labels of some columns within the gap might exceed."""
        held = self.held[self.used].astype(np.float64)
        bases = self.taken[:, self.bases[self.used]].copy()
        swapped = self.place_of[self.filler]
        bases[:, swapped] = np.maximum(bases[:, swapped], self.taken[:, self.light])
        if not len(order):
            return np.flatnonzero(bases @ held > self.limits)
        more = np.maximum(self.taken[:, order] - self.taken[:, self.own_base[order]], 0.0)
        rate = np.full(more.shape, np.inf)
        np.divide(more, self.reduced[order], out=rate, where=self.reduced[order] > 0.0)
        by_gap = np.where(more > 0.0, rate, 0.0).max(axis=1) * gap
        by_kind = np.zeros(len(self.limits))
        for kind, number in zip(self.used.tolist(), held.tolist(), strict=True):
            own = self.kinds[order] == kind
            by_kind += number * more[:, own].max(axis=1, initial=0.0)
        most = bases @ held + np.minimum(by_kind, by_gap) * (1.0 + _WHOLE)
        return np.flatnonzero(most > self.limits)


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
        for column, before, number in reversed(self.turns):
            counts[column] += number[label]
            label = int(before[label])
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

    Where there are more than `most`, only those within a smaller gap are kept, which is returned.
    """
    order = np.argsort(shelf.reduced, kind="stable")
    known = {*shelf.bases[shelf.used].tolist(), shelf.light}
    order = np.array([c for c in order[shelf.reduced[order] <= gap].tolist() if c not in known])
    order = order.astype(np.int64)
    binding = shelf.binding(order, gap)
    walk = _Walk(shelf=shelf, binding=binding, added=shelf.added(binding))
    rows, turns = walk.start(gap)
    waste, slack = _Waste.of(shelf, order), _WHOLE * gap
    for turn, column in enumerate(order.tolist()):
        if not len(rows) or shelf.reduced[column] > gap - float(rows[:, _REDUCED].min()) + slack:
            break
        more, before, number = walk.with_layers(rows, column, gap)
        total = np.concatenate([rows, more])
        kept = (waste.reduced(total, turn) <= gap).nonzero()[0]
        if len(kept) > _COMPARED_FROM:
            kept = kept[walk.unbeaten(total[kept])]
        if len(kept) > most:
            reduced = total[kept, _REDUCED]
            gap = float(np.partition(reduced, most // 4)[most // 4])
            kept = kept[reduced < gap]
        before = np.concatenate([np.arange(len(rows)), before])[kept]
        number = np.concatenate([np.zeros(len(rows), dtype=np.int64), number])[kept]
        rows = total[kept]
        turns.append((column, before, number))
    return Labels(shelf=shelf, rows=rows, binding=binding, turns=tuple(turns)), gap


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
        for column in columns.tolist():
            before = np.append(np.arange(len(rows)), 0)
            number = np.append(np.zeros(len(rows), dtype=np.int64), 1)
            rows = np.concatenate([rows, rows[:1] + self.added[column]])
            turns.append((column, before, number))
        none = np.zeros(len(columns), dtype=np.int64)
        turns.append((int(shelf.needed[0]), none + np.arange(1, len(rows)), none))
        return rows[1:], turns

    def with_layers(
        self, rows: Floats, column: int, gap: float
    ) -> tuple[Floats, Integers, Integers]:
        """Return labels with layers of one more column, where each came from, and how many."""
        shelf = self.shelf
        kind, cost = int(shelf.kinds[column]), float(shelf.reduced[column])
        most = float(shelf.held[kind]) - rows[:, _FIXED + shelf.place_of[kind]]
        if cost > 0.0:
            most = np.minimum(most, np.floor((gap - rows[:, _REDUCED]) / cost * (1.0 + _WHOLE)))
        times = np.maximum(most, 0.0).astype(np.int64)
        before = np.arange(len(rows)).repeat(times)
        number = np.arange(1, len(before) + 1) - (times.cumsum() - times).repeat(times)
        more = rows[before] + number[:, None] * self.added[column]
        if len(self.binding):
            least = more[:, -len(self.binding) :]
            kept = (least <= shelf.limits[self.binding]).all(axis=1).nonzero()[0]
            more, before, number = more[kept], before[kept], number[kept]
        return more, before, number

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
