"""Step: what a whole strategy costs, from the same table that the search reads."""

from __future__ import annotations

from collections.abc import Iterator, Sequence

from planner.cost.adapters import needed_flop_per_token
from planner.cost.configuration import Configuration
from planner.cost.intervals import (
    fits_probability,
    interval_causes,
    peak_at_the_limit,
    step_interval,
    step_width,
)
from planner.cost.layer_costs import MemoryLimits
from planner.cost.price_list import PricedStrategy, priced_strategies
from planner.cost.schedule import ScheduleTiming, in_flight, peak_holdings, schedule_timing
from planner.cost.simulation import STAGES_MOST, simulated_step
from planner.cost.stage import RankSchedule, StageTotals, boundaries, held_layers, stage_totals
from planner.hardware import ClusterHardware
from planner.schema.job import Job
from planner.schema.plan import Prediction, StagePrediction, StepBreakdown
from planner.schema.strategy import Strategy
from planner.workload.layer import ModelWorkload

_PRICED_AT_ONCE = 256
_ROUNDING_RATIO = 1e-12


def predict(
    workload: ModelWorkload, hardware: ClusterHardware, job: Job, strategy: Strategy
) -> Prediction:
    """Return step time, memory and price of a resolved, legal strategy.

    Raises:
        ValueError: if the strategy or the job is not resolved.
    """
    return next(predictions(workload, hardware, job, [strategy]))


def predict_simulated(
    workload: ModelWorkload, hardware: ClusterHardware, job: Job, strategy: Strategy
) -> Prediction:
    """Return the same with its pipeline run event by event, whose step is the one predicted.

    A simulation takes some milliseconds, so that it is for plans and not for searches. Pipelines of
    more than `STAGES_MOST` virtual stages are not simulated: theirs is the closed form.

    Raises:
        ValueError: if the strategy or the job is not resolved.
    """
    (priced,) = priced_strategies(workload, hardware, job, [strategy])
    return predict_priced_simulated(priced, workload=workload, hardware=hardware, job=job)


def predict_priced_simulated(
    priced: PricedStrategy, *, workload: ModelWorkload, hardware: ClusterHardware, job: Job
) -> Prediction:
    """Return the same of a strategy that is priced already."""
    totals = rank_totals(priced)
    timing = _timing(priced)
    closed_form = step_seconds(totals, repeats=timing.repeat_count)
    simulated = None
    if len(priced.stages) <= STAGES_MOST:
        simulated = simulated_step(
            priced,
            totals,
            path_ratio=timing.path_ratio,
            job=job,
            closed_form_seconds=closed_form,
        )
    seconds = closed_form if simulated is None else simulated.step_seconds
    found = _prediction(
        totals, priced, seconds=seconds, workload=workload, hardware=hardware, job=job
    )
    return found.model_copy(update={"simulated": simulated})


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
            yield predict_priced(priced, workload=workload, hardware=hardware, job=job)


def predict_priced(
    priced: PricedStrategy, *, workload: ModelWorkload, hardware: ClusterHardware, job: Job
) -> Prediction:
    """Return the prediction of a strategy that is priced already."""
    totals = rank_totals(priced)
    seconds = step_seconds(totals, repeats=_timing(priced).repeat_count)
    return _prediction(
        totals, priced, seconds=seconds, workload=workload, hardware=hardware, job=job
    )


def rank_totals(priced: PricedStrategy) -> list[StageTotals]:
    """Return the totals of every pipeline rank."""
    degree, timing = priced.prices.configuration.pipeline_parallel_degree, _timing(priced)
    return [_rank_totals(rank, priced, timing) for rank in range(degree)]


def _timing(priced: PricedStrategy) -> ScheduleTiming:
    return schedule_timing(
        priced.prices.configuration,
        priced.prices.stack,
        lone_speed_ratio=priced.prices.hardware.lone_speed_ratio,
    )


