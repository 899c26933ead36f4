"""Simulated: a whole strategy's step, its pipeline run event by event.

    step = max_r (finish_r + g_r) + max_r o_r    with clipping of gradients
    step = max_r (finish_r + g_r + o_r)          without

with finish_r when rank r ends its last backward in the simulation, each virtual stage taking its
own forward, input-gradient and weight-gradient seconds, g_r the gradient sync that is left then,
and o_r the optimiser's step, which under clipping cannot begin before all gradients are known. Each
boundary's messages take as long as its own link needs.
"""

from __future__ import annotations

from collections.abc import Sequence
from dataclasses import dataclass

from planner.cost.held import boundary_after, held_layers
from planner.cost.precedence import round_length, schedule_precedence
from planner.cost.priced import PricedStrategy
from planner.cost.schedule import sends_block
from planner.cost.simulate import STAGES_MOST, Span, VirtualStageSeconds, finish_seconds, spans_of
from planner.cost.stage import StageTotals, virtual_stage_seconds
from planner.schema.job import Job
from planner.schema.plan import SimulatedStage, SimulatedStep


def simulated_step(
    priced: PricedStrategy,
    totals: Sequence[StageTotals],
    *,
    path_ratio: float,
    job: Job,
    closed_form_seconds: float,
) -> SimulatedStep:
    """Return the step by simulation; `totals` are by pipeline rank.

    Ranks are simulated as if each had a device, and `path_ratio` of that time passes where they
    share cores.

    Raises:
        ValueError: if there are more than `STAGES_MOST` virtual stages.
    """
    if len(priced.stages) > STAGES_MOST:
        raise ValueError(f"a pipeline of {len(priced.stages)} stages is too long to simulate")
    messages = message_seconds(priced)
    stages = virtual_stages(priced, messages)
    configuration = priced.prices.configuration
    alone = finish_seconds(
        configuration.pipeline_schedule,
        stages,
        pipeline_parallel_degree=configuration.pipeline_parallel_degree,
        virtual_pipeline_degree=configuration.virtual_pipeline_degree,
        micro_batch_count=configuration.micro_batch_count,
        message_seconds=[0.0] * len(messages) if sends_block(priced.prices.stack) else messages,
    )
    finishes = [path_ratio * finish for finish in alone]
    ends = [total.end_seconds for total in totals]
    step = _with_ends(finishes, totals, waits_for_all=job.prices_clipping)
    busy = [0.0] * len(totals)
    for index, stage in enumerate(stages):
        busy[priced.rank_of(index)] += path_ratio * configuration.micro_batch_count * stage.total
    idle = [max(step - b - end, 0.0) for b, end in zip(busy, ends, strict=True)]
    return SimulatedStep(
        step_seconds=step,
        closed_form_error_ratio=closed_form_seconds / step - 1.0 if step else 0.0,
        bubble_ratio=sum(idle) / (len(idle) * step) if step else 0.0,
        stages=tuple(
            SimulatedStage(stage=rank, busy_seconds=b, idle_seconds=i, step_end_seconds=end)
            for rank, (b, i, end) in enumerate(zip(busy, idle, ends, strict=True))
        ),
    )


def _with_ends(
    finishes: Sequence[float], totals: Sequence[StageTotals], *, waits_for_all: bool
) -> float:
    """Return when the last rank's step has ended, from when their last backwards have."""
    synced = [
        finish + total.step_end_seconds["data_parallel_exposed"]
        for finish, total in zip(finishes, totals, strict=True)
    ]
    updates = [
        total.end_seconds - total.step_end_seconds["data_parallel_exposed"] for total in totals
    ]
    if waits_for_all:
        return max(synced) + max(updates)
    return max(sync + update for sync, update in zip(synced, updates, strict=True))


@dataclass(frozen=True, slots=True, kw_only=True)
class StepTimeline:
    """What ranks run when in a step, of its first `shown_count` micro-batches."""

    spans: tuple[Span, ...]
    shown_count: int
    micro_batch_count: int


def step_timeline(priced: PricedStrategy, *, span_limit: int) -> StepTimeline:
    """Return a step without its end, with whole rounds left out until there are few spans."""
    configuration, count = (
        priced.prices.configuration,
        priced.prices.configuration.micro_batch_count,
    )
    degree = configuration.pipeline_parallel_degree
    length = round_length(configuration.pipeline_schedule, degree=degree, micro_batch_count=count)
    most = max(span_limit // (2 * len(priced.stages)), 2 * length)
    shown = count - max(-(-(count - most) // length), 0) * length
    waits = schedule_precedence(
        configuration.pipeline_schedule,
        pipeline_parallel_degree=degree,
        virtual_pipeline_degree=configuration.virtual_pipeline_degree,
        micro_batch_count=shown,
        length=length,
    )
    messages = message_seconds(priced)
    stages = virtual_stages(priced, messages)
    sent = [0.0] * len(messages) if sends_block(priced.prices.stack) else messages
    return StepTimeline(
        spans=tuple(spans_of(waits, stages, message_seconds=sent)),
        shown_count=shown,
        micro_batch_count=count,
    )


def message_seconds(priced: PricedStrategy) -> list[float]:
    """Return the seconds of a message over each boundary of virtual stages, one way."""
    found = (boundary_after(index, priced, stage=index) for index in range(len(priced.stages) - 1))
    return [0.0 if boundary is None else boundary.seconds / 2.0 for boundary in found]


def virtual_stages(
    priced: PricedStrategy, messages: Sequence[float]
) -> tuple[VirtualStageSeconds, ...]:
    """Return each virtual stage's seconds, with its messages where sending blocks its rank."""
    stages = [virtual_stage_seconds(held_layers(i, priced)) for i in range(len(priced.stages))]
    if not sends_block(priced.prices.stack):
        return tuple(stages)
    around = [0.0, *messages, 0.0]
    return tuple(
        VirtualStageSeconds(
            forward=stage.forward + around[index] + around[index + 1],
            input_gradient=stage.input_gradient + around[index] + around[index + 1],
            weight_gradient=stage.weight_gradient,
        )
        for index, stage in enumerate(stages)
    )
