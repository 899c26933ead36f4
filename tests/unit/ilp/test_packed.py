"""Packings of a rank's loads are the cheapest of all ways to hold them."""

from __future__ import annotations

import numpy as np
import pytest

from planner.ilp.lagrangian_decomposition import Caps, Roster
from planner.ilp.problem import Effort
from planner.ilp.stage_knapsack import Budget
from tests.draws import drawn
from tests.unit.ilp.random_ranks import a_random_rank, all_ways

ONE_OF = 7
ROUNDING = 1.0 + 1e-12


@pytest.mark.parametrize("seed", drawn(range(150), one_of=ONE_OF))
def test_packings_are_the_cheapest(seed: int) -> None:
    """At changing weights, limits and cutoffs."""
    rank, random = a_random_rank(seed), np.random.default_rng(seed)
    ways = [(one.fill, one.pace, one.end) for one in all_ways(rank)]
    every = np.array(ways, dtype=np.float64).reshape(-1, 3)
    for _ in range(40):
        pace, end = random.random(2)
        paid = np.array([1.0, rank.repeats * pace, end])
        most = float(np.median(every[:, 1])) if ways and random.random() < 0.5 else np.inf
        least = float((every[every[:, 1] <= most] @ paid).min(initial=np.inf))
        upper = least * float(random.choice([0.9, 1.1, 2.0])) if ways else 99.0
        found = (
            Roster(ranks=(rank,))
            .priced(pace, end, Caps(pace=most))[0]
            .packing(0, upper=upper, budget=Budget(10_000, Effort()))
        )
        if least >= upper:
            assert found.counts is None
            assert found.lower <= least * ROUNDING
            continue
        assert found.counts is not None
        assert found.cost == pytest.approx(least, rel=1e-12)
        assert found.lower == pytest.approx(least, rel=1e-9)
        assert rank.parts(found.counts.astype(float)).pace <= most
