"""Sharpening: bounds and plans from the exact best packings of single ranks.

What a rank holds of each kind is its load. The least omega (or pace) of a rank with a load is a
knapsack of its own (`planner.ilp.knapsack`). Put in the place of phi_r, which lets layers be
divided, it closes most of the gap that is left, and its packings are near-best plans. A lone rank
is solved by it outright.
"""

from __future__ import annotations

import time
from collections.abc import Sequence
from dataclasses import dataclass, replace

import numpy as np

from planner.cost.configuration import Floats
from planner.ilp.bounds import ObjectiveBounds
from planner.ilp.duals import scaled
from planner.ilp.instance import Assignment, Instance, cuts_of, load_of_cuts
from planner.ilp.knapsack import Knapsack, Packing, least_cost
from planner.ilp.loads import Load, least_level, loads_of
from planner.ilp.reduction import Reduction

_PACKINGS_MOST = 400
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
    instance: Instance, reduced: Reduction, *, cutoff_seconds: float, deadline: float
) -> Sharpened | None:
    """Return bounds and a plan from exact packings, given what `reduction` left at the cutoff.

    None where ranks may hold too many different loads, or at the deadline (of `perf_counter`).
    """
    loads = loads_of(instance, reduced.windows, most=_PACKINGS_MOST)
    if loads is None:
        return None
    bounds = reduced.bounds
    limit = (cutoff_seconds - bounds.fill_sum) * (1.0 + _EASING)
    costs = [scaled(kind, instance.repeat_count) for kind in instance.kinds]
    own = instance.repeat_count * instance.stage_pace + instance.stage_end
    if instance.stage_count == 1:
        costs = [cost + kind.fill for cost, kind in zip(costs, instance.kinds, strict=True)]
        own, limit = own + instance.stage_fill, cutoff_seconds * (1.0 + _EASING)
    packings = _packed(instance, loads, costs, left=limit - own, deadline=deadline)
    if packings is None:
        return None
    both = _lower(packings, own, limit)
    pace: tuple[dict[Load, float], ...] | None = None
    if _pace_matters(instance, bounds):
        most = (limit - bounds.largest_end) / instance.repeat_count
        paces = [kind.pace for kind in instance.kinds]
        left = most - instance.stage_pace
        packed = _packed(instance, loads, paces, left=left, deadline=deadline)
        if packed is None:
            return None
        pace = _lower(packed, instance.stage_pace, most)
    tables = Tables(both=both, pace=pace)
    better = _better(instance, bounds, tables)
    assignment = None if better is None else _assignment(instance, packings, own)
    return Sharpened(bounds=better, tables=tables, assignment=assignment)


Packings = list[dict[Load, Packing]]


def _pace_matters(instance: Instance, bounds: ObjectiveBounds) -> bool:
    """Return whether the bound of the pace alone is near that of omega."""
    if instance.stage_count == 1 or instance.repeat_count <= 0.0:
        return False
    return bounds.repeated_pace + bounds.largest_end > _PACE_SHARE * bounds.both


def _packed(
    instance: Instance,
    loads: Sequence[Sequence[Load]],
    costs: Sequence[Floats],
    *,
    left: Floats,
    deadline: float,
) -> Packings | None:
    """Return a packing of every load, by rank; equal ranks are packed once. None if too late."""
    known: dict[tuple[object, ...], Packing] = {}
    found: Packings = []
    for rank, own in enumerate(loads):
        knapsack, key = _knapsack(instance, rank, costs)
        upper = float(left[rank])
        packed: dict[Load, Packing] = {}
        for load in own:
            name = (*key, load, upper)
            if time.perf_counter() > deadline:
                return None
            if name not in known:
                known[name] = least_cost(knapsack, _with_pinned(instance, rank, load), upper=upper)
            packed[load] = known[name]
        found.append(packed)
    return found


def _knapsack(
    instance: Instance, rank: int, costs: Sequence[Floats]
) -> tuple[Knapsack, tuple[object, ...]]:
    """Return the knapsack of a rank, and what makes it equal to another's."""
    kinds = instance.kinds
    knapsack = Knapsack(
        kind=np.repeat(np.arange(len(kinds)), [len(kind.choice) for kind in kinds]),
        cost=np.concatenate([cost[rank] for cost in costs]),
        memory=np.concatenate([kind.memory[rank] for kind in kinds]),
        transient=np.concatenate([kind.transient[rank] for kind in kinds]),
        host=np.concatenate([kind.host[rank] for kind in kinds]),
        capacity=float(instance.capacity_bytes[rank] - instance.stage_bytes[rank]),
        host_capacity=float(instance.host_capacity_bytes[rank]),
    )
    pinned = tuple(k for k, kind in enumerate(kinds) if kind.pinned_stage == rank)
    columns = (knapsack.cost, knapsack.memory, knapsack.transient, knapsack.host)
    same = tuple(column.tobytes() for column in columns)
    return knapsack, (*same, pinned, knapsack.capacity, knapsack.host_capacity)


def _with_pinned(instance: Instance, rank: int, load: Load) -> list[int]:
    """Return the layers of every kind on a rank, the pinned ones with the load."""
    held = [int(kind.pinned_stage == rank) for kind in instance.kinds]
    for k, number in zip(instance.free_kinds, load, strict=True):
        held[k] = number
    return held


def _lower(packings: Packings, own: Floats, limit: float) -> tuple[dict[Load, float], ...]:
    """Return lower bounds with what the rank costs by itself, without loads beyond the limit."""
    tables = []
    for rank, packed in enumerate(packings):
        values = {load: packing.lower + float(own[rank]) for load, packing in packed.items()}
        tables.append({load: value for load, value in values.items() if value < limit})
    return tuple(tables)


def _better(instance: Instance, bounds: ObjectiveBounds, tables: Tables) -> ObjectiveBounds | None:
    both, _ = least_level(instance, tables.both)
    if not np.isfinite(both):
        return None
    if instance.stage_count == 1:
        return replace(bounds, total=max(bounds.total, both))
    if tables.pace is None:
        return replace(bounds, both=max(bounds.both, both))
    pace, _ = least_level(instance, tables.pace)
    if not np.isfinite(pace):
        return None
    return replace(
        bounds,
        both=max(bounds.both, both),
        repeated_pace=max(bounds.repeated_pace, pace * instance.repeat_count),
    )


def _assignment(instance: Instance, packings: Packings, own: Floats) -> Assignment | None:
    """Return the plan of the packings at the least level, where the chain can be cut so."""
    costs = [
        {load: p.cost + float(own[rank]) for load, p in packed.items() if p.counts is not None}
        for rank, packed in enumerate(packings)
    ]
    level, loads = least_level(instance, costs)
    if not np.isfinite(level):
        return None
    counts = tuple(
        np.zeros((instance.stage_count, len(kind.choice)), dtype=np.int64)
        for kind in instance.kinds
    )
    starts = np.cumsum([0, *(len(kind.choice) for kind in instance.kinds)])
    for rank, load in enumerate(loads):
        packed = packings[rank][load].counts
        if packed is None:
            return None
        for k, count in enumerate(counts):
            count[rank] = packed[starts[k] : starts[k + 1]]
    cuts = cuts_of(instance, counts)
    if [tuple(load) for load in load_of_cuts(instance, cuts)] != list(loads):
        return None
    return Assignment(counts=counts, cuts=cuts)
