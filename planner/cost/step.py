"""Step: what a whole strategy costs, from the same table that the search reads."""

from __future__ import annotations

from collections.abc import Iterator, Mapping, Sequence

from planner.cost.boundary import boundary_places
from planner.cost.configuration import Choice, Configuration
from planner.cost.holdings import peak_holdings
from planner.cost.intervals import fits_probability, step_interval
from planner.cost.layer_costs import CostTable, MemoryLimits
from planner.cost.priced import (
    PricedStrategy,
    choice_of,
    edge_choice,
    edges_of,
    priced_strategies,
)
from planner.cost.schedule import boundary_shares, fill_weights, in_flight, repeat_count
from planner.cost.stage import Boundary, HeldLayers, RankSchedule, StageTotals, stage_totals
from planner.hardware import ClusterHardware, stack_profile
from planner.schema.job import Job, Stack
from planner.schema.plan import Prediction, StagePrediction, StepBreakdown
from planner.schema.strategy import LayerGroup, Strategy
from planner.workload.layer import ModelWorkload

_PRICED_AT_ONCE = 256


def predict(
    workload: ModelWorkload, hardware: ClusterHardware, job: Job, strategy: Strategy
) -> Prediction:
    """Return step time, memory and price of a resolved, legal strategy.

    Raises:
        ValueError: if the strategy or the job is not resolved.
    """
    return next(predictions(workload, hardware, job, [strategy]))


def predictions(
    workload: ModelWorkload,
    hardware: ClusterHardware,
    job: Job,
    strategies: Sequence[Strategy],
) -> Iterator[Prediction]:
    """Yield the predictions of resolved, legal strategies, whose layers are priced together.

    Raises:
        ValueError: if a strategy or the job is not resolved.
    """
    for start in range(0, len(strategies), _PRICED_AT_ONCE):
        part = strategies[start : start + _PRICED_AT_ONCE]
        for priced in priced_strategies(workload, hardware, job, part):
            degree = priced.configuration.pipeline_parallel_degree
            totals = [_rank_totals(rank, priced) for rank in range(degree)]
            yield _prediction(totals, priced, workload=workload, hardware=hardware, job=job)


def _rank_totals(rank: int, priced: PricedStrategy) -> StageTotals:
    """Return the totals of one pipeline rank with all the virtual stages that it holds."""
    configuration = priced.configuration
    table = priced.tables[priced.rank_kinds[rank]]
    held: list[list[HeldLayers]] = []
    boundaries: list[Boundary] = []
    last = len(priced.stages) - 1
    first_edge, last_edge = (priced.edges[edge_choice(edge)] for edge in edges_of(priced.strategy))
    for index, stage in enumerate(priced.stages):
        if priced.rank_of(index) != rank:
            continue
        layers: list[HeldLayers] = []
        if index == 0:
            layers.append(HeldLayers(costs=table.embedding, choice=first_edge, count=1))
        for group in stage.layers:
            layers.extend(_group_layers(group, table, priced.choices))
        if index == last:
            layers.append(HeldLayers(costs=table.head, choice=last_edge, count=1))
        held.append(layers)
        boundaries.extend(_boundaries(index, priced))
    return stage_totals(
        held,
        boundaries,
        schedule=_rank_schedule(rank, configuration, priced.stack),
        step_end_seconds=float(table.fixed.step_end_seconds[0]),
        limits=table.limits,
    )


def _rank_schedule(rank: int, configuration: Configuration, stack: Stack) -> RankSchedule:
    schedule, shape = configuration.pipeline_schedule, _shape(configuration)
    count = configuration.micro_batch_count
    return RankSchedule(
        weights=fill_weights(schedule, micro_batch_count=count, **shape),
        shares=boundary_shares(schedule, stack),
        in_flight=in_flight(schedule, micro_batch_count=count, stage=rank, **shape),
        holdings=peak_holdings(schedule, micro_batch_count=count, rank=rank, **shape),
    )


def _shape(configuration: Configuration) -> dict[str, int]:
    return {
        "pipeline_parallel_degree": configuration.pipeline_parallel_degree,
        "virtual_pipeline_degree": configuration.virtual_pipeline_degree,
    }


