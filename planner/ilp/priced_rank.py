"""Priced rank: what every load of one rank costs at the least, at weights of its pace and its end.

At weights y and z (`planner.ilp.decomposition`) a rank costs sum (phi + rho y tau + z u) n, and the
cheapest way to hold a load within the rank's memory is a knapsack of its own.
"""

from __future__ import annotations

from dataclasses import dataclass, replace
from functools import cached_property

import numpy as np

from planner.cost.configuration import Floats, Integers
from planner.ilp.knapsack import Knapsack
from planner.ilp.packed import Packed
from planner.ilp.packing import Packing, least_cost_within
from planner.ilp.rank import Parts, Rank
from planner.ilp.transient_bounds import TransientBounds

_TIE = 1e-12
_ROUNDING = 1e-12


@dataclass(frozen=True, kw_only=True, eq=False)
class PricedRank:
    """Costs of choices [columns], and bounds of loads [loads, thresholds] without the offset.

    `weights` are those of fill, pace and end, `ceilings` the most of pace, end and rho t + u.
    At each price of the `grid` [prices], `priced` are the least that a layer of each plain kind
    costs [plain kinds, prices], one of the others [kinds, prices, thresholds], and what one with
    the transient itself costs more, less the worth of the room [prices, thresholds]; there may be
    further thresholds behind the rank's own. `kinds` are the plain ones and the others.
    """

    rank: Rank
    cost: Floats
    grid: Floats
    weights: Floats
    ceilings: Floats
    offset: float
    bounds: Floats
    priced: tuple[Floats, Floats, Floats]
    kinds: tuple[Integers, Integers]

    @cached_property
    def knapsack(self) -> Knapsack:
        """Return the choices with their costs, and the rank's limits."""
        rank, columns = self.rank, self.rank.columns
        return Knapsack(
            kind=columns.kind,
            cost=self.cost,
            memory=columns.memory,
            transient=columns.transient,
            host=columns.host,
            capacity=rank.capacity,
            host_capacity=rank.host,
            further=rank.outline.limited,
            ceilings=self.ceilings,
            known_frame=rank.outline.frame,
        )

    def least(self) -> Floats:
        """Return a lower bound of every load's cost, [loads]."""
        least: Floats = self.bounds.min(axis=1) + self.offset
        return least

    def packing(self, load: int, *, upper: float, effort: int, slack_ratio: float = 0.0) -> Packing:
        """Return the cheapest packing of a load where it costs less than `upper`.

        A known one will do if it costs more than what is proven by no more than a `slack_ratio` of
        what `upper` does.
        """
        held, within = self.rank.held[load].tolist(), upper - self.offset
        outline = self.rank.outline
        packed = self.rank.packed.setdefault(tuple(held), Packed())
        known = self._known(packed, within)
        lower = packed.bound(self.weights, self.ceilings) if outline.is_never_negative else 0.0
        most = within if known.counts is None else known.cost
        slack = _ROUNDING * abs(most)
        if known.counts is not None:
            slack = max(slack, slack_ratio * (within - lower))
        if lower >= most - slack:
            found = replace(known, lower=min(lower, known.cost))
        else:
            bounds = self.transient_bounds(load)
            found = least_cost_within(bounds, upper=most, effort=effort)
            packed.add(found.counts, self.weights, self.ceilings, found.lower)
            if found.counts is None:
                found = replace(known, lower=min(found.lower, known.cost))
        return replace(found, lower=found.lower + self.offset, cost=found.cost + self.offset)

    def transient_bounds(self, load: int) -> TransientBounds:
        """Return the bounds of a load by its largest transient, without the offset."""
        return TransientBounds.known(
            self.knapsack,
            self.rank.held[load],
            self.bounds[load],
            lambda place: self._price(load, place),
        )

    def _known(self, packed: Packed, upper: float) -> Packing:
        """Return the cheapest known packing that keeps the limits and costs less than `upper`."""
        nothing = Packing(lower=upper, cost=float("inf"))
        if not packed.counts:
            return nothing
        counts = np.array(packed.counts)
        keeps = (counts @ self.rank.outline.limited.T <= self.ceilings).all(axis=1)
        costs = np.where(keeps, counts @ self.cost, np.inf)
        best = int(costs.argmin())
        if costs[best] >= upper:
            return nothing
        return Packing(lower=upper, cost=float(costs[best]), counts=counts[best])

    def _price(self, load: int, place: int) -> float:
        """Return the price of memory that bounds a load best under a largest transient."""
        held = np.zeros(sum(map(len, self.kinds)))
        held[: self.rank.held.shape[1]] = self.rank.held[load]
        alone, others = (held[kinds] for kinds in self.kinds)
        plain, least, beyond = self.priced
        bounds = alone @ plain + others @ least[:, :, place] + beyond[:, place]
        return float(self.grid[bounds.argmax()])

    def divided(self, load: int) -> Parts:
        """Return the parts of the packing that sets the bound, where layers may be divided."""
        place = int(self.bounds[load].argmin())
        price = self._price(load, place)
        threshold = float(self.rank.outline.frame.thresholds[place])
        columns = self.rank.columns
        reduced = self.cost + price * columns.memory
        reduced = np.where(columns.transient <= threshold, reduced, np.inf)
        heavy, light = np.zeros(len(reduced)), np.zeros(len(reduced))
        for kind in np.flatnonzero(self.rank.held[load]).tolist():
            own = np.flatnonzero(columns.kind == kind)
            least = float(reduced[own].min())
            tied = own[reduced[own] <= least + _TIE * max(abs(least), 1.0)]
            number = float(self.rank.held[load, kind])
            heavy[tied[columns.memory[tied].argmax()]] = number
            light[tied[columns.memory[tied].argmin()]] = number
        over = float(heavy @ columns.memory) - (self.rank.capacity - threshold)
        saved = float((heavy - light) @ columns.memory)
        share = min(max(over / saved, 0.0), 1.0) if saved > 0.0 else 0.0
        return self.rank.parts((1.0 - share) * heavy + share * light)
