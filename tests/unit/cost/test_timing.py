"""Timing: where ranks share cores, one that waits leaves its share to the others."""

from __future__ import annotations

import pytest

from planner.cost.configuration import Configuration
from planner.cost.schedule import ScheduleTiming, schedule_timing
from planner.schema.job import Stack
from planner.schema.strategy import PipelineSchedule


def _timing(*, stages: int, count: int, lone_speed: float, virtual: int = 1) -> ScheduleTiming:
    schedule = PipelineSchedule.ONE_F_ONE_B if virtual == 1 else PipelineSchedule.INTERLEAVED
    configuration = Configuration(
        pipeline_parallel_degree=stages,
        virtual_pipeline_degree=virtual,
        pipeline_schedule=schedule,
        micro_batch_count=count,
    )
    return schedule_timing(configuration, Stack.TORCH, lone_speed_ratio=lone_speed)


def _step(timing: ScheduleTiming, *, stages: int) -> float:
    """Return the step of stages that take 1 second a micro-batch, a third of it forward."""
    fill = stages * timing.weights.of_one(1.0 / 3.0, 1.0 / 3.0, 1.0 / 3.0)
    return fill + timing.repeat_count


@pytest.mark.parametrize(
    ("stages", "count", "lone_speed", "seconds"),
    [
        (4, 4, 1.0, 7.0),  # a device each: m + p - 1
        (1, 4, 2.0, 4.0),  # no pipeline: all ranks are busy all the time
        (2, 1, 2.0, 1.0),  # one of two stages at a time, at twice the speed
        (2, 4, 2.0, 4.0),  # two cores never idle: a lone stage has both
        (4, 4, 2.0, 4.25),  # four seconds of work, and one core idle as it fills and drains
        (4, 1, 2.0, 2.0),  # four stages one after another, each at twice the speed
        (4, 4, 4.0, 4.0),  # one core for all
        (2, 1, 2.5, 0.8),  # one of two stages at a time, which lose a fifth when they share a core
        (2, 4, 2.5, 3.9),  # the first and the last stage are alone as it fills and drains
    ],
)
def test_a_step_is_work_or_path(stages: int, count: int, lone_speed: float, seconds: float) -> None:
    timing = _timing(stages=stages, count=count, lone_speed=lone_speed)
    assert _step(timing, stages=stages) == pytest.approx(seconds)


@pytest.mark.parametrize(
    ("stages", "lone_speed", "seconds"),
    [
        (2, 2.0, 1.0),  # the path of 5/3 at twice the speed would be less than all the work
        (2, 2.5, 0.8),  # all the work, each stage's without another that takes its cache
        (4, 2.0, 1.5),  # two cores have room for weights' gradients beside a path of 3
    ],
)
def test_one_micro_batch_takes_no_less_than_its_work(
    stages: int, lone_speed: float, seconds: float
) -> None:
    configuration = Configuration(
        pipeline_parallel_degree=stages,
        virtual_pipeline_degree=2,
        pipeline_schedule=PipelineSchedule.ZB_V,
        micro_batch_count=1,
    )
    timing = schedule_timing(configuration, Stack.TORCH, lone_speed_ratio=lone_speed)
    assert _step(timing, stages=stages) == pytest.approx(seconds)


def test_an_interleaved_pipeline_gains_nothing_where_bubbles_cost_nothing() -> None:
    plain = _timing(stages=2, count=4, lone_speed=2.0)
    turns = _timing(stages=2, count=4, lone_speed=2.0, virtual=2)
    assert _step(plain, stages=2) == pytest.approx(_step(turns, stages=2))


@pytest.mark.parametrize("virtual", [1, 2])
def test_messages_take_half_of_each_rank_and_are_no_faster_for_idle_cores(virtual: int) -> None:
    """All of one micro-batch passes at twice the speed, but for its messages."""
    timing = _timing(stages=2, count=1, lone_speed=2.0, virtual=virtual)
    assert timing.path_ratio == 0.5
    assert timing.shares.fill == 0.5
    assert timing.path_ratio * timing.shares.pace == 0.5


def test_devices_of_their_own_leave_the_schedule_as_it_is() -> None:
    timing = _timing(stages=4, count=8, lone_speed=1.0)
    assert timing.path_ratio == 1.0
    assert timing.repeat_count == 7.0
    assert timing.weights.forms == ((1.0, 1.0, 1.0),)
