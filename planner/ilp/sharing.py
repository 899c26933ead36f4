"""Sharing: cuts of a chain in the ranks' order with a low step, by dynamic programming over places.

What a rank costs between two places is what `planner.ilp.filling` makes of the layers there. Under
a cap on the largest rho t + u, the cuts with the least sum of fills are found exactly; a few caps
above the least that is possible give a few plans, of which the best is kept. With few
micro-batches the fills are most of a step, with many the slowest rank is. It proves nothing.
"""

from __future__ import annotations

from collections.abc import Iterator
from dataclasses import dataclass

import numpy as np

from planner.cost.configuration import Floats, Integers
from planner.ilp.filling import filled
from planner.ilp.heuristic import best_filling, pinned_layers
from planner.ilp.instance import Assignment, Instance
from planner.ilp.places import everywhere, placed

_SHARES_MOST = 3
_ROWS_MOST = 3000
_WEIGHTS = (1.0, 0.3, 0.1)
_EASES = (0.0, 0.001, 0.003, 0.01, 0.03, 0.1, 0.3, float("inf"))


def shared(instance: Instance) -> Assignment | None:
    """Return the best plan found, None where none fits or there is too much to fill.

    Layers are filled for several weights of omega beside fill: a rank that is slower than others
    wants a large one, and where all are as slow, one over their number is right.
    """
    return best_filling(instance, _tried(instance))


def _tried(instance: Instance) -> Iterator[tuple[tuple[int, ...], float]]:
    """Yield cuts with the weight that they were found and are to be filled at."""
    for weight in (*_WEIGHTS, 1.0 / instance.stage_count):
        parts = parts_of(instance, weight=weight)
        if parts is None:
            return
        for cuts in set(_candidates(parts)):
            yield cuts, weight


@dataclass(frozen=True, slots=True, kw_only=True)
class SharingParts:
    """What ranks cost that begin at a place and hold some blocks, [stages, starts, lengths].

    The cut in front of a rank counts with its fill; `omega` is inf where what it holds does not
    fit, and where the chain ends before.
    """

    fill: Floats
    omega: Floats


def parts_of(instance: Instance, *, weight: float) -> SharingParts | None:
    """Return the parts of every rank, None where there is too much to fill."""
    blocks, stages = instance.block_count, instance.stage_count
    longest = min(_SHARES_MOST * -(-blocks // stages), blocks - stages + 1)
    starts, lengths = np.arange(blocks), np.arange(1, longest + 1)
    ends = starts[:, None] + lengths[None, :]
    prefix = instance.prefix_counts
    held = prefix[np.minimum(ends, blocks)] - prefix[starts][:, None]
    loads, places = np.unique(held[ends <= blocks], axis=0, return_inverse=True)
    if len(loads) * stages > _ROWS_MOST:
        return None
    where = np.full(ends.shape, -1)
    where[ends <= blocks] = places.ravel()
    ranks = np.repeat(np.arange(stages), len(loads))
    least = instance if instance.extras is None else placed(instance, everywhere(instance))
    every = np.tile(loads, (stages, 1)) + pinned_layers(instance)[ranks]
    filling = filled(least, ranks, every, weight=weight)
    omega = np.where(filling.fits, filling.omega, np.inf).reshape(stages, -1)[:, where]
    fill = filling.fill.reshape(stages, -1)[:, where]
    return SharingParts(
        fill=fill + _cut_fills(instance)[:, :, None],
        omega=np.where(where < 0, np.inf, omega),
    )


def _cut_fills(instance: Instance) -> Floats:
    """Return what the cut in front of each rank adds to fills by its place, [stages, places]."""
    found = np.zeros((instance.stage_count, instance.block_count))
    if instance.extras is not None:
        found[1:, 1:] = 2.0 * instance.extras.fill[:, instance.block_classes[:-1]]
    return found


def _candidates(parts: SharingParts) -> Iterator[tuple[int, ...]]:
    """Yield the cuts with the least fills under each cap."""
    level = least_level(parts.omega)
    if not np.isfinite(level):
        return
    for ease in _EASES:
        cap = level * (1.0 + ease) if np.isfinite(ease) else np.finfo(float).max
        cuts = least_cuts(np.where(parts.omega <= cap, parts.fill, np.inf))
        if cuts is not None:
            yield cuts


def least_level(costs: Floats) -> float:
    """Return the least that the largest of the ranks' costs can be, inf where nothing fits."""
    reached = _at_the_start(costs)
    for own in costs:
        reached = _by_end(np.maximum(reached[:-1, None], own)).min(axis=1)
    return float(reached[-1])


def least_cuts(costs: Floats) -> tuple[int, ...] | None:
    """Return the cuts with the least sum of the ranks' costs, None where there are none."""
    reached = _at_the_start(costs)
    trail: list[Integers] = []
    for own in costs:
        sums = _by_end(reached[:-1, None] + own)
        trail.append(sums.argmin(axis=1) + 1)
        reached = sums.min(axis=1)
    if not np.isfinite(reached[-1]):
        return None
    cuts = [len(reached) - 1]
    for lengths in reversed(trail):
        cuts.append(cuts[-1] - int(lengths[cuts[-1]]))
    return tuple(reversed(cuts))


def _at_the_start(costs: Floats) -> Floats:
    """Return what it takes to reach each place of the chain with no rank, [places]."""
    reached = np.full(costs.shape[1] + 1, np.inf)
    reached[0] = 0.0
    return reached


def _by_end(values: Floats) -> Floats:
    """Return values [starts, lengths] by where they end, [ends, lengths], inf where none starts."""
    blocks, longest = values.shape
    found = np.full((blocks + 1, longest), np.inf)
    for place in range(longest):
        found[place + 1 :, place] = values[: blocks - place, place]
    return found
