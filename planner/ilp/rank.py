"""Rank: what every load of one rank costs at the least, at weights of its pace and of its end.

At weights y and z (`planner.ilp.decomposition`) a rank costs sum (phi + rho y tau + z u) n, and the
cheapest way to hold a load within the rank's memory is a knapsack of its own.
"""

from __future__ import annotations

from collections.abc import Sequence
from dataclasses import dataclass, field, replace
from functools import cached_property

import numpy as np

from planner.cost.configuration import Floats, Integers
from planner.ilp.edges import held_edges, with_edges
from planner.ilp.instance import Instance
from planner.ilp.knapsack import Frame, Knapsack
from planner.ilp.loads import Load, with_pinned
from planner.ilp.packed import Packed
from planner.ilp.packing import Packing, least_cost
from planner.ilp.patterns import Columns, rank_columns

_TIE = 1e-12
_ROUNDING = 1e-12


@dataclass(frozen=True, slots=True, kw_only=True)
class Parts:
    """What a rank adds to a step: fill, pace and end, in seconds."""

    fill: float
    pace: float
    end: float


@dataclass(frozen=True, slots=True, kw_only=True)
class Caps:
    """What no rank may exceed: t_r, u_r and rho t_r + u_r, in seconds."""

    pace: float = float("inf")
    end: float = float("inf")
    both: float = float("inf")


@dataclass(frozen=True, kw_only=True)
class Rank:
    """The choices of one rank that a plan below the cutoff may have, and its loads.

    `places` [columns] are those of the choices among all of the instance's side by side, with the
    edges behind them; `held` [loads, kinds] has the pinned layers and the edges too; `own` is what
    the rank costs by itself. `packed` is what is known of the packings of loads, by what they hold.
    """

    columns: Columns
    places: Integers
    held: Integers
    own: Parts
    repeats: float
    capacity: float
    host: float
    packed: dict[tuple[int, ...], Packed] = field(default_factory=dict, compare=False)

    @cached_property
    def frame(self) -> Frame:
        """Return the columns in the order of their transients."""
        return Frame.of(self.columns.kind, self.columns.transient)

    @cached_property
    def limited(self) -> Floats:
        """Return what caps limit besides memory: pace, end and both, [3, columns]."""
        columns = self.columns
        both = self.repeats * columns.pace + columns.end
        return np.stack([columns.pace, columns.end, both])

    @cached_property
    def is_never_negative(self) -> bool:
        """Return whether no choice has a fill, a pace or an end below 0."""
        return bool(
            self.columns.fill.min(initial=0.0) >= 0.0 and self.limited.min(initial=0.0) >= 0.0
        )

    @cached_property
    def lightest(self) -> list[Floats]:
        """Return the least bytes, host bytes, pace, end and both, each [loads, thresholds]."""
        columns, held = self.columns, self.held.astype(np.float64)
        found = []
        for values in (columns.memory, columns.host, *self.limited):
            least = self.frame.least(values)
            found.append(held[:, : len(least)] @ np.where(np.isfinite(least), least, 0.0))
        return found

    def with_load(self, place: int) -> Rank:
        """Return the rank with one of its loads alone."""
        return replace(self, held=self.held[[place]])

    def _ceilings(self, within: Caps) -> Floats:
        own = self.own
        return np.array(
            [
                within.pace - own.pace,
                within.end - own.end,
                within.both - self.repeats * own.pace - own.end,
            ]
        )

    def priced(
        self, pace_weight: float, end_weight: float, within: Caps, *, fill_weight: float = 1.0
    ) -> PricedRank:
        """Return the least costs of the loads at weights of the pace, the end and the fill."""
        columns, own = self.columns, self.own
        paid = self.repeats * pace_weight
        knapsack = Knapsack(
            kind=columns.kind,
            cost=fill_weight * columns.fill + paid * columns.pace + end_weight * columns.end,
            memory=columns.memory,
            transient=columns.transient,
            host=columns.host,
            capacity=self.capacity,
            host_capacity=self.host,
            further=self.limited,
            ceilings=(ceilings := self._ceilings(within)),
            known_frame=self.frame,
        )
        bounds, prices = knapsack.bounds_of(self.held)
        lightest = self.lightest
        beyond = lightest[0] > self.capacity - self.frame.thresholds
        for least, most in zip(lightest[1:], (self.host, *ceilings.tolist()), strict=True):
            beyond |= least > most + _ROUNDING * abs(most)
        bounds = np.where(beyond, np.inf, bounds)
        offset = fill_weight * own.fill + paid * own.pace + end_weight * own.end
        return PricedRank(
            rank=self,
            knapsack=knapsack,
            weights=np.array([fill_weight, paid, end_weight]),
            ceilings=ceilings,
            offset=offset,
            bounds=bounds,
            prices=prices,
        )

    def without_fill(self, end_weight: float = 1.0) -> PricedRank:
        """Return the loads priced by rho t + end_weight u alone."""
        return self.priced(1.0, end_weight, Caps(), fill_weight=0.0)

    def parts(self, counts: Floats) -> Parts:
        """Return what layers by column add up to, with the rank's own."""
        columns, own = self.columns, self.own
        return Parts(
            fill=own.fill + float(counts @ columns.fill),
            pace=own.pace + float(counts @ columns.pace),
            end=own.end + float(counts @ columns.end),
        )


