"""Schedules: micro-batches in flight."""

from __future__ import annotations

import pytest

from planner.cost.schedule import in_flight
from planner.schema.strategy import PipelineSchedule


@pytest.mark.parametrize(("stage", "held"), [(0, 4), (1, 3), (2, 2), (3, 1)])
def test_1f1b_holds_fewer_micro_batches_on_later_stages(stage: int, held: int) -> None:
    flight = in_flight(
        PipelineSchedule.ONE_F_ONE_B,
        micro_batch_count=8,
        pipeline_parallel_degree=4,
        virtual_pipeline_degree=1,
        stage=stage,
    )
    assert flight == held


def test_1f1b_never_holds_more_than_there_are() -> None:
    flight = in_flight(
        PipelineSchedule.ONE_F_ONE_B,
        micro_batch_count=2,
        pipeline_parallel_degree=4,
        virtual_pipeline_degree=1,
        stage=0,
    )
    assert flight == 2


def test_gpipe_holds_all_micro_batches_on_every_stage() -> None:
    flight = in_flight(
        PipelineSchedule.GPIPE,
        micro_batch_count=8,
        pipeline_parallel_degree=4,
        virtual_pipeline_degree=1,
        stage=3,
    )
    assert flight == 8
