"""Regions: sets of plans that branching looks into, and how they are split."""

from __future__ import annotations

from collections.abc import Sequence
from dataclasses import dataclass, replace

import numpy as np

from planner.cost.configuration import Booleans, Floats
from planner.ilp.decomposition import Bounded, Box, Weights
from planner.ilp.loads import Load
from planner.ilp.rank import Parts
from planner.ilp.transitions import Step, least_maximum

REACH_FIRST = 0.001
_ROUNDING = 1e-12
_WIDTH_LEAST = 1e-6
_SPREAD_LEAST = 0.5


@dataclass(frozen=True, slots=True, kw_only=True)
class Packed:
    """A bound whose least sharing is packed exactly, and what its ranks add to the step."""

    bounded: Bounded
    parts: tuple[Parts, ...]


@dataclass(frozen=True, slots=True, kw_only=True)
class Region:
    """A set of plans: allowed loads by rank [loads], limits of V and U, weights of its bound.

    `packed` is the bound itself, once it is known; `reach` is how far above it plans are looked for
    next, as a share of it. A narrow one has certain loads, and its limits were split. `failures` is
    how often wider ones had too many patterns, `skipped` how often it is split before another look.
    """

    allowed: tuple[Booleans, ...]
    box: Box
    weights: Weights
    lower: float
    packed: Packed | None = None
    reach: float = REACH_FIRST
    is_narrow: bool = False
    failures: int = 0
    skipped: int = 0

    def first_loads(self) -> list[int]:
        """Return the first load that each rank may have."""
        return [int(mask.argmax()) for mask in self.allowed]

    def is_certain(self) -> bool:
        """Return whether every rank has one load."""
        return all(int(mask.sum()) == 1 for mask in self.allowed)

    def narrowed(
        self,
        steps: Sequence[Step],
        floors: Sequence[tuple[Floats, Floats, Floats]],
        *,
        fill_sum: float,
        limit: float,
    ) -> Region:
        """Return the region with what plans below the limit leave of its loads and of V and U.

        `floors` are lower bounds of rho t + u, of rho t and of u by rank, each [loads].
        """
        box = self.box
        both, pace, end = (
            least_maximum(
                steps,
                [
                    np.where(mask, own[which], np.inf)
                    for own, mask in zip(floors, self.allowed, strict=True)
                ],
            )
            for which in range(3)
        )
        most_both = min(box.most_both, limit - fill_sum)
        least_pace, least_end = max(box.least_pace, pace), max(box.least_end, end)
        box = replace(
            box,
            least_both=max(box.least_both, both),
            least_pace=least_pace,
            least_end=least_end,
            most_both=most_both,
            most_pace=min(box.most_pace, most_both - least_end),
            most_end=min(box.most_end, most_both - least_pace),
        )
        most = np.array([box.most_both, box.most_pace, box.most_end]) + _ROUNDING * abs(most_both)
        allowed = tuple(
            mask & (np.stack(own) <= most[:, None]).all(axis=0)
            for own, mask in zip(floors, self.allowed, strict=True)
        )
        lower = max(self.lower, fill_sum + box.least_sum())
        return replace(self, box=box, allowed=allowed, lower=lower)


def split(
    region: Region,
    parts: Sequence[Parts],
    path: Sequence[int],
    *,
    loads: Sequence[Sequence[Load]],
    repeats: float,
    limit: float,
) -> list[Region]:
    """Return a region in two, by the load of a rank or by a limit; nothing where that is no use.

    `parts` are what its ranks add to the step under the loads of a `path`, `loads` what they have.
    Once all loads are certain it is split by the largest end or by the largest pace.
    """
    open_ranks = [r for r, mask in enumerate(region.allowed) if mask.sum() > 1]
    if not open_ranks:
        return _by_the_box(region, parts, repeats=repeats, limit=limit)
    if repeats == 0.0 and is_about_ends(region, parts, limit=limit):
        return [replace(region, box=half) for half in region.box.halves(by_end=True)]
    rank = max(open_ranks, key=lambda r: repeats * parts[r].pace + parts[r].end)
    before, behind = region.allowed[:rank], region.allowed[rank + 1 :]
    return [
        replace(region, allowed=(*before, mask, *behind))
        for mask in _halves_of(region.allowed[rank], loads[rank], path[rank])
    ]


def _by_the_box(
    region: Region, parts: Sequence[Parts], *, repeats: float, limit: float
) -> list[Region]:
    """Return a region of certain loads in two, by the largest end or the largest pace."""
    box, weights = region.box, region.weights
    paces = np.array([repeats * one.pace for one in parts])
    ends = np.array([one.end for one in parts])
    widths = (box.most_pace - box.least_pace, box.most_end - box.least_end)
    if len(parts) == 1 or max(widths) <= _WIDTH_LEAST * limit:
        return []
    spread = (
        float(paces.max() - _mean_of(paces, weights.pace)),
        float(ends.max() - _mean_of(ends, weights.end)),
    )
    by_end = (widths[1] > 0.0 and spread[1] >= spread[0]) or widths[0] <= 0.0
    return [replace(region, box=half, is_narrow=True) for half in box.halves(by_end=by_end)]


def is_about_ends(region: Region, parts: Sequence[Parts], *, limit: float) -> bool:
    """Return whether the largest end says more of a region's plans than a rank's load.

    It does where nothing is repeated, so that layers cost about as much on any rank, and what the
    largest end of its ranks' `parts` has beyond the mean is much of what the bound lacks.
    """
    ends, box = np.array([one.end for one in parts]), region.box
    spread = float(ends.max() - _mean_of(ends, region.weights.end))
    is_wide = box.most_end - box.least_end > _WIDTH_LEAST * limit
    return len(parts) > 1 and is_wide and spread > _SPREAD_LEAST * (limit - region.lower)


def _mean_of(values: Floats, weights: Floats) -> float:
    """Return the weighted mean, the least value where all weights are 0."""
    total = float(weights.sum())
    return float(values @ weights) / total if total > 0.0 else float(values.min())


def _halves_of(mask: Booleans, loads: Sequence[Load], at: int) -> tuple[Booleans, Booleans]:
    """Return two parts of the allowed loads, each with one at least, divided at the load `at`."""
    sizes = np.array([(sum(load), *load) for load in loads])
    for column in sizes.T:
        own = column[mask]
        if own.min() == own.max():
            continue
        border = min(max(int(column[at]) - 1, int(own.min())), int(own.max()) - 1)
        return mask & (column <= border), mask & (column > border)
    first = mask & (np.cumsum(mask) <= int(mask.sum()) // 2)
    return first, mask & ~first