@dataclass(frozen=True, slots=True, kw_only=True)
class PricedRank:
    """Lower bounds of a rank's loads, [loads, thresholds] without the offset, and their prices.

    `weights` are those of fill, pace and end, `ceilings` the most of pace, end and rho t + u.
    """

    rank: Rank
    knapsack: Knapsack
    weights: Floats
    ceilings: Floats
    offset: float
    bounds: Floats
    prices: Floats

    def least(self) -> Floats:
        """Return a lower bound of every load's cost, [loads]."""
        least: Floats = self.bounds.min(axis=1) + self.offset
        return least

    def packing(self, load: int, *, upper: float, effort: int) -> Packing:
        """Return the cheapest packing of a load where it costs less than `upper`."""
        held, within = self.rank.held[load].tolist(), upper - self.offset
        packed = self.rank.packed.setdefault(tuple(held), Packed())
        known = self._known(packed, within)
        lower = packed.bound(self.weights, self.ceilings) if self.rank.is_never_negative else 0.0
        most = within if known.counts is None else known.cost
        if lower >= most - _ROUNDING * abs(most):
            found = replace(known, lower=min(lower, known.cost))
        else:
            found = least_cost(self.knapsack, held, upper=within, effort=effort)
            packed.add(found.counts, self.weights, self.ceilings, found.lower)
        return replace(found, lower=found.lower + self.offset, cost=found.cost + self.offset)

    def _known(self, packed: Packed, upper: float) -> Packing:
        """Return the cheapest known packing that keeps the limits and costs less than `upper`."""
        nothing = Packing(lower=upper, cost=float("inf"))
        if not packed.counts:
            return nothing
        counts = np.array(packed.counts)
        keeps = (counts @ self.rank.limited.T <= self.ceilings).all(axis=1)
        costs = np.where(keeps, counts @ self.knapsack.cost, np.inf)
        best = int(costs.argmin())
        if costs[best] >= upper:
            return nothing
        return Packing(lower=upper, cost=float(costs[best]), counts=counts[best])

    def divided(self, load: int) -> Parts:
        """Return the parts of the packing that sets the bound, where layers may be divided."""
        place = int(self.bounds[load].argmin())
        price = float(self.prices[load, place])
        threshold = float(self.knapsack.thresholds[place])
        columns = self.rank.columns
        reduced = self.knapsack.cost + price * columns.memory
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


def rank_of(
    instance: Instance, rank: int, *, loads: Sequence[Load], most: Sequence[Integers]
) -> Rank:
    """Return a rank with its loads of the free kinds, with edges where cuts differ by place.

    `most` is by kind [stages, choices].
    """
    own = rank_columns(instance, rank, reduced=[np.zeros(m.shape) for m in most], most=most)
    every, free = with_edges(instance, rank, own), len(instance.free_kinds)
    places = np.flatnonzero(every.most > 0)
    return Rank(
        columns=every.taken(places),
        places=places,
        held=np.array(
            [
                [*with_pinned(instance, rank, load[:free]), *edges]
                for load, edges in zip(loads, held_edges(instance, rank, loads), strict=True)
            ],
            dtype=np.int64,
        ),
        own=Parts(
            fill=float(instance.stage_fill[rank]),
            pace=float(instance.stage_pace[rank]),
            end=float(instance.stage_end[rank]),
        ),
        repeats=instance.repeat_count,
        capacity=float(instance.capacity_bytes[rank] - instance.stage_bytes[rank]),
        host=float(instance.host_capacity_bytes[rank]),
    )