def _boundaries(index: int, priced: PricedStrategy) -> Iterator[Boundary]:
    """Yield the exchanges of a virtual stage with the one before it and the one after it."""
    rank = priced.rank_of(index)
    for before, other in ((index - 1, index - 1), (index, index + 1)):
        if not 0 <= other < len(priced.stages) or priced.rank_of(other) == rank:
            continue
        last_block = priced.stages[before].layers[-1]
        block = _kind_of(last_block.first_block + last_block.block_count - 1, priced.tables[0])
        places = boundary_places(
            priced.hardware, priced.rank_kinds, stage=rank, other=priced.rank_of(other)
        )
        fixed = priced.tables[priced.rank_kinds[rank]].fixed
        yield Boundary(
            seconds=max(
                float(priced.tables[kind].fixed.boundary_seconds[0, block, level])
                for kind, level in places
            ),
            bytes=float(fixed.boundary_bytes[0, block]),
        )


def _kind_of(block: int, table: CostTable) -> int:
    """Return the kind of a block of the chain."""
    end = 0
    for kind, count in table.chain:
        end += count
        if block < end:
            return kind
    raise ValueError(f"the model has no block {block}")


def _group_layers(
    group: LayerGroup, table: CostTable, choices: Mapping[Choice, int]
) -> list[HeldLayers]:
    """Return the group's blocks by the kind that each is of."""
    held = []
    first_of_run = 0
    index = choices[choice_of(group)]
    end = group.first_block + group.block_count
    for kind, count in table.chain:
        inside = min(end, first_of_run + count) - max(group.first_block, first_of_run)
        if inside > 0:
            held.append(HeldLayers(costs=table.blocks[kind], choice=index, count=inside))
        first_of_run += count
    return held


def _prediction(
    totals: Sequence[StageTotals],
    priced: PricedStrategy,
    *,
    workload: ModelWorkload,
    hardware: ClusterHardware,
    job: Job,
) -> Prediction:
    configuration = priced.configuration
    repeats = repeat_count(
        configuration.pipeline_schedule,
        micro_batch_count=configuration.micro_batch_count,
        **_shape(configuration),
    )
    seconds = step_seconds(totals, repeats=repeats)
    stack = stack_profile(job.stack)
    length = job.sequence_length or 0
    tokens = (job.global_batch_size or 0) * length
    flop = tokens * workload.model_flop_per_token(length)
    limits = [priced.tables[kind].limits for kind in priced.rank_kinds]
    stages = tuple(
        _stage_prediction(rank, total, limits[rank]) for rank, total in enumerate(totals)
    )
    return Prediction(
        step_seconds=step_interval(seconds, interval_ratio=stack.step_interval_ratio),
        tokens_per_second_per_device=tokens / seconds / hardware.device_count,
        model_flop_utilization=flop / seconds / hardware.peak_flop_per_second(job.precision),
        breakdown_seconds=_breakdown(totals, configuration, step=seconds),
        stages=stages,
        cost_per_million_tokens=hardware.price_per_hour / 3600.0 * seconds / tokens * 1e6,
        fits=all(
            stage.peak_memory_bytes <= stage.capacity_bytes
            and stage.host_memory_bytes <= stage.host_capacity_bytes
            for stage in stages
        ),
        fits_probability=min(
            fits_probability(
                stage.peak_memory_bytes,
                device_bytes=limits[stage.stage].device_bytes,
                error_ratio=stack.memory_error_ratio,
            )
            for stage in stages
        ),
    )


def step_seconds(totals: Sequence[StageTotals], *, repeats: float) -> float:
    """Return sum_r fill_r + repeats max_r t_r + max_r u_r."""
    fill = sum(stage.fill_seconds for stage in totals)
    slowest = max(stage.pace_seconds for stage in totals)
    return fill + repeats * slowest + max(stage.end_seconds for stage in totals)


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


def _breakdown(
    totals: Sequence[StageTotals], configuration: Configuration, *, step: float
) -> StepBreakdown:
    """Return the step by cause, on the stage that sets the pace; the rest is its bubble.

    m T and U are there by cause, and what the step exceeds them by is the bubble.
    """
    slowest = max(totals, key=lambda stage: stage.pace_seconds)
    last = max(totals, key=lambda stage: stage.end_seconds)
    count = configuration.micro_batch_count
    parts = {name: count * s for name, s in slowest.micro_batch_seconds.items()}
    for name, value in last.step_end_seconds.items():
        parts[name] = parts.get(name, 0.0) + value
    return StepBreakdown(**parts, bubble=max(step - sum(parts.values()), 0.0))
