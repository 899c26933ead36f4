"""Fitting: whether a configuration has any plan, however slow, and one that fits.

The loads at which the tightest rank is least tight (`planner.ilp.tightness`) are packed exactly,
with host bytes as the cost. A load that does not fit is left out with all that have no fewer layers
of any kind, and others are looked for, until all ranks are packed or no loads are left, which
proves that there is no plan: loads of any plan add up to the chain, and each fits on its rank.
"""

from __future__ import annotations

from collections.abc import Sequence
from dataclasses import dataclass

import numpy as np

from planner.cost.configuration import Booleans
from planner.ilp.bounds import fit_chain
from planner.ilp.cutting import cuts_with_loads
from planner.ilp.easing import cut_bytes, eased_cuts
from planner.ilp.effort import Effort
from planner.ilp.instance import Assignment, Instance, evaluate, fits, load_of_cuts
from planner.ilp.levels import Windows, levels_of
from planner.ilp.loads import Load, has_few_sums, least_level, loads_of, with_pinned
from planner.ilp.places import places_of
from planner.ilp.tightness import FULL, Room, rooms_of

_LOADS_MOST = 4000
_UNITS_A_LEVEL, _UNITS_A_PACKING = 1000.0, 300.0


@dataclass(frozen=True, slots=True, kw_only=True)
class Fitted:
    """A plan that fits; without one, whether there is none."""

    assignment: Assignment | None = None
    is_proven: bool = False


def fitted(instance: Instance, *, effort: Effort) -> Fitted:
    """Return a plan of the instance, or whether it has none, as far as that is known.

    No more is looked into once the effort is spent.
    """
    windows = levels_of(fit_chain(instance)).windows(0.0)
    if windows is None:
        return Fitted(is_proven=True)
    rooms = rooms_of(instance)
    found = _levelled(instance, rooms, windows, effort)
    if found.is_proven or found.assignment is not None or instance.is_uniform:
        return found
    for cuts in eased_cuts(instance, rooms, effort=effort):
        assignment = _assignment(instance, rooms, cuts)
        if assignment is not None:
            return Fitted(assignment=assignment)
    return Fitted()


def _levelled(
    instance: Instance, rooms: Sequence[Room], windows: Windows, effort: Effort
) -> Fitted:
    """Return a plan of the loads at which the tightest rank is least tight, or that none fits.

    Loads of which it is not known whether they fit are left out as well, and then there is no
    proof.
    """
    loads = loads_of(instance, windows, most=_LOADS_MOST)
    known = _least_loads(instance) if loads is None else loads
    tables = _tables(instance, rooms, known)
    if not all(tables):
        return Fitted(is_proven=True)
    if loads is None or not has_few_sums(instance):
        return Fitted()
    is_proof = True
    while not effort.is_over:
        effort.spend(_UNITS_A_LEVEL + _UNITS_A_PACKING * instance.stage_count)
        level, best = least_level(instance, tables)
        if not np.isfinite(level):
            return Fitted(is_proven=is_proof)
        unpacked = _unpacked(instance, rooms, best)
        if not unpacked:
            cuts = cuts_with_loads(instance, best)
            return Fitted(assignment=None if cuts is None else _assignment(instance, rooms, cuts))
        for rank, is_sure in unpacked.items():
            tables[rank] = _without(tables[rank], best[rank], is_sure=is_sure)
        is_proof = is_proof and all(unpacked.values())
    return Fitted()


def _unpacked(instance: Instance, rooms: Sequence[Room], loads: Sequence[Load]) -> dict[int, bool]:
    """Return the ranks whose load is not packed, and whether it is sure that it does not fit."""
    packed = (
        room.packing(with_pinned(instance, rank, load))
        for rank, (room, load) in enumerate(zip(rooms, loads, strict=True))
    )
    return {rank: found for rank, found in enumerate(packed) if isinstance(found, bool)}


def _least_loads(instance: Instance) -> list[list[Load]]:
    """Return loads of one block for each part of a rank, of which any load of its holds some."""
    prefix = instance.prefix_counts[:, list(instance.free_kinds)]
    earliest, latest = places_of(instance)
    found: list[set[Load]] = [
        {(0,) * len(instance.free_kinds)} for _ in range(instance.stage_count)
    ]
    for part, rank in enumerate(instance.holders):
        blocks = np.diff(prefix[earliest[part] : latest[part + 1] + 1], axis=0)
        kinds = np.unique(blocks, axis=0)
        held = np.array(list(found[rank]), dtype=np.int64)
        every = (held[:, None] + kinds[None]).reshape(-1, len(instance.free_kinds))
        found[rank] = {tuple(load) for load in every.tolist()}
    return [sorted(own) for own in found]


def _tables(
    instance: Instance, rooms: Sequence[Room], loads: Sequence[Sequence[Load]]
) -> list[dict[Load, float]]:
    """Return the tightness of the loads that may fit, by rank."""
    pinned = np.array([kind.pinned_stage for kind in instance.kinds], dtype=np.float64)
    return [
        _table(instance, room, pinned == rank, own)
        for rank, (room, own) in enumerate(zip(rooms, loads, strict=True))
    ]


def _table(
    instance: Instance, room: Room, is_pinned: Booleans, loads: Sequence[Load]
) -> dict[Load, float]:
    """Return the tightness of a rank's loads that may fit; `is_pinned` [kinds] layers are on it."""
    held = np.repeat(is_pinned.astype(np.int64)[None], len(loads), axis=0)
    free = list(instance.free_kinds)
    held[:, free] = np.array(loads, dtype=np.int64).reshape(len(loads), len(free))
    tight = room.tightness(held, np.zeros(len(loads))).tolist()
    return {load: share for load, share in zip(loads, tight, strict=True) if share <= FULL}


def _without(table: dict[Load, float], left_out: Load, *, is_sure: bool) -> dict[Load, float]:
    """Return the other loads; if it is sure that it does not fit, those with fewer of some kind."""
    return {
        load: share
        for load, share in table.items()
        if load != left_out
        and (not is_sure or any(own < most for own, most in zip(load, left_out, strict=True)))
    }


def _assignment(
    instance: Instance, rooms: Sequence[Room], cuts: tuple[int, ...]
) -> Assignment | None:
    """Return the plan of packings of what lies between cuts, None where some do not fit."""
    layers = []
    further = cut_bytes(instance, cuts).tolist()
    for rank, (room, load) in enumerate(zip(rooms, load_of_cuts(instance, cuts), strict=True)):
        packed = room.packing(with_pinned(instance, rank, tuple(load)), further[rank])
        if isinstance(packed, bool):
            return None
        layers.append(packed)
    starts = np.cumsum([len(kind.choice) for kind in instance.kinds])[:-1]
    counts = tuple(np.split(np.stack(layers), starts, axis=1))
    assignment = Assignment(counts=counts, cuts=cuts)
    return assignment if fits(instance, evaluate(instance, assignment)) else None