def _rank_totals(rank: int, priced: PricedStrategy, timing: ScheduleTiming) -> StageTotals:
    """Return the totals of one pipeline rank with all the virtual stages that it holds."""
    configuration = priced.prices.configuration
    table = priced.prices.tables[priced.rank_kinds[rank]]
    own = [index for index in range(len(priced.stages)) if priced.rank_of(index) == rank]
    return stage_totals(
        [held_layers(index, priced) for index in own],
        [boundary for index in own for boundary in boundaries(index, priced)],
        schedule=_rank_schedule(rank, configuration, timing),
        step_end_seconds=float(table.fixed.step_end_seconds[0]),
        limits=table.limits,
    )


def _rank_schedule(rank: int, configuration: Configuration, timing: ScheduleTiming) -> RankSchedule:
    schedule, shape = configuration.pipeline_schedule, _shape(configuration)
    count = configuration.micro_batch_count
    return RankSchedule(
        weights=timing.weights,
        shares=timing.shares,
        in_flight=in_flight(schedule, micro_batch_count=count, stage=rank, **shape),
        holdings=peak_holdings(schedule, micro_batch_count=count, rank=rank, **shape),
    )


def _shape(configuration: Configuration) -> dict[str, int]:
    return {
        "pipeline_parallel_degree": configuration.pipeline_parallel_degree,
        "virtual_pipeline_degree": configuration.virtual_pipeline_degree,
    }


def _prediction(
    totals: Sequence[StageTotals],
    priced: PricedStrategy,
    *,
    seconds: float,
    workload: ModelWorkload,
    hardware: ClusterHardware,
    job: Job,
) -> Prediction:
    configuration = priced.prices.configuration
    length = job.sequence_length or 0
    tokens = (job.global_batch_size or 0) * length
    flop = tokens * needed_flop_per_token(workload, job, length)
    limits = [priced.prices.tables[kind].limits for kind in priced.rank_kinds]
    stages = tuple(
        _stage_prediction(rank, total, limits[rank]) for rank, total in enumerate(totals)
    )
    breakdown = _breakdown(totals, configuration, step=seconds)
    causes = interval_causes(workload, hardware, job, configuration)
    return Prediction(
        step_seconds=step_interval(seconds, width=step_width(causes)),
        interval_causes=causes,
        tokens_per_second_per_device=tokens / seconds / hardware.device_count,
        model_flop_utilization=flop / seconds / hardware.peak_flop_per_second(job),
        breakdown_seconds=breakdown,
        stages=stages,
        cost_per_million_tokens=hardware.price_per_hour / 3600.0 * seconds / tokens * 1e6,
        fits=all(
            stage.peak_memory_bytes <= stage.capacity_bytes
            and stage.host_memory_bytes <= stage.host_capacity_bytes
            for stage in stages
        ),
        fits_probability=min(_fits_probability(stage, limits[stage.stage]) for stage in stages),
    )


def _fits_probability(stage: StagePrediction, limits: MemoryLimits) -> float:
    peak = peak_at_the_limit(
        stage.peak_memory_bytes,
        runtime_bytes=limits.runtime_bytes,
        given_back_ratio=limits.given_back_ratio,
    )
    return fits_probability(peak, device_bytes=limits.device_bytes, error_ratio=limits.error_ratio)


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

    m T and U are there by cause, and what the step exceeds them by is the bubble. Where ranks share
    cores a slow stage has more than its share of them, so that the step may be less. What
    rounding leaves is no bubble.
    """
    slowest = max(totals, key=lambda stage: stage.pace_seconds)
    last = max(totals, key=lambda stage: stage.end_seconds)
    paced = configuration.micro_batch_count * slowest.pace_seconds
    room = step - last.end_seconds
    count = configuration.micro_batch_count * (room / paced if paced > room else 1.0)
    parts = {name: count * s for name, s in slowest.micro_batch_seconds.items()}
    for name, value in last.step_end_seconds.items():
        parts[name] = parts.get(name, 0.0) + value
    idle = step - sum(parts.values())
    return StepBreakdown(**parts, bubble=idle if idle > _ROUNDING_RATIO * step else 0.0)
