"""Step: what a whole strategy costs, from the same table that the search reads."""

from __future__ import annotations

from collections.abc import Sequence

from planner.cost.configuration import (
    Choice,
    Choices,
    Configuration,
    Configurations,
    LayerChoices,
)
from planner.cost.intervals import fits_probability, step_interval
from planner.cost.layer_costs import CostTable, MemoryLimits
from planner.cost.schedule import boundary_count, in_flight, step_seconds
from planner.cost.stage import HeldLayers, StageTotals, stage_totals
from planner.cost.table import cost_table
from planner.hardware import ClusterHardware, stack_profile
from planner.schema.job import Job
from planner.schema.plan import Prediction, StagePrediction, StepBreakdown
from planner.schema.strategy import EdgeChoice, LayerGroup, Stage, Strategy
from planner.workload.layer import ModelWorkload


def predict(
    workload: ModelWorkload, hardware: ClusterHardware, job: Job, strategy: Strategy
) -> Prediction:
    """Return step time, memory and price of a resolved, legal strategy.

    Raises:
        ValueError: if the strategy or the job is not resolved.
    """
    stages = strategy.stages
    if stages is None or strategy.embedding is None or strategy.head is None:
        raise ValueError("the strategy must be resolved before it is priced")
    configuration = configuration_of(strategy)
    choices = _distinct([_choice(group) for stage in stages for group in stage.layers])
    table = cost_table(
        workload,
        hardware,
        job,
        configurations=Configurations.of([configuration]),
        choices=LayerChoices(
            blocks=Choices.of(choices),
            embedding=Choices.of([_edge(strategy.embedding)]),
            head=Choices.of([_edge(strategy.head)]),
        ),
    )
    totals = [
        _stage(stage, table, choices=choices, configuration=configuration) for stage in stages
    ]
    return _prediction(
        totals, configuration, workload=workload, hardware=hardware, job=job, limits=table.limits
    )


def configuration_of(strategy: Strategy) -> Configuration:
    """Return the part of a resolved strategy that holds for all layers."""
    return Configuration(
        tensor_parallel_degree=strategy.tensor_parallel_degree,
        sequence_parallel=strategy.sequence_parallel,
        pipeline_parallel_degree=strategy.pipeline_parallel_degree,
        virtual_pipeline_degree=strategy.virtual_pipeline_degree,
        pipeline_schedule=strategy.pipeline_schedule,
        context_parallel_degree=strategy.context_parallel_degree,
        expert_parallel_degree=strategy.expert_parallel_degree,
        data_parallel_replicate_degree=strategy.replicate_degree,
        data_parallel_shard_degree=strategy.shard_degree,
        micro_batch_size=strategy.micro_batch_size,
        micro_batch_count=strategy.micro_batch_count or 1,
    )


def _choice(group: LayerGroup) -> Choice:
    return Choice(
        zero_stage=group.zero_stage,
        activation_checkpointing=group.activation_checkpointing,
        offload=group.offload,
    )


def _edge(choice: EdgeChoice) -> Choice:
    return Choice(zero_stage=choice.zero_stage, offload=choice.offload)


def _distinct(choices: Sequence[Choice]) -> tuple[Choice, ...]:
    return tuple(dict.fromkeys(choices))


def _stage(
    stage: Stage, table: CostTable, *, choices: Sequence[Choice], configuration: Configuration
) -> StageTotals:
    degree = configuration.pipeline_parallel_degree
    held: list[HeldLayers] = []
    if stage.stage == 0:
        held.append(HeldLayers(costs=table.embedding, choice=0, count=1))
    for group in stage.layers:
        held.extend(_group_layers(group, table, choices))
    if stage.stage == degree - 1:
        held.append(HeldLayers(costs=table.head, choice=0, count=1))
    return stage_totals(
        held,
        table,
        configuration=0,
        boundaries=boundary_count(pipeline_parallel_degree=degree, stage=stage.stage),
        micro_batches_in_flight=in_flight(
            configuration.pipeline_schedule,
            micro_batch_count=configuration.micro_batch_count,
            pipeline_parallel_degree=degree,
            stage=stage.stage,
        ),
    )


