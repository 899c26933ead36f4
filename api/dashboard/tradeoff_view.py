"""What the page of trade-offs shows: every pair of degrees, and the Pareto front."""

from __future__ import annotations

from collections.abc import Mapping, Sequence
from dataclasses import dataclass

from api.dashboard.analysis_view import Asked, asked
from api.dashboard.charts import Figure
from api.dashboard.comparison_view import strategy_url
from api.dashboard.quantities import change, memory, seconds
from api.dashboard.scatter import Spot, scatter
from api.services.analyses import Analysis
from planner.answers.simplicity_words import fastest_words
from planner.schema.framework_prices import FrameworkPrice, FrameworkPrices
from planner.schema.frontier import AlternativePlan, Frontier, FrontierPoint
from planner.schema.job import Objective
from planner.schema.plan import Plan
from planner.schema.reasons import Heatmap, HeatmapCell
from planner.space.complexity import complexity

_HEAT_STEPS = (0.005, 0.05, 0.15, 0.4)
_BEST = {
    Objective.THROUGHPUT: "step",
    Objective.COST: "cost per million tokens",
    Objective.MEMORY: "peak memory",
    Objective.DEVICES: "number of devices",
}
_SHORT = {"illegal": "not legal", "does_not_fit": "too little memory", "out_of_time": "not solved"}


@dataclass(frozen=True, slots=True, kw_only=True)
class HeatCell:
    """A pair of degrees: what its best plan has, or in short why there is none.

    `description` is the best plan in short; `reason_number` that of why there is none, in the list
    below the table.
    """

    colour_class: str
    text: str
    note: str
    description: str
    reason_number: int | None
    is_the_plan: bool


@dataclass(frozen=True, slots=True, kw_only=True)
class HeatRow:
    """The cells of one degree of the rows' axis."""

    degree: int
    cells: tuple[HeatCell, ...]


@dataclass(frozen=True, slots=True, kw_only=True)
class FrontRow:
    """A point of the front with its number in the chart, and what the fastest beside it takes."""

    label: str
    point: FrontierPoint
    fastest: str | None
    url: str | None


@dataclass(frozen=True, slots=True, kw_only=True)
class OtherRow:
    """The best plan of other degrees, or of other choices."""

    plan: AlternativePlan
    url: str | None


@dataclass(frozen=True, slots=True, kw_only=True)
class PriceRow:
    """The plan of a framework, or why it has none."""

    price: FrameworkPrice
    url: str | None


@dataclass(frozen=True, slots=True, kw_only=True)
class TradeoffView:
    """What else could be had, arranged for its page."""

    plan: Plan
    heatmap: Asked[Heatmap]
    columns: tuple[int, ...]
    rows: tuple[HeatRow, ...]
    reasons: tuple[str, ...]
    best_words: str
    frontier: Asked[Frontier]
    points: tuple[FrontRow, ...]
    others: tuple[OtherRow, ...]
    choices: tuple[OtherRow, ...]
    frameworks: Asked[FrameworkPrices]
    prices: tuple[PriceRow, ...]
    figure: Figure | None
    is_running: bool


def tradeoff_view(plan: Plan, analyses: Sequence[Analysis]) -> TradeoffView:
    """Return what was worked out about the plan's neighbours."""
    heatmap = asked(analyses, "heatmap", Heatmap)
    frontier = asked(analyses, "frontier", Frontier)
    frameworks = asked(analyses, "frameworks", FrameworkPrices)
    front = frontier.answer
    points = () if front is None else tuple(_points(plan, front))
    return TradeoffView(
        plan=plan,
        heatmap=heatmap,
        columns=() if heatmap.answer is None else heatmap.answer.columns,
        rows=() if heatmap.answer is None else tuple(_rows(plan, heatmap.answer)),
        reasons=() if heatmap.answer is None else _reasons(heatmap.answer),
        best_words=_BEST[plan.job.resolved.objective],
        frontier=frontier,
        points=points,
        others=() if front is None else _others(plan, front.alternatives),
        choices=() if front is None else _others(plan, front.other_choices),
        frameworks=frameworks,
        prices=() if frameworks.answer is None else _prices(plan, frameworks.answer),
        figure=_figure(plan, points) if points else None,
        is_running=any(each.state == "running" for each in (heatmap, frontier, frameworks)),
    )


