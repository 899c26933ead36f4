"""The timeline of a plan's pipeline: which stage runs what when, as its simulation has it."""

from __future__ import annotations

from collections import defaultdict
from collections.abc import Iterator, Sequence
from dataclasses import dataclass
from typing import Any

from api.dashboard.charts import Figure, time_scale, timeline_bars
from api.dashboard.palette import ACTION_PARTS, BUBBLE, Part
from planner.cost.orders import ActionKind
from planner.cost.priced import priced_strategies
from planner.cost.simulate import Span
from planner.cost.simulated import StepTimeline, step_timeline
from planner.hardware import cluster_hardware
from planner.schema.plan import Plan, SimulatedStage, SimulatedStep
from planner.units import format_seconds
from planner.version import planner_version
from planner.workload.model import model_workload

_SPAN_LIMIT = 1500
_LEAST_GAP_RATIO = 1e-6
_FORWARD, _BACKWARD, _WEIGHT_GRADIENT = ACTION_PARTS
_PARTS = {
    ActionKind.FORWARD: _FORWARD,
    ActionKind.BACKWARD: _BACKWARD,
    ActionKind.INPUT_GRADIENT: _BACKWARD,
    ActionKind.WEIGHT_GRADIENT: _WEIGHT_GRADIENT,
}


@dataclass(frozen=True, slots=True, kw_only=True)
class Gap:
    """When a rank waits for others, in seconds from the start of the step."""

    rank: int
    start_seconds: float
    end_seconds: float


@dataclass(frozen=True, slots=True, kw_only=True)
class TimelineView:
    """The simulated step of a pipeline, arranged for the plan's page."""

    step: SimulatedStep
    stages: tuple[SimulatedStage, ...]
    parts: tuple[Part, ...]
    shown_count: int
    micro_batch_count: int
    figure: Figure


def timeline_view(plan: Plan) -> TimelineView | None:
    """Return the timeline of a plan, `None` without a pipeline or from another version."""
    step = plan.prediction.simulated
    several = plan.strategy.pipeline_parallel_degree > 1
    if step is None or not several or plan.planner_version != planner_version():
        return None
    found = step_spans(plan, span_limit=_SPAN_LIMIT)
    parts = tuple(part for part in ACTION_PARTS if any(part_of(s) is part for s in found.spans))
    return TimelineView(
        step=step,
        stages=step.stages,
        parts=(*parts, BUBBLE),
        shown_count=found.shown_count,
        micro_batch_count=found.micro_batch_count,
        figure=_figure(found, parts, degree=plan.strategy.pipeline_parallel_degree),
    )


def step_spans(plan: Plan, *, span_limit: int) -> StepTimeline:
    """Return what each rank of the plan's pipeline runs when, whole rounds left out beyond that."""
    (priced,) = priced_strategies(
        model_workload(plan.model.resolved),
        cluster_hardware(plan.cluster.resolved),
        plan.job.resolved,
        [plan.strategy],
    )
    return step_timeline(priced, span_limit=span_limit)


def gaps(spans: Sequence[Span]) -> Iterator[Gap]:
    """Yield when each rank waits, from the start of the step to its pipeline's end."""
    end = max((span.end_seconds for span in spans), default=0.0)
    busy: dict[int, list[Span]] = defaultdict(list)
    for span in spans:
        busy[span.rank].append(span)
    for rank, own in busy.items():
        free_from = 0.0
        for span in sorted(own, key=lambda each: each.start_seconds):
            if span.start_seconds - free_from > _LEAST_GAP_RATIO * end:
                yield Gap(rank=rank, start_seconds=free_from, end_seconds=span.start_seconds)
            free_from = span.end_seconds
        if end - free_from > _LEAST_GAP_RATIO * end:
            yield Gap(rank=rank, start_seconds=free_from, end_seconds=end)


def part_of(span: Span) -> Part:
    """Return which kind of action a span is."""
    return _PARTS[span.action.kind]


def words_of(span: Span) -> str:
    """Return which micro-batch goes through which virtual stage."""
    return f"micro-batch {span.action.micro_batch}, virtual stage {span.action.virtual_stage}"


def _figure(found: StepTimeline, parts: tuple[Part, ...], *, degree: int) -> Figure:
    end = max(span.end_seconds for span in found.spans)
    scale, unit = time_scale(end)
    rows: dict[Part, list[dict[str, Any]]] = {part: [] for part in (*parts, BUBBLE)}
    for span in found.spans:
        rows[part_of(span)].append(_bar(span, scale, words_of(span)))
    for gap in gaps(found.spans):
        seconds = format_seconds(gap.end_seconds - gap.start_seconds)
        rows[BUBBLE].append(_bar(gap, scale, f"waits {seconds}"))
    names = [f"Stage {rank}" for rank in range(degree)]
    return timeline_bars(rows, names=names, end=end / scale, unit=unit)


def _bar(span: Span | Gap, scale: float, text: str) -> dict[str, Any]:
    return {
        "y": f"Stage {span.rank}",
        "x": (span.end_seconds - span.start_seconds) / scale,
        "base": span.start_seconds / scale,
        "text": text,
    }
