"""The replay: which runs are a grid, and what an order of its layouts comes to."""

from __future__ import annotations

import pytest

from benchmarks.tuning import Grid, at_random, by_prediction, grids, mean_of, outcome, tuned
from tests.measured_rows import TORCHTITAN, a_run

SECONDS = {1: 20.0, 2: 16.0, 4: 18.0, 8: 24.0}


def rows() -> list:
    """Tensor parallelism by 1 to 8 under two kinds of checkpointing; without any it ran out."""
    layouts = [(degree, kept) for degree in SECONDS for kept in ("selective", "full")]
    ran = [
        a_run(
            TORCHTITAN,
            tp=degree,
            dp=64 // degree,
            recompute=kept,
            tokens_per_s_per_gpu=None,
            step_time_s=SECONDS[degree] * (1.1 if kept == "full" else 1.0),
        )
        for degree, kept in layouts
    ]
    lost = a_run(
        TORCHTITAN, mbs=1, recompute="none", outcome="oom", tokens_per_s_per_gpu=None, id="oom"
    )
    return [*ran, lost]


@pytest.fixture(scope="module")
def grid() -> Grid:
    (found,) = grids(rows())
    return found


def test_layouts_of_one_job_are_a_grid_with_those_that_ran_out_of_memory(grid) -> None:
    assert len(grid.cells) == 9
    assert [cell.seconds for cell in grid.cells].count(None) == 1
    assert grid.best_seconds == 16.0


def test_runs_of_another_batch_or_program_are_another_grid() -> None:
    few = rows()[:7]
    other = [run.model_copy(update={"gbs": 128}) for run in rows()[7:]]
    assert [len(one.cells) for one in grids([*few, *other])] == [7]


def test_a_layout_that_ran_several_times_took_the_median(grid) -> None:
    again = [rows()[2].model_copy(update={"step_time_s": seconds}) for seconds in (15.0, 14.0)]
    (found,) = grids([*rows(), *again])
    assert len(found.cells) == len(grid.cells)
    assert found.best_seconds == 15.0


def test_the_outcome_of_an_order_by_hand(grid) -> None:
    """Layouts 0, 8 (out of memory), 2: 20, then 16 s."""
    after = {count: outcome(grid, [0, 8, 2], run_count=count) for count in (1, 2, 3, 10)}
    assert after[1].regret_ratio == pytest.approx(0.25)
    assert after[2].wasted_ratio == 0.5
    assert after[3].regret_ratio == 0.0
    assert after[10].wasted_ratio == pytest.approx(1.0 / 3.0)
    assert outcome(grid, [8], run_count=1).regret_ratio is None


def test_means_count_grids_alike(grid) -> None:
    mean = mean_of([grid, grid], [[[0], [8]], [[2]]], run_count=1)
    assert mean.regret_ratio == pytest.approx(0.125)  # 25 % where it ran, and none
    assert (mean.wasted_ratio, mean.nothing_ratio) == (0.25, 0.25)


def test_every_order_has_each_layout_once_and_a_tuning_its_budget(grid) -> None:
    assert sorted(at_random(grid, 3)) == sorted(by_prediction(grid)) == list(range(9))
    order = tuned(grid)
    assert len(set(order)) == len(order) <= 10
    assert order[0] == by_prediction(grid)[0]
