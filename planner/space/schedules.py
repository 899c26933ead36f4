"""Schedules: which pipeline schedules a stack runs, and with how many micro-batches.

- torch runs all five. 1F1B refuses fewer micro-batches than stages; the interleaved schedule
  wants rounds of equal length; DualPipeV wants two micro-batches a stage; GPipe and ZB-V take any
  number. Source: the constructors in torch/distributed/pipelining/schedules.py of 2.13, which a
  golden test asks.
- Megatron runs 1F1B with any number, and interleaved 1F1B with a multiple of the stages while
  `--microbatch-group-size-per-virtual-pipeline-stage` is left as it is. Source:
  megatron/core/pipeline_parallel/schedules.py of Megatron-LM d98e8a6, which has no other schedule.
- DeepSpeed runs 1F1B with any number. Source: `TrainSchedule`, the only one that trains, in
  deepspeed/runtime/pipe/schedule.py of DeepSpeed edaa722.

Legal and yet not searched, unless a limit of the job asks for it: GPipe where 1F1B may run, since
it holds every micro-batch and gains no more than some of the exchanges; checkpointed blocks under
V-shaped schedules where another may run, since their backward is not divided and then idles (p - 1)
times as long as it takes, of which interleaved virtual stages halve all; more than 8 virtual stages
on a rank, and virtual stages that divide no rank's blocks of an even split, since a rank whose
virtual stages differ waits in every round.
"""

from __future__ import annotations

from collections.abc import Iterator
from dataclasses import dataclass
from math import ceil, floor

from planner.schema.job import DegreeLimit, Framework, Job, Limits, Stack
from planner.schema.strategy import (
    V_SCHEDULES,
    ActivationCheckpointing,
    PipelineSchedule,
    Strategy,
)
from planner.space.breach import Breach
from planner.space.rules import VIRTUAL_PIPELINE_DEGREE_LIMIT, Rule

_GPIPE, _ONE_F_ONE_B = PipelineSchedule.GPIPE, PipelineSchedule.ONE_F_ONE_B
_INTERLEAVED, _DUALPIPE_V = PipelineSchedule.INTERLEAVED, PipelineSchedule.DUALPIPE_V
_STACK_SCHEDULES = {
    Stack.TORCH: tuple(PipelineSchedule),
    Stack.MEGATRON: (_ONE_F_ONE_B, _INTERLEAVED),
    Stack.DEEPSPEED: (_ONE_F_ONE_B,),
}


@dataclass(frozen=True, slots=True, kw_only=True)
class ScheduleOption:
    """A schedule with the virtual stages of a rank."""

    schedule: PipelineSchedule
    virtual_pipeline_degree: int


@dataclass(frozen=True, slots=True, kw_only=True)
class ScheduleOptions:
    """The schedules to search, and why others are not among them."""

    options: tuple[ScheduleOption, ...]
    refused: tuple[str, ...]


def stack_schedules(stack: Stack) -> tuple[PipelineSchedule, ...]:
    """Return the schedules that the stack has."""
    return _STACK_SCHEDULES[stack]


def skips_checkpointing(job: Job, schedule: PipelineSchedule) -> bool:
    """Return whether checkpointed blocks under the schedule are legal, and yet not searched."""
    others = set(job.limits.pipeline_schedules) & set(stack_schedules(job.stack)) - V_SCHEDULES
    return schedule in V_SCHEDULES and (bool(others) or _refuses_checkpointing(job, schedule))


def _refuses_checkpointing(job: Job, schedule: PipelineSchedule) -> bool:
    """Return whether blocks cannot be checkpointed under the schedule at a bearable cost.

    torch's own stages recompute a checkpointed block for its input gradients, and again for each
    of its matrices when they take weight gradients apart from them: 11 forwards of a block with
    nine parameters where one backward takes 2, measured with 2.13. The executor's run the backward
    of such a block whole.
    """
    return job.framework is Framework.TORCHTITAN and schedule in V_SCHEDULES


def schedule_options(
    job: Job, *, pipeline_parallel_degree: int, micro_batch_count: int, block_count: int
) -> ScheduleOptions:
    """Return the schedules to search for a resolved job; one stands for all without a pipeline."""
    allowed = tuple(s for s in PipelineSchedule if s in job.limits.pipeline_schedules)
    if pipeline_parallel_degree == 1:
        schedule = _ONE_F_ONE_B if _ONE_F_ONE_B in allowed else allowed[0]
        alone = ScheduleOption(schedule=schedule, virtual_pipeline_degree=1)
        return ScheduleOptions(options=(alone,), refused=())
    runnable = [schedule for schedule in allowed if schedule in stack_schedules(job.stack)]
    if not runnable:
        return ScheduleOptions(options=(), refused=(_none_runs(job),))
    found = [
        _options_of(
            schedule,
            job,
            degree=pipeline_parallel_degree,
            count=micro_batch_count,
            blocks_per_rank=block_count / pipeline_parallel_degree,
        )
        for schedule in runnable
    ]
    options = tuple(option for each in found for option in each.options)
    kept = _without_idle_gpipe(options)
    refused = [reason for each in found for reason in each.refused]
    refused += [Rule.GPIPE] * (len(options) - len(kept))
    return ScheduleOptions(options=kept, refused=tuple(refused))


