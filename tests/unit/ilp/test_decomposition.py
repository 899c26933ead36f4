"""The limits of V and U, and sharing layers out over ranks."""

from __future__ import annotations

from itertools import product

import numpy as np
import pytest

from planner.ilp.cut_point_graph import RankMoves, best_loads, sums_through
from planner.ilp.lagrangian_decomposition import Box


def a_box(**changes: float) -> Box:
    fields = {
        "least_pace": 2.0,
        "most_pace": 8.0,
        "least_end": 1.0,
        "most_end": 5.0,
        "least_both": 4.0,
        "most_both": 10.0,
    }
    return Box(**{**fields, **changes})


@pytest.mark.parametrize(
    ("prices", "expected"),
    [
        ((1.0, 1.0), 4.0),
        ((1.0, 0.0), 2.0),
        ((0.0, 1.0), 1.0),
        ((1.0, 3.0), 6.0),
        ((-1.0, 0.5), -7.5),
    ],
)
def test_the_least_of_a_box_lies_on_its_border(
    prices: tuple[float, float], expected: float
) -> None:
    """V in 2..8, U in 1..5, V + U in 4..10: (3, 1) for even prices, (8, 1) where V is paid for."""
    pace, end = a_box().least(*prices)
    assert prices[0] * pace + prices[1] * end == pytest.approx(expected)


def test_a_box_of_limits_that_exclude_each_other_is_empty() -> None:
    assert not a_box().is_empty()
    assert a_box(least_both=14.0).is_empty()
    assert a_box(most_both=2.5).is_empty()
    assert a_box(most_end=0.5).is_empty()


def three_ranks(blocks: int) -> tuple[list[RankMoves], list[tuple[int, ...]]]:
    """Return the ways in which three ranks share blocks, one to three each, and these ways."""
    rank_moves = []
    states = [0]
    for left in (2, 1, 0):
        ways = sorted(
            (state + load + 1, states.index(state), load)
            for state in states
            for load in range(3)
            if left <= blocks - (state + load + 1) <= 3 * left
        )
        names = sorted({way[0] for way in ways})
        ends = np.array([names.index(way[0]) for way in ways])
        rank_moves.append(
            RankMoves(
                before=np.array([way[1] for way in ways]),
                after=ends,
                load=np.array([way[2] for way in ways]),
                starts=np.searchsorted(ends, np.arange(len(names))),
            )
        )
        states = names
    every = [way for way in product(range(3), repeat=3) if sum(way) + 3 == blocks]
    return rank_moves, every


@pytest.mark.parametrize("seed", range(20))
def test_sharing_equals_trying_all_ways(seed: int) -> None:
    rank_moves, every = three_ranks(blocks=4 + seed % 5)
    tables = list(np.random.default_rng(seed).integers(0, 50, size=(3, 3)).astype(float))
    cost = {way: sum(tables[rank][load] for rank, load in enumerate(way)) for way in every}
    least, through = sums_through(rank_moves, tables)
    assert least == min(cost.values())
    for rank, load in product(range(3), repeat=2):
        own = [cost[way] for way in every if way[rank] == load]
        assert through[rank][load] == (min(own) if own else np.inf)
    assert cost[best_loads(rank_moves, tables)] == min(cost.values())
