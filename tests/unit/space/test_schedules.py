"""Which schedules are searched, and which of a user's strategy are refused."""

from __future__ import annotations

from typing import Any

import pytest

from planner.schema.job import Stack
from planner.schema.strategy import PipelineSchedule, Strategy
from planner.space.breach import Breach
from planner.space.schedules import (
    ScheduleOptions,
    micro_batch_obstacle,
    schedule_breaches,
    schedule_options,
)
from tests.builders import a_job

ALL = [schedule.value for schedule in PipelineSchedule]


def options(
    *,
    stack: str = "torch",
    degree: int = 4,
    count: int = 16,
    blocks: int = 32,
    **limits: Any,
) -> ScheduleOptions:
    """Options of four ranks, sixteen micro-batches and 32 blocks, all schedules allowed."""
    job = a_job(stack=stack, limits={"pipeline_schedules": ALL, **limits})
    return schedule_options(
        job, pipeline_parallel_degree=degree, micro_batch_count=count, block_count=blocks
    )


def listed(found: ScheduleOptions) -> list[tuple[str, int]]:
    """The options as schedule and virtual stages."""
    return [(o.schedule.value, o.virtual_pipeline_degree) for o in found.options]


def breaches(
    stack: str = "torch", blocks: int = 32, framework: str | None = None, **changes: Any
) -> list[Breach]:
    """Breaches of a strategy of four ranks and sixteen micro-batches."""
    fields: dict[str, Any] = {
        "pipeline_parallel_degree": 4,
        "data_parallel_shard_degree": 1,
        "micro_batch_size": 1,
        "micro_batch_count": 16,
    }
    strategy = Strategy(**{**fields, **changes}).resolved(block_count=blocks, global_batch_size=16)
    return list(schedule_breaches(a_job(stack=stack, framework=framework), strategy, blocks))


def test_torch_is_searched_for_all_schedules_but_gpipe_beside_1f1b() -> None:
    """Eight blocks a rank split evenly by 2, 4 and 8."""
    assert listed(options()) == [
        ("1f1b", 1),
        ("interleaved_1f1b", 2),
        ("interleaved_1f1b", 4),
        ("interleaved_1f1b", 8),
        ("zb_v", 2),
        ("dualpipe_v", 2),
    ]


def test_megatron_and_deepspeed_are_searched_for_what_they_run() -> None:
    assert {name for name, _ in listed(options(stack="megatron"))} == {"1f1b", "interleaved_1f1b"}
    assert listed(options(stack="deepspeed")) == [("1f1b", 1)]


def test_gpipe_is_searched_where_1f1b_is_refused_or_ruled_out() -> None:
    """Two micro-batches do not fill four ranks, nor DualPipeV's eight virtual stages."""
    found = options(count=2)
    assert {name for name, _ in listed(found)} == {"gpipe", "interleaved_1f1b", "zb_v"}
    assert "micro-batches of 1f1b: fewer than pipeline stages" in found.refused
    assert "micro-batches of dualpipe_v: fewer than virtual stages" in found.refused
    assert listed(options(pipeline_schedules=["gpipe"])) == [("gpipe", 1)]


@pytest.mark.parametrize(
    ("allowed", "chosen"), [(ALL, "1f1b"), (["zb_v"], "zb_v"), (["gpipe", "zb_v"], "gpipe")]
)
def test_one_schedule_stands_for_all_on_a_lone_rank(allowed: list[str], chosen: str) -> None:
    assert listed(options(degree=1, pipeline_schedules=allowed)) == [(chosen, 1)]


def test_every_virtual_stage_holds_a_block() -> None:
    """Seven blocks on four ranks: one on some rank, so nothing to split."""
    found = options(blocks=7)
    assert listed(found) == [("1f1b", 1)]
    assert "fewer blocks than virtual stages of zb_v" in found.refused


def test_a_limit_on_virtual_stages_is_kept_and_opens_uneven_splits() -> None:
    """Five of eight blocks a rank are searched only because the limit asks for it."""
    found = options(virtual_pipeline_degree=5)
    assert listed(found) == [("interleaved_1f1b", 5)]
    rule = "job.limits.virtual_pipeline_degree is 5, which rules these out"
    assert rule in found.refused


def test_more_than_eight_virtual_stages_wait_for_a_limit() -> None:
    degrees = [v for name, v in listed(options(blocks=64)) if name == "interleaved_1f1b"]
    assert max(degrees) == 8
    asked = options(blocks=64, virtual_pipeline_degree=16)
    assert listed(asked) == [("interleaved_1f1b", 16)]


def test_a_limit_that_no_schedule_of_the_stack_meets_is_named() -> None:
    found = options(stack="deepspeed", pipeline_schedules=["gpipe", "zb_v"])
    assert found.options == ()
    assert found.refused == (
        "job.limits.pipeline_schedules is gpipe, zb_v, none of which deepspeed runs; it runs 1f1b",
    )


def test_checkpointing_is_searched_under_v_schedules_where_no_other_may_run() -> None:
    """It is legal everywhere, but idles more than under the interleaved schedule."""
    full = {"activation_checkpointing": ["full"]}
    found = options(**full)
    assert {name for name, _ in listed(found)} == {"1f1b", "interleaved_1f1b"}
    rule = "checkpointing under zb_v, which idles more than other schedules"
    assert rule in found.refused
    alone = options(**full, pipeline_schedules=["zb_v", "dualpipe_v"])
    assert {name for name, _ in listed(alone)} == {"zb_v", "dualpipe_v"}
    assert not breaches(pipeline_schedule="zb_v", activation_checkpointing="full")


