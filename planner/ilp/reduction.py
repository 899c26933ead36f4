"""Reduction: what no plan below a cutoff can have, so that the program need not say it.

With a cutoff Z and the bounds S', U' and so on of `planner.ilp.bounds`:

R1. (m - 1) T + U <= Z - S' and T <= (Z - S' - U') / (m - 1): limits of each stage's omega and pace,
    beside that of its memory. Each limit leaves a window to every cut of the chain.
R2. A stage holds the layers between its latest start and its earliest end. With those at their
    least price, n layers of choice s cost at least n (price_s - least price) more: the most n that
    the limits leave, at any grid point, bounds n[r,k,s]; often by 0.
R3. At one stage the micro-batches in flight are known, and more choices are dominated.
"""

from __future__ import annotations

from collections.abc import Sequence
from dataclasses import dataclass

import numpy as np

from planner.cost.configuration import Floats, Integers
from planner.ilp.bounds import (
    ObjectiveBounds,
    both_chain,
    device_and_host,
    objective_bounds,
    pace_chain,
)
from planner.ilp.duals import PricedChain
from planner.ilp.instance import Instance, undominated
from planner.ilp.levels import ChainLevels, Cuts

_ROUNDING = 1e-9


@dataclass(frozen=True, slots=True, kw_only=True)
class Reduction:
    """`most[k]` bounds the layers of run k by [stages, choices]; `cuts` where stages begin."""

    most: tuple[Integers, ...]
    cuts: Cuts
    bounds: ObjectiveBounds


@dataclass(frozen=True, slots=True, kw_only=True)
class _Limit:
    """No stage of a plan below the cutoff exceeds `value` in the chain's prices."""

    chain: PricedChain
    levels: ChainLevels
    value: float


def reduction(instance: Instance, *, cutoff_seconds: float) -> Reduction | None:
    """Return what plans of at most `cutoff_seconds` have, None if it is proven there are none.

    An infinite cutoff leaves all plans that fit.
    """
    bounds = objective_bounds(instance)
    if bounds is None:
        return None
    limits = [_limit(chain, value) for chain, value in _values(instance, bounds, cutoff_seconds)]
    cuts = _cuts(limits)
    if cuts is None:
        return None
    most = tuple(_most(instance, k, cuts, limits) for k in range(len(instance.runs)))
    if not _complete(instance, most):
        return None
    return Reduction(most=most, cuts=cuts, bounds=bounds)


def _complete(instance: Instance, most: tuple[Integers, ...]) -> bool:
    """Return whether every run can be placed and every stage can hold a block."""
    placed = all(
        int(bound.sum()) >= run.count for run, bound in zip(instance.runs, most, strict=True)
    )
    held = np.sum([most[k].sum(axis=1) for k in instance.block_runs], axis=0)
    return placed and bool((held > 0).all())


def _values(
    instance: Instance, bounds: ObjectiveBounds, cutoff_seconds: float
) -> list[tuple[PricedChain, float]]:
    """Return R1: each chain with the most that a stage may reach in it."""
    both = cutoff_seconds - bounds.pace_sum
    found = [device_and_host(instance), (both_chain(instance), both)]
    if instance.micro_batch_count > 1:
        pace = (both - bounds.largest_end) / (instance.micro_batch_count - 1)
        found.append((pace_chain(instance), pace))
    return [(chain, value) for chain, value in found if np.isfinite(value)]


def _limit(chain: PricedChain, value: float) -> _Limit:
    levels = ChainLevels(chain.layers(), chain.offset)
    return _Limit(chain=chain, levels=levels, value=value + _ROUNDING * abs(value))


def _cuts(limits: Sequence[_Limit]) -> Cuts | None:
    narrowed: Cuts | None = None
    for limit in limits:
        cuts = limit.levels.cuts(limit.value)
        if cuts is None:
            return None
        narrowed = cuts if narrowed is None else narrowed.narrowed(cuts)
    return narrowed if narrowed is not None and narrowed.possible() else None


def _most(instance: Instance, k: int, cuts: Cuts, limits: Sequence[_Limit]) -> Integers:
    """Return the most layers of run k that each stage can hold under each choice (R1 to R3)."""
    run = instance.runs[k]
    stages = instance.stage_count
    if run.pinned_stage is None:
        first = sum(instance.runs[j].count for j in instance.block_runs if j < k)
        room = np.minimum(cuts.latest[1:], first + run.count) - np.maximum(
            cuts.earliest[:-1], first
        )
        room = np.clip(room, 0, run.count)
    else:
        room = np.where(np.arange(stages) == run.pinned_stage, 1, 0)
    most = np.repeat(room[:, None].astype(np.float64), len(run.choice), axis=1)
    start = cuts.latest[:-1]
    end = np.maximum(cuts.earliest[1:], start)
    for limit in limits:
        spare = limit.levels.spare(limit.value, start, end)
        most = np.minimum(most, _affordable(spare, limit.chain.prices[k]))
    return np.where(_undominated(instance, k), most, 0.0).astype(np.int64)


def _affordable(spare: Floats, price: Floats) -> Floats:
    """Return how many layers of each choice the spare [stages, grid] pays, [stages, choices].

    What a layer costs beyond the least of its run is paid from the spare, at every grid point.
    """
    extra = price - price.min(axis=2, keepdims=True)
    paid = np.full_like(extra, np.inf)
    np.divide(np.maximum(spare, 0.0)[:, :, None], extra, out=paid, where=extra > 0.0)
    affordable: Floats = np.floor(paid.min(axis=1) * (1.0 + _ROUNDING) + _ROUNDING)
    return affordable


def _undominated(instance: Instance, k: int) -> Floats:
    """Return R3 as 1 and 0, [stages, choices]."""
    run = instance.runs[k]
    kept = np.zeros((instance.stage_count, len(run.choice)))
    for r, flight in enumerate(instance.in_flight):
        columns = np.stack([run.pace, run.end, run.memory(flight), run.transient, run.host])
        kept[r, undominated(columns)] = 1.0
    return kept
