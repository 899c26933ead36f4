"""Sharpening: bounds and plans from the exact best packings of single ranks.

Where only the number of layers on a rank matters, the least omega (or pace) of a rank with n layers
is a knapsack of its own (`planner.ilp.knapsack`). Put in the place of phi_r(n), which lets layers
be divided, it closes most of the gap that is left, and its packings are near-best plans. A lone
rank is solved by it outright.
"""

from __future__ import annotations

from collections.abc import Sequence
from dataclasses import dataclass, replace

import numpy as np

from planner.cost.configuration import Floats, Integers
from planner.ilp.bounds import ObjectiveBounds
from planner.ilp.duals import scaled
from planner.ilp.instance import Assignment, Instance, cuts_of
from planner.ilp.knapsack import Knapsack, Layers, Packing, least_cost
from planner.ilp.levels import Windows
from planner.ilp.reduction import Reduction

_PACKINGS_MOST = 160
_EASING = 1e-9


@dataclass(frozen=True, slots=True, kw_only=True)
class Tables:
    """Exact lower bounds by rank and number of layers, [stages, numbers], from `first` [stages] on.

    What no plan below the cutoff has is inf.
    """

    first: Integers
    both: Floats
    pace: Floats


@dataclass(frozen=True, slots=True, kw_only=True)
class Sharpened:
    """What the exact packings say: better bounds (None: there is no plan), tables, and a plan."""

    bounds: ObjectiveBounds | None
    tables: Tables
    assignment: Assignment | None


def can_sharpen(instance: Instance, windows: Windows) -> bool:
    """Return whether ranks can be packed alone, and few enough packings are needed."""
    if not instance.is_uniform:
        return False
    return int((windows.most - windows.least + 1).sum()) <= _PACKINGS_MOST


def sharpened(instance: Instance, reduced: Reduction, *, cutoff_seconds: float) -> Sharpened:
    """Return bounds and a plan from exact packings, given what `reduction` left at the cutoff."""
    windows, bounds = reduced.windows, reduced.bounds
    limit = (cutoff_seconds - bounds.fill_sum) * (1.0 + _EASING)
    packer = _Packer(instance, windows)
    whole = [scaled(kind, instance.repeat_count) for kind in instance.kinds]
    own = instance.repeat_count * instance.stage_pace + instance.stage_end
    if instance.stage_count == 1:
        whole = [cost + kind.fill for cost, kind in zip(whole, instance.kinds, strict=True)]
        own = own + instance.stage_fill
        limit = cutoff_seconds * (1.0 + _EASING)
    packings = packer.packed(whole, own, limit=limit)
    both = packer.lower(packings, own, limit=limit)
    pace = np.zeros_like(both)
    if instance.stage_count > 1 and instance.repeat_count > 0.0:
        pace_limit = (limit - bounds.largest_end) / instance.repeat_count
        found = packer.packed(
            [k.pace for k in instance.kinds], instance.stage_pace, limit=pace_limit
        )
        pace = packer.lower(found, instance.stage_pace, limit=pace_limit)
    tables = Tables(first=windows.least, both=both, pace=pace)
    better = _better(instance, bounds, tables)
    return Sharpened(
        bounds=better,
        tables=tables,
        assignment=None if better is None else _assignment(instance, packings, own, tables.first),
    )


