"""Schedules: fill, repeats, micro-batches in flight, by hand."""

from __future__ import annotations

import numpy as np
import pytest

from planner.cost.schedule import fill_weights, in_flight, rank_of_virtual_stage, repeat_count
from planner.schema.strategy import PipelineSchedule

GPIPE, ONE_F_ONE_B = PipelineSchedule.GPIPE, PipelineSchedule.ONE_F_ONE_B
INTERLEAVED = PipelineSchedule.INTERLEAVED
ZB_V, DUALPIPE_V = PipelineSchedule.ZB_V, PipelineSchedule.DUALPIPE_V


def flight(
    schedule: PipelineSchedule, stage: int, *, count: int = 8, degree: int = 4, virtual: int = 1
) -> float:
    """Micro-batches in flight on a rank of four, of eight micro-batches."""
    return in_flight(
        schedule,
        micro_batch_count=count,
        pipeline_parallel_degree=degree,
        virtual_pipeline_degree=virtual,
        stage=stage,
    )


def fill(
    schedule: PipelineSchedule,
    seconds: tuple[float, float, float],
    *,
    count: int = 8,
    degree: int = 4,
    virtual: int = 1,
) -> float:
    """Seconds that a rank of `seconds` forward, input gradient and weight gradient fills."""
    weights = fill_weights(
        schedule,
        pipeline_parallel_degree=degree,
        virtual_pipeline_degree=virtual,
        micro_batch_count=count,
    )
    return float(weights.of(*(np.array(part) for part in seconds)))


def repeats(schedule: PipelineSchedule, *, count: int = 8, degree: int = 4, virtual: int) -> float:
    """Repeats of the slowest rank's pace."""
    return repeat_count(
        schedule,
        pipeline_parallel_degree=degree,
        virtual_pipeline_degree=virtual,
        micro_batch_count=count,
    )


@pytest.mark.parametrize(("stage", "held"), [(0, 4), (1, 3), (2, 2), (3, 1)])
def test_1f1b_holds_fewer_micro_batches_on_later_stages(stage: int, held: int) -> None:
    assert flight(ONE_F_ONE_B, stage) == held


def test_1f1b_never_holds_more_than_there_are() -> None:
    assert flight(ONE_F_ONE_B, 0, count=2) == 2


def test_gpipe_holds_all_micro_batches_on_every_stage() -> None:
    assert flight(GPIPE, 3) == 8


@pytest.mark.parametrize(("rank", "held"), [(0, 5.5), (1, 4.5), (2, 3.5), (3, 2.5)])
def test_interleaving_holds_more_than_1f1b(rank: int, held: float) -> None:
    """Two virtual stages: a round of 4 on the first, 2 (3 - r) + 1 more, each counting half."""
    assert flight(INTERLEAVED, rank, virtual=2) == held


def test_rounds_longer_than_the_pipeline_hold_more() -> None:
    """Ten micro-batches on four ranks make two rounds of five: (5 + 6 + 1) / 2."""
    assert flight(INTERLEAVED, 0, count=10, virtual=2) == 6.0


@pytest.mark.parametrize("rank", [0, 1, 2, 3])
def test_v_shaped_schedules_hold_alike_on_every_rank(rank: int) -> None:
    assert flight(ZB_V, rank, virtual=2) == 4.0
    assert flight(DUALPIPE_V, rank, virtual=2) == 4.5


def test_an_unfilled_zb_v_holds_less_near_the_ends_of_the_chain() -> None:
    """Four micro-batches on four ranks: (4 + 1 + r) / 2."""
    assert [flight(ZB_V, rank, count=4, virtual=2) for rank in range(4)] == [2.5, 3.0, 3.5, 4.0]


@pytest.mark.parametrize("schedule", list(PipelineSchedule))
def test_a_lone_rank_holds_one_micro_batch(schedule: PipelineSchedule) -> None:
    assert flight(schedule, 0, degree=1) == 1.0


