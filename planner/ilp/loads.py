"""Loads: what ranks may hold of each free kind, and how low the largest of them can be."""

from __future__ import annotations

from collections.abc import Mapping, Sequence
from itertools import product

import numpy as np

from planner.cost.configuration import Integers
from planner.ilp.instance import Instance
from planner.ilp.levels import Windows

Load = tuple[int, ...]

_STATES_MOST = 4000


def loads_of(instance: Instance, windows: Windows, *, most: int) -> list[list[Load]] | None:
    """Return the loads that each rank may have, None where there are more than `most` in all."""
    if windows.cuts is not None:
        every = _by_cuts(instance, windows.cuts, most)
    else:
        every = _by_counts(instance, windows, most)
    if every is None or _state_count(instance) > _STATES_MOST:
        return None
    return every


def _state_count(instance: Instance) -> int:
    """Return how many sums of loads there may be."""
    if instance.is_in_order or instance.is_uniform:
        return instance.block_count + 1
    return int(np.prod([instance.kinds[k].count + 1 for k in instance.free_kinds]))


def _by_cuts(instance: Instance, cuts: Integers, most: int) -> list[list[Load]] | None:
    """Return the loads between all places of neighbouring cuts."""
    prefix = instance.prefix_counts[:, list(instance.free_kinds)]
    found: list[list[Load]] = []
    total = 0
    for rank in range(instance.stage_count):
        own: dict[Load, None] = {}
        for start in range(int(cuts[0, rank]), int(cuts[1, rank]) + 1):
            for end in range(max(start + 1, int(cuts[0, rank + 1])), int(cuts[1, rank + 1]) + 1):
                own[tuple((prefix[end] - prefix[start]).tolist())] = None
            if total + len(own) > most:
                return None
        total += len(own)
        found.append(list(own))
    return found


def _by_counts(instance: Instance, windows: Windows, most: int) -> list[list[Load]] | None:
    """Return the loads within the windows of the kinds and of their sum."""
    room = np.minimum(windows.room, _virtual_room(instance))
    found: list[list[Load]] = []
    total = 0
    for rank in range(instance.stage_count):
        ranges = [
            range(int(windows.sure[rank, k]), int(room[rank, k]) + 1) for k in instance.free_kinds
        ]
        if np.prod([float(len(part)) for part in ranges]) > 100.0 * most:
            return None
        own = [
            load
            for load in product(*ranges)
            if windows.least[rank] <= sum(load) <= windows.most[rank]
        ]
        total += len(own)
        if total > most:
            return None
        found.append(own)
    return found


def _virtual_room(instance: Instance) -> Integers:
    """Return the layers of each kind that the virtual stages of a rank can reach, [stages, kinds].

    Virtual stage j has j others before it, which take a block each, and as many behind it.
    """
    prefix, parts = instance.prefix_counts, len(instance.holders)
    room = np.zeros((instance.stage_count, prefix.shape[1]), dtype=np.int64)
    for j, rank in enumerate(instance.holders):
        room[rank] += prefix[instance.block_count - (parts - 1 - j)] - prefix[j]
    return room


def with_pinned(instance: Instance, rank: int, load: Load) -> list[int]:
    """Return the layers of every kind on a rank, the pinned ones with the load."""
    held = [int(kind.pinned_stage == rank) for kind in instance.kinds]
    for k, number in zip(instance.free_kinds, load, strict=True):
        held[k] = number
    return held


def least_level(
    instance: Instance, tables: Sequence[Mapping[Load, float]]
) -> tuple[float, tuple[Load, ...]]:
    """Return the least W under which ranks can hold all layers, and loads that do; inf if none.

    Dynamic programming over the ranks: the state is what they hold together. Where ranks follow one
    another along the chain, only sums that some cut leaves are states.
    """
    totals = tuple(instance.kinds[k].count for k in instance.free_kinds)
    cuts = _cut_sums(instance)
    states: dict[Load, float] = {(0,) * len(totals): -np.inf}
    trail: list[dict[Load, tuple[float, Load, Load]]] = []
    for rank, table in enumerate(tables):
        left = len(tables) - 1 - rank
        reached: dict[Load, tuple[float, Load, Load]] = {}
        for (held, level), (load, value) in product(states.items(), table.items()):
            after = tuple(a + b for a, b in zip(held, load, strict=True))
            if any(a > b for a, b in zip(after, totals, strict=True)):
                continue
            if cuts is not None and after not in cuts:
                continue
            if left == 0 and after != totals:
                continue
            worst = max(level, value)
            known = reached.get(after)
            if known is None or worst < known[0]:
                reached[after] = (worst, held, load)
        trail.append(reached)
        states = {after: worst for after, (worst, _, _) in reached.items()}
    if totals not in states:
        return float("inf"), ()
    return states[totals], _loads_along(trail, totals)


def _cut_sums(instance: Instance) -> frozenset[Load] | None:
    """Return what the blocks before any cut come to, None where ranks are not in order."""
    if not instance.is_in_order or instance.is_uniform:
        return None
    prefix = instance.prefix_counts[:, list(instance.free_kinds)]
    return frozenset(tuple(row) for row in prefix.tolist())


def _loads_along(
    trail: Sequence[Mapping[Load, tuple[float, Load, Load]]], end: Load
) -> tuple[Load, ...]:
    loads: list[Load] = []
    state = end
    for reached in reversed(trail):
        _, state, load = reached[state]
        loads.append(load)
    return tuple(reversed(loads))
