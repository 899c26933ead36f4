"""Knapsack: the exact least cost of given layers on one rank.

    minimise   sum c_s n_s   over whole n_s >= 0, where the choices of kind k sum to its layers
    subject to sum m_s n_s + largest transient <= capacity,   sum h_s n_s <= host

For a largest transient w the choices with more are left out and the capacity is less by w. With the
best price lambda of memory, a layer of choice s costs its reduced cost beyond the bound:
rc_s = c_s + lambda m_s, less the least of its kind. One kind, the filler, has two choices a and b
that cost nothing beyond it; every other kind has one. All sets of other choices whose reduced costs
fit between the bound and an upper bound are enumerated, and the rest is filled with a and b in
closed form.
"""

from __future__ import annotations

from collections.abc import Sequence
from dataclasses import dataclass, fields
from functools import cached_property

import numpy as np

from planner.cost.configuration import Floats, Integers

_LABELS_MOST = 3000
_ROUNDING = 1e-12
_WHOLE = 1e-9


@dataclass(frozen=True, kw_only=True)
class Knapsack:
    """Choices of all kinds side by side, each [columns]; `kind` says whose; limits in bytes."""

    kind: Integers
    cost: Floats
    memory: Floats
    transient: Floats
    host: Floats
    capacity: float
    host_capacity: float

    def under(self, transient: float) -> Integers:
        """Return the columns whose transient is no larger."""
        return np.flatnonzero(self.transient <= transient)

    @cached_property
    def thresholds(self) -> Floats:
        """Return the largest transients that a packing may have, least first."""
        return np.unique(self.transient)

    @cached_property
    def prices(self) -> Floats:
        """Return lambda: 0 and the hull slopes of every kind, [prices]."""
        slopes = [0.0]
        for k in np.unique(self.kind).tolist():
            own = self.kind == k
            slopes.extend(_slopes(self.cost[own], self.memory[own]))
        return np.unique(np.array(slopes))

    @cached_property
    def least_priced(self) -> Floats:
        """Return the least c + lambda m of a layer by the largest transient allowed.

        Shape [kinds, thresholds, prices]; inf where a kind has no such choice.
        """
        order = np.argsort(self.transient, kind="stable")
        ends = np.searchsorted(self.transient[order], self.thresholds, side="right") - 1
        priced = self.cost[order, None] + self.prices[None, :] * self.memory[order, None]
        tables = []
        for k in range(int(self.kind.max()) + 1):
            own = np.where((self.kind[order] == k)[:, None], priced, np.inf)
            tables.append(np.minimum.accumulate(own, axis=0)[ends])
        return np.stack(tables)

    def bounds(self, held: Integers) -> tuple[Floats, Floats]:
        """Return lower bounds by the largest transient, with the price of each, [thresholds]."""
        used = np.flatnonzero(held)
        room = self.capacity - self.thresholds
        total = np.tensordot(held[used].astype(np.float64), self.least_priced[used], axes=1)
        bound = total - self.prices[None, :] * room[:, None]
        best = bound.argmax(axis=1)
        return bound[np.arange(len(best)), best], self.prices[best]


@dataclass(frozen=True, slots=True, kw_only=True)
class Packing:
    """The least cost found with its layers by column, and a lower bound: equal where proven.

    Without any packing that fits below the upper bound, `cost` is inf and there are no layers.
    """

    lower: float
    cost: float
    counts: Integers | None = None


def least_cost(knapsack: Knapsack, layers: Sequence[int], *, upper: float) -> Packing:
    """Return the cheapest packing of `layers` [kinds] if it costs less than `upper`."""
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
        found = _under(knapsack, held, place, float(prices[place]), upper=limit)
        lower = min(lower, found.lower)
        if found.cost < best.cost:
            best = found
    return Packing(lower=min(lower, best.cost), cost=best.cost, counts=best.counts)


@dataclass(frozen=True, slots=True, kw_only=True)
class _Labels:
    """Sets of layers other than the bases: their reduced cost, bytes, layers [labels, kinds].

    `which` [labels, columns] counts them.
    """

    reduced: Floats
    memory: Floats
    host: Floats
    held: Integers
    which: Integers

    def taken(self, rows: Integers) -> _Labels:
        """Return some of the labels."""
        return _Labels(**{field.name: getattr(self, field.name)[rows] for field in fields(self)})


def _under(
    knapsack: Knapsack, held: Integers, place: int, price: float, *, upper: float
) -> Packing:
    """Return the cheapest packing with no transient above a threshold, given the best price."""
    transient = float(knapsack.thresholds[place])
    columns = knapsack.under(transient)
    columns = columns[held[knapsack.kind[columns]] > 0]
    priced = knapsack.cost[columns] + price * knapsack.memory[columns]
    kinds = knapsack.kind[columns]
    least = np.full(len(held), np.inf)
    np.minimum.at(least, kinds, priced)
    used = np.flatnonzero(held)
    room = knapsack.capacity - transient
    search = _Search(
        knapsack=knapsack,
        columns=columns,
        kinds=kinds,
        reduced=priced - least[kinds],
        held=held,
        room=room,
        bound=float(held[used] @ least[used]) - price * room,
    )
    return search.run(upper)