def _options_of(
    schedule: PipelineSchedule, job: Job, *, degree: int, count: int, blocks_per_rank: float
) -> ScheduleOptions:
    obstacle = micro_batch_obstacle(job.stack, schedule, degree=degree, count=count)
    if obstacle is not None:
        reason = f"micro-batches of {schedule.value}: {obstacle.rule}"
        return ScheduleOptions(options=(), refused=(reason,))
    kept = job.limits.activation_checkpointing
    if skips_checkpointing(job, schedule) and ActivationCheckpointing.NONE not in kept:
        reason = f"checkpointing under {schedule.value}, which idles more than other schedules"
        return ScheduleOptions(options=(), refused=(reason,))
    return _virtual_options(schedule, job.limits, blocks_per_rank)


def _none_runs(job: Job) -> str:
    asked = ", ".join(schedule.value for schedule in job.limits.pipeline_schedules)
    have = ", ".join(schedule.value for schedule in stack_schedules(job.stack))
    return (
        f"job.limits.pipeline_schedules is {asked}, none of which {job.stack.value} runs; "
        f"it runs {have}"
    )


def _without_idle_gpipe(options: tuple[ScheduleOption, ...]) -> tuple[ScheduleOption, ...]:
    """Return the options without GPipe where 1F1B is one: about as fast, and holding no more."""
    if all(option.schedule is not _ONE_F_ONE_B for option in options):
        return options
    return tuple(option for option in options if option.schedule is not _GPIPE)


def _virtual_options(
    schedule: PipelineSchedule, limits: Limits, blocks_per_rank: float
) -> ScheduleOptions:
    """Return the virtual stages of a rank to search; each holds a block at least."""
    limit = limits.virtual_pipeline_degree
    possible = _possible_degrees(schedule, limit, blocks_per_rank)
    if not possible:
        reason = f"fewer blocks than virtual stages of {schedule.value}"
        return ScheduleOptions(options=(), refused=(reason,))
    degrees = [degree for degree in possible if limit.allows(degree)]
    bounds = f"{limit.min}" if limit.min == limit.max else f"{limit.min} to {limit.max}"
    outside = f"job.limits.virtual_pipeline_degree is {bounds}, which rules these out"
    refused = [outside] * (len(possible) - len(degrees))
    if schedule is _INTERLEAVED and limit == DegreeLimit():
        refused += [Rule.VIRTUAL_STAGES] * (floor(blocks_per_rank) - 1 - len(possible))
    return ScheduleOptions(
        options=tuple(
            ScheduleOption(schedule=schedule, virtual_pipeline_degree=degree) for degree in degrees
        ),
        refused=tuple(refused),
    )


def _possible_degrees(
    schedule: PipelineSchedule, limit: DegreeLimit, blocks_per_rank: float
) -> tuple[int, ...]:
    fewest, most = floor(blocks_per_rank), ceil(blocks_per_rank)
    if schedule in V_SCHEDULES:
        return (2,) if fewest >= 2 else ()
    if schedule is not _INTERLEAVED:
        return (1,)
    if limit != DegreeLimit():
        return tuple(range(2, fewest + 1))
    return tuple(
        degree
        for degree in range(2, min(fewest, VIRTUAL_PIPELINE_DEGREE_LIMIT) + 1)
        if fewest % degree == 0 or most % degree == 0
    )


@dataclass(frozen=True, slots=True, kw_only=True)
class MicroBatchObstacle:
    """Why a schedule cannot run so many micro-batches, and how many it could."""

    rule: str
    remedy: str


