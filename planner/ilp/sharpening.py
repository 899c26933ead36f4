"""Sharpening: bounds and plans from the exact best packings of single ranks.

What a rank holds of each kind is its load. The least omega (or pace) of a rank with a load is a
knapsack of its own (`planner.ilp.packing`). Put in the place of phi_r, which lets layers be
divided, it closes most of the gap that is left, and its packings are near-best plans. A lone rank
is solved by it outright.
"""

from __future__ import annotations

from dataclasses import dataclass, replace

import numpy as np

from planner.ilp.bounds import ObjectiveBounds
from planner.ilp.cutting import cuts_with_loads
from planner.ilp.duals import scaled
from planner.ilp.instance import Assignment, Instance
from planner.ilp.loads import Load, has_few_sums, loads_of
from planner.ilp.packer import Packer
from planner.ilp.reduction import Reduction

_LOADS_MOST = 1000
_EASING = 1e-9
_PACE_SHARE = 0.99


@dataclass(frozen=True, slots=True, kw_only=True)
class Tables:
    """Exact lower bounds by rank and load of what ranks of plans below the cutoff may hold.

    `pace` is None where omega says more.
    """

    both: tuple[dict[Load, float], ...]
    pace: tuple[dict[Load, float], ...] | None


@dataclass(frozen=True, slots=True, kw_only=True)
class Sharpened:
    """What the exact packings say: better bounds (None: there is no plan), tables, and a plan."""

    bounds: ObjectiveBounds | None
    tables: Tables
    assignment: Assignment | None


def sharpened(
    instance: Instance, reduced: Reduction, *, cutoff_seconds: float, deadline: float = float("inf")
) -> Sharpened | None:
    """Return bounds and a plan from exact packings, given what `reduction` left at the cutoff.

    None where ranks may hold too many different loads, or at the deadline (of `perf_counter`).
    """
    loads = loads_of(instance, reduced.windows, most=_LOADS_MOST)
    if loads is None or not has_few_sums(instance):
        return None
    bounds = reduced.bounds
    limit = (cutoff_seconds - bounds.fill_sum) * (1.0 + _EASING)
    costs = [scaled(kind, instance.repeat_count) for kind in instance.kinds]
    own = instance.repeat_count * instance.stage_pace + instance.stage_end
    if instance.stage_count == 1:
        costs = [cost + kind.fill for cost, kind in zip(costs, instance.kinds, strict=True)]
        own, limit = own + instance.stage_fill, cutoff_seconds * (1.0 + _EASING)
    both = Packer(instance, loads, costs, own=own, limit=limit)
    level = both.least_level(deadline)
    if level is None:
        return None
    pace: Packer | None = None
    if np.isfinite(level) and _pace_matters(instance, bounds):
        most = (limit - bounds.largest_end) / instance.repeat_count
        paces = [kind.pace for kind in instance.kinds]
        pace = Packer(instance, loads, paces, own=instance.stage_pace, limit=most)
    slowest = 0.0 if pace is None else pace.least_level(deadline)
    if slowest is None:
        return None
    better = _better(instance, bounds, level, slowest)
    return Sharpened(
        bounds=better,
        tables=Tables(both=both.tables(), pace=None if pace is None else pace.tables()),
        assignment=None if better is None else _assignment(instance, both),
    )


def _pace_matters(instance: Instance, bounds: ObjectiveBounds) -> bool:
    """Return whether the bound of the pace alone is near that of omega."""
    if instance.stage_count == 1 or instance.repeat_count <= 0.0:
        return False
    return bounds.repeated_pace + bounds.largest_end > _PACE_SHARE * bounds.both


def _better(
    instance: Instance, bounds: ObjectiveBounds, level: float, slowest: float
) -> ObjectiveBounds | None:
    """Return the bounds with what the packings say, None if no plan is below the cutoff."""
    if not (np.isfinite(level) and np.isfinite(slowest)):
        return None
    if instance.stage_count == 1:
        return replace(bounds, total=max(bounds.total, level))
    return replace(
        bounds,
        both=max(bounds.both, level),
        repeated_pace=max(bounds.repeated_pace, slowest * instance.repeat_count),
    )


def _assignment(instance: Instance, packer: Packer) -> Assignment | None:
    """Return the plan of the packings at the least level, where the chain can be cut so."""
    loads = packer.best_loads
    counts = tuple(
        np.zeros((instance.stage_count, len(kind.choice)), dtype=np.int64)
        for kind in instance.kinds
    )
    starts = np.cumsum([0, *(len(kind.choice) for kind in instance.kinds)])
    for rank, load in enumerate(loads):
        packed = packer.packing(rank, load).counts
        if packed is None:
            return None
        for k, count in enumerate(counts):
            count[rank] = packed[starts[k] : starts[k + 1]]
    cuts = cuts_with_loads(instance, loads)
    if cuts is None:
        return None
    return Assignment(counts=counts, cuts=cuts)
