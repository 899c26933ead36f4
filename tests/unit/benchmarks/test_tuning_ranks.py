"""Tune over what four ranks took: which strategies are a grid, and which models there are."""

from __future__ import annotations

import pytest

pytest.importorskip("torch", reason="no package torch")

from benchmarks.regret_models import contests, unseen_contests
from benchmarks.regret_rows import MeasuredModel
from benchmarks.tuning import by_prediction, outcome, tuned
from benchmarks.tuning_ranks import grid_of, missing_lines
from planner.importers.clusters import cluster_from_short_form
from planner.schema.strategy import Strategy
from planner.schema.trial import Trial

STEPS = {1: (0.5, 0.5, 0.5), 2: (0.25, 0.3, 0.2), 4: (0.4, 0.4, 0.4)}


@pytest.fixture(scope="module")
def measured():
    """Three degrees of tensor parallelism that ran, and a strategy that the executor refused."""
    rows = [
        Trial(
            strategy=Strategy(tensor_parallel_degree=degree, data_parallel_degree=4 // degree),
            step_seconds=steps,
        )
        for degree, steps in STEPS.items()
    ]
    refused = Trial(strategy=Strategy(pipeline_parallel_degree=4), refusal="not runnable")
    return MeasuredModel(
        name="dense-wide",
        cluster=cluster_from_short_form("4xcpu-gloo"),
        conditions="by hand",
        rows=(*rows, refused),
    )


@pytest.fixture(scope="module")
def grid(measured):
    """What was measured, as a table to tune over."""
    return grid_of(contests()[0], measured)


def test_models_that_were_not_measured_are_named(measured) -> None:
    others = [
        measured.model_copy(update={"name": contest.name})
        for contest in (*contests(), *unseen_contests())
        if contest.name not in {"few-experts", "shared-heads"}
    ]
    assert missing_lines(others) == ["", "Not measured: few-experts, shared-heads."]
    both = [measured.model_copy(update={"name": name}) for name in ("few-experts", "shared-heads")]
    assert missing_lines([*others, *both]) == []


def test_strategies_that_ran_are_a_grid_with_their_typical_steps(grid) -> None:
    """Rounds took 0.4, 0.4 and 0.4 s in the median of all: none is scaled."""
    degrees = [cell.case.strategy.tensor_parallel_degree for cell in grid.cells]
    assert degrees == [1, 2, 4]
    assert [cell.seconds for cell in grid.cells] == pytest.approx([0.5, 0.25, 0.4])


def test_a_tuning_over_all_of_a_grid_finds_its_best(grid) -> None:
    assert sorted(by_prediction(grid)) == [0, 1, 2]
    order = tuned(grid)
    assert outcome(grid, by_prediction(grid), run_count=3).regret_ratio == 0.0
    assert set(order) <= {0, 1, 2}


def test_two_models_are_unseen_and_have_names_of_their_own() -> None:
    names = [contest.name for contest in (*contests(), *unseen_contests())]
    assert len(unseen_contests()) == 2
    assert len(set(names)) == len(names)