def micro_batch_obstacle(
    stack: Stack, schedule: PipelineSchedule, *, degree: int, count: int
) -> MicroBatchObstacle | None:
    """Return why the stack refuses `count` micro-batches on `degree` ranks, None if it does not."""
    if schedule is _ONE_F_ONE_B and stack is Stack.TORCH and count < degree:
        return MicroBatchObstacle(
            rule="fewer than pipeline stages",
            remedy=f"use {degree} or more by smaller micro-batches, fewer stages, or gpipe",
        )
    if schedule is _DUALPIPE_V and count < 2 * degree:
        return MicroBatchObstacle(
            rule="fewer than virtual stages",
            remedy=f"use {2 * degree} or more by smaller micro-batches, fewer stages, or zb_v",
        )
    if schedule is not _INTERLEAVED:
        return None
    if stack is Stack.MEGATRON:
        return _not_whole(count, degree)
    rounds = max(1, count // degree)
    if count % rounds == 0:
        return None
    fewer = _dividing_count(count, degree, step=-1)
    more = _dividing_count(count, degree, step=1)
    return MicroBatchObstacle(
        rule=f"not a multiple of the {rounds} rounds that it makes",
        remedy=f"use {fewer} or {more} micro-batches",
    )


def _not_whole(count: int, degree: int) -> MicroBatchObstacle | None:
    if count % degree == 0:
        return None
    below, above = count // degree * degree, (count // degree + 1) * degree
    choice = f"{below} or {above}" if below else f"{above}"
    return MicroBatchObstacle(
        rule="not a multiple of pipeline stages", remedy=f"use {choice} micro-batches"
    )


def _dividing_count(count: int, degree: int, *, step: int) -> int:
    """Return the nearest number of micro-batches from `count` on that divides into its rounds."""
    while count % max(1, count // degree):
        count += step
    return count


def schedule_breaches(job: Job, strategy: Strategy, block_count: int) -> Iterator[Breach]:
    """Yield the rules of schedules that a resolved strategy breaks."""
    if strategy.pipeline_parallel_degree == 1:
        yield from _lone_rank(strategy)
        return
    schedule = strategy.pipeline_schedule
    if schedule not in stack_schedules(job.stack):
        have = ", ".join(item.value for item in stack_schedules(job.stack))
        yield Breach(
            field="pipeline_schedule",
            value=schedule.value,
            problem=f"is not a schedule of {job.stack.value}",
            remedy=f"use one of {have}, or stack torch, which runs all",
        )
        return
    yield from _virtual_stages(strategy, block_count)
    yield from _micro_batches(job, strategy)
    if _refuses_checkpointing(job, schedule):
        yield from _checkpointing(strategy)


def _lone_rank(strategy: Strategy) -> Iterator[Breach]:
    if strategy.virtual_pipeline_degree > 1:
        yield Breach(
            field="virtual_pipeline_degree",
            value=strategy.virtual_pipeline_degree,
            problem="needs a pipeline, and pipeline_parallel_degree is 1",
            remedy="use 1",
        )


def _virtual_stages(strategy: Strategy, block_count: int) -> Iterator[Breach]:
    schedule, virtual = strategy.pipeline_schedule, strategy.virtual_degree
    problem, remedy = None, ""
    if schedule in V_SCHEDULES and virtual != 2:
        problem, remedy = f"{schedule.value} has two virtual stages on a rank", "use 2"
    elif schedule is _INTERLEAVED and virtual < 2:
        problem = f"{schedule.value} needs two or more virtual stages on a rank"
        remedy = "use 2 or more, or schedule 1f1b"
    elif schedule in {_GPIPE, _ONE_F_ONE_B} and virtual > 1:
        problem = f"{schedule.value} has one stage on a rank"
        remedy = "use 1, or schedule interleaved_1f1b"
    elif strategy.virtual_stage_count > block_count:
        problem = (
            f"x pipeline_parallel_degree {strategy.pipeline_parallel_degree} makes more stages "
            f"than the model's {block_count} blocks"
        )
        remedy = "use fewer virtual stages or fewer ranks"
    if problem is not None:
        yield Breach(field="virtual_pipeline_degree", value=virtual, problem=problem, remedy=remedy)


def _micro_batches(job: Job, strategy: Strategy) -> Iterator[Breach]:
    degree, count = strategy.pipeline_parallel_degree, strategy.micro_batch_count or 1
    schedule = strategy.pipeline_schedule
    obstacle = micro_batch_obstacle(job.stack, schedule, degree=degree, count=count)
    if obstacle is not None:
        yield Breach(
            field="micro_batch_count",
            value=count,
            problem=f"{obstacle.rule} (pipeline_parallel_degree {degree}), which "
            f"{schedule.value} of {job.stack.value} refuses",
            remedy=obstacle.remedy,
        )


def _checkpointing(strategy: Strategy) -> Iterator[Breach]:
    for stage in strategy.stages or ():
        for index, group in enumerate(stage.layers):
            if group.activation_checkpointing is not ActivationCheckpointing.NONE:
                yield Breach(
                    field=f"stages.{stage.stage}.layers.{index}.activation_checkpointing",
                    value=group.activation_checkpointing.value,
                    problem=f"{strategy.pipeline_schedule.value} of torchtitan would recompute "
                    "the block again for each of its matrices",
                    remedy="use none, or schedule interleaved_1f1b or 1f1b",
                )
