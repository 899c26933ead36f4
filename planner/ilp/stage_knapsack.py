"""Stage knapsack: the least cost of given layers on one rank.

Knapsack: bounds of the least cost of given layers on one rank.

    minimise   sum c_s n_s   over whole n_s >= 0, where the choices of kind k sum to its layers
    subject to sum m_s n_s + largest transient <= capacity,   sum h_s n_s <= host,
               and any further limits of the same form as host's

For a largest transient w the choices with more are left out and the capacity is less by w. At a
price lambda of memory the cost is at least sum min (c_s + lambda m_s) - lambda (capacity - w), and
the best prices are slopes of the kinds' lower hulls. A layer at least has the transient w itself:
without one the transient would be less, and the room more. So the least reduced cost of all choices
with w, what c_s + lambda m_s is beyond the least of its kind, is added to the bound.
Packing finds the least cost.

Transient bounds: what given layers cost on one rank at the least, by their largest transient.

A knapsack has a bound for each largest transient (Knapsack).

Shelf: the choices that layers of a rank may take beside those that it is filled up with.

Sets of such choices are labels (Labels), rows of numbers: the reduced cost, the cost,
the memory filled up with the bases and with the lighter ones, the layers of each kind that is used,
and what is taken of every limit that binds, filled up with the bases and with the least.

Labels: sets of layers beside those that a rank is filled up with, enumerated by reduced cost.

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

Packing: the exact least cost of given layers on one rank, a knapsack of a few equal items.

With the best price lambda of memory under a largest transient, a layer of choice s costs its
reduced cost beyond the bound of Knapsack: rc_s = c_s + lambda m_s, less the least of
its kind. One kind, the filler, has two choices a and b that cost nothing beyond it; every other
kind has one. All sets of other choices whose reduced costs fit between the bound and an upper bound
are enumerated, near ones first, and the rest is filled with a and b in closed form. A set whose
memory cannot be brought to the room for what is left of the gap is dropped on the way. So is one
without a layer that has the largest transient itself: it is looked at under a lesser one.

Packed: what is known of the packings of one load at some weights, used at others.

The least cost of a load is the least of w x over the parts x = (fill, pace, end) that its packings
may have. Where it is at least L_i at weights w_i, it is at least mu L_i at all weights w >= mu w_i,
as no part is below 0. Known packings cost w x at most. Where both meet nothing is left to look for.
"""

from __future__ import annotations

import math
from collections.abc import Callable, Sequence
from dataclasses import dataclass, field
from functools import cached_property
from typing import NamedTuple

import numpy as np

from planner.cost.configuration import Booleans, Floats, Integers
from planner.ilp.instance import Instance
from planner.ilp.settings import (
    COMPARED_FROM,
    FEW_KEPT,
    FINE_ROUNDING,
    LABELS_MOST,
    NEVER,
    ROUNDING,
    TINY,
)


@dataclass(frozen=True, slots=True, kw_only=True)
class Frame:
    """Columns by kind, and in these in the order of their transients.

    `thresholds` are all transients. The columns of one kind and transient follow one another in
    `order`: they begin at `starts`, and `cells` are their places among all kinds and thresholds.
    `members` are the columns of each kind that has some.
    """

    thresholds: Floats
    order: Integers
    starts: Integers
    cells: Integers
    members: tuple[Integers, ...]
    kind_count: int

    @staticmethod
    def of(kind: Integers, transient: Floats) -> Frame:
        """Return the frame of columns."""
        thresholds, level = np.unique(transient, return_inverse=True)
        cell = kind * len(thresholds) + level
        order = np.argsort(cell, kind="stable")
        cells, starts = np.unique(cell[order], return_index=True)
        count = int(kind.max()) + 1
        members = (np.flatnonzero(kind == k) for k in range(count))
        return Frame(
            thresholds=thresholds,
            order=order,
            starts=starts,
            cells=cells,
            members=tuple(own for own in members if len(own)),
            kind_count=count,
        )

    def least(self, values: Floats) -> Floats:
        """Return the least of `values` [columns, ...] by kind within each threshold.

        Shape [kinds, thresholds, ...]; inf where a kind has no such choice.
        """
        table = self.least_at(values)
        return np.minimum.accumulate(table, axis=1, out=table)

    def least_at(self, values: Floats) -> Floats:
        """Return the same of the choices with the transient itself alone."""
        further = values.shape[1:]
        table = np.full((self.kind_count * len(self.thresholds), *further), np.inf)
        table[self.cells] = np.minimum.reduceat(values[self.order], self.starts, axis=0)
        return table.reshape(self.kind_count, len(self.thresholds), *further)


