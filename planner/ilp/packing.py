"""Packing: the exact least cost of given layers on one rank, a knapsack of a few equal items.

With the best price lambda of memory under a largest transient, a layer of choice s costs its
reduced cost beyond the bound of `planner.ilp.knapsack`: rc_s = c_s + lambda m_s, less the least of
its kind. One kind, the filler, has two choices a and b that cost nothing beyond it; every other
kind has one. All sets of other choices whose reduced costs fit between the bound and an upper bound
are enumerated, near ones first, and the rest is filled with a and b in closed form. A set whose
memory cannot be brought to the room for what is left of the gap is dropped on the way.
"""

from __future__ import annotations

from collections.abc import Sequence
from dataclasses import dataclass, fields
from functools import cached_property

import numpy as np

from planner.cost.configuration import Floats, Integers
from planner.ilp.knapsack import Knapsack, hull_slopes

_LABELS_MOST = 3000
_ROUNDING = 1e-12
_WHOLE = 1e-9
_NEVER = 1e200
_SHARES = (1.0 / 64.0, 1.0 / 8.0, 1.0)


@dataclass(frozen=True, slots=True, kw_only=True)
class Packing:
    """The least cost found with its layers by column, and a lower bound: equal where proven.

    Without any packing that fits below the upper bound, `cost` is inf and there are no layers.
    """

    lower: float
    cost: float
    counts: Integers | None = None


def least_cost(
    knapsack: Knapsack, layers: Sequence[int], *, upper: float, effort: int = _LABELS_MOST
) -> Packing:
    """Return the cheapest packing of `layers` [kinds] if it costs less than `upper`.

    With less `effort`, the sets of layers looked at at a time, bounds are weaker.
    """
    held = np.array(layers, dtype=np.int64)
    best = Packing(lower=upper, cost=float("inf"))
    bounds, prices = knapsack.bounds(held)
    lower = float("inf")
    for place in np.argsort(bounds, kind="stable").tolist():
        bound = float(bounds[place])
        limit = min(upper, best.cost)
        if limit - bound <= _ROUNDING * abs(limit) or not np.isfinite(bound):
            lower = min(lower, bound)
            break
        found = _under(knapsack, held, place, float(prices[place]), upper=limit, effort=effort)
        lower = min(lower, found.lower)
        if found.cost < best.cost:
            best = found
    return Packing(lower=min(lower, best.cost), cost=best.cost, counts=best.counts)


@dataclass(frozen=True, slots=True, kw_only=True)
class _Labels:
    """Sets of layers other than the bases: their reduced cost, layers [labels, kinds].

    `which` [labels, columns] counts them; `taken` [labels, limits] is what they take of the limits.
    """

    reduced: Floats
    taken: Floats
    held: Integers
    which: Integers

    def of(self, rows: Integers) -> _Labels:
        """Return some of the labels."""
        return _Labels(**{field.name: getattr(self, field.name)[rows] for field in fields(self)})


def _under(
    knapsack: Knapsack, held: Integers, place: int, price: float, *, upper: float, effort: int
) -> Packing:
    """Return the cheapest packing with no transient above a threshold, given the best price."""
    transient = float(knapsack.thresholds[place])
    columns = knapsack.under(transient)
    columns = columns[held[knapsack.kind[columns]] > 0]
    kinds = knapsack.kind[columns]
    room = knapsack.capacity - transient
    price = _best_price(knapsack, columns, held, room, known=price)
    priced = knapsack.cost[columns] + price * knapsack.memory[columns]
    least = np.full(len(held), np.inf)
    np.minimum.at(least, kinds, priced)
    used = np.flatnonzero(held)
    search = _Search(
        knapsack=knapsack,
        columns=columns,
        kinds=kinds,
        reduced=priced - least[kinds],
        held=held,
        room=room,
        price=price,
        effort=effort,
        bound=float(held[used] @ least[used]) - price * room,
    )
    return search.run(upper)


def _best_price(
    knapsack: Knapsack, columns: Integers, held: Integers, room: float, *, known: float
) -> float:
    """Return the price with the largest bound over some of the columns: a slope of their hulls."""
    prices, groups = [known], []
    for kind in np.flatnonzero(held).tolist():
        own = columns[knapsack.kind[columns] == kind]
        groups.append((float(held[kind]), own))
        prices.extend(hull_slopes(knapsack.cost[own], knapsack.memory[own]))
    tried = np.array(prices)
    bound = -tried * room
    for number, own in groups:
        priced = knapsack.cost[own][:, None] + tried[None, :] * knapsack.memory[own][:, None]
        bound += number * priced.min(axis=0)
    return float(tried[bound.argmax()])


