"""Settling: one configuration's best plan below a cutoff, with proof, by branching on its ranks."""

from __future__ import annotations

from collections.abc import Sequence

import numpy as np

from planner.cost.configuration import Floats
from planner.ilp.bounds import ObjectiveBounds
from planner.ilp.branching import Branching, Region
from planner.ilp.decomposition import Box, Decomposition, Weights
from planner.ilp.edges import loads_with_edges
from planner.ilp.instance import Instance
from planner.ilp.loads import Load, loads_of
from planner.ilp.patterns import TooManyError
from planner.ilp.rank import rank_of
from planner.ilp.reduction import Reduction, reduction
from planner.ilp.sharpening import Tables
from planner.ilp.transitions import steps_of

_EVEN = (0.0, 0.5, 1.0)
_LOADS_MOST = 8000
_SUMS_MOST = 300
_EASING = 1e-9


def branching_of(
    instance: Instance,
    *,
    cutoff_seconds: float,
    bounds: ObjectiveBounds | None = None,
    tables: Tables | None = None,
) -> Branching | None:
    """Return what is to be looked into for plans of at most the cutoff, maybe nothing at all.

    None where ranks may hold too many different loads, or where what a cut costs differs by place
    and ranks hold several parts of the chain.
    """
    limit = cutoff_seconds * (1.0 + _EASING)
    reduced = reduction(instance, cutoff_seconds=cutoff_seconds, bounds=bounds)
    if reduced is None:
        return _nothing(instance, limit)
    loads = _loads(instance, reduced, tables)
    if loads is None:
        return None
    try:
        steps = steps_of(instance, reduced.windows, loads, sums_most=_SUMS_MOST)
    except TooManyError:
        return None
    box = _box(reduced, limit)
    if steps is None or not all(loads) or box.is_empty():
        return _nothing(instance, limit)
    ranks = tuple(
        rank_of(instance, rank, loads=own, most=reduced.most) for rank, own in enumerate(loads)
    )
    decomposition = Decomposition(instance=instance, ranks=ranks, steps=tuple(steps))
    floors = tuple((rank.without_fill(1.0), rank.without_fill(0.0)) for rank in ranks)
    branching = Branching(
        decomposition=decomposition,
        loads=loads,
        floors=floors,
        fill_sum=reduced.bounds.fill_sum,
        limit=limit,
    )
    branching.push(_everything(decomposition, box, floors, limit=limit))
    return branching


def _loads(
    instance: Instance, reduced: Reduction, tables: Tables | None
) -> list[list[Load]] | None:
    """Return what ranks may hold: where it was packed exactly, only what stays below the cutoff."""
    loads: list[list[Load]] | None
    if tables is not None:
        loads = [list(table) for table in tables.both]
    else:
        loads = loads_of(instance, reduced.windows, most=_LOADS_MOST)
    if loads is None or instance.extras is None:
        return loads
    cuts = reduced.windows.cuts
    return None if cuts is None else loads_with_edges(instance, cuts, loads, most=_LOADS_MOST)


def _nothing(instance: Instance, limit: float) -> Branching:
    """Return nothing to look into."""
    decomposition = Decomposition(instance=instance, ranks=(), steps=())
    return Branching(decomposition=decomposition, loads=(), floors=(), fill_sum=0.0, limit=limit)


def _box(reduced: Reduction, limit: float) -> Box:
    bounds = reduced.bounds
    most = limit - bounds.fill_sum
    return Box(
        least_pace=bounds.repeated_pace,
        most_pace=most - bounds.largest_end,
        least_end=bounds.largest_end,
        most_end=most - bounds.repeated_pace,
        least_both=bounds.both,
        most_both=most,
    )


def _everything(
    decomposition: Decomposition,
    box: Box,
    floors: Sequence[tuple[Floats, Floats]],
    *,
    limit: float,
) -> Region:
    """Return all plans, under the best of a few even weights."""
    count = len(decomposition.ranks)
    allowed = tuple(both <= box.most_both for both, _ in floors)
    regions: list[Region] = []
    for share in _EVEN:
        weights = Weights(pace=np.full(count, share / count), end=np.full(count, share / count))
        lower = decomposition.bounded(weights, box, allowed).lower
        regions.append(Region(allowed=allowed, box=box, weights=weights, lower=lower))
        if lower >= limit:
            break
    return max(regions, key=lambda region: region.lower)
