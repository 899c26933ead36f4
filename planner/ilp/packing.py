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
from dataclasses import dataclass

import numpy as np

from planner.cost.configuration import Floats, Integers
from planner.ilp.knapsack import Knapsack, hull_slopes
from planner.ilp.labels import Labels, Shelf, bases_alone, labels_within

_LABELS_MOST = 3000
_ROUNDING = 1e-12
_WHOLE = 1e-9
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

    With less `effort`, the sets of layers looked at at a time, bounds are weaker. Where one largest
    transient is not looked into to the end, the bound is what was looked at: others are looked into
    as far as that and no further, as more would not raise it.
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
        within = _Within(upper=limit, enough=lower, effort=effort)
        found = _under(knapsack, held, (place, float(prices[place])), within)
        lower = min(lower, found.lower)
        if found.cost < best.cost:
            best = found
    return Packing(lower=min(lower, best.cost), cost=best.cost, counts=best.counts)


@dataclass(frozen=True, slots=True, kw_only=True)
class _Within:
    """What a packing is below, how far a lower bound is of use, and how many sets at a time."""

    upper: float
    enough: float
    effort: int


def _under(knapsack: Knapsack, held: Integers, at: tuple[int, float], within: _Within) -> Packing:
    """Return the cheapest packing with no transient above a threshold, given the best price."""
    place, price = at
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
        effort=within.effort,
        bound=float(held[used] @ least[used]) - price * room,
    )
    return search.run(within.upper, within.enough)


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

    def run(self, upper: float, enough: float) -> Packing:
        """Return the cheapest packing below `upper`, after a look at the bases alone.

        Nothing is looked at beyond `enough`, nor further where there were too many sets.
        """
        shelf = self._shelf()
        best = Packing(lower=upper, cost=float("inf"))
        found = self._filled(bases_alone(shelf))
        if found is not None and found.cost < best.cost:
            best = found
        looked = 0.0
        for share in _SHARES:
            gap = (min(upper, best.cost, enough) - self.bound) * (1.0 + _WHOLE)
            if looked >= gap:
                break
            labels, looked = labels_within(shelf, share * gap, most=self.effort)
            found = self._filled(labels)
            if found is not None and found.cost < best.cost:
                best = found
            if looked < share * gap:
                break
        gap = min(upper, best.cost, enough) - self.bound
        lower = min(self.bound + min(gap, looked), best.cost)
        if best.cost >= upper:
            return Packing(lower=lower, cost=float("inf"))
        return Packing(lower=lower, cost=best.cost, counts=best.counts)

    def _shelf(self) -> Shelf:
        """Return the choices with the free-of-charge column of each kind, and the filler's two.

        The filler has the widest pair; its corners are those beside what is left for each layer.
        """
        memory, cost = (each[self.columns] for each in (self.knapsack.memory, self.knapsack.cost))
        flat = self.reduced <= _ROUNDING * max(float(np.abs(cost).max()), 1e-300)
        bases = np.zeros(len(self.held), dtype=np.int64)
        widest, filler, lighter = -1.0, 0, 0
        for k in np.flatnonzero(self.held).tolist():
            own = np.flatnonzero(flat & (self.kinds == k))
            heavy, light = int(own[memory[own].argmax()]), int(own[memory[own].argmin()])
            bases[k] = heavy
            width = float(memory[heavy] - memory[light]) * self.held[k]
            if width > widest:
                widest, filler, lighter = width, k, light
        return Shelf(
            kinds=self.kinds,
            cost=cost,
            memory=memory,
            taken=self.knapsack.taken[:, self.columns],
            limits=self.knapsack.limits,
            reduced=self.reduced,
            held=self.held,
            room=self.room,
            price=self.price,
            bases=bases,
            filler=filler,
            light=lighter,
        )

    def _filled(self, labels: Labels) -> Packing | None:
        """Return the cheapest label filled up with the bases, None where none fits."""
        shelf = labels.shelf
        heavy, light = int(shelf.bases[shelf.filler]), shelf.light
        saved = float(shelf.memory[heavy] - shelf.memory[light])
        lighter, most = _needed(labels.memory() - self.room, saved), labels.filled()
        for place, filled in zip(labels.binding.tolist(), labels.taken(), strict=True):
            added = float(shelf.taken[place, light] - shelf.taken[place, heavy])
            over = filled - shelf.limits[place]
            lighter, most = _narrowed(over, added, lighter, most)
        fits = lighter <= most
        if not fits.any():
            return None
        lighter = np.where(fits, lighter, 0.0)
        cost = labels.cost() + lighter * (shelf.cost[light] - shelf.cost[heavy])
        label = int(np.where(fits, cost, np.inf).argmin())
        own = labels.counts(label)
        own[heavy] -= int(lighter[label])
        own[light] += int(lighter[label])
        counts = np.zeros(len(self.knapsack.cost), dtype=np.int64)
        counts[self.columns] = own
        return Packing(lower=self.bound, cost=float(own @ shelf.cost), counts=counts)


def _needed(over: Floats, saved: float, *, slack: float = _WHOLE) -> Floats:
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
