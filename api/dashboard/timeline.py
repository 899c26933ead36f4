"""The timeline of a plan's pipeline: which stage runs what when, as its simulation has it."""

from __future__ import annotations

from dataclasses import dataclass
from typing import Any

from api.dashboard.charts import Figure, time_scale, timeline_bars
from api.dashboard.palette import ACTION_PARTS, Part
from planner.cost.orders import ActionKind
from planner.cost.priced import priced_strategies
from planner.cost.simulate import Span
from planner.cost.simulated import StepTimeline, step_timeline
from planner.hardware import cluster_hardware
from planner.schema.plan import Plan, SimulatedStage, SimulatedStep
from planner.version import planner_version
from planner.workload.model import model_workload

_SPAN_LIMIT = 1500
_FORWARD, _BACKWARD, _WEIGHT_GRADIENT = ACTION_PARTS
_PARTS = {
    ActionKind.FORWARD: _FORWARD,
    ActionKind.BACKWARD: _BACKWARD,
    ActionKind.INPUT_GRADIENT: _BACKWARD,
    ActionKind.WEIGHT_GRADIENT: _WEIGHT_GRADIENT,
}


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
    found = _timeline(plan)
    parts = tuple(part for part in ACTION_PARTS if any(_part(s) is part for s in found.spans))
    return TimelineView(
        step=step,
        stages=step.stages,
        parts=parts,
        shown_count=found.shown_count,
        micro_batch_count=found.micro_batch_count,
        figure=_figure(found, parts, degree=plan.strategy.pipeline_parallel_degree),
    )


def _timeline(plan: Plan) -> StepTimeline:
    (priced,) = priced_strategies(
        model_workload(plan.model.resolved),
        cluster_hardware(plan.cluster.resolved),
        plan.job.resolved,
        [plan.strategy],
    )
    return step_timeline(priced, span_limit=_SPAN_LIMIT)


def _figure(found: StepTimeline, parts: tuple[Part, ...], *, degree: int) -> Figure:
    end = max(span.end_seconds for span in found.spans)
    scale, unit = time_scale(end)
    rows: dict[Part, list[dict[str, Any]]] = {part: [] for part in parts}
    for span in found.spans:
        rows[_part(span)].append(
            {
                "y": f"Stage {span.rank}",
                "x": (span.end_seconds - span.start_seconds) / scale,
                "base": span.start_seconds / scale,
                "text": _words(span),
            }
        )
    names = [f"Stage {rank}" for rank in range(degree)]
    return timeline_bars(rows, names=names, end=end / scale, unit=unit)


def _part(span: Span) -> Part:
    return _PARTS[span.action.kind]


def _words(span: Span) -> str:
    return f"micro-batch {span.action.micro_batch}, virtual stage {span.action.virtual_stage}"
