"""The benchmark of the closed form against its simulation: what it draws, and what it says."""

from __future__ import annotations

from random import Random

import pytest

from benchmarks.simulation import error_ratio, random_errors, random_strategy
from planner.schema.plan import SimulatedStep
from planner.schema.strategy import PipelineSchedule
from tests.builders import a_prediction


@pytest.mark.parametrize("schedule", list(PipelineSchedule))
def test_drawn_strategies_hold_every_block_once(schedule: PipelineSchedule) -> None:
    for seed in range(20):
        strategy, batch = random_strategy(schedule, 48, Random(seed))  # noqa: S311
        whole = strategy.resolved(block_count=48, global_batch_size=batch)
        assert sum(stage.block_count for stage in whole.stages or ()) == 48
        assert whole.world_size == 64


def test_the_same_seed_draws_the_same_errors() -> None:
    once, twice = random_errors(2, seed=3), random_errors(2, seed=3)
    assert once == twice
    assert {len(found) for found in once.values()} == {2}
    assert random_errors(2, seed=4) != once


def test_an_error_is_the_predictions_own() -> None:
    step = SimulatedStep(
        step_seconds=0.8, closed_form_error_ratio=0.25, bubble_ratio=0.1, stages=()
    )
    assert error_ratio(a_prediction(simulated=step)) == 0.25


def test_a_prediction_without_simulation_has_no_error() -> None:
    with pytest.raises(ValueError, match="no simulation"):
        error_ratio(a_prediction())