@dataclass(frozen=True, kw_only=True)
class Knapsack:
    """Choices of all kinds side by side, each [columns]; `kind` says whose; limits in bytes.

    `further` [limits, columns] are what a layer takes of more limits, `ceilings` [limits] these.
    """

    kind: Integers
    cost: Floats
    memory: Floats
    transient: Floats
    host: Floats
    capacity: float
    host_capacity: float
    further: Floats | None = None
    ceilings: Floats | None = None
    known_frame: Frame | None = None

    @cached_property
    def frame(self) -> Frame:
        """Return the columns in the order of their transients."""
        return self.known_frame or Frame.of(self.kind, self.transient)

    @cached_property
    def taken(self) -> Floats:
        """Return what a layer takes of every limit but the memory's, [limits, columns]."""
        host = self.host[None, :]
        return host if self.further is None else np.concatenate([host, self.further])

    @cached_property
    def limits(self) -> Floats:
        """Return every limit but the memory's, eased by what rounding may add, [limits]."""
        host = np.array([self.host_capacity])
        every = host if self.ceilings is None else np.concatenate([host, self.ceilings])
        return np.asarray(every + FINE_ROUNDING * np.abs(every))

    def under(self, transient: float) -> Integers:
        """Return the columns whose transient is no larger."""
        return np.flatnonzero(self.transient <= transient)

    @property
    def thresholds(self) -> Floats:
        """Return the largest transients that a packing may have, least first."""
        return self.frame.thresholds

    @cached_property
    def prices(self) -> Floats:
        """Return lambda: 0 and the hull slopes of every kind, [prices]."""
        slopes = {0.0}
        for own in self.frame.members:
            slopes.update(hull_slopes(self.cost[own].tolist(), self.memory[own].tolist()))
        return np.array(sorted(slopes))

    @cached_property
    def least_priced(self) -> Floats:
        """Return the least c + lambda m of a layer by the largest transient allowed.

        Shape [kinds, thresholds, prices]; inf where a kind has no such choice.
        """
        least: Floats = np.minimum.accumulate(self._least_at, axis=1)
        return least

    @cached_property
    def _least_at(self) -> Floats:
        """Return the least c + lambda m of a layer with the largest transient itself."""
        return self.frame.least_at(self.cost[:, None] + self.prices[None, :] * self.memory[:, None])

    @cached_property
    def least_beyond(self) -> Floats:
        """Return the least reduced cost of a layer with the largest transient itself.

        Shape [kinds, thresholds, prices]; inf where a kind has no such choice.
        """
        own = self._least_at
        beyond = np.full_like(own, np.inf)
        np.subtract(own, self.least_priced, out=beyond, where=np.isfinite(own))
        return beyond

    def bounds(self, held: Integers) -> tuple[Floats, Floats]:
        """Return lower bounds by the largest transient, with the price of each, [thresholds]."""
        used = np.flatnonzero(held)
        room = self.capacity - self.thresholds
        total = np.tensordot(held[used].astype(np.float64), self.least_priced[used], axes=1)
        bound = total - self.prices[None, :] * room[:, None] + self.least_beyond[used].min(axis=0)
        best = bound.argmax(axis=1)
        return bound[np.arange(len(best)), best], self.prices[best]


def hull_slopes(cost: Sequence[float], memory: Sequence[float]) -> list[float]:
    """Return the slopes of the lower hull of (memory, cost), the flattest first."""
    corners: list[tuple[float, float]] = []
    slopes: list[float] = []
    for own, held in sorted(zip(cost, memory, strict=True)):
        if not corners:
            corners.append((own, held))
            continue
        if held >= corners[-1][1]:
            continue
        slope = (own - corners[-1][0]) / (corners[-1][1] - held)
        while slopes and slope <= slopes[-1]:
            slopes.pop()
            corners.pop()
            slope = (own - corners[-1][0]) / (corners[-1][1] - held)
        slopes.append(slope)
        corners.append((own, held))
    return slopes