@pytest.mark.parametrize(
    ("stack", "schedule", "count", "runs"),
    [
        ("torch", "1f1b", 3, False),
        ("torch", "1f1b", 4, True),
        ("megatron", "1f1b", 1, True),
        ("deepspeed", "1f1b", 1, True),
        ("torch", "gpipe", 1, True),
        ("torch", "zb_v", 1, True),
        ("torch", "dualpipe_v", 7, False),
        ("torch", "dualpipe_v", 8, True),
        ("torch", "interleaved_1f1b", 3, True),
        ("torch", "interleaved_1f1b", 9, False),
        ("torch", "interleaved_1f1b", 10, True),
        ("megatron", "interleaved_1f1b", 10, False),
        ("megatron", "interleaved_1f1b", 12, True),
        ("megatron", "interleaved_1f1b", 3, False),
    ],
)
def test_micro_batches_that_four_ranks_run(
    stack: str, schedule: str, count: int, runs: bool
) -> None:
    obstacle = micro_batch_obstacle(Stack(stack), PipelineSchedule(schedule), degree=4, count=count)
    assert (obstacle is None) is runs


@pytest.mark.parametrize(
    ("stack", "count", "remedy"),
    [
        ("torch", 9, "use 8 or 10 micro-batches"),
        ("torch", 13, "use 12 or 15 micro-batches"),
        ("megatron", 10, "use 8 or 12 micro-batches"),
        ("megatron", 3, "use 4 micro-batches"),
    ],
)
def test_a_refused_number_of_micro_batches_comes_with_those_that_run(
    stack: str, count: int, remedy: str
) -> None:
    obstacle = micro_batch_obstacle(
        Stack(stack), PipelineSchedule.INTERLEAVED, degree=4, count=count
    )
    assert obstacle is not None
    assert obstacle.remedy == remedy


@pytest.mark.parametrize(
    "changes",
    [
        {"pipeline_schedule": "gpipe"},
        {"pipeline_schedule": "1f1b"},
        {"pipeline_schedule": "interleaved_1f1b", "virtual_pipeline_degree": 2},
        {"pipeline_schedule": "interleaved_1f1b", "virtual_pipeline_degree": 8},
        {"pipeline_schedule": "zb_v"},
        {"pipeline_schedule": "dualpipe_v", "virtual_pipeline_degree": 2},
        {"pipeline_schedule": "zb_v", "pipeline_parallel_degree": 1},
    ],
)
def test_legal_strategies_break_no_rule(changes: dict[str, Any]) -> None:
    assert breaches(**changes) == []


@pytest.mark.parametrize(
    ("changes", "field", "said"),
    [
        ({"stack": "megatron", "pipeline_schedule": "zb_v"}, "pipeline_schedule", "of megatron"),
        ({"stack": "deepspeed", "pipeline_schedule": "gpipe"}, "pipeline_schedule", "deepspeed"),
        ({"virtual_pipeline_degree": 2}, "virtual_pipeline_degree", "one stage on a rank"),
        (
            {"pipeline_schedule": "interleaved_1f1b"},
            "virtual_pipeline_degree",
            "two or more virtual stages",
        ),
        (
            {"pipeline_schedule": "zb_v", "virtual_pipeline_degree": 4},
            "virtual_pipeline_degree",
            "has two virtual stages",
        ),
        (
            {"pipeline_parallel_degree": 1, "virtual_pipeline_degree": 2},
            "virtual_pipeline_degree",
            "needs a pipeline",
        ),
        ({"micro_batch_count": 3}, "micro_batch_count", "fewer than pipeline stages"),
        (
            {"pipeline_schedule": "dualpipe_v", "micro_batch_count": 7},
            "micro_batch_count",
            "dualpipe_v of torch refuses",
        ),
        (
            {
                "stack": "megatron",
                "pipeline_schedule": "interleaved_1f1b",
                "virtual_pipeline_degree": 2,
                "micro_batch_count": 10,
            },
            "micro_batch_count",
            "not a multiple of pipeline stages",
        ),
        (
            {
                "framework": "torchtitan",
                "pipeline_schedule": "zb_v",
                "activation_checkpointing": "full",
            },
            "stages.0.layers.0.activation_checkpointing",
            "recompute the block again",
        ),
    ],
)
def test_a_broken_rule_names_field_and_reason(
    changes: dict[str, Any], field: str, said: str
) -> None:
    first = breaches(**changes)[0]
    assert first.field == field
    assert said in first.problem
    assert first.remedy


def test_more_virtual_stages_than_blocks_are_refused() -> None:
    strategy = Strategy(
        pipeline_parallel_degree=4,
        pipeline_schedule=PipelineSchedule.INTERLEAVED,
        virtual_pipeline_degree=3,
        micro_batch_count=16,
    )
    (breach,) = schedule_breaches(a_job(), strategy, 8)
    assert (breach.field, breach.value) == ("virtual_pipeline_degree", 3)
    assert "more stages than the model's 8 blocks" in breach.problem


@pytest.mark.parametrize("stack", list(Stack))
def test_what_is_searched_breaks_no_rule(stack: Stack) -> None:
    """Every option of many shapes, as the strategy that it makes."""
    for degree in (2, 3, 4, 8):
        for count in (1, 2, 3, 4, 6, 9, 12, 16):
            found = options(stack=stack.value, degree=degree, count=count, blocks=26)
            for option in found.options:
                assert not breaches(
                    stack=stack.value,
                    blocks=26,
                    pipeline_parallel_degree=degree,
                    micro_batch_count=count,
                    pipeline_schedule=option.schedule,
                    virtual_pipeline_degree=option.virtual_pipeline_degree,
                )
