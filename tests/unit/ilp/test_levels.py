"""Levels of chains small enough to be cut by hand."""

from __future__ import annotations

import numpy as np
import pytest

from planner.ilp.levels import ChainLevels, RunLevels, chain_levels


def stages_alike(price: float, *, stages: int) -> np.ndarray:
    """One price on every stage, at one grid point."""
    return np.full((stages, 1), price)


def test_seven_layers_on_three_stages_make_one_of_three() -> None:
    levels = RunLevels(7, stages_alike(2.0, stages=3), np.zeros((3, 1)))
    assert levels.least_level() == 6.0


def test_a_heavy_offset_takes_layers_from_its_stage() -> None:
    """Stage 0 starts at 4: of 5 layers of 2 it holds 1 (6) and stage 1 four (8), not 2 and 3."""
    levels = RunLevels(5, stages_alike(2.0, stages=2), np.array([[4.0], [0.0]]))
    assert levels.least_level() == 8.0


def test_every_stage_holds_a_layer_whatever_its_offset() -> None:
    levels = RunLevels(3, stages_alike(1.0, stages=2), np.array([[10.0], [0.0]]))
    assert levels.least_level() == 11.0


def test_the_least_sum_puts_spare_layers_where_they_are_cheapest() -> None:
    """One layer each (3 + 1), and two more on the second stage (1 + 1)."""
    levels = RunLevels(4, np.array([[3.0], [1.0]]), np.zeros((2, 1)))
    assert levels.least_sum() == 6.0


def test_the_dearest_grid_point_counts() -> None:
    """Four layers cost 4 x 1 at the first point and 4 x 2 - 3 at the second."""
    levels = RunLevels(4, np.array([[1.0, 2.0]]), np.array([[0.0, -3.0]]))
    assert levels.least_level() == 5.0


def test_a_chain_of_equal_runs_levels_like_one_run() -> None:
    price, offset = stages_alike(2.0, stages=3), np.array([[1.0], [0.0], [3.0]])
    chain = chain_levels([(3, price), (4, price)], offset)
    assert isinstance(chain, ChainLevels)
    assert chain.least_level() == pytest.approx(RunLevels(7, price, offset).least_level())


def test_runs_keep_their_order() -> None:
    """1, 1, 9, 1 on two stages: the 9 stands third, so some stage holds 9 and a neighbour."""
    light, heavy = stages_alike(1.0, stages=2), stages_alike(9.0, stages=2)
    chain = chain_levels([(2, light), (1, heavy), (1, light)], np.zeros((2, 1)))
    assert chain.least_level() == pytest.approx(10.0)


def test_a_stage_that_cannot_take_the_next_layer_is_not_proof() -> None:
    """Filled greedily, stage 0 takes all light layers and stage 1 meets one too heavy for it.

    With two light layers on each of the first stages and the heavy ones on the last, all is under
    12: a bound that refused this would prune the optimum.
    """
    light = stages_alike(1.0, stages=3)
    heavy = np.array([[15.0], [10.0], [5.0]])
    offset = np.array([[3.0], [4.0], [1.0]])
    assert chain_levels([(4, light), (2, heavy)], offset).reaches(12.0)


def test_what_does_not_fit_is_refused() -> None:
    chain = chain_levels(
        [(2, stages_alike(3.0, stages=2)), (2, stages_alike(4.0, stages=2))], np.zeros((2, 1))
    )
    assert chain.reaches(8.0)
    assert not chain.reaches(7.9)