def _group_layers(
    group: LayerGroup, table: CostTable, choices: Sequence[Choice]
) -> list[HeldLayers]:
    """Return the group's blocks by the run that each belongs to."""
    held = []
    first_of_run = 0
    index = choices.index(_choice(group))
    end = group.first_block + group.block_count
    for costs, count in zip(table.blocks, table.block_counts, strict=True):
        inside = min(end, first_of_run + count) - max(group.first_block, first_of_run)
        if inside > 0:
            held.append(HeldLayers(costs=costs, choice=index, count=inside))
        first_of_run += count
    return held


def _prediction(
    totals: Sequence[StageTotals],
    configuration: Configuration,
    *,
    workload: ModelWorkload,
    hardware: ClusterHardware,
    job: Job,
    limits: MemoryLimits,
) -> Prediction:
    count = configuration.micro_batch_count
    seconds = step_seconds(
        [stage.pace_seconds for stage in totals],
        [stage.end_seconds for stage in totals],
        micro_batch_count=count,
    )
    stack = stack_profile(job.stack)
    length = job.sequence_length or 0
    tokens = (job.global_batch_size or 0) * length
    per_device = tokens / seconds / hardware.device_count
    peak = hardware.peak_flop_per_second[job.precision]
    price = hardware.price_per_device_hour * hardware.device_count / 3600.0
    stages = tuple(_stage_prediction(i, stage, limits) for i, stage in enumerate(totals))
    return Prediction(
        step_seconds=step_interval(seconds, interval_ratio=stack.step_interval_ratio),
        tokens_per_second_per_device=per_device,
        model_flop_utilization=per_device * workload.model_flop_per_token(length) / peak,
        breakdown_seconds=_breakdown(totals, micro_batch_count=count),
        stages=stages,
        cost_per_million_tokens=price * seconds / tokens * 1e6,
        fits=all(
            stage.peak_memory_bytes <= stage.capacity_bytes
            and stage.host_memory_bytes <= stage.host_capacity_bytes
            for stage in stages
        ),
        fits_probability=min(
            fits_probability(
                stage.peak_memory_bytes,
                device_bytes=limits.device_bytes,
                error_ratio=stack.memory_error_ratio,
            )
            for stage in stages
        ),
    )


def _stage_prediction(index: int, stage: StageTotals, limits: MemoryLimits) -> StagePrediction:
    return StagePrediction(
        stage=index,
        peak_memory_bytes=stage.memory.total_bytes(),
        capacity_bytes=limits.capacity_bytes,
        memory_bytes=stage.memory,
        host_memory_bytes=stage.host_bytes,
        host_capacity_bytes=limits.host_capacity_bytes,
        forward_seconds=stage.forward_seconds,
        backward_seconds=max(stage.pace_seconds - stage.forward_seconds, 0.0),
        step_end_seconds=stage.end_seconds,
    )


def _breakdown(totals: Sequence[StageTotals], *, micro_batch_count: int) -> StepBreakdown:
    """Return the step by cause, on the stage that sets the pace; the rest is its bubble.

    m T + U + (sum_r t_r - T) is the step, so that the parts sum to it.
    """
    slowest = max(totals, key=lambda stage: stage.pace_seconds)
    last = max(totals, key=lambda stage: stage.end_seconds)
    parts = {name: micro_batch_count * s for name, s in slowest.micro_batch_seconds.items()}
    for name, value in last.step_end_seconds.items():
        parts[name] = parts.get(name, 0.0) + value
    bubble = sum(stage.pace_seconds for stage in totals) - slowest.pace_seconds
    return StepBreakdown(**parts, bubble=max(bubble, 0.0))
