"""Packing: the exact least cost of given layers on one rank, a knapsack of a few equal items.

With the best price lambda of memory under a largest transient, a layer of choice s costs its
reduced cost beyond the bound of `planner.ilp.knapsack`: rc_s = c_s + lambda m_s, less the least of
its kind. One kind, the filler, has two choices a and b that cost nothing beyond it; every other
kind has one. All sets of other choices whose reduced costs fit between the bound and an upper bound
are enumerated, near ones first, and the rest is filled with a and b in closed form. A set whose
memory cannot be brought to the room for what is left of the gap is dropped on the way. So is one
without a layer that has the largest transient itself: it is looked at under a lesser one.
"""

from __future__ import annotations

import math
from collections.abc import Sequence
from dataclasses import dataclass

import numpy as np

from planner.cost.configuration import Floats, Integers
from planner.ilp.knapsack import Knapsack
from planner.ilp.labels import Labels, bases_alone, labels_within
from planner.ilp.shelf import Shelf
from planner.ilp.transient_bounds import Reduced, TransientBounds

_LABELS_MOST = 3000
_ROUNDING = 1e-12
_WHOLE = 1e-9
_FEW = 24
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
    knapsack: Knapsack,
    layers: Sequence[int],
    *,
    upper: float,
    effort: int = _LABELS_MOST,
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
        if limit - bound <= _ROUNDING * abs(limit):
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
        first = looked = max(self.at.known - self.at.bound, 0.0)
        for share in self._shares(min(upper, best.cost, enough) - self.at.bound):
            gap = (min(upper, best.cost, enough) - self.at.bound) * (1.0 + _WHOLE)
            if looked >= gap or best.cost <= self.will_do:
                break
            wanted = first + share * (gap - first)
            labels, looked = labels_within(shelf, wanted, most=self.effort)
            found = self._filled(labels)
            if found is not None and found.cost < best.cost:
                best = found
            if looked < wanted:
                break
        gap = min(upper, best.cost, enough) - self.at.bound
        lower = min(self.at.bound + min(gap, looked), best.cost)
        if best.cost >= upper:
            return Packing(lower=lower, cost=float("inf"))
        return Packing(lower=lower, cost=best.cost, counts=best.counts)

    def _shares(self, gap: float) -> tuple[float, ...]:
        """Return the shares of a gap looked at in turn: all at once where few choices are in it."""
        few = np.count_nonzero(self.at.reduced <= gap) <= _FEW
        return _SHARES[-1:] if few else _SHARES

    def _shelf(self) -> Shelf:
        """Return the choices with the free-of-charge column of each kind, and the filler's two.

        The filler has the widest pair; its corners are those beside what is left for each layer.
        """
        memory, cost = (each[self.at.columns] for each in (self.own.memory, self.own.cost))
        flat = self.at.reduced <= _ROUNDING * max(float(np.abs(cost).max()), 1e-300)
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