def _prices(plan: Plan, found: FrameworkPrices) -> tuple[PriceRow, ...]:
    return tuple(
        PriceRow(
            price=price,
            url=None if price.strategy is None else strategy_url(plan.id, price.strategy),
        )
        for price in found.prices
    )


def _others(plan: Plan, others: Sequence[AlternativePlan]) -> tuple[OtherRow, ...]:
    return tuple(
        OtherRow(plan=other, url=strategy_url(plan.id, other.strategy)) for other in others
    )


def _rows(plan: Plan, heatmap: Heatmap) -> list[HeatRow]:
    own = (plan.strategy.tensor_parallel_degree, plan.strategy.pipeline_parallel_degree)
    cells = {(cell.row, cell.column): cell for cell in heatmap.cells}
    numbers = {reason: number for number, reason in enumerate(_reasons(heatmap), start=1)}
    return [
        HeatRow(
            degree=row,
            cells=tuple(
                _cell(
                    cells[row, column],
                    heatmap.objective,
                    numbers=numbers,
                    is_the_plan=(row, column) == own,
                )
                for column in heatmap.columns
            ),
        )
        for row in heatmap.rows
    ]


def _reasons(heatmap: Heatmap) -> tuple[str, ...]:
    """Return why pairs have no plan, each reason once, in the order of the table."""
    found = (cell.reason for cell in heatmap.cells if cell.step_seconds is None)
    return tuple(dict.fromkeys(reason for reason in found if reason))


def _cell(
    cell: HeatmapCell, objective: Objective, *, numbers: Mapping[str, int], is_the_plan: bool
) -> HeatCell:
    if cell.step_seconds is None:
        missing = (
            "" if cell.missing_bytes is None else f"at least {memory(cell.missing_bytes)} short"
        )
        return HeatCell(
            colour_class="heat-none",
            text=_SHORT.get(cell.status, cell.status),
            note=missing,
            description="",
            reason_number=numbers.get(cell.reason or ""),
            is_the_plan=False,
        )
    shown = objective if cell.objective_value is not None else Objective.THROUGHPUT
    is_step = shown is Objective.THROUGHPUT
    value = cell.step_seconds if is_step else cell.objective_value
    ratio = (cell.slower_ratio if is_step else cell.more_ratio) or 0.0
    level = sum(ratio > step for step in _HEAT_STEPS)
    return HeatCell(
        colour_class=f"heat-{level}",
        text=_value_text(shown, value or 0.0),
        note=change(ratio) + ("" if cell.proven else ", not proven"),
        description=cell.description or "",
        reason_number=None,
        is_the_plan=is_the_plan,
    )


def _value_text(objective: Objective, value: float) -> str:
    """Return as much of what a plan was to be best at as a cell has room for."""
    match objective:
        case Objective.THROUGHPUT:
            return seconds(value)
        case Objective.COST:
            return f"${value:.4g}"
        case Objective.MEMORY:
            return memory(value)
        case Objective.DEVICES:
            return f"{value:.0f}"


def _points(plan: Plan, front: Frontier) -> list[FrontRow]:
    device_count = plan.cluster.resolved.device_count
    return [
        FrontRow(
            label=str(number),
            point=point,
            fastest=fastest_words(point.certificate.simplicity, point.strategy, point.step_seconds),
            url=strategy_url(plan.id, point.strategy)
            if point.device_count == device_count
            else None,
        )
        for number, point in enumerate(front.points, start=1)
    ]


def _figure(plan: Plan, rows: Sequence[FrontRow]) -> Figure:
    spots = [
        Spot(
            label=row.label,
            words=f"{row.point.description} on {row.point.device_count:,} devices",
            step_seconds=row.point.step_seconds,
            peak_memory_bytes=row.point.peak_memory_bytes,
            cost_per_million_tokens=row.point.cost_per_million_tokens,
            technique_count=complexity(row.point.strategy),
        )
        for row in rows
    ]
    capacity = min(stage.capacity_bytes for stage in plan.prediction.stages)
    return scatter(spots, capacities_bytes=[capacity])
