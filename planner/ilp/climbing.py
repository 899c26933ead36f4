"""Climbing: cuts of a chain of several kinds made better one block at a time.

A move shifts one cut by one block, which changes what two ranks hold. All moves are filled at once
(`planner.ilp.filling`); the best is made as long as it helps. It proves nothing, and gives searches
a plan to beat where ranks hold several virtual stages.
"""

from __future__ import annotations

from collections.abc import Sequence

import numpy as np

from planner.cost.configuration import Floats, Integers
from planner.ilp.effort import Effort
from planner.ilp.filling import Filling, filled
from planner.ilp.heuristic import balanced_cuts, block_paces, pinned_layers
from planner.ilp.instance import Assignment, Instance, evaluate, fits
from planner.ilp.places import at_cuts

_MOVES_MOST = 60
_WAYS_MOST = 4
_STEEPNESS = 24
_UNITS_A_MOVE = 60.0


def climbed(instance: Instance, cuts: tuple[int, ...], *, effort: Effort) -> Assignment | None:
    """Return the best plan on the way up from `cuts`, None if nothing fits at the top.

    What cuts add is taken from where they are at first, and then from where the last way ended.
    Ends where the effort does at the latest.
    """
    for _ in range(_WAYS_MOST):
        found = _climbed(at_cuts(instance, cuts), cuts, effort=effort)
        if found is None or fits(instance, evaluate(instance, found)):
            return found
        cuts = found.cuts
    return None


def _climbed(instance: Instance, cuts: tuple[int, ...], *, effort: Effort) -> Assignment | None:
    """Return the best plan on the way up where all cuts cost the same."""
    place = np.array(cuts, dtype=np.int64)
    ranks = np.arange(instance.stage_count)
    filling = filled(instance, ranks, held_at(instance, place))
    parts = _parts(filling)
    for _ in range(_MOVES_MOST):
        if effort.is_over:
            break
        effort.spend(_UNITS_A_MOVE * 2 * len(instance.holders))
        moved = _best_move(instance, place, parts)
        if moved is None:
            break
        place = moved
        filling = filled(instance, ranks, held_at(instance, place))
        parts = _parts(filling)
    if not filling.fits.all():
        return None
    return Assignment(counts=filling.counts, cuts=tuple(place.tolist()))


def starting_cuts(instance: Instance) -> tuple[int, ...] | None:
    """Return cuts that balance the leanest choices of the blocks, None if there are none."""
    for pace in block_paces(instance):
        cuts = balanced_cuts(instance, pace, with_own=True)
        if cuts is not None:
            return cuts
    return None


def _parts(filling: Filling) -> Floats:
    """Return omega, inf of what does not fit, and fill, [2, rows]."""
    return np.stack([np.where(filling.fits, filling.omega, np.inf), filling.fill])


def held_at(instance: Instance, cuts: Integers) -> Integers:
    """Return the layers of every kind on every rank, [stages, kinds]."""
    held = pinned_layers(instance)
    taken = np.diff(instance.prefix_counts[cuts], axis=0)
    np.add.at(held, np.array(instance.holders), taken)
    return held


def _best_move(instance: Instance, cuts: Integers, parts: Floats) -> Integers | None:
    """Return the cuts after the move with the best score, None if none beats the present one."""
    moves = cut_moves(instance, cuts)
    if not len(moves):
        return None
    after = [held_at(instance, move) for move in moves]
    before = held_at(instance, cuts)
    changed = [np.flatnonzero((held != before).any(axis=1)) for held in after]
    rows = np.concatenate(changed)
    filling = filled(
        instance,
        rows,
        np.concatenate([held[own] for held, own in zip(after, changed, strict=True)]),
    )
    fresh = _parts(filling)
    best, found, start = _score(parts), None, 0
    for move, own in zip(moves, changed, strict=True):
        trial = parts.copy()
        trial[:, own] = fresh[:, start : start + len(own)]
        start += len(own)
        score = _score(trial)
        if score < best:
            best, found = score, move
    return found


def cut_moves(
    instance: Instance, cuts: Integers, shifts: Sequence[int] = (-1, 1)
) -> list[Integers]:
    """Return the cuts after each shift of one cut by so many blocks that leaves no stage empty."""
    moves = []
    for place in range(1, len(cuts) - 1):
        if instance.holders[place - 1] == instance.holders[place]:
            continue
        for shift in shifts:
            move = cuts.copy()
            move[place] += shift
            if cuts[place - 1] < move[place] < cuts[place + 1]:
                moves.append(move)
    return moves


def _score(parts: Floats) -> tuple[int, float]:
    """Return how bad ranks are: how many do not fit, and a smooth step of the others.

    A norm in the place of the largest omega tells a slow rank from a slower one, and still lets a
    block pass through ranks that are not the slowest.
    """
    fits = np.isfinite(parts[0])
    omega, fill = parts[:, fits]
    if not len(omega):
        return parts.shape[1], 0.0
    most = float(omega.max())
    if most <= 0.0:
        return int((~fits).sum()), float(fill.sum())
    norm = most * float(((omega / most) ** _STEEPNESS).sum()) ** (1.0 / _STEEPNESS)
    return int((~fits).sum()), norm + float(fill.sum())
