"""Regions: sets of plans that branching looks into, and how they are split."""

from __future__ import annotations

from collections.abc import Sequence
from dataclasses import dataclass

import numpy as np

from planner.cost.configuration import Booleans, Floats
from planner.ilp.decomposition import Bounded, Box, Weights
from planner.ilp.loads import Load
from planner.ilp.rank import Parts

REACH_FIRST = 0.001


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


def mean_of(values: Floats, weights: Floats) -> float:
    """Return the weighted mean, the least value where all weights are 0."""
    total = float(weights.sum())
    return float(values @ weights) / total if total > 0.0 else float(values.min())


def halves_of(mask: Booleans, loads: Sequence[Load], at: int) -> tuple[Booleans, Booleans]:
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
