"""Settling: one configuration's best plan below a cutoff, with proof, by branching on its ranks."""

from __future__ import annotations

from collections.abc import Sequence
from dataclasses import replace

import numpy as np

from planner.cost.configuration import Floats
from planner.ilp.bounds import ObjectiveBounds
from planner.ilp.branching import Branching
from planner.ilp.decomposition import Box, Decomposition, Weights
from planner.ilp.edges import loads_with_edges
from planner.ilp.instance import Instance
from planner.ilp.loads import Load, held_of
from planner.ilp.patterns import TooManyError
from planner.ilp.places import everywhere, placed
from planner.ilp.rank_loads import (
    Linked,
    RankLoads,
    linked,
    linked_by_sums,
    linked_with_edges,
    loads_in_band,
    ranks_of,
)
from planner.ilp.reduction import Reduction, reduction
from planner.ilp.regions import Region
from planner.ilp.tightening import tightened

_EVEN = (0.0, 0.5, 1.0)
_LOADS_LISTED = 150_000
_LOADS_MOST = 8000
EASING = 1e-9


def branching_of(
    instance: Instance,
    *,
    cutoff_seconds: float,
    bounds: ObjectiveBounds | None = None,
) -> Branching | None:
    """Return what is to be looked into for plans of at most the cutoff, maybe nothing at all.

    None where ranks may hold too many different loads.
    """
    reduced = reduction(instance, cutoff_seconds=cutoff_seconds, bounds=bounds)
    if reduced is None:
        return nothing(instance, cutoff_seconds)
    try:
        left = _linked(instance, reduced, limit=cutoff_seconds * (1.0 + EASING))
    except TooManyError:
        return None
    if left is None:
        return nothing(instance, cutoff_seconds)
    return branching_on(instance, reduced, left, cutoff_seconds=cutoff_seconds)


def _linked(instance: Instance, reduced: Reduction, *, limit: float) -> Linked | None:
    """Return the loads of plans of at most the limit and their ways, None where there are none.

    Raises:
        TooManyError: if there are too many.
    """
    loads = _loads(instance, reduced, most=limit - reduced.bounds.fill_sum)
    if loads is None:
        raise TooManyError
    if not all(loads):
        return None
    is_edged = instance.extras is not None and not instance.is_in_order
    cheapest = placed(instance, everywhere(instance)) if is_edged else instance
    ranks = ranks_of(cheapest, reduced, loads)
    if instance.is_in_order or instance.is_uniform:
        return linked(instance, reduced, ranks, limit=limit)
    some = _shared(instance, reduced, ranks, limit=limit)
    if some is None:
        return None
    link = linked_with_edges if is_edged else linked
    return link(instance, reduced, some, limit=limit)


def branching_on(
    instance: Instance, reduced: Reduction, left: Linked, *, cutoff_seconds: float
) -> Branching:
    """Return what is to be looked into of plans whose ranks hold some of these loads."""
    limit = cutoff_seconds * (1.0 + EASING)
    bounds = reduced.bounds
    tight = tightened(left, _box(reduced, limit), fill_sum=bounds.fill_sum, limit=limit)
    if tight is None:
        return nothing(instance, cutoff_seconds)
    ranks, box = tight.left.ranks, tight.box
    decomposition = Decomposition(
        instance=instance, ranks=tuple(own.rank for own in ranks), steps=tight.left.steps
    )
    branching = Branching(
        decomposition=decomposition,
        loads=[own.loads for own in ranks],
        floors=tuple(
            (own.both, own.pace, end) for own, end in zip(ranks, _ends(decomposition), strict=True)
        ),
        fill_sum=tight.fill_sum,
        limit=limit,
    )
    every = _everything(decomposition, box, branching.floors, limit=limit)
    branching.push(replace(every, lower=max(every.lower, tight.fill_sum + box.least_sum())))
    return branching


def _ends(decomposition: Decomposition) -> list[Floats]:
    """Return the least end of every load, by rank [loads]."""
    return decomposition.roster.least(0.0, 1.0, fill_weight=0.0)


def _shared(
    instance: Instance, reduced: Reduction, ranks: Sequence[RankLoads], *, limit: float
) -> Sequence[RankLoads] | None:
    """Return the loads that ranks can have together in any order, None where there are none."""
    try:
        left = linked_by_sums(instance, reduced, ranks, limit=limit)
    except TooManyError:
        return ranks
    if left is None:
        return None
    fill_sum = reduced.bounds.fill_sum
    tight = tightened(left, _box(reduced, limit), fill_sum=fill_sum, limit=limit)
    return None if tight is None else tight.left.ranks


def _loads(instance: Instance, reduced: Reduction, *, most: float) -> list[list[Load]] | None:
    """Return what ranks may hold in plans with no rho t + u above `most`."""
    held = held_of(instance, reduced.windows, most=_LOADS_LISTED)
    loads = None if held is None else loads_in_band(instance, held, most=most)
    if loads is None or sum(map(len, loads)) > _LOADS_MOST:
        return None
    cuts = reduced.windows.cuts
    if instance.extras is None or not instance.is_in_order:
        return loads
    return None if cuts is None else loads_with_edges(instance, cuts, loads, most=_LOADS_MOST)


def nothing(instance: Instance, cutoff_seconds: float) -> Branching:
    """Return nothing to look into."""
    return Branching(
        decomposition=Decomposition(instance=instance, ranks=(), steps=()),
        loads=(),
        floors=(),
        fill_sum=0.0,
        limit=cutoff_seconds * (1.0 + EASING),
    )


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
    floors: Sequence[tuple[Floats, Floats, Floats]],
    *,
    limit: float,
) -> Region:
    """Return all plans, under the best of a few even weights."""
    count = len(decomposition.ranks)
    allowed = tuple(both <= box.most_both for both, _, _ in floors)
    regions: list[Region] = []
    for share in _EVEN:
        weights = Weights(pace=np.full(count, share / count), end=np.full(count, share / count))
        lower = decomposition.bounded(weights, box, allowed).lower
        regions.append(Region(allowed=allowed, box=box, weights=weights, lower=lower))
        if lower >= limit:
            break
    return max(regions, key=lambda region: region.lower)