def _slopes(cost: Floats, memory: Floats) -> list[float]:
    """Return the slopes of the lower hull of (memory, cost)."""
    corner = int(np.lexsort((memory, cost))[0])
    slopes: list[float] = []
    while True:
        lighter = np.flatnonzero(memory < memory[corner])
        if not len(lighter):
            return slopes
        slope = (cost[lighter] - cost[corner]) / (memory[corner] - memory[lighter])
        least = slope.min()
        slopes.append(float(least))
        flat = lighter[slope <= least]
        corner = int(flat[memory[flat].argmin()])


@dataclass(frozen=True, slots=True, kw_only=True)
class _Search:
    """The enumeration at one price and one largest transient; arrays are [columns] of it."""

    knapsack: Knapsack
    columns: Integers
    kinds: Integers
    reduced: Floats
    held: Integers
    room: float
    bound: float

    def run(self, upper: float) -> Packing:
        """Return the cheapest packing below `upper`, after a look at the bases alone."""
        bases, filler = self._bases()
        best = Packing(lower=upper, cost=float("inf"))
        found = self._filled(self._nothing(), bases, filler)
        if found is not None and found.cost < best.cost:
            best = found
        gap = min(upper, best.cost) - self.bound
        labels, looked = self._labels({*bases, *filler}, gap * (1.0 + _WHOLE))
        found = self._filled(labels, bases, filler)
        if found is not None and found.cost < best.cost:
            best = found
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

    def _labels(self, bases: set[int], gap: float) -> tuple[_Labels, float]:
        """Return all sets of other layers with a reduced cost within `gap`, or within less.

        Where there are too many, only those within a smaller gap are kept, which is returned.
        """
        labels = self._nothing()
        for place in np.argsort(self.reduced, kind="stable").tolist():
            cost = float(self.reduced[place])
            if place in bases:
                continue
            if cost > gap:
                break
            labels = self._with(labels, place, gap)
            if len(labels.reduced) > _LABELS_MOST:
                rank = _LABELS_MOST // 4
                gap = float(np.partition(labels.reduced, rank)[rank])
                labels = labels.taken(np.flatnonzero(labels.reduced < gap))
        return labels, gap

    def _nothing(self) -> _Labels:
        """Return the one label of no other layers at all."""
        return _Labels(
            reduced=np.zeros(1),
            memory=np.zeros(1),
            host=np.zeros(1),
            held=np.zeros((1, len(self.held)), dtype=np.int64),
            which=np.zeros((1, len(self.columns)), dtype=np.int64),
        )

    def _with(self, labels: _Labels, place: int, gap: float) -> _Labels:
        """Return the labels with any number of layers of one more column that the gap pays."""
        kind, column = int(self.kinds[place]), self.columns[place]
        cost = float(self.reduced[place])
        most = int(self.held[kind])
        if cost > 0.0:
            most = min(most, int(gap / cost))
        numbers = np.arange(1, most + 1)
        rows, number = np.divmod(np.arange(len(labels.reduced) * most), max(most, 1))
        number = numbers[number] if most else number
        reduced = labels.reduced[rows] + number * cost
        kept = (reduced <= gap) & (labels.held[rows, kind] + number <= self.held[kind])
        rows, number = rows[kept], number[kept]
        more = labels.taken(rows)
        more.held[:, kind] += number
        more.which[:, place] += number
        added = _Labels(
            reduced=reduced[kept],
            memory=more.memory + number * self.knapsack.memory[column],
            host=more.host + number * self.knapsack.host[column],
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
        host = self.knapsack.host[self.columns]
        free = left[:, self.kinds[heavy]]
        lighter = _needed(which @ memory - self.room, memory[heavy] - memory[light])
        more = host[light] - host[heavy]
        if more < 0.0:
            over = which @ host - self.knapsack.host_capacity
            lighter = np.maximum(lighter, _needed(over, -more))
        fits = lighter <= free
        lighter = np.where(fits, lighter, 0.0)
        hosted = which @ host + lighter * more
        fits &= hosted <= self.knapsack.host_capacity * (1.0 + _ROUNDING)
        if not fits.any():
            return None
        cost = which @ self._cost() + lighter * (self._cost()[light] - self._cost()[heavy])
        place = int(np.where(fits, cost, np.inf).argmin())
        counts = np.zeros(len(self.knapsack.cost), dtype=np.int64)
        counts[self.columns] = which[place]
        counts[self.columns[heavy]] -= int(lighter[place])
        counts[self.columns[light]] += int(lighter[place])
        return Packing(lower=self.bound, cost=float(cost[place]), counts=counts)


def _needed(over: Floats, saved: float) -> Floats:
    """Return how many moves that save so much each bring what is over down to 0."""
    if saved > 0.0:
        return np.maximum(np.ceil(over / saved - _WHOLE), 0.0)
    return np.where(over > 0.0, np.inf, 0.0)
