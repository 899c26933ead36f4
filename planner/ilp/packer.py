"""Packer: how low the largest rank can be when every rank is packed exactly.

A rank's cost under a load starts at its linear bound. The loads that level the ranks best are
found, those of them that set the level are packed exactly, and this is repeated until what sets the
level is exact: ranks that never do are not packed at all.
"""

from __future__ import annotations

import time
from collections.abc import Sequence
from dataclasses import replace

import numpy as np

from planner.cost.configuration import Floats
from planner.ilp.instance import Instance
from planner.ilp.knapsack import Knapsack
from planner.ilp.loads import Load, least_level, with_pinned
from planner.ilp.packing import Packing, least_cost

_NEAR = 0.995
_LABELS_MOST_OF_A_LONE_RANK = 30_000
_NEARLY_PACKED = 1e-4


class Packer:
    """Packings of one instance in one kind of cost; what a rank costs by itself counts too."""

    def __init__(
        self,
        instance: Instance,
        loads: Sequence[Sequence[Load]],
        costs: Sequence[Floats],
        *,
        own: Floats,
        limit: float,
    ) -> None:
        """Bound every load of every rank; what exceeds `limit` is left out."""
        self._instance = instance
        self._own = own
        self._limit = limit
        self._known: dict[tuple[object, ...], Packing] = {}
        self._knapsacks = [
            knapsack_of(instance, rank, costs) for rank in range(instance.stage_count)
        ]
        self._keys = [
            key_of(instance, rank, knapsack) for rank, knapsack in enumerate(self._knapsacks)
        ]
        self._exact: list[set[Load]] = [set() for _ in loads]
        self._lower = [self._bounded(rank, held) for rank, held in enumerate(loads)]
        self.best_loads: tuple[Load, ...] = ()

    def least_level(self, deadline: float) -> float | None:
        """Return the least level, inf if all exceed the limit, None if it gets too late."""
        while True:
            level, loads = least_level(self._instance, self._lower)
            self.best_loads = loads
            if not np.isfinite(level):
                return level
            vague = [
                (rank, load)
                for rank, load in enumerate(loads)
                if load not in self._exact[rank] and self._lower[rank][load] >= _NEAR * level
            ]
            if not vague:
                return level
            for rank, load in vague:
                if time.perf_counter() > deadline:
                    return None
                self._refine(rank, load)

    def tables(self) -> tuple[dict[Load, float], ...]:
        """Return the lower bounds by rank and load."""
        return tuple(self._lower)

    def packing(self, rank: int, load: Load) -> Packing:
        """Return the exact packing of a load."""
        upper = self._limit - float(self._own[rank])
        key = (*self._keys[rank], load, upper)
        if key not in self._known:
            held = with_pinned(self._instance, rank, load)
            self._known[key] = self._packed(rank, held, upper)
        return self._known[key]

    def _packed(self, rank: int, held: Sequence[int], upper: float) -> Packing:
        """Return the packing of layers; a lone rank's is taken to the end where little is left.

        That settles the configuration, and no program has to.
        """
        knapsack = self._knapsacks[rank]
        found = least_cost(knapsack, held, upper=upper)
        left = found.cost - found.lower
        if len(self._knapsacks) > 1 or not 0.0 < left <= _NEARLY_PACKED * found.cost:
            return found
        effort = _LABELS_MOST_OF_A_LONE_RANK
        closer = least_cost(knapsack, held, upper=found.cost, effort=effort)
        return closer if closer.counts is not None else replace(found, lower=closer.lower)

    def _refine(self, rank: int, load: Load) -> None:
        value = self.packing(rank, load).lower + float(self._own[rank])
        self._exact[rank].add(load)
        if value >= self._limit:
            del self._lower[rank][load]
        else:
            self._lower[rank][load] = max(value, self._lower[rank][load])

    def _bounded(self, rank: int, loads: Sequence[Load]) -> dict[Load, float]:
        """Return the linear bounds of the loads that stay within the limit."""
        every = [with_pinned(self._instance, rank, load) for load in loads]
        held = np.array(every, dtype=np.int64).reshape(len(loads), len(self._instance.kinds))
        least = self._knapsacks[rank].bounds_of(held).min(axis=1) + float(self._own[rank])
        within = np.flatnonzero(least < self._limit).tolist()
        return {loads[place]: float(least[place]) for place in within}


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


def key_of(instance: Instance, rank: int, knapsack: Knapsack) -> tuple[object, ...]:
    """Return what makes a rank's knapsack equal to another's."""
    columns = (knapsack.cost, knapsack.memory, knapsack.transient, knapsack.host)
    pinned = tuple(k for k, kind in enumerate(instance.kinds) if kind.pinned_stage == rank)
    same = tuple(column.tobytes() for column in columns)
    return (*same, pinned, knapsack.capacity, knapsack.host_capacity)