def knapsack_of(instance: Instance, rank: int, costs: Sequence[Floats]) -> Knapsack:
    """Return the choices of a rank with its limits; `costs` are [stages, choices] by kind."""
    kinds = instance.kinds
    return Knapsack(
        kind=np.repeat(np.arange(len(kinds)), [len(kind.choice) for kind in kinds]),
        cost=np.concatenate([cost[rank] for cost in costs]),
        memory=np.concatenate([kind.memory[rank] for kind in kinds]),
        transient=np.concatenate([kind.transient[rank] for kind in kinds]),
        host=np.concatenate([kind.host[rank] for kind in kinds]),
        capacity=float(instance.capacity_bytes[rank] - instance.stage_bytes[rank]),
        host_capacity=float(instance.host_capacity_bytes[rank]),
    )


def key_of(instance: Instance, rank: int, knapsack: Knapsack) -> tuple[object, ...]:
    """Return what makes a rank's knapsack equal to another's."""
    columns = (knapsack.cost, knapsack.memory, knapsack.transient, knapsack.host)
    pinned = tuple(k for k, kind in enumerate(instance.kinds) if kind.pinned_stage == rank)
    same = tuple(column.tobytes() for column in columns)
    return (*same, pinned, knapsack.capacity, knapsack.host_capacity)


@dataclass(frozen=True, slots=True, kw_only=True)
class Reduced:
    """The choices under one largest transient, with what each costs beyond the bound.

    `columns` are places in the knapsack, of the kinds that are `held` [kinds]; `kinds` are theirs,
    and `reduced` the least reduced costs c_s + lambda m_s - min at a price lambda of memory, both
    [columns]. `bound` is of every packing, `known` of those with a layer of one of the `needed`
    columns, places in `columns`, which have the transient itself.
    """

    held: Integers
    columns: Integers
    kinds: Integers
    reduced: Floats
    room: float
    price: float
    bound: float
    known: float
    needed: Integers


@dataclass(slots=True, kw_only=True)
class TransientBounds:
    """Bounds by the largest transient, [thresholds], of layers `held` [kinds].

    `prices` are of memory, nan where nobody has asked for `price_of` a place. What is `done` is of
    no more interest.
    """

    own: Knapsack
    held: Integers
    values: Floats
    prices: Floats
    done: Booleans
    price_of: Callable[[int], float] | None = None

    @staticmethod
    def of(knapsack: Knapsack, held: Integers) -> TransientBounds:
        """Return the bounds of layers."""
        values, prices = knapsack.bounds(held)
        return TransientBounds._first(knapsack, held, values, prices)

    @staticmethod
    def known(
        knapsack: Knapsack, held: Integers, values: Floats, price_of: Callable[[int], float]
    ) -> TransientBounds:
        """Return the same from bounds that are known, and what says with which price each is."""
        bounds = TransientBounds._first(knapsack, held, values.copy(), np.full_like(values, np.nan))
        bounds.price_of = price_of
        return bounds

    @staticmethod
    def _first(
        knapsack: Knapsack, held: Integers, values: Floats, prices: Floats
    ) -> TransientBounds:
        return TransientBounds(
            own=knapsack,
            held=held,
            values=values,
            prices=prices,
            done=np.zeros(len(values), dtype=bool),
        )

    def next(self) -> int | None:
        """Return the place of the least finite bound that is not done, None where all are."""
        left = np.where(self.done, np.inf, self.values)
        place = int(left.argmin())
        return place if np.isfinite(left[place]) else None

    def _price(self, place: int) -> float:
        """Return the price of memory that a bound is with."""
        if self.price_of is not None and np.isnan(self.prices[place]):
            self.prices[place] = self.price_of(place)
        return float(self.prices[place])

    def reduced(self, place: int) -> Reduced:
        """Return the choices under the threshold at a place with their reduced costs."""
        knapsack, held = self.own, self.held
        transient = float(knapsack.thresholds[place])
        columns = knapsack.under(transient)
        columns = columns[held[knapsack.kind[columns]] > 0]
        kinds, room = knapsack.kind[columns], knapsack.capacity - transient
        price = self._best_price(place, columns, room)
        cost = knapsack.cost[columns] + price * knapsack.memory[columns]
        least = np.full(len(held), np.inf)
        np.minimum.at(least, kinds, cost)
        used = np.flatnonzero(held)
        return Reduced(
            held=held,
            columns=columns,
            kinds=kinds,
            reduced=cost - least[kinds],
            room=room,
            price=price,
            bound=float(held[used] @ least[used]) - price * room,
            known=float(self.values[place]),
            needed=np.flatnonzero(knapsack.transient[columns] == transient),
        )

    def _best_price(self, place: int, columns: Integers, room: float) -> float:
        """Return the price with the largest bound over some columns: a slope of their hulls."""
        knapsack, held = self.own, self.held
        prices, groups = [self._price(place)], []
        for kind in np.flatnonzero(held).tolist():
            own = columns[knapsack.kind[columns] == kind]
            groups.append((float(held[kind]), own))
            prices.extend(hull_slopes(knapsack.cost[own].tolist(), knapsack.memory[own].tolist()))
        tried = np.array(prices)
        bound = -tried * room
        for number, own in groups:
            priced = knapsack.cost[own][:, None] + tried[None, :] * knapsack.memory[own][:, None]
            bound += number * priced.min(axis=0)
        return float(tried[bound.argmax()])


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
        most = bases @ held + np.minimum(by_kind, by_gap) * (1.0 + ROUNDING)
        return np.flatnonzero(most > self.limits)


