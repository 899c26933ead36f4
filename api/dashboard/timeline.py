"""The timeline of a plan's pipeline: which stage runs what when, as its simulation has it."""

from __future__ import annotations

from collections import defaultdict
from collections.abc import Iterator, Mapping, Sequence
from dataclasses import dataclass

from api.dashboard.charts import Figure, time_scale, timeline_bars
from api.dashboard.palette import ACTION_PARTS, BUBBLE, IN_TURN, Part
from planner.cost.orders import ActionKind
from planner.cost.price_list import priced_strategies
from planner.cost.simulation import Span, StepTimeline, step_timeline
from planner.hardware import cluster_hardware
from planner.schema.plan import Plan, SimulatedStage, SimulatedStep
from planner.units import format_seconds
from planner.version import planner_version
from planner.workload.model import model_workload

_SPAN_LIMIT = 1500
_DRAWN_LIMIT = 3000  # a schedule may need more to show a whole round
_LEAST_GAP_RATIO = 1e-6
_LEAST_PHASE_GAP_RATIO = 0.01  # of the pipeline's time: what divides a phase
_LEAST_WAIT_RATIO = 0.001  # what is drawn between phases
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
class Phase:
    """What a rank does for a while: `count` actions of one part, or of several in turn."""

    rank: int
    part: Part
    start_seconds: float
    end_seconds: float
    count: int


Bar = tuple[Span | Gap | Phase, str]


@dataclass(frozen=True, slots=True, kw_only=True)
class TimelineView:
    """The simulated step of a pipeline, arranged for the plan's page.

    `in_phases` says that there are too many actions to draw each.
    """

    step: SimulatedStep
    stages: tuple[SimulatedStage, ...]
    parts: tuple[Part, ...]
    shown_count: int
    micro_batch_count: int
    in_phases: bool
    figure: Figure


def timeline_view(plan: Plan) -> TimelineView | None:
    """Return the timeline of a plan, `None` without a pipeline or from another version."""
    step = plan.prediction.simulated
    several = plan.strategy.pipeline_parallel_degree > 1
    if step is None or not several or plan.planner_version != planner_version():
        return None
    found = step_spans(plan, span_limit=_SPAN_LIMIT)
    in_phases = len(found.spans) > _DRAWN_LIMIT
    rows = _phase_rows(found) if in_phases else _span_rows(found)
    parts = tuple(part for part in (*ACTION_PARTS, IN_TURN, BUBBLE) if rows.get(part))
    return TimelineView(
        step=step,
        stages=step.stages,
        parts=parts,
        shown_count=found.shown_count,
        micro_batch_count=found.micro_batch_count,
        in_phases=in_phases,
        figure=_figure(
            {part: rows[part] for part in parts},
            end=max(span.end_seconds for span in found.spans),
            degree=plan.strategy.pipeline_parallel_degree,
        ),
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


def gaps(spans: Sequence[Span | Phase], *, least_ratio: float = _LEAST_GAP_RATIO) -> Iterator[Gap]:
    """Yield when each rank waits, from the start of the step to its pipeline's end.

    Gaps of less than `least_ratio` of that are none.
    """
    end = max((span.end_seconds for span in spans), default=0.0)
    busy: dict[int, list[Span | Phase]] = defaultdict(list)
    for span in spans:
        busy[span.rank].append(span)
    for rank, own in busy.items():
        free_from = 0.0
        for span in sorted(own, key=lambda each: each.start_seconds):
            if span.start_seconds - free_from > least_ratio * end:
                yield Gap(rank=rank, start_seconds=free_from, end_seconds=span.start_seconds)
            free_from = span.end_seconds
        if end - free_from > least_ratio * end:
            yield Gap(rank=rank, start_seconds=free_from, end_seconds=end)


def phases(spans: Sequence[Span]) -> Iterator[Phase]:
    """Yield what each rank does first, in turn and last, where every action is too narrow to draw.

    Its first phase has the actions up to the first of another part, its last those from the last
    of another part on; what is between is one phase, unless the rank waits within it.
    """
    end = max((span.end_seconds for span in spans), default=0.0)
    by_rank: dict[int, list[Span]] = defaultdict(list)
    for span in spans:
        by_rank[span.rank].append(span)
    for own in by_rank.values():
        own.sort(key=lambda each: each.start_seconds)
        first = _alike_count(own)
        last = len(own) - min(_alike_count(own[::-1]), len(own) - first)
        for some in (own[:first], own[first:last], own[last:]):
            yield from _unbroken(some, least_gap_seconds=_LEAST_PHASE_GAP_RATIO * end)


def _alike_count(spans: Sequence[Span]) -> int:
    """Return how many of the spans, from the first on, are of one part."""
    first = part_of(spans[0])
    return next((at for at, span in enumerate(spans) if part_of(span) is not first), len(spans))


def _unbroken(spans: Sequence[Span], *, least_gap_seconds: float) -> Iterator[Phase]:
    """Yield the spans as phases, one after each wait of at least that long."""
    start = 0
    for at in range(1, len(spans) + 1):
        is_last = at == len(spans)
        if is_last or spans[at].start_seconds - spans[at - 1].end_seconds > least_gap_seconds:
            kinds = {part_of(span) for span in spans[start:at]}
            yield Phase(
                rank=spans[start].rank,
                part=kinds.pop() if len(kinds) == 1 else IN_TURN,
                start_seconds=spans[start].start_seconds,
                end_seconds=spans[at - 1].end_seconds,
                count=at - start,
            )
            start = at


def part_of(span: Span) -> Part:
    """Return which kind of action a span is."""
    return _PARTS[span.action.kind]


def words_of(span: Span) -> str:
    """Return which micro-batch goes through which virtual stage."""
    return f"micro-batch {span.action.micro_batch}, virtual stage {span.action.virtual_stage}"


def _span_rows(found: StepTimeline) -> dict[Part, list[Bar]]:
    """Return a bar for each action and each wait, by part."""
    rows: dict[Part, list[Bar]] = defaultdict(list)
    for span in found.spans:
        rows[part_of(span)].append((span, words_of(span)))
    rows[BUBBLE] = [_waiting(gap) for gap in gaps(found.spans)]
    return rows


def _phase_rows(found: StepTimeline) -> dict[Part, list[Bar]]:
    """Return a bar for each phase and each long wait, by part."""
    drawn = list(phases(found.spans))
    rows: dict[Part, list[Bar]] = defaultdict(list)
    for phase in drawn:
        rows[phase.part].append((phase, f"{phase.count} actions"))
    rows[BUBBLE] = [_waiting(gap) for gap in gaps(drawn, least_ratio=_LEAST_WAIT_RATIO)]
    return rows


def _waiting(gap: Gap) -> Bar:
    return gap, f"waits {format_seconds(gap.end_seconds - gap.start_seconds)}"


def _figure(rows: Mapping[Part, Sequence[Bar]], *, end: float, degree: int) -> Figure:
    scale, unit = time_scale(end)
    bars = {
        part: [
            {
                "y": f"Stage {each.rank}",
                "x": (each.end_seconds - each.start_seconds) / scale,
                "base": each.start_seconds / scale,
                "text": text,
            }
            for each, text in own
        ]
        for part, own in rows.items()
    }
    names = [f"Stage {rank}" for rank in range(degree)]
    return timeline_bars(bars, names=names, end=end / scale, unit=unit)
