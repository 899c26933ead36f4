"""What was proven at some weights bounds the cost at others."""

from __future__ import annotations

import numpy as np
import pytest

from planner.cost.configuration import Floats
from planner.ilp.lagrangian_decomposition import Caps, Roster
from planner.ilp.stage_knapsack import Packed, Packing, least_cost_within
from tests.draws import drawn
from tests.unit.ilp.random_ranks import a_random_rank, all_ways

ONE_OF = 7
NONE = np.full(3, np.inf)
ROUNDING = 1.0 + 1e-12


def parts_of(random: np.random.Generator) -> Floats:
    """Fill, pace and end of some packings, [packings, 3], a few of them 0."""
    parts: Floats = random.exponential(size=(int(random.integers(1, 12)), 3))
    return parts * (random.random(parts.shape) > 0.1)


def weights_of(random: np.random.Generator) -> Floats:
    """Weights of the fill, the pace and the end, some 0, some next to each other."""
    weights = np.array([1.0, 20.0 * random.random(), random.random()])
    if random.random() < 0.3:
        weights[int(random.integers(3))] = 0.0
    if random.random() < 0.3:
        weights[1:] = np.round(weights[1:], 1) + 1e-9 * random.random(2)
    return weights


@pytest.mark.parametrize("seed", drawn(range(300), one_of=ONE_OF))
def test_no_packing_costs_less_than_the_bound(seed: int) -> None:
    """However few weights are known, and however close they are to each other."""
    random = np.random.default_rng(seed)
    parts, packed = parts_of(random), Packed()
    for _ in range(30):
        weights = weights_of(random)
        assert packed.bound(weights, NONE) <= (parts @ weights).min() * ROUNDING
        known = weights_of(random)
        packed.add(None, known, NONE, float((parts @ known).min()))


def test_at_multiples_of_known_weights_the_bound_is_the_cost() -> None:
    """And elsewhere that of the largest multiple which is no more in any part."""
    part, known = np.array([2.0, 3.0, 5.0]), np.array([1.0, 4.0, 0.5])
    packed = Packed()
    packed.add(None, known, NONE, float(known @ part))
    for factor in (1.0, 0.1, 7.0):
        assert packed.bound(factor * known, NONE) == pytest.approx(factor * known @ part)
    assert packed.bound(np.array([3.0, 8.0, 2.0]), NONE) == pytest.approx(2.0 * known @ part)
    assert packed.bound(np.array([1.0, 4.0, 0.0]), NONE) == 0.0


def test_what_holds_under_tighter_limits_says_nothing_under_looser_ones() -> None:
    """And the other way round it does."""
    weights, limits = np.array([1.0, 2.0, 0.5]), np.array([5.0, np.inf, 9.0])
    packed = Packed()
    packed.add(None, weights, limits, 4.0)
    assert packed.bound(weights, limits) == pytest.approx(4.0)
    assert packed.bound(weights, np.array([4.0, np.inf, 9.0])) == pytest.approx(4.0)
    assert packed.bound(weights, np.array([6.0, np.inf, 9.0])) == 0.0
    assert packed.bound(weights, NONE) == 0.0


@pytest.mark.parametrize("seed", drawn(range(150), one_of=ONE_OF))
def test_packings_asked_for_again_and_again_are_the_cheapest(seed: int) -> None:
    """At changing weights, limits and cutoffs, whatever was asked before."""
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
            .packing(0, upper=upper, effort=10_000)
        )
        if least >= upper:
            assert found.counts is None
            assert found.lower <= least * ROUNDING
            continue
        assert found.counts is not None
        assert found.cost == pytest.approx(least, rel=1e-12)
        assert found.lower == pytest.approx(least, rel=1e-9)
        assert rank.parts(found.counts.astype(float)).pace <= most


@pytest.mark.parametrize("seed", drawn(range(60), one_of=ONE_OF))
def test_known_packings_that_will_do_lie_near_a_bound_that_holds(seed: int) -> None:
    """However much slack there is, and whatever is left of it."""
    rank, random = a_random_rank(seed), np.random.default_rng(seed)
    ways = [(one.fill, one.pace, one.end) for one in all_ways(rank)]
    every = np.array(ways, dtype=np.float64).reshape(-1, 3)
    for _ in range(40):
        pace, end, slack_ratio = random.random(3)
        least = float((every @ np.array([1.0, rank.repeats * pace, end])).min(initial=np.inf))
        upper = least * 1.5 if ways else 99.0
        found = (
            Roster(ranks=(rank,))
            .priced(pace, end, Caps())[0]
            .packing(0, upper=upper, effort=10_000, slack_ratio=slack_ratio)
        )
        assert found.lower <= least * ROUNDING
        assert (found.counts is not None) == bool(ways)
        if ways:
            room = slack_ratio * (upper - found.lower)
            assert least <= found.cost * ROUNDING
            assert found.cost - found.lower <= room + 1e-9 * found.cost


def test_packings_asked_for_again_are_not_looked_for(monkeypatch: pytest.MonkeyPatch) -> None:
    """They are known at weights that were asked for."""
    asked = 0

    def counted(*args: object, **named: object) -> Packing:
        nonlocal asked
        asked += 1
        return least_cost_within(*args, **named)  # type: ignore[arg-type]

    monkeypatch.setattr("planner.ilp.lagrangian_decomposition.least_cost_within", counted)
    for seed in range(20):
        rank = a_random_rank(seed)
        for _ in range(10):
            Roster(ranks=(rank,)).priced(0.4, 0.6, Caps())[0].packing(0, upper=1e6, effort=10_000)
    assert asked == 20


def test_what_cannot_be_packed_is_asked_for_once() -> None:
    """It cannot be packed at any weights, nor under tighter limits; under looser ones it may be."""
    packed, limits = Packed(), np.array([5.0, 5.0, 9.0])
    packed.add(None, np.array([1.0, 2.0, 0.5]), limits, np.inf)
    packed.add(None, np.array([1.0, 1.0, 0.0]), NONE, 4.0)
    assert packed.bound(np.array([0.0, 1.0, 1.0]), limits - 1.0) == np.inf
    assert packed.bound(np.array([1.0, 1.0, 0.0]), limits + 1.0) == pytest.approx(4.0)


def test_nothing_known_bounds_nothing() -> None:
    assert Packed().bound(np.ones(3), NONE) == 0.0


def test_a_packing_is_kept_once() -> None:
    packed = Packed()
    for _ in range(20):
        packed.add(np.array([1, 2]), np.ones(3), NONE, 1.0)
    packed.add(np.array([2, 1]), np.ones(3), NONE, 1.0)
    assert [counts.tolist() for counts in packed.counts] == [[1, 2], [2, 1]]
    assert len(packed.lower) == len(packed.weights) == len(packed.limits) == 12