_REDUCED, _COST, _FULL, _LIGHT, _FIXED = 0, 1, 2, 3, 4  # as in `Shelf.start`


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
    slack = ROUNDING * gap
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
    crowd: int = COMPARED_FROM

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
        self.crowd = max(COMPARED_FROM, 2 * len(self.rows))

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
            most = np.minimum(most, (gap - rows[:, _REDUCED]) * ((1.0 + ROUNDING) / cost))
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

        Where limits bind, none is left out.
        """
        if len(self.binding):
            return np.arange(len(rows))
        used = len(self.shelf.used)
        base = float(self.shelf.held.max()) + 1.0
        layers = rows[:, _FIXED : _FIXED + used] @ base ** np.arange(used)
        order = np.lexsort((rows[:, _FULL], rows[:, _COST], layers))
        rank = np.empty(len(rows), dtype=np.int64)
        rank[np.argsort(rows[order, _FULL], kind="stable")] = np.arange(len(rows))
        group = np.cumsum(np.diff(layers[order], prepend=layers[order[0]]) != 0.0)
        place = rank - group * (len(rows) + 1)
        return np.sort(order[place <= np.minimum.accumulate(place)])


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
        less = min(float(self.less[turn]), NEVER)
        paid += np.maximum(rows[:, _LIGHT] - self.room, 0.0) * less
        return np.asarray(rows[:, _REDUCED] + paid)


def _least_behind(cost: Floats, change: Floats, known: float) -> Floats:
    """Return the least cost of a byte by the columns behind each, `known` at most, [columns]."""
    rate = np.full(len(cost), np.inf)
    np.divide(cost, change, out=rate, where=change > 0.0)
    behind = np.append(rate[1:], known)[::-1]
    least: Floats = np.minimum.accumulate(behind)[::-1]
    return least


@dataclass(frozen=True, slots=True, kw_only=True)
class Packing:
    """The least cost found with its layers by column, and a lower bound: equal where proven.

    Without any packing that fits below the upper bound, `cost` is inf and there are no layers.
    """

    lower: float
    cost: float
    counts: Integers | None = None


def least_cost(
    knapsack: Knapsack,
    layers: Sequence[int],
    *,
    upper: float,
    effort: int = LABELS_MOST,
    will_do: float = -math.inf,
) -> Packing:
    """Return the cheapest packing of `layers` [kinds] if it costs less than `upper`."""
    bounds = TransientBounds.of(knapsack, np.array(layers, dtype=np.int64))
    return least_cost_within(bounds, upper=upper, effort=effort, will_do=will_do)


def least_cost_within(
    bounds: TransientBounds, *, upper: float, effort: int, will_do: float = -math.inf
) -> Packing:
    """Return the same of the layers that bounds by transient are of.

    With less `effort`, the sets of layers looked at at a time, bounds are weaker. Where one largest
    transient is not looked into to the end, the bound is what was looked at: others are looked into
    as far as that and no further, and not at all with a bound beyond, as more would not raise it.
    Nothing cheaper is looked for than what costs no more than `will_do`.
    """
    best = Packing(lower=upper, cost=float("inf"))
    lower = float("inf")
    while (place := bounds.next()) is not None:
        bound, limit = float(bounds.values[place]), min(upper, best.cost)
        if limit - bound <= FINE_ROUNDING * abs(limit):
            lower = min(lower, bound)
            break
        if bound >= lower:
            break
        bounds.done[place] = True
        at = bounds.reduced(place)
        search = _Search(own=bounds.own, at=at, effort=effort, will_do=will_do)
        found = search.run(limit, lower)
        lower = min(lower, found.lower)
        if found.cost < best.cost:
            best = found
        if best.cost <= will_do:
            lower = min(lower, bound)
            break
    return Packing(lower=min(lower, best.cost), cost=best.cost, counts=best.counts)


@dataclass(frozen=True, kw_only=True)
class _Search:
    """The enumeration under one largest transient."""

    own: Knapsack
    at: Reduced
    effort: int
    will_do: float

    def run(self, upper: float, enough: float) -> Packing:
        """Return the cheapest packing below `upper`, after a look at the bases alone.

        Nothing is looked at beyond `enough`, nor further where there were too many sets.
        """
        shelf = self._shelf()
        best = Packing(lower=upper, cost=float("inf"))
        found = self._filled(bases_alone(shelf))
        if found is not None and found.cost < best.cost:
            best = found
        looked = max(self.at.known - self.at.bound, 0.0)
        gap = (min(upper, best.cost, enough) - self.at.bound) * (1.0 + ROUNDING)
        if looked < gap and best.cost > self.will_do:
            labels, looked = labels_within(shelf, gap, most=self.effort)
            found = self._filled(labels)
            if found is not None and found.cost < best.cost:
                best = found
        gap = min(upper, best.cost, enough) - self.at.bound
        lower = min(self.at.bound + min(gap, looked), best.cost)
        if best.cost >= upper:
            return Packing(lower=lower, cost=float("inf"))
        return Packing(lower=lower, cost=best.cost, counts=best.counts)

    def _shelf(self) -> Shelf:
        """Return the choices with the free-of-charge column of each kind, and the filler's two.

        The filler has the widest pair; its corners are those beside what is left for each layer.
        """
        memory, cost = (each[self.at.columns] for each in (self.own.memory, self.own.cost))
        flat = self.at.reduced <= FINE_ROUNDING * max(float(np.abs(cost).max()), TINY)
        bases = np.zeros(len(self.at.held), dtype=np.int64)
        widest, filler, lighter = -1.0, 0, 0
        for k in np.flatnonzero(self.at.held).tolist():
            own = np.flatnonzero(flat & (self.at.kinds == k))
            heavy, light = int(own[memory[own].argmax()]), int(own[memory[own].argmin()])
            bases[k] = heavy
            width = float(memory[heavy] - memory[light]) * self.at.held[k]
            if width > widest:
                widest, filler, lighter = width, k, light
        return Shelf(
            kinds=self.at.kinds,
            cost=cost,
            memory=memory,
            taken=self.own.taken[:, self.at.columns],
            limits=self.own.limits,
            reduced=self.at.reduced,
            held=self.at.held,
            room=self.at.room,
            price=self.at.price,
            bases=bases,
            filler=filler,
            light=lighter,
            needed=self._needed(bases, lighter),
        )

    def _needed(self, bases: Integers, lighter: int) -> Integers:
        """Return the columns of which labels have one, none where a base is one of them."""
        known = {*bases[np.flatnonzero(self.at.held)].tolist(), lighter}
        return self.at.needed[:0] if known & set(self.at.needed.tolist()) else self.at.needed

    def _filled(self, labels: Labels) -> Packing | None:
        """Return the cheapest label filled up with the bases, None where none fits."""
        shelf = labels.shelf
        heavy, light = int(shelf.bases[shelf.filler]), shelf.light
        saved = float(shelf.memory[heavy] - shelf.memory[light])
        lighter, most = _needed(labels.memory() - self.at.room, saved), labels.filled()
        for place, filled in zip(labels.binding.tolist(), labels.taken(), strict=True):
            added = float(shelf.taken[place, light] - shelf.taken[place, heavy])
            over = filled - shelf.limits[place]
            lighter, most = _narrowed(over, added, lighter, most)
        fits = lighter <= most
        if not fits.any():
            return None
        lighter = np.where(fits, lighter if shelf.cost[light] >= shelf.cost[heavy] else most, 0.0)
        cost = labels.cost() + lighter * (shelf.cost[light] - shelf.cost[heavy])
        label = int(np.where(fits, cost, np.inf).argmin())
        own = labels.counts(label)
        own[heavy] -= int(lighter[label])
        own[light] += int(lighter[label])
        counts = np.zeros(len(self.own.cost), dtype=np.int64)
        counts[self.at.columns] = own
        return Packing(lower=self.at.bound, cost=float(own @ shelf.cost), counts=counts)


def _needed(over: Floats, saved: float, *, slack: float = ROUNDING) -> Floats:
    """Return how many moves that save so much each bring what is over down to 0.

    What is left over may be a `slack` of a move, which is rounding.
    """
    if saved > 0.0:
        return np.maximum(np.ceil(over / saved - slack), 0.0)
    return np.where(over > 0.0, np.inf, 0.0)


def _narrowed(over: Floats, added: float, least: Floats, most: Floats) -> tuple[Floats, Floats]:
    """Return how many moves keep a limit that is exceeded by `over`, each adding `added`.

    The limits are eased by more than rounding, so that nothing more is left over.
    """
    if added < 0.0:
        return np.maximum(least, _needed(over, -added, slack=0.0)), most
    if added > 0.0:
        return least, np.minimum(most, np.floor(-over / added))
    return np.where(over > 0.0, np.inf, least), most


@dataclass(slots=True)
class Packed:
    """Different packings of one load, [columns] each, and proven bounds of its cost.

    `weights` are of fill, pace and end, [proofs, 3], `lower` what the cost is at least with them,
    [proofs], and `limits` what the packings were held to keep, [proofs, limits].
    """

    counts: list[Integers] = field(default_factory=list)
    weights: list[Floats] = field(default_factory=list)
    limits: list[Floats] = field(default_factory=list)
    lower: list[float] = field(default_factory=list)

    def add(self, counts: Integers | None, weights: Floats, limits: Floats, lower: float) -> None:
        """Take note of a packing, if there is one, and of a bound; the last few are kept."""
        if counts is not None and not any(np.array_equal(counts, known) for known in self.counts):
            self.counts.append(counts)
        for kept, new in ((self.weights, weights), (self.limits, limits)):
            kept.append(new)
            del kept[:-FEW_KEPT]
        self.lower.append(max(lower, 0.0))
        del self.lower[:-FEW_KEPT]

    def bound(self, weights: Floats, limits: Floats) -> float:
        """Return a bound of the cost at some weights [3] of what keeps some limits [limits].

        It is 0 where nothing is known: what was proven under tighter limits is not used. Where no
        packing keeps looser ones it is inf.
        """
        if not self.lower:
            return 0.0
        holds = (limits <= np.array(self.limits)).all(axis=1)
        proven, lower = np.array(self.weights)[holds], np.array(self.lower)[holds]
        if np.isinf(lower).any():
            return float("inf")
        ratio = np.full(proven.shape, np.inf)
        np.divide(weights, proven, out=ratio, where=proven > 0.0)
        share = ratio.min(axis=1)
        return float((lower * np.where(np.isfinite(share), share, 1.0)).max(initial=0.0))
