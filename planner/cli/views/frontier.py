"""A Pareto front, as a person reads it: one row a plan, fastest first."""

from __future__ import annotations

from collections.abc import Iterator

from rich.console import Group, RenderableType
from rich.markup import escape
from rich.rule import Rule
from rich.table import Table

from planner.answers.simplicity_words import fastest_words
from planner.cli.views.plan import infeasible_view
from planner.schema.frontier import AlternativePlan, Frontier, FrontierPoint
from planner.schema.plan import Certificate
from planner.units import counted, format_bytes, format_seconds


def frontier_view(front: Frontier) -> RenderableType:
    """Return the points, the alternatives, and what was left out; or why there are none."""
    if front.infeasible is not None:
        return infeasible_view(front.infeasible)
    model, cluster = front.model.resolved.name, front.cluster.resolved.name
    return Group(
        Rule(f"[bold]frontier of {escape(model)} on {escape(cluster)}[/]", align="left"),
        _points(front.points),
        *_alternatives("Best of other degrees", front.alternatives),
        *_other_choices(front.other_choices),
        "",
        *_left_out(front),
    )


def _points(points: tuple[FrontierPoint, ...]) -> Table:
    table = Table(box=None, pad_edge=False)
    for heading in ("devices", "strategy", "step", "peak", "$ per M tokens", "proof"):
        table.add_column(heading, justify="left" if heading == "strategy" else "right")
    for point in points:
        table.add_row(
            str(point.device_count),
            escape(_beside_fastest(point)),
            format_seconds(point.step_seconds),
            format_bytes(point.peak_memory_bytes),
            price(point.cost_per_million_tokens),
            proof(point.certificate),
        )
    return table


def _beside_fastest(point: FrontierPoint) -> str:
    """Return the plan, and beneath it what the fastest takes where a simpler one was taken."""
    said = point.certificate.simplicity
    fastest = fastest_words(said, point.strategy, point.step_seconds)
    return point.description if fastest is None else f"{point.description}\n  {fastest}"


def _other_choices(plans: tuple[AlternativePlan, ...]) -> Iterator[RenderableType]:
    """Yield plans of the best one's degrees by what they differ in."""
    named = (
        plan.model_copy(update={"description": "\n".join(plan.differs) or plan.description})
        for plan in plans
    )
    yield from _alternatives("The best, with one of its choices left out", tuple(named))


def _alternatives(title: str, plans: tuple[AlternativePlan, ...]) -> Iterator[RenderableType]:
    if not plans:
        return
    yield ""
    table = Table(title=title, title_justify="left", box=None, pad_edge=False)
    figures = ("step", "slower by", "peak", "$ per M tokens", "proof")
    for heading in ("#", "strategy", *figures):
        table.add_column(heading, justify="left" if heading == "strategy" else "right")
    for plan in plans:
        table.add_row(
            str(plan.rank),
            escape(plan.description),
            format_seconds(plan.step_seconds),
            f"{plan.slower_ratio:.2%}",
            format_bytes(plan.peak_memory_bytes),
            price(plan.cost_per_million_tokens),
            "[green]optimal[/]" if plan.proven else "not proven",
        )
    yield table


def _left_out(front: Frontier) -> Iterator[str]:
    status = "all caps solved" if front.status == "complete" else front.status
    yield (
        f"{status}: {front.search_count} searches, {front.dominated_count} plans dropped "
        "that another beats in all three; between these caps there may be other plans"
    )
    if front.least_peak_bound_bytes:
        bound = format_bytes(front.least_peak_bound_bytes)
        yield f"no plan on all devices has a peak under {bound}"
    whole = [part for part in front.skipped if part.memory_cap_bytes is None]
    for reason, words in (("infeasible", "has no plan"), ("out_of_time", "was not solved in time")):
        counts = sorted({part.device_count for part in whole if part.reason == reason})
        if counts:
            noun = "device" if counts == [1] else "devices"
            yield f"a part of {', '.join(map(str, counts))} {noun} {words}"
    capped = len(front.skipped) - len(whole)
    if capped:
        were = "was" if capped == 1 else "were"
        yield f"{counted(capped, 'memory cap')} on other parts {were} not solved in time"


def price(cost: float | None) -> str:
    """Return a cost to three digits, empty where none is known."""
    return "" if cost is None else f"{cost:.3g}"


def proof(certificate: Certificate) -> str:
    """Return how sure a plan is to be the best, in one or two words."""
    if certificate.status == "optimal":
        return "[green]optimal[/]"
    return f"[yellow]gap {certificate.gap_ratio:.1%}[/]"
