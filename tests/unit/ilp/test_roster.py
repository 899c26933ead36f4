"""Bounds of ranks side by side, against all ways to hold their loads."""

from __future__ import annotations

import numpy as np
import pytest

from planner.ilp.lagrangian_decomposition import Caps, Parts, Rank, Roster
from tests.unit.ilp.random_ranks import a_random_rank, all_ways

ROUNDING = 1e-9


def three_ranks(seed: int) -> tuple[Rank, ...]:
    """Ranks with one or two kinds each, some of these with a lone choice."""
    return tuple(a_random_rank(3 * seed + place) for place in range(3))


def cost(rank: Rank, way: Parts, weights: tuple[float, float, float]) -> float:
    """Return the weighted fill, pace and end of a way."""
    fill, pace, end = weights
    return fill * way.fill + pace * rank.repeats * way.pace + end * way.end


def cheapest(rank: Rank, within: Caps, weights: tuple[float, float, float]) -> float:
    """Return the least cost of all ways below the caps, inf without any."""
    inside = (
        way
        for way in all_ways(rank)
        if way.pace <= within.pace
        and way.end <= within.end
        and rank.repeats * way.pace + way.end <= within.both
    )
    return min((cost(rank, way, weights) for way in inside), default=float("inf"))


@pytest.mark.parametrize("seed", range(80))
def test_no_bound_of_a_rank_exceeds_its_cheapest_way(seed: int) -> None:
    """At weights of each rank's own, below caps that leave some of the ways."""
    ranks, numbers = three_ranks(seed), np.random.default_rng(seed)
    within = Caps(pace=float(numbers.uniform(5.0, 90.0)), end=float(numbers.uniform(5.0, 60.0)))
    paces, ends, fill = numbers.random(3), numbers.random(3), float(numbers.choice([0.0, 1.0]))
    priced = Roster(ranks=ranks).priced(paces, ends, within, fill_weight=fill)
    for rank, own, pace, end in zip(ranks, priced, paces.tolist(), ends.tolist(), strict=True):
        least = cheapest(rank, within, (fill, pace, end))
        assert own.least()[0] <= least + ROUNDING * abs(least)


def test_most_bounds_are_near_the_cheapest_way() -> None:
    """And nearly all loads that do not fit are known not to."""
    ratios, agreed, count = [], 0, 0
    for seed in range(80):
        ranks = three_ranks(seed)
        for rank, least in zip(ranks, Roster(ranks=ranks).least(0.5, 0.5), strict=True):
            exact = cheapest(rank, Caps(), (1.0, 0.5, 0.5))
            agreed, count = agreed + (np.isfinite(exact) == np.isfinite(least[0])), count + 1
            if np.isfinite(exact):
                ratios.append(float(least[0]) / exact)
    assert np.mean(ratios) > 0.95
    assert agreed > 0.9 * count


def test_bounds_do_not_depend_on_the_ranks_beside() -> None:
    """Ranks have other kinds, transients and prices than those beside them."""
    for seed in range(80):
        ranks = three_ranks(seed)
        together = Roster(ranks=ranks).least(0.7, 0.2)
        for rank, least in zip(ranks, together, strict=True):
            (alone,) = Roster(ranks=(rank,)).least(0.7, 0.2)
            assert least == pytest.approx(alone, rel=1e-12)


def test_divided_layers_cost_what_the_bound_says() -> None:
    """Where no layer has a transient, the bound is the cost of layers that may be divided."""
    checked = 0
    for seed in range(120):
        rank = a_random_rank(seed)
        if rank.columns.transient.any() or rank.columns.host.any():
            continue
        (priced,) = Roster(ranks=(rank,)).priced(0.5, 0.5, Caps())
        bound = float(priced.least()[0])
        if np.isfinite(bound):
            parts = priced.divided(0)
            assert cost(rank, parts, (1.0, 0.5, 0.5)) == pytest.approx(bound, rel=1e-9)
            checked += 1
    assert checked > 5
