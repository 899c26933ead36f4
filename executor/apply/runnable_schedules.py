"""Runnable schedules: what torch's pipeline schedules ask of stages and micro-batches.

Source: the constructors in torch/distributed/pipelining/schedules.py of torch 2.13, which raise, or
fail obscurely, where these rules are broken.
"""

from __future__ import annotations

from executor.errors import UnsupportedPlanError
from planner.schema.strategy import V_SCHEDULES, PipelineSchedule, Strategy

_OF_ONE_STAGE = frozenset({PipelineSchedule.GPIPE, PipelineSchedule.ONE_F_ONE_B})


def check_schedule(strategy: Strategy) -> None:
    """Return if torch runs the strategy's schedule with its stages and micro-batches.

    Raises:
        UnsupportedPlanError: naming the rule that is broken.
    """
    _check_virtual_stages(strategy)
    if strategy.pipeline_parallel_degree > 1:
        _check_micro_batches(strategy)


def _check_virtual_stages(strategy: Strategy) -> None:
    schedule, virtual = strategy.pipeline_schedule, strategy.virtual_degree
    problem, remedy = None, ""
    if strategy.pipeline_parallel_degree == 1:
        if virtual > 1:
            problem, remedy = "needs a pipeline, and pipeline_parallel_degree is 1", "use 1"
    elif schedule in V_SCHEDULES and virtual != 2:
        problem, remedy = f"{schedule.value} has two virtual stages on a rank", "use 2"
    elif schedule is PipelineSchedule.INTERLEAVED and virtual == 1:
        problem = f"{schedule.value} needs two or more virtual stages on a rank"
        remedy = "use 2 or more, or schedule 1f1b"
    elif schedule in _OF_ONE_STAGE and virtual > 1:
        problem = f"{schedule.value} has one stage on a rank"
        remedy = "use 1, or schedule interleaved_1f1b"
    if problem is not None:
        raise UnsupportedPlanError(
            problem, field="strategy.virtual_pipeline_degree", value=virtual, remedy=remedy
        )


def _check_micro_batches(strategy: Strategy) -> None:
    schedule, degree = strategy.pipeline_schedule, strategy.pipeline_parallel_degree
    count = strategy.micro_batch_count or 0
    rounds = max(1, count // degree)
    problem, remedy = None, ""
    if schedule is PipelineSchedule.ONE_F_ONE_B and count < degree:
        problem = f"1f1b needs at least {degree} micro-batches, one a stage"
        remedy = "raise the global batch, or use gpipe"
    elif schedule is PipelineSchedule.DUALPIPE_V and count < 2 * degree:
        problem = f"dualpipe_v needs at least {2 * degree} micro-batches, two a rank"
        remedy = "raise the global batch, or use zb_v"
    elif schedule is PipelineSchedule.INTERLEAVED and count % rounds:
        problem = f"interleaved_1f1b on {degree} ranks makes {rounds} rounds of this, unequal ones"
        remedy = f"use {count - count % rounds} by another global batch or micro-batch size"
    if problem is not None:
        raise UnsupportedPlanError(
            problem, field="strategy.micro_batch_count", value=count, remedy=remedy
        )