class _Packer:
    """Packs every rank with every number of layers that its window allows."""

    def __init__(self, instance: Instance, windows: Windows) -> None:
        self._instance = instance
        self._windows = windows
        self._width = int((windows.most - windows.least).max()) + 1

    def packed(
        self, costs: Sequence[Floats], own: Floats, *, limit: float
    ) -> list[list[Packing | None]]:
        """Return a packing by rank and number, None beyond the window.

        Equal ranks are packed once.
        """
        known: dict[tuple[object, ...], Packing] = {}
        found: list[list[Packing | None]] = []
        for rank in range(self._instance.stage_count):
            knapsack, key = self._knapsack(rank, costs)
            row: list[Packing | None] = [None] * self._width
            upper = limit - float(own[rank])
            for place, number in enumerate(
                range(int(self._windows.least[rank]), int(self._windows.most[rank]) + 1)
            ):
                name = (*key, number, upper)
                if name not in known:
                    known[name] = least_cost(knapsack, number, upper=upper)
                row[place] = known[name]
            found.append(row)
        return found

    def lower(self, packings: list[list[Packing | None]], own: Floats, *, limit: float) -> Floats:
        """Return lower bounds with what the rank costs by itself, inf beyond limit or window."""
        table = np.full((len(packings), self._width), np.inf)
        for rank, row in enumerate(packings):
            for place, packing in enumerate(row):
                if packing is not None:
                    value = packing.lower + float(own[rank])
                    table[rank, place] = value if value < limit else np.inf
        return table

    def _knapsack(self, rank: int, costs: Sequence[Floats]) -> tuple[Knapsack, tuple[object, ...]]:
        instance = self._instance
        groups = [
            Layers(
                cost=cost[rank],
                memory=kind.memory[rank],
                transient=kind.transient[rank],
                host=kind.host[rank],
            )
            for kind, cost in zip(instance.kinds, costs, strict=True)
        ]
        free = instance.free_kinds[0]
        pinned = [k for k, kind in enumerate(instance.kinds) if kind.pinned_stage == rank]
        capacity = float(instance.capacity_bytes[rank] - instance.stage_bytes[rank])
        host = float(instance.host_capacity_bytes[rank])
        knapsack = Knapsack(
            free=groups[free],
            pinned=tuple(groups[k] for k in pinned),
            capacity=capacity,
            host=host,
        )
        used = [groups[k] for k in (free, *pinned)]
        parts = tuple(
            getattr(group, name).tobytes()
            for group in used
            for name in ("cost", "memory", "transient", "host")
        )
        return knapsack, (*parts, capacity, host)


def _better(instance: Instance, bounds: ObjectiveBounds, tables: Tables) -> ObjectiveBounds | None:
    both = _level(instance, tables.both, tables.first)
    if not np.isfinite(both):
        return None
    if instance.stage_count == 1:
        return replace(bounds, both=max(bounds.both, both - bounds.fill_sum))
    pace = _level(instance, tables.pace, tables.first) * instance.repeat_count
    if not np.isfinite(pace):
        return None
    return replace(
        bounds, both=max(bounds.both, both), repeated_pace=max(bounds.repeated_pace, pace)
    )


def _level(instance: Instance, table: Floats, first: Integers) -> float:
    """Return the least W under which ranks can hold all layers, inf if none does."""
    levels = np.unique(table[np.isfinite(table)])
    low, high = 0, len(levels)
    while low < high:
        middle = (low + high) // 2
        most = _most(table, first, float(levels[middle]))
        if most is not None and int(most.sum()) >= instance.block_count:
            high = middle
        else:
            low = middle + 1
    return float(levels[low]) if low < len(levels) else float("inf")


def _most(table: Floats, first: Integers, level: float) -> Integers | None:
    """Return the most layers that each rank holds within a level, None if one holds too few."""
    under = table <= level
    if not under.any(axis=1).all():
        return None
    return np.asarray(first + table.shape[1] - 1 - under[:, ::-1].argmax(axis=1))


def _assignment(
    instance: Instance, packings: list[list[Packing | None]], own: Floats, first: Integers
) -> Assignment | None:
    """Return the plan of the packings at the least level, surplus taken from the dearest ranks."""
    costs = np.array(
        [[np.inf if p is None or p.free is None else p.cost for p in row] for row in packings]
    )
    costs = costs + own[:, None]
    level = _level(instance, costs, first)
    split = _most(costs, first, level) if np.isfinite(level) else None
    if split is None:
        return None
    stages = np.arange(len(split))
    for _ in range(int(split.sum()) - instance.block_count):
        place = split - first
        lower = costs[stages, np.maximum(place - 1, 0)]
        held = np.where((place > 0) & np.isfinite(lower), costs[stages, place], -np.inf)
        split[int(held.argmax())] -= 1
    if int(split.sum()) != instance.block_count:
        return None
    return _placed(instance, packings, split - first)


def _placed(
    instance: Instance, packings: list[list[Packing | None]], places: Integers
) -> Assignment | None:
    counts = tuple(
        np.zeros((instance.stage_count, len(kind.choice)), dtype=np.int64)
        for kind in instance.kinds
    )
    for rank, place in enumerate(places.tolist()):
        packing = packings[rank][place]
        if packing is None or packing.free is None:
            return None
        counts[instance.free_kinds[0]][rank] = packing.free
        pinned = [k for k, kind in enumerate(instance.kinds) if kind.pinned_stage == rank]
        for k, choice in zip(pinned, packing.pinned, strict=True):
            counts[k][rank, choice] = 1
    return Assignment(counts=counts, cuts=cuts_of(instance, counts))
