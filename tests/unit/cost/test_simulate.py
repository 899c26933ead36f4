"""Simulation: small pipelines on paper."""

from __future__ import annotations

import pytest

from planner.cost.orders import Action, ActionKind, rank_orders
from planner.cost.simulation import Simulation, simulate
from planner.cost.stage import VirtualStageSeconds
from planner.schema.strategy import PipelineSchedule

ONE_EACH = VirtualStageSeconds(forward=1.0, input_gradient=1.0, weight_gradient=1.0)


def run(
    schedule: PipelineSchedule,
    seconds: list[VirtualStageSeconds],
    *,
    degree: int = 2,
    count: int = 2,
    point_to_point: float = 0.0,
) -> Simulation:
    """Simulate two micro-batches on two ranks, with changes."""
    orders = rank_orders(
        schedule,
        pipeline_parallel_degree=degree,
        virtual_pipeline_degree=len(seconds) // degree,
        micro_batch_count=count,
    )
    messages = [point_to_point] * (len(seconds) - 1)
    return simulate(orders, seconds, message_seconds=messages)


def test_gpipe_of_two_ranks_on_paper() -> None:
    """Rank 1: forwards at 1 to 3, backwards of 2 s to 7. Rank 0: its own from 5 to 7 and to 9."""
    step = run(PipelineSchedule.GPIPE, [ONE_EACH, ONE_EACH])
    starts = [[span.start_seconds for span in rank.spans] for rank in step.ranks]
    assert starts == [[0.0, 1.0, 5.0, 7.0], [1.0, 2.0, 3.0, 5.0]]
    assert [rank.finish_seconds for rank in step.ranks] == [9.0, 7.0]
    assert step.makespan_seconds == 9.0


def test_busy_and_idle_seconds_make_the_makespan() -> None:
    step = run(PipelineSchedule.GPIPE, [ONE_EACH, ONE_EACH])
    assert [rank.busy_seconds for rank in step.ranks] == [6.0, 6.0]
    assert [rank.idle_seconds(step.makespan_seconds) for rank in step.ranks] == [3.0, 3.0]


def test_a_message_delays_its_receiver_and_not_its_sender() -> None:
    """One micro-batch over two ranks: 1 s, half a second, 1 s and 2 s, half a second, 2 s."""
    step = run(PipelineSchedule.GPIPE, [ONE_EACH, ONE_EACH], count=1, point_to_point=0.5)
    assert step.makespan_seconds == pytest.approx(7.0)
    assert step.ranks[0].busy_seconds == pytest.approx(3.0)


def test_virtual_stages_side_by_side_on_a_rank_send_no_message() -> None:
    """The V turns on rank 1, so a micro-batch crosses over twice each way, not three times.

    Four forwards, the last virtual stage's I, then I, W, I on rank 1, I and W on rank 0.
    """
    step = run(PipelineSchedule.ZB_V, [ONE_EACH] * 4, count=1, point_to_point=10.0)
    assert step.makespan_seconds == pytest.approx(4.0 + 1.0 + 3.0 + 2.0 + 4 * 10.0)


def test_a_pair_hands_over_both_results_at_its_end() -> None:
    """Rank 1 gets the forward of rank 0 only when the backward beside it is done, at 1 + 1 + 2."""
    orders = (
        (
            Action(kind=ActionKind.FORWARD, virtual_stage=0, micro_batch=0),
            Action(kind=ActionKind.FORWARD, virtual_stage=0, micro_batch=1, sends_with_next=True),
            Action(kind=ActionKind.BACKWARD, virtual_stage=0, micro_batch=0),
        ),
        (
            Action(kind=ActionKind.FORWARD, virtual_stage=1, micro_batch=0),
            Action(kind=ActionKind.BACKWARD, virtual_stage=1, micro_batch=0),
            Action(kind=ActionKind.FORWARD, virtual_stage=1, micro_batch=1),
        ),
    )
    first, second = simulate(orders, [ONE_EACH, ONE_EACH], message_seconds=[0.0]).ranks
    assert first.spans[2].end_seconds == 6.0
    assert second.spans[2].start_seconds == 6.0


def test_a_whole_backward_hands_on_after_weight_gradients_too() -> None:
    """ZB-V's split backward of the last virtual stage lets the one before begin sooner."""
    slow = VirtualStageSeconds(forward=1.0, input_gradient=1.0, weight_gradient=5.0)
    split = run(PipelineSchedule.ZB_V, [slow] * 2, degree=1, count=1)
    whole = run(PipelineSchedule.INTERLEAVED, [slow] * 2, degree=1, count=1)
    assert split.makespan_seconds == whole.makespan_seconds == 14.0
    kinds = [span.action.kind.value for span in split.ranks[0].spans]
    assert kinds == ["F", "F", "I", "W", "I", "W"]


def test_the_timeline_never_overlaps_on_a_rank() -> None:
    step = run(PipelineSchedule.DUALPIPE_V, [ONE_EACH] * 8, degree=4, count=9)
    for rank in step.ranks:
        ends = [span.end_seconds for span in rank.spans]
        starts = [span.start_seconds for span in rank.spans]
        assert all(end <= start for end, start in zip(ends, starts[1:], strict=False))


def test_peaks_are_counted_in_whole_micro_batches() -> None:
    step = run(PipelineSchedule.ZB_V, [ONE_EACH] * 8, degree=4, count=9)
    assert [rank.peak_in_flight for rank in step.ranks] == [4.0, 4.0, 4.0, 4.0]


def test_orders_that_wait_for_one_another_are_refused() -> None:
    """Rank 0 wants a gradient of a micro-batch that it has not sent."""
    backwards = (
        Action(kind=ActionKind.BACKWARD, virtual_stage=0, micro_batch=0),
        Action(kind=ActionKind.FORWARD, virtual_stage=0, micro_batch=0),
    )
    forwards = (
        Action(kind=ActionKind.FORWARD, virtual_stage=1, micro_batch=0),
        Action(kind=ActionKind.BACKWARD, virtual_stage=1, micro_batch=0),
    )
    with pytest.raises(ValueError, match="wait for one another"):
        simulate((backwards, forwards), [ONE_EACH, ONE_EACH], message_seconds=[0.0])