def test_gpipe_and_1f1b_pass_every_stage_once_and_repeat_the_slowest() -> None:
    for schedule in (GPIPE, ONE_F_ONE_B):
        assert fill(schedule, (1.0, 2.0, 3.0)) == pytest.approx(6.0)
        assert repeats(schedule, virtual=1) == 7.0


def test_interleaving_divides_the_fill_by_virtual_stages() -> None:
    assert fill(INTERLEAVED, (1.0, 2.0, 3.0), virtual=3) == pytest.approx(2.0)
    assert repeats(INTERLEAVED, virtual=4) == pytest.approx(7.75)


def test_interleaving_waits_for_micro_batches_that_are_missing() -> None:
    """Two micro-batches on four ranks, four virtual stages: 2 - 1/4 + 3/4 x 2."""
    assert repeats(INTERLEAVED, count=2, virtual=4) == pytest.approx(3.25)


@pytest.mark.parametrize(
    ("seconds", "expected"),
    [((1.0, 1.0, 1.0), 0.375), ((1.0, 2.0, 1.0), 0.75), ((1.0, 3.0, 1.0), 1.5)],
)
def test_zb_v_fills_with_half_the_input_gradient_or_what_weights_leave(
    seconds: tuple[float, float, float], expected: float
) -> None:
    """Three quarters of max(I / 2, I - W) on each of four ranks."""
    assert fill(ZB_V, seconds, virtual=2) == pytest.approx(expected)
    assert repeats(ZB_V, virtual=2) == 8.0


def test_zb_v_that_is_not_full_has_fewer_gaps_to_fill() -> None:
    """Five micro-batches on four ranks: (3 I - W) / 4; two: (2 F + 3 I) / 4, and the first one."""
    assert fill(ZB_V, (1.0, 2.0, 1.0), count=5, virtual=2) == pytest.approx(1.25)
    assert fill(ZB_V, (1.0, 2.0, 1.0), count=2, virtual=2) == pytest.approx(2.0 + 4.0 / 4.0)
    assert repeats(ZB_V, count=2, virtual=2) == 1.0


@pytest.mark.parametrize(
    ("seconds", "expected"), [((1.0, 2.0, 1.0), 1.375), ((1.0, 1.0, 1.0), 0.75)]
)
def test_dualpipe_v_fills_by_the_longest_of_its_ways(
    seconds: tuple[float, float, float], expected: float
) -> None:
    """(2 F / 2 + 3 I - 3/2 W) / 4 where backward is long, else 3/4 (F + (I - W) / 2)."""
    assert fill(DUALPIPE_V, seconds, virtual=2) == pytest.approx(expected)


@pytest.mark.parametrize("schedule", [ZB_V, DUALPIPE_V])
def test_a_lone_rank_fills_nothing_of_a_v(schedule: PipelineSchedule) -> None:
    assert fill(schedule, (1.0, 2.0, 1.0), degree=1, virtual=2) == 0.0


def test_fill_is_taken_layer_by_layer() -> None:
    """A layer with I = 3 W and one with I = W fill by different forms."""
    weights = fill_weights(
        ZB_V, pipeline_parallel_degree=4, virtual_pipeline_degree=2, micro_batch_count=8
    )
    filled = weights.of(np.ones(2), np.array([3.0, 1.0]), np.ones(2))
    assert filled == pytest.approx([1.5, 0.375])


def test_virtual_stages_go_round_or_there_and_back() -> None:
    def ranks(schedule: PipelineSchedule) -> list[int]:
        return [
            rank_of_virtual_stage(schedule, pipeline_parallel_degree=3, virtual_stage=stage)
            for stage in range(6)
        ]

    assert ranks(INTERLEAVED) == [0, 1, 2, 0, 1, 2]
    assert ranks(ZB_V) == ranks(DUALPIPE_V) == [0, 1, 2, 2, 1, 0]
