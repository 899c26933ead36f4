"""Stage knapsack: the least cost of given layers on one rank.

    minimise   sum c_s n_s   over whole n_s >= 0, where the choices of kind k sum to its layers
    subject to sum m_s n_s + largest transient <= capacity,   sum h_s n_s <= host,
               and any further limits of the same form as host's

For a largest transient w the choices with more are left out and the capacity is less by w. At a
price lambda of memory the cost is at least sum min (c_s + lambda m_s) - lambda (capacity - w), and
the best prices are slopes of the kinds' lower hulls. A layer at least has the transient w itself:
without one the transient would be less, and the room more. So the least reduced cost of all choices
with w, what c_s + lambda m_s is beyond the least of its kind, is added to the bound.

The exact least cost is that of the sets of choices that fit between the bound and an upper bound
(`planner.ilp.stage_patterns`), compared by cost, memory and limits (`least_cost_within`). A set
without a layer that has the largest transient itself is looked at under a lesser one.
"""

from __future__ import annotations

import math
from collections.abc import Callable, Sequence
from dataclasses import dataclass, field, replace
from functools import cached_property
from typing import NamedTuple

import numpy as np

from planner.cost.configuration import Booleans, Floats, Integers
from planner.ilp.instance import Instance
from planner.ilp.problem import Effort
from planner.ilp.settings import (
    FINE_ROUNDING,
    ROUNDING,
    SETS_MOST,
    TINY,
)
from planner.ilp.stage_patterns import Enumeration, LayerSets, sets_within


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

    @property
    def thresholds(self) -> Floats:
        """Return the largest transients that a packing may have, least first."""
        return self.frame.thresholds

    def bounds(self, held: Integers) -> tuple[Floats, Floats]:
        """Return lower bounds by the largest transient, with the price of each, [thresholds]."""
        slopes, used = {0.0}, np.flatnonzero(held)
        for own in self.frame.members:
            slopes.update(hull_slopes(self.cost[own].tolist(), self.memory[own].tolist()))
        prices = np.array(sorted(slopes))
        each = self.frame.least_at(self.cost[:, None] + prices * self.memory[:, None])[used]
        least = np.minimum.accumulate(each, axis=1)  # [kinds, thresholds, prices]
        beyond = np.full_like(each, np.inf)
        np.subtract(each, least, out=beyond, where=np.isfinite(each))
        bound = np.tensordot(held[used].astype(np.float64), least, axes=1) + beyond.min(axis=0)
        bound -= prices * (self.capacity - self.thresholds)[:, None]
        best = bound.argmax(axis=1)
        return bound[np.arange(len(best)), best], prices[best]


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

    `price_of` says with which price of memory each is. What is `done` is of no more interest.
    """

    own: Knapsack
    held: Integers
    values: Floats
    price_of: Callable[[int], float]
    done: Booleans = field(init=False)

    def __post_init__(self) -> None:
        """Begin with none done."""
        self.done = np.zeros(len(self.values), dtype=bool)

    @staticmethod
    def of(knapsack: Knapsack, held: Integers) -> TransientBounds:
        """Return the bounds of layers."""
        values, prices = knapsack.bounds(held)
        return TransientBounds(
            own=knapsack, held=held, values=values, price_of=prices.tolist().__getitem__
        )

    def next(self) -> int | None:
        """Return the place of the least finite bound that is not done, None where all are."""
        left = np.where(self.done, np.inf, self.values)
        place = int(left.argmin())
        return place if np.isfinite(left[place]) else None

    def reduced(self, place: int) -> Reduced:
        """Return the choices under the threshold at a place with their reduced costs."""
        knapsack, held = self.own, self.held
        transient = float(knapsack.thresholds[place])
        columns = np.flatnonzero(knapsack.transient <= transient)
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
        prices, groups = [self.price_of(place)], []
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


@dataclass(frozen=True, slots=True, kw_only=True)
class Packing:
    """The least cost found with its layers by column, and a lower bound: equal where proven.

    Without any packing that fits below the upper bound, `cost` is inf and there are no layers.
    """

    lower: float
    cost: float
    counts: Integers | None = None


class Budget(NamedTuple):
    """How many sets of layers are looked at at a time, and what counts the work."""

    sets_most: int
    effort: Effort


def least_cost(
    knapsack: Knapsack,
    layers: Sequence[int],
    *,
    upper: float,
    most: int = SETS_MOST,
    will_do: float = -math.inf,
) -> Packing:
    """Return the cheapest packing of `layers` [kinds] if it costs less than `upper`."""
    bounds = TransientBounds.of(knapsack, np.array(layers, dtype=np.int64))
    return least_cost_within(bounds, upper=upper, budget=Budget(most, Effort()), will_do=will_do)


def least_cost_within(
    bounds: TransientBounds, *, upper: float, budget: Budget, will_do: float = -math.inf
) -> Packing:
    """Return the same of the layers that bounds by transient are of.

    With fewer sets of layers, bounds are weaker. Where one largest
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
        found = _packed(bounds.own, at, limit, lower, budget=budget, will_do=will_do)
        lower = min(lower, found.lower)
        if found.cost < best.cost:
            best = found
        if best.cost <= will_do:
            lower = min(lower, bound)
            break
    return Packing(lower=min(lower, best.cost), cost=best.cost, counts=best.counts)


