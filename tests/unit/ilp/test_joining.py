"""The best plan of ranks whose layers are certain, against all combinations of their ways."""

from __future__ import annotations

from itertools import product

import numpy as np
import pytest

from planner.ilp.decomposition import Box, Weights, step_of
from planner.ilp.joining import Joining, fill_shares
from planner.ilp.rank import Rank
from tests.draws import drawn, of_drawn
from tests.unit.ilp.random_ranks import a_random_rank, all_ways

ONE_OF = 3
SEEDS = drawn(range(120), one_of=ONE_OF)
NEVER = float("inf")


def random_ranks(seed: int) -> list[Rank]:
    """Two or three ranks, each with a load of its own."""
    count = 2 + seed % 2
    return [a_random_rank(1000 * seed + place) for place in range(count)]


def best_by_hand(ranks: list[Rank]) -> float | None:
    """Return the least S + rho T + U, None where a rank cannot hold its load."""
    ways = [sorted({(way.pace, way.end, way.fill) for way in all_ways(rank)}) for rank in ranks]
    kept = []
    for own in ways:
        front: list[tuple[float, float, float]] = []
        for pace, end, fill in own:
            if not front or end < front[-1][1]:
                front.append((pace, end, fill))
        kept.append(front)
    steps = (
        sum(fill for _, _, fill in way)
        + ranks[0].repeats * max(pace for pace, _, _ in way)
        + max(end for _, end, _ in way)
        for way in product(*kept)
    )
    return min(steps, default=None)


def joining_below(ranks: list[Rank], limit: float, seed: int) -> Joining:
    """Return what is to be joined below a limit, from some weights."""
    numbers = np.random.default_rng(seed)
    shares = fill_shares(ranks)
    assert shares is not None
    box = Box(
        least_pace=0.0,
        most_pace=limit,
        least_end=0.0,
        most_end=limit,
        least_both=0.0,
        most_both=limit,
    )
    weights = Weights(pace=numbers.random(len(ranks)), end=numbers.random(len(ranks)))
    return Joining.of(ranks, shares, box, weights)


def run_to_the_end(joining: Joining, ranks: list[Rank], limit: float, best: float) -> float:
    """Return the least step of the plans that were taken; no bound on the way exceeds the best."""
    least = limit

    def take(counts: list[np.ndarray]) -> float:
        nonlocal least
        parts = [rank.parts(own.astype(float)) for rank, own in zip(ranks, counts, strict=True)]
        least = min(least, step_of(parts, ranks[0].repeats))
        return least

    for _ in range(1000):
        joining.run(take, limit=least, deadline=0.0)  # one gap at a time
        if joining.lower == NEVER:
            return least
        assert joining.lower <= best * (1.0 + 1e-9)
    raise AssertionError("it never ends")


@pytest.mark.parametrize("above", [1e-6, 0.05, 1.0])
def test_the_best_plan_is_found(above: float) -> None:
    joined = 0
    for seed in SEEDS:
        ranks = random_ranks(seed)
        best = best_by_hand(ranks)
        if best is None:
            continue
        limit = best * (1.0 + above)
        joining = joining_below(ranks, limit, seed)
        assert run_to_the_end(joining, ranks, limit, best) == pytest.approx(best, rel=1e-12)
        joined += 1
    assert joined > of_drawn(60, one_of=ONE_OF)


def test_nothing_is_found_below_the_best() -> None:
    for seed in SEEDS:
        ranks = random_ranks(seed)
        best = best_by_hand(ranks)
        limit = 1e4 if best is None else best * (1.0 - 1e-6)
        joining = joining_below(ranks, limit, seed)
        assert run_to_the_end(joining, ranks, limit, best or 1e4) == limit


def test_fills_that_are_no_shares_of_paces_are_not_joined() -> None:
    ranks = random_ranks(1)
    ranks[0].columns.fill[:] = np.arange(len(ranks[0].columns.fill)) ** 2
    assert fill_shares(ranks) is None
