"""Orders: small ones written out, and what holds of all."""

from __future__ import annotations

import pytest

from planner.cost.orders import ActionKind, Order, interleaved_round, rank_orders
from planner.schema.strategy import PipelineSchedule


def written(order: Order) -> str:
    """An order as virtual stage, kind, micro-batch; + joins a pair."""
    return " ".join(
        f"{a.virtual_stage}{a.kind.value}{a.micro_batch}{'+' if a.sends_with_next else ''}"
        for a in order
    )


def orders(
    schedule: PipelineSchedule, *, degree: int, count: int, virtual: int = 1
) -> tuple[Order, ...]:
    return rank_orders(
        schedule,
        pipeline_parallel_degree=degree,
        virtual_pipeline_degree=virtual,
        micro_batch_count=count,
    )


def test_gpipe_runs_all_forwards_first() -> None:
    order = orders(PipelineSchedule.GPIPE, degree=2, count=3)[1]
    assert written(order) == "1F0 1F1 1F2 1B0 1B1 1B2"


def test_1f1b_alternates_once_gradients_come_back() -> None:
    first, second = orders(PipelineSchedule.ONE_F_ONE_B, degree=2, count=3)
    assert written(first) == "0F0 0F1 0B0 0F2 0B1 0B2"
    assert written(second) == "1F0 1B0 1F1 1B1 1F2 1B2"


def test_interleaving_turns_to_the_next_virtual_stage_after_a_round() -> None:
    _, second = orders(PipelineSchedule.INTERLEAVED, degree=2, count=2, virtual=2)
    assert written(second) == "1F0 1F1 3F0 3B0 3F1 3B1 1B0 1B1"


def test_zb_v_keeps_weight_gradients_for_the_end() -> None:
    _, second = orders(PipelineSchedule.ZB_V, degree=2, count=3)
    assert written(second) == (
        "1F0 2F0 1F1 2F1 2I0 2W0 1F2 1I0 1W0 2F2 2I1 2W1 1I1 2I2 1I2 1W1 2W2 1W2"
    )


def test_dualpipe_v_pairs_a_forward_with_a_backward() -> None:
    first, _ = orders(PipelineSchedule.DUALPIPE_V, degree=2, count=4)
    assert written(first) == (
        "0F0 0F1 0F2 3F0 3I0 3W0 3F1 0F3+ 3B1 3F2+ 0B0 3B2 3F3+ 0B1 3B3 0I2 0W2 0I3 0W3"
    )


@pytest.mark.parametrize("schedule", list(PipelineSchedule))
def test_every_micro_batch_goes_once_each_way(schedule: PipelineSchedule) -> None:
    """Through each virtual stage: one forward, and one backward whole or in two."""
    virtual = {PipelineSchedule.GPIPE: 1, PipelineSchedule.ONE_F_ONE_B: 1}.get(schedule, 2)
    actions = [a for order in orders(schedule, degree=4, count=8, virtual=virtual) for a in order]
    places = {(stage, index) for stage in range(4 * virtual) for index in range(8)}
    by_kind = {
        kind: [(a.virtual_stage, a.micro_batch) for a in actions if a.kind is kind]
        for kind in ActionKind
    }
    assert sorted(by_kind[ActionKind.FORWARD]) == sorted(places)
    inputs = by_kind[ActionKind.BACKWARD] + by_kind[ActionKind.INPUT_GRADIENT]
    weights = by_kind[ActionKind.BACKWARD] + by_kind[ActionKind.WEIGHT_GRADIENT]
    assert sorted(inputs) == sorted(weights) == sorted(places)


def test_rounds_are_as_long_as_they_must_be() -> None:
    assert [interleaved_round(4, count) for count in (1, 3, 4, 7, 8, 10, 12)] == [
        1, 3, 4, 7, 4, 5, 4,
    ]  # fmt: skip


def test_micro_batches_that_do_not_divide_into_rounds_are_refused() -> None:
    with pytest.raises(ValueError, match="9 micro-batches do not divide into 2 equal rounds"):
        orders(PipelineSchedule.INTERLEAVED, degree=4, count=9, virtual=2)


def test_dualpipe_v_with_too_few_micro_batches_is_refused() -> None:
    with pytest.raises(ValueError, match="at least 8 micro-batches"):
        orders(PipelineSchedule.DUALPIPE_V, degree=4, count=7)