def _packed(
    knapsack: Knapsack, at: Reduced, upper: float, enough: float, *, budget: Budget, will_do: float
) -> Packing:
    """Return the cheapest packing below `upper` under one largest transient.

    Nothing is looked at beyond `enough`. The bases alone come first, and leave less of a gap.
    """
    own = enumeration_of(knapsack, at, has_light=will_do > -math.inf)
    best, looked = Packing(lower=upper, cost=float("inf")), max(at.known - at.bound, 0.0)
    gap = (min(upper, enough) - at.bound) * (1.0 + ROUNDING)
    found = _cheapest(knapsack, at, LayerSets(own, gap))
    best = found if found.cost < upper else best
    gap = min(gap, (best.cost - at.bound) * (1.0 + ROUNDING))
    if looked < gap and best.cost > will_do:
        counted = Effort()  # it is not cut short
        sets = sets_within(own, gap, most=budget.sets_most, effort=counted, narrows=True)
        looked = sets.gap
        budget.effort.spend(counted.spent)
        found = _cheapest(knapsack, at, sets)
        best = found if found.cost < min(upper, best.cost) else best
    gap = min(upper, best.cost, enough) - at.bound
    return replace(best, lower=min(at.bound + min(gap, looked), best.cost))


def enumeration_of(
    knapsack: Knapsack,
    at: Reduced,
    *,
    measures: Floats | None = None,
    most: Integers | None = None,
    has_light: bool = False,
) -> Enumeration:
    """Return how the layers may be held by the choices under a largest transient.

    Sets are compared by the cost, or by `measures` [measures, columns of the knapsack], of which
    a choice may have `most` [columns] layers. Bases are the heaviest choices that cost nothing
    beyond the bound. With `has_light`, that of the widest span has a light one beside it.
    """
    columns = at.columns
    memory, cost = knapsack.memory[columns], np.abs(knapsack.cost[columns])
    flat = at.reduced <= FINE_ROUNDING * max(float(cost.max()), TINY)
    bases: dict[int, int] = {}
    widest, light = 0.0, None
    for kind in np.flatnonzero(at.held).tolist():
        own = np.flatnonzero(flat & (at.kinds == kind))
        bases[kind], lightest = int(own[memory[own].argmax()]), int(own[memory[own].argmin()])
        width = float(memory[bases[kind]] - memory[lightest]) * at.held[kind]
        if has_light and width > widest:
            widest, light = width, lightest
    return Enumeration(
        kind=at.kinds,
        reduced=at.reduced,
        most=at.held[at.kinds] if most is None else most[columns],
        memory=memory,
        compared=(knapsack.cost[None] if measures is None else measures)[:, columns],
        taken=knapsack.taken[:, columns],
        limits=knapsack.limits,
        held=at.held,
        room=at.room,
        price=at.price,
        bases=bases,
        needed=at.needed,
        light=light,
    )


def _cheapest(knapsack: Knapsack, at: Reduced, sets: LayerSets) -> Packing:
    """Return the cheapest of some sets that fit and keep the limits."""
    lighter, own = sets.light_counts(), sets.own
    fits = np.flatnonzero(np.isfinite(lighter))
    if not len(fits):
        return Packing(lower=at.bound, cost=float("inf"))
    held = sets.counts(fits)
    if own.light is not None:
        held[:, own.light] += lighter[fits].astype(np.int64)
        held[:, own.bases[int(own.kind[own.light])]] -= lighter[fits].astype(np.int64)
    costs = held @ own.compared[0]
    best = int(costs.argmin())
    counts = np.zeros(len(knapsack.cost), dtype=np.int64)
    counts[at.columns] = held[best]
    return Packing(lower=at.bound, cost=float(costs[best]), counts=counts)
