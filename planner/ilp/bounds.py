"""Bounds: numbers that no plan of a configuration can beat.

With objective S + rho T + U (S = sum of fills, T the largest pace, U the largest end, rho the
schedule's repeats) and omega = rho tau + u of a layer:

B1. rho T + U >= max_r (rho t_r + u_r), since both maxima are at least each rank's own.
B2. A maximum over ranks is at least any weighted mean of them.
B3. For lambda >= 0, any feasible rank with counts a has
    sum omega >= sum_k a_k min_s (omega + lambda mem) - lambda (cap - fixed - least transient),
    because the price lambda is paid on a constraint that holds (weak duality). The largest over
    several lambda is phi_r(a), which grows with a.
B4. Some W keeps every rank's phi_r <= W and all layers placed; the least such W is a lower bound.
    With one kind of block it is the smallest W at which as many layers fit under it as there are;
    with several it is bounded by B2 with weights that make a layer cost the same on any rank.
B5. S >= sum_r phi_r(a_r) in fill alone. phi_r is convex in n, so with one kind the least sum over
    all splits is what all ranks must hold and the smallest increments.
B6. Where every rank holds one part of the chain, in the order of the ranks, B4 holds of cuts: with
    each rank filled from the one before on, as far as phi_r stays within W, W is below every plan's
    largest phi_r if blocks are left behind the last. Filled from both ends, cuts have windows, and
    B5 holds with as many blocks of a kind on a rank as lie in these.

`planner.ilp.screen` has them for thousands of configurations at once; here is one at a time.
"""

from __future__ import annotations

from dataclasses import dataclass, replace
from functools import lru_cache

import numpy as np

from planner.ilp.duals import PricedChain, cost_chain, memory_chain
from planner.ilp.instance import Instance
from planner.ilp.levels import levels_of

_KEPT = 2  # a configuration is bounded, reduced and packed in turn
_HOST_RATIOS = np.array([0.0, *(2.0**e for e in range(-4, 7))])


@dataclass(frozen=True, slots=True, kw_only=True)
class ObjectiveBounds:
    """Lower bounds of a step and of its parts: S, rho T, U, and rho T + U together, in seconds.

    `total` is one of the whole where it is known better than by its parts.
    """

    fill_sum: float
    repeated_pace: float
    largest_end: float
    both: float
    total: float = 0.0

    def step_seconds(self) -> float:
        """Return the bound of S + rho T + U."""
        parts = self.fill_sum + max(self.repeated_pace + self.largest_end, self.both)
        return max(parts, self.total)


def memory_bound(instance: Instance) -> float:
    """Return B3, B4 and B5 together: inf when no plan fits."""
    bounds = objective_bounds(instance)
    return float("inf") if bounds is None else bounds.step_seconds()


def objective_bounds(
    instance: Instance, *, cutoff_seconds: float = float("inf")
) -> ObjectiveBounds | None:
    """Return B3, B4 and B5 of each part, None when no plan fits.

    Where some parts alone exceed the cutoff, the others are left at 0.
    """
    if levels_of(fit_chain(instance)).windows(0.0) is None:
        return None
    found = ObjectiveBounds(
        fill_sum=levels_of(fill_chain(instance)).least_sum(),
        repeated_pace=0.0,
        largest_end=0.0,
        both=levels_of(both_chain(instance)).least_level(),
    )
    if found.step_seconds() > cutoff_seconds:
        return found
    ends = sum(_least_end(instance, k) for k in range(len(instance.kinds)))
    return replace(
        found,
        repeated_pace=instance.repeat_count * levels_of(pace_chain(instance)).least_level(),
        largest_end=float(instance.stage_end.mean()) + ends / instance.stage_count,
    )


def _least_end(instance: Instance, k: int) -> float:
    kind = instance.kinds[k]
    rows = kind.end if kind.pinned_stage is None else kind.end[kind.pinned_stage]
    return kind.count * float(rows.min())


def least_memory_bytes(instance: Instance) -> float:
    """Return bytes that the fullest device needs beyond its capacity at the least, plus that.

    The capacity is that of the first rank; host memory is taken to be boundless.
    """
    excess = levels_of(memory_chain(instance, np.zeros(1))).least_level()
    return float(instance.capacity_bytes.max()) + excess


@lru_cache(maxsize=_KEPT)
def fill_chain(instance: Instance) -> PricedChain:
    """Return the fills with memory priced."""
    return cost_chain(instance, "fill", instance.stage_fill)


@lru_cache(maxsize=_KEPT)
def pace_chain(instance: Instance) -> PricedChain:
    """Return the paces with memory priced: no rank's may exceed T."""
    return cost_chain(instance, "pace", instance.stage_pace)


@lru_cache(maxsize=_KEPT)
def both_chain(instance: Instance) -> PricedChain:
    """Return omega with memory priced: no rank's may exceed rho T + U."""
    base = instance.repeat_count * instance.stage_pace + instance.stage_end
    return cost_chain(instance, "both", base)


@lru_cache(maxsize=_KEPT)
def fit_chain(instance: Instance) -> PricedChain:
    """Return device bytes with a price on host bytes, over what the limits allow.

    For any ratio of the two prices, a rank that keeps both limits keeps their priced sum.
    """
    host = max(float(instance.host_capacity_bytes.max()), 1.0)
    ratios = _HOST_RATIOS * float(instance.capacity_bytes.max()) / host
    return memory_chain(instance, ratios)
