"""Tightening: what the ways that ranks have together leave of their loads, and of V and U.

The largest rho t, u and rho t + u of a plan are no less than the least maxima over all ways, and
its fills no less than their least sum: dynamic programming over the ranks, each load at its linear
bounds. What is then left for one of them beside the others may be less than some loads need, and
without these the maxima may be larger.
"""

from __future__ import annotations

from collections.abc import Sequence
from dataclasses import dataclass, replace

import numpy as np

from planner.cost.configuration import Booleans, Floats
from planner.ilp.decomposition import Box
from planner.ilp.rank_loads import Linked, RankLoads, kept_ways
from planner.ilp.roster import Roster
from planner.ilp.transitions import Step, least_maximum, sums_through

_ROUNDS = 3
_ROUNDING = 1e-12


@dataclass(frozen=True, slots=True, kw_only=True)
class Tightened:
    """Loads that are left with their ways, and the limits of V, U and the sum of fills."""

    left: Linked
    box: Box
    fill_sum: float


@dataclass(frozen=True, slots=True, kw_only=True)
class _Costs:
    """Lower bounds of rho t + u, rho t, u and fill by rank, each [loads]."""

    both: list[Floats]
    pace: list[Floats]
    end: list[Floats]
    fill: list[Floats]

    @staticmethod
    def of(ranks: Sequence[RankLoads]) -> _Costs:
        roster = Roster(ranks=tuple(own.rank for own in ranks))
        return _Costs(
            both=[own.both for own in ranks],
            pace=[own.pace for own in ranks],
            end=roster.least(0.0, 1.0, fill_weight=0.0),
            fill=roster.least(0.0, 0.0),
        )


def tightened(left: Linked, box: Box, *, fill_sum: float, limit: float) -> Tightened | None:
    """Return what is left of plans of at most the limit, None where that is nothing."""
    if _is_beyond(left, box):
        return None
    costs = _Costs.of(left.ranks)
    masks = [np.ones(len(own.loads), dtype=bool) for own in left.ranks]
    for _ in range(_ROUNDS):
        fill_sum, through = _least_fill(left.steps, costs.fill, masks, fill_sum)
        box = _narrowed(left.steps, costs, masks, replace(box, most_both=limit - fill_sum))
        if box.is_empty():
            return None
        spent = max(box.least_both, box.least_pace + box.least_end)
        before = sum(int(mask.sum()) for mask in masks)
        masks = [
            mask & _fits(costs, rank, box) & (own + spent <= limit * (1.0 + _ROUNDING))
            for rank, (mask, own) in enumerate(zip(masks, through, strict=True))
        ]
        if sum(int(mask.sum()) for mask in masks) == before:
            break
    kept = kept_ways(left, masks)
    return None if kept is None else Tightened(left=kept, box=box, fill_sum=fill_sum)


def _is_beyond(left: Linked, box: Box) -> bool:
    """Return whether what is known of the loads already says that nothing is left."""
    both = least_maximum(left.steps, [own.both for own in left.ranks])
    pace = least_maximum(left.steps, [own.pace for own in left.ranks])
    return max(both, pace + box.least_end) > box.most_both * (1.0 + _ROUNDING)


def _least_fill(
    steps: Sequence[Step], fills: Sequence[Floats], masks: Sequence[Booleans], known: float
) -> tuple[float, list[Floats]]:
    """Return the least sum of fills, and the least with each load by rank [loads]."""
    tables = [np.where(mask, fill, np.inf) for fill, mask in zip(fills, masks, strict=True)]
    least, through = sums_through(steps, tables)
    return max(known, least), through


def _narrowed(steps: Sequence[Step], costs: _Costs, masks: Sequence[Booleans], box: Box) -> Box:
    """Return the limits of V and U with the least maxima over all ways."""
    both, pace, end = (
        least_maximum(
            steps, [np.where(mask, own, np.inf) for own, mask in zip(tables, masks, strict=True)]
        )
        for tables in (costs.both, costs.pace, costs.end)
    )
    least_pace, least_end = max(box.least_pace, pace), max(box.least_end, end)
    return replace(
        box,
        least_both=max(box.least_both, both),
        least_pace=least_pace,
        least_end=least_end,
        most_pace=min(box.most_pace, box.most_both - least_end),
        most_end=min(box.most_end, box.most_both - least_pace),
    )


def _fits(costs: _Costs, rank: int, box: Box) -> Booleans:
    """Return which loads of a rank keep the limits, [loads]."""
    room = _ROUNDING * abs(box.most_both)
    return np.asarray(
        (costs.both[rank] <= box.most_both + room)
        & (costs.pace[rank] <= box.most_pace + room)
        & (costs.end[rank] <= box.most_end + room)
    )
