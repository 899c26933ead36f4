"""Schedules: the closed form of the step, and micro-batches in flight."""

from __future__ import annotations

import pytest

from planner.cost.schedule import alpha, boundary_count, in_flight, step_seconds
from planner.schema.strategy import PipelineSchedule


def test_the_step_is_one_pass_and_the_slowest_stage_for_the_rest() -> None:
    """Stages of 2, 3 and 1 s, 4 micro-batches, ends of 5 and 7 s: 6 + 3 x 3 + 7."""
    seconds = step_seconds([2.0, 3.0, 1.0], [5.0, 7.0, 0.0], micro_batch_count=4)
    assert seconds == pytest.approx(22.0)


def test_a_lone_stage_has_no_bubble() -> None:
    assert step_seconds([2.0], [1.0], micro_batch_count=5) == pytest.approx(11.0)


@pytest.mark.parametrize(("stage", "held"), [(0, 4), (1, 3), (2, 2), (3, 1)])
def test_1f1b_holds_fewer_micro_batches_on_later_stages(stage: int, held: int) -> None:
    flight = in_flight(
        PipelineSchedule.ONE_F_ONE_B,
        micro_batch_count=8,
        pipeline_parallel_degree=4,
        stage=stage,
    )
    assert flight == held


def test_1f1b_never_holds_more_than_there_are() -> None:
    flight = in_flight(
        PipelineSchedule.ONE_F_ONE_B, micro_batch_count=2, pipeline_parallel_degree=4, stage=0
    )
    assert flight == 2


def test_gpipe_holds_all_micro_batches_on_every_stage() -> None:
    flight = in_flight(
        PipelineSchedule.GPIPE, micro_batch_count=8, pipeline_parallel_degree=4, stage=3
    )
    assert flight == 8


@pytest.mark.parametrize(
    ("degree", "stage", "count"), [(1, 0, 0), (2, 0, 1), (2, 1, 1), (4, 0, 1), (4, 2, 2), (4, 3, 1)]
)
def test_a_stage_has_a_boundary_with_each_neighbour(degree: int, stage: int, count: int) -> None:
    assert boundary_count(pipeline_parallel_degree=degree, stage=stage) == count


def test_a_schedule_without_a_closed_form_is_refused() -> None:
    with pytest.raises(ValueError, match="zb_v"):
        alpha(PipelineSchedule.ZB_V)
