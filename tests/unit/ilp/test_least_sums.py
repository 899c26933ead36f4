"""Least sums over ranks are the same however many columns are asked for at once."""

from __future__ import annotations

import numpy as np

from planner.ilp.cut_point_graph import Moves, least_sums, rank_moves_along


def test_more_columns_than_are_looked_at_together_have_the_least_of_all_loads() -> None:
    loads, columns = 1000, 700
    every, nothing = np.arange(loads), np.zeros(loads, dtype=np.int64)
    rank_moves = rank_moves_along([Moves(before=nothing, after=nothing, load=every)] * 2)
    first, second = np.random.default_rng(7).random((2, loads, columns))

    assert rank_moves is not None
    found = least_sums(rank_moves, [first, second])

    assert found.shape == (columns,)
    assert np.array_equal(found, first.min(axis=0) + second.min(axis=0))


def test_loads_that_do_not_follow_one_another_have_no_sum() -> None:
    moves = [
        Moves(before=np.array([0, 0]), after=np.array([0, 1]), load=np.array([0, 1])),
        Moves(before=np.array([0, 1]), after=np.array([0, 0]), load=np.array([1, 0])),
    ]
    rank_moves = rank_moves_along(moves)
    first, second = np.array([[1.0], [10.0]]), np.array([[5.0], [100.0]])

    assert rank_moves is not None
    assert least_sums(rank_moves, [first, second]).tolist() == [15.0]


def test_no_columns_have_no_sums() -> None:
    nothing = np.zeros(1, dtype=np.int64)
    rank_moves = rank_moves_along([Moves(before=nothing, after=nothing, load=nothing)])

    assert rank_moves is not None
    assert least_sums(rank_moves, [np.zeros((1, 0))]).shape == (0,)