@dataclass(frozen=True, kw_only=True)
class _Search:
    """The enumeration at one price and one largest transient; arrays are [columns] of it."""

    knapsack: Knapsack
    columns: Integers
    kinds: Integers
    reduced: Floats
    held: Integers
    room: float
    price: float
    effort: int
    bound: float

    @cached_property
    def taken(self) -> Floats:
        """Return what a layer takes of the memory and of every other limit, [limits, columns]."""
        memory = self.knapsack.memory[None, self.columns]
        return np.concatenate([memory, self.knapsack.taken[:, self.columns]])

    @cached_property
    def limits(self) -> Floats:
        """Return the limits, the memory's first, [limits]."""
        room = self.room + _ROUNDING * abs(self.room)
        return np.concatenate([np.array([room]), self.knapsack.limits])

    @cached_property
    def lightest(self) -> Floats:
        """Return the least that a layer of each kind takes, [kinds, limits]; 0 of absent kinds."""
        least = np.full((len(self.held), len(self.limits)), np.inf)
        np.minimum.at(least, self.kinds, self.taken.T)
        return np.where(np.isfinite(least), least, 0.0)

    def run(self, upper: float) -> Packing:
        """Return the cheapest packing below `upper`, after a look at the bases alone."""
        bases, filler = self._bases()
        best = Packing(lower=upper, cost=float("inf"))
        found = self._filled(self._nothing(), bases, filler)
        if found is not None and found.cost < best.cost:
            best = found
        looked = 0.0
        for share in _SHARES:
            gap = (min(upper, best.cost) - self.bound) * (1.0 + _WHOLE)
            if looked >= gap:
                break
            labels, looked = self._labels(bases, filler, share * gap)
            found = self._filled(labels, bases, filler)
            if found is not None and found.cost < best.cost:
                best = found
        gap = min(upper, best.cost) - self.bound
        lower = min(self.bound + min(gap, looked), best.cost)
        if best.cost >= upper:
            return Packing(lower=lower, cost=float("inf"))
        return Packing(lower=lower, cost=best.cost, counts=best.counts)

    def _bases(self) -> tuple[list[int], tuple[int, int]]:
        """Return the free-of-charge column of each kind, and the two of the filler.

        The filler has the widest pair; its corners are those beside what is left for each layer.
        """
        flat = self.reduced <= _ROUNDING * max(float(np.abs(self._cost()).max()), 1e-300)
        memory = self.knapsack.memory[self.columns]
        bases: dict[int, int] = {}
        widest, filler = -1.0, (0, 0)
        for k in np.flatnonzero(self.held).tolist():
            own = np.flatnonzero(flat & (self.kinds == k))
            heavy, light = int(own[memory[own].argmax()]), int(own[memory[own].argmin()])
            bases[k] = heavy
            width = float(memory[heavy] - memory[light]) * self.held[k]
            if width > widest:
                widest, filler = width, (heavy, light)
        return list(bases.values()), filler

    def _cost(self) -> Floats:
        return self.knapsack.cost[self.columns]

    def _labels(
        self, bases: Sequence[int], filler: tuple[int, int], gap: float
    ) -> tuple[_Labels, float]:
        """Return all sets of other layers with a reduced cost within `gap`, or within less.

        Where there are too many, only those within a smaller gap are kept, which is returned.
        """
        labels = self._nothing()
        known = {*bases, *filler}
        order = [p for p in np.argsort(self.reduced, kind="stable").tolist() if p not in known]
        waste = self._waste(order, bases, filler)
        for turn, place in enumerate(order):
            if self.reduced[place] > gap:
                break
            labels = self._with(labels, place, gap)
            labels = labels.of(np.flatnonzero(waste.of(labels, self.held, turn) <= gap))
            if len(labels.reduced) > self.effort:
                rank = self.effort // 4
                gap = float(np.partition(labels.reduced, rank)[rank])
                labels = labels.of(np.flatnonzero(labels.reduced < gap))
        return labels, gap

    def _waste(self, order: Sequence[int], bases: Sequence[int], filler: tuple[int, int]) -> _Waste:
        """Return what labels pay for memory after each turn of `order`."""
        memory = self.taken[0]
        heaviest = np.zeros(len(self.held))
        for place in bases:
            heaviest[self.kinds[place]] = memory[place]
        lightest = heaviest.copy()
        lightest[self.kinds[filler[1]]] = memory[filler[1]]
        cost, less, more = self.reduced[list(order)], [np.inf], [self.price]
        added = memory[list(order)] - heaviest[self.kinds[list(order)]]
        saved = lightest[self.kinds[list(order)]] - memory[list(order)]
        for turn in range(len(order) - 1, 0, -1):
            rate = cost[turn] / saved[turn] if saved[turn] > 0.0 else np.inf
            less.append(min(less[-1], rate))
            rate = cost[turn] / added[turn] if added[turn] > 0.0 else np.inf
            more.append(min(more[-1], rate))
        return _Waste(
            room=self.limits[0],
            heaviest=heaviest,
            lightest=lightest,
            less=np.array(less[::-1]),
            more=np.array(more[::-1]),
        )

    def _nothing(self) -> _Labels:
        """Return the one label of no other layers at all."""
        return _Labels(
            reduced=np.zeros(1),
            taken=np.zeros((1, len(self.limits))),
            held=np.zeros((1, len(self.held)), dtype=np.int64),
            which=np.zeros((1, len(self.columns)), dtype=np.int64),
        )

    def _with(self, labels: _Labels, place: int, gap: float) -> _Labels:
        """Return the labels with any number of layers of one more column that the gap pays."""
        kind = int(self.kinds[place])
        cost = float(self.reduced[place])
        most = int(self.held[kind])
        if cost > 0.0:
            most = min(most, int(gap / cost))
        numbers = np.arange(1, most + 1)
        rows, number = np.divmod(np.arange(len(labels.reduced) * most), max(most, 1))
        number = numbers[number] if most else number
        reduced = labels.reduced[rows] + number * cost
        kept = (reduced <= gap) & (labels.held[rows, kind] + number <= self.held[kind])
        rows, number, reduced = rows[kept], number[kept], reduced[kept]
        taken = labels.taken[rows] + number[:, None] * self.taken[:, place]
        left = self.held - labels.held[rows]
        left[:, kind] -= number
        kept = (taken + left @ self.lightest <= self.limits).all(axis=1)
        rows, number = rows[kept], number[kept]
        more = labels.of(rows)
        more.held[:, kind] += number
        more.which[:, place] += number
        added = _Labels(
            reduced=reduced[kept],
            taken=taken[kept],
            held=more.held,
            which=more.which,
        )
        return _Labels(
            **{
                field.name: np.concatenate(
                    [getattr(labels, field.name), getattr(added, field.name)]
                )
                for field in fields(_Labels)
            }
        )

    def _filled(
        self, labels: _Labels, bases: Sequence[int], filler: tuple[int, int]
    ) -> Packing | None:
        """Return the cheapest label filled up with the bases, None where none fits."""
        heavy, light = filler
        which = labels.which.copy()
        left = self.held - labels.held
        for place in (place for place in bases if self.kinds[place] != self.kinds[heavy]):
            which[:, place] += left[:, self.kinds[place]]
        which[:, heavy] += left[:, self.kinds[heavy]]
        memory = self.knapsack.memory[self.columns]
        lighter = _needed(which @ memory - self.room, memory[heavy] - memory[light])
        most = left[:, self.kinds[heavy]].astype(np.float64)
        taken = self.knapsack.taken[:, self.columns]
        for own, limit in zip(taken, self.knapsack.limits.tolist(), strict=True):
            lighter, most = _narrowed(which @ own - limit, own[light] - own[heavy], lighter, most)
        fits = lighter <= most
        if not fits.any():
            return None
        lighter = np.where(fits, lighter, 0.0)
        cost = which @ self._cost() + lighter * (self._cost()[light] - self._cost()[heavy])
        place = int(np.where(fits, cost, np.inf).argmin())
        counts = np.zeros(len(self.knapsack.cost), dtype=np.int64)
        counts[self.columns] = which[place]
        counts[self.columns[heavy]] -= int(lighter[place])
        counts[self.columns[light]] += int(lighter[place])
        return Packing(lower=self.bound, cost=float(cost[place]), counts=counts)


