"""What torch's pipeline schedules refuse is refused before ranks start."""

from __future__ import annotations

from typing import Any

import pytest

from executor.apply.runnable_schedules import check_schedule
from executor.errors import UnsupportedPlanError
from planner.schema.strategy import Strategy


def checked(*, batch: int = 8, **fields: Any) -> None:
    """Check the strategy of `fields` for eight blocks and micro-batches of one sequence."""
    check_schedule(Strategy(**fields).resolved(block_count=8, global_batch_size=batch))


@pytest.mark.parametrize(
    ("fields", "problem", "remedy"),
    [
        (
            {"pipeline_parallel_degree": 1, "virtual_pipeline_degree": 2},
            "needs a pipeline",
            "use 1",
        ),
        (
            {"pipeline_parallel_degree": 2, "virtual_pipeline_degree": 2},
            "1f1b has one stage on a rank",
            "interleaved_1f1b",
        ),
        (
            {
                "pipeline_parallel_degree": 2,
                "virtual_pipeline_degree": 3,
                "pipeline_schedule": "gpipe",
            },
            "gpipe has one stage on a rank",
            "interleaved_1f1b",
        ),
        (
            {"pipeline_parallel_degree": 2, "pipeline_schedule": "interleaved_1f1b"},
            "two or more virtual stages",
            "schedule 1f1b",
        ),
        (
            {
                "pipeline_parallel_degree": 2,
                "virtual_pipeline_degree": 4,
                "pipeline_schedule": "zb_v",
            },
            "zb_v has two virtual stages",
            "use 2",
        ),
    ],
)
def test_virtual_stages_that_a_schedule_has_not_are_refused(
    fields: dict[str, Any], problem: str, remedy: str
) -> None:
    with pytest.raises(UnsupportedPlanError, match=problem) as caught:
        checked(**fields)
    assert caught.value.field == "strategy.virtual_pipeline_degree"
    assert remedy in str(caught.value)


def test_1f1b_refuses_fewer_micro_batches_than_stages() -> None:
    with pytest.raises(UnsupportedPlanError, match=r"at least 4 micro-batches.*use gpipe"):
        checked(batch=3, pipeline_parallel_degree=4)


def test_dualpipe_v_refuses_fewer_micro_batches_than_virtual_stages() -> None:
    with pytest.raises(UnsupportedPlanError, match=r"at least 4 micro-batches.*use zb_v"):
        checked(batch=3, pipeline_parallel_degree=2, pipeline_schedule="dualpipe_v")


def test_interleaved_refuses_rounds_that_are_not_equal() -> None:
    """Seven micro-batches on two ranks make three rounds, six make three of two."""
    fields = {
        "pipeline_parallel_degree": 2,
        "virtual_pipeline_degree": 2,
        "pipeline_schedule": "interleaved_1f1b",
    }
    with pytest.raises(UnsupportedPlanError, match=r"makes 3 rounds.*use 6 by") as caught:
        checked(batch=7, **fields)
    assert caught.value.field == "strategy.micro_batch_count"
    checked(batch=6, **fields)


@pytest.mark.parametrize(
    ("schedule", "virtual", "batch"),
    [
        ("gpipe", 1, 1),
        ("1f1b", 1, 4),
        ("interleaved_1f1b", 2, 1),
        ("interleaved_1f1b", 2, 10),
        ("zb_v", 1, 1),
        ("zb_v", 2, 5),
        ("dualpipe_v", 2, 8),
    ],
)
def test_what_torch_runs_passes(schedule: str, virtual: int, batch: int) -> None:
    checked(
        batch=batch,
        pipeline_parallel_degree=4,
        virtual_pipeline_degree=virtual,
        pipeline_schedule=schedule,
    )
