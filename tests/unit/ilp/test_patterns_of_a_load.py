"""The patterns of a load, against all multisets of choices."""

from __future__ import annotations

import numpy as np
import pytest

from planner.ilp.branch_and_bound import patterns_of
from planner.ilp.lagrangian_decomposition import Caps, PricedRank, Roster
from planner.ilp.problem import Effort, TooManyError
from tests.draws import drawn, of_drawn
from tests.unit.ilp.random_ranks import a_random_rank, all_ways

ONE_OF = 7
SEEDS = drawn(range(300), one_of=ONE_OF)
MOST = 10_000


def weights_of(seed: int) -> tuple[np.ndarray, np.ndarray]:
    """The weights of a rank's pace and end."""
    numbers = np.random.default_rng(2000 + seed)
    return numbers.random(1), numbers.random(1)


def a_priced_rank(seed: int) -> tuple[PricedRank, Caps, float]:
    """A rank at some weights below some caps, and the most that its patterns may cost."""
    numbers = np.random.default_rng(1000 + seed)
    within = Caps(
        pace=float(numbers.choice([60.0, 1e9])),
        end=float(numbers.choice([30.0, 1e9])),
        both=float(numbers.choice([250.0, 1e9])),
    )
    paces, ends = weights_of(seed)
    (priced,) = Roster(ranks=(a_random_rank(seed),)).priced(paces, ends, within)
    return priced, within, float(priced.bounds.min() + numbers.integers(1, 60))


def ways_within(seed: int, within: Caps, cost_most: float) -> np.ndarray:
    """Fill, pace and end of every way to hold the load that costs no more, [ways, 3], by hand."""
    rank, found = a_random_rank(seed), []
    pace, end = weights_of(seed)
    weights = np.array([1.0, rank.repeats * pace[0], end[0]])
    for way in all_ways(rank):
        inside = way.pace <= within.pace and way.end <= within.end
        inside = inside and rank.repeats * way.pace + way.end <= within.both
        parts = np.array([way.fill - rank.own.fill, way.pace, way.end])
        own = np.array([0.0, rank.own.pace, rank.own.end])
        if inside and weights @ (parts - own) <= cost_most:
            found.append(parts)
    return np.array(found).reshape(-1, 3)


def test_every_pattern_is_listed_or_matched_by_one_that_is() -> None:
    listed = 0
    for seed in SEEDS:
        priced, within, cost_most = a_priced_rank(seed)
        if not np.isfinite(cost_most):
            continue
        found = patterns_of(priced, 0, cost_most=cost_most, most=MOST, effort=Effort())
        measures = np.stack([found.fill, found.pace, found.end], axis=1)
        every = ways_within(seed, within, cost_most + 1e-9)
        for one in ways_within(seed, within, cost_most - 1e-9):
            assert (measures <= one + 1e-9).all(axis=1).any(), f"rank {seed}"
        for one in measures:
            assert (np.abs(every - one) < 1e-9).all(axis=1).any(), f"rank {seed}"
        listed += len(measures)
    assert listed > of_drawn(300, one_of=ONE_OF)


def a_rank_with_much_to_list() -> tuple[PricedRank, float]:
    """Return a rank with two patterns at least."""
    for seed in SEEDS:
        priced, _, cost_most = a_priced_rank(seed)
        if np.isfinite(cost_most):
            found = patterns_of(priced, 0, cost_most=cost_most, most=MOST, effort=Effort())
            if len(found.load) > 1:
                return priced, cost_most
    raise AssertionError("no rank has two patterns")


def test_too_many_patterns_are_refused() -> None:
    priced, cost_most = a_rank_with_much_to_list()
    with pytest.raises(TooManyError):
        patterns_of(priced, 0, cost_most=cost_most, most=1, effort=Effort())


def test_nothing_is_listed_without_effort() -> None:
    priced, cost_most = a_rank_with_much_to_list()
    with pytest.raises(TooManyError):
        patterns_of(priced, 0, cost_most=cost_most, most=MOST, effort=Effort(most=0.0))