@dataclass(frozen=True, slots=True, kw_only=True)
class _Waste:
    """What memory that is left free, or missing, costs a label at the least.

    `heaviest` and `lightest` [kinds] are the bytes of a layer that the bases fill up with; `less`
    and `more` [turns] the least reduced cost of a byte by the choices whose turn is yet to come.
    """

    room: float
    heaviest: Floats
    lightest: Floats
    less: Floats
    more: Floats

    def of(self, labels: _Labels, held: Integers, turn: int) -> Floats:
        """Return the reduced cost that labels come to at the least, [labels]."""
        left = (held - labels.held).astype(np.float64)
        free = self.room - (labels.taken[:, 0] + left @ self.heaviest)
        over = labels.taken[:, 0] + left @ self.lightest - self.room
        paid = np.maximum(free, 0.0) * self.more[turn]
        paid += np.maximum(over, 0.0) * min(float(self.less[turn]), _NEVER)
        return np.asarray(labels.reduced + paid)


def _needed(over: Floats, saved: float) -> Floats:
    """Return how many moves that save so much each bring what is over down to 0."""
    if saved > 0.0:
        return np.maximum(np.ceil(over / saved - _WHOLE), 0.0)
    return np.where(over > 0.0, np.inf, 0.0)


def _narrowed(over: Floats, added: float, least: Floats, most: Floats) -> tuple[Floats, Floats]:
    """Return how many moves keep a limit that is exceeded by `over`, each adding `added`."""
    if added < 0.0:
        return np.maximum(least, _needed(over, -added)), most
    if added > 0.0:
        return least, np.minimum(most, np.floor(-over / added + _WHOLE))
    return np.where(over > 0.0, np.inf, least), most
