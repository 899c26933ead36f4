"""Why a plan is as it is, as a person reads it."""

from __future__ import annotations

from collections.abc import Iterator

from rich.console import Group, RenderableType
from rich.markup import escape
from rich.rule import Rule
from rich.table import Table
from rich.text import Text

from planner.answers.objective_words import device_words, excess_words, value_words
from planner.answers.safety_words import safety_words
from planner.schema.job import Objective
from planner.schema.reasons import Heatmap, HeatmapCell, Objection, Reasons, Rival, ShadowPrice
from planner.units import GIB, format_bytes, format_seconds

_EQUAL_RATIO = 1e-9
_TOLD_CAUSES = ("slower", "faster")


def reasons_view(reasons: Reasons) -> RenderableType:
    """Return what binds, prices of memory, the runner-up, answers to objections, the heatmap."""
    return Group(
        Rule(f"[bold]why {escape(reasons.plan_id)}[/]", align="left"),
        Text(reasons.summary),
        *(Text(f"binds: {limit}") for limit in reasons.binding_constraints),
        *_part_line(reasons),
        *(Text(_price(price, reasons)) for price in reasons.shadow_prices),
        *_safety(reasons),
        Text(_rival(reasons.runner_up, reasons)),
        *(line for objection in reasons.objections for line in _objection(objection)),
        *_heatmap(reasons.heatmap),
    )


def _part_line(reasons: Reasons) -> Iterator[Text]:
    """Yield which part of the cluster the plan is for, where that is not the whole."""
    used, asked = reasons.device_count, reasons.cluster_device_count
    if used is not None and asked is not None and used < asked:
        yield Text(
            f"the plan uses {used} of {asked} devices: the runner-up is on as many, memory is "
            f"added to all {asked}"
        )


def _safety(reasons: Reasons) -> Iterator[Text]:
    if reasons.safety is not None:
        yield Text(
            safety_words(reasons.safety, reasons.objective, step_seconds=reasons.step_seconds)
        )


def _price(price: ShadowPrice, reasons: Reasons) -> str:
    what = price.resource.replace("_", " ")
    head = f"{format_bytes(price.added_bytes)} more {what} on every {price.device}"
    if price.reason is not None:
        return f"{head} would change nothing: {price.reason}"
    if price.saved_seconds is None:
        return f"{head}: was not solved in time"
    sure = "" if price.proven else " (not proven)"
    if reasons.objective is not Objective.THROUGHPUT:
        return f"{head} would save {_saved(price, reasons)}{sure}"
    if price.saved_seconds <= 0.0:
        return f"{head} would save nothing{sure}"
    ratio = price.saved_seconds / price.step_seconds
    return f"{head} would save {format_seconds(price.saved_seconds)} a step ({ratio:.2%}){sure}"


def _saved(price: ShadowPrice, reasons: Reasons) -> str:
    """Return what more memory takes off the objective."""
    value, saved = reasons.objective_value or 0.0, price.saved_value or 0.0
    if saved <= _EQUAL_RATIO * value:
        return "nothing"
    return f"{value_words(reasons.objective, saved)} ({saved / value:.2%})"


def _rival(rival: Rival | None, reasons: Reasons) -> str:
    if rival is None:
        return "runner-up: of other degrees none is likely enough to fit, or was found in time"
    sure = "" if rival.proven else " (not proven)"
    objective, more = reasons.objective, rival.more_value
    if objective is not Objective.THROUGHPUT and rival.objective_value is not None:
        value = value_words(objective, rival.objective_value)
        return (
            f"runner-up: {rival.description}: {value}, {_more(rival, reasons, more or 0.0)}{sure}"
        )
    return (
        f"runner-up: {rival.description}: {format_seconds(rival.step_seconds)}, "
        f"{_slower(rival)}{sure}"
    )


def _slower(rival: Rival) -> str:
    """Return how much slower a rival is, or how much faster than a plan that is simpler."""
    pace = "slower" if rival.slower_ratio >= 0.0 else "faster"
    return f"{format_seconds(abs(rival.slower_seconds))} ({abs(rival.slower_ratio):.2%}) {pace}"


def _more(rival: Rival, reasons: Reasons, more: float) -> str:
    """Return how far behind a runner-up is: by the objective, by the step where that is equal."""
    if more > _EQUAL_RATIO * (reasons.objective_value or 0.0):
        return excess_words(reasons.objective, more, rival.more_ratio or 0.0)
    return f"as the plan, and {_slower(rival)} a step"


def _objection(objection: Objection) -> Iterator[RenderableType]:
    yield ""
    yield Text(f"why not {objection.asked}? {_verdict(objection)}", style="bold")
    yield Text(f"  {objection.answer}")
    for rule in objection.rules[1:]:
        yield Text(f"  {rule}")
    for excess in objection.excesses[1:]:
        where = "" if excess.stage is None else f"stage {excess.stage}: "
        resource = excess.resource.replace("_", " ")
        yield Text(f"  {where}{format_bytes(excess.excess_bytes)} too much {resource}")
    for cause in objection.causes if objection.verdict in _TOLD_CAUSES else ():
        sign = "+" if cause.difference_seconds > 0.0 else "-"
        difference = format_seconds(abs(cause.difference_seconds))
        yield Text(f"  {cause.name.replace('_', ' ')}: {sign}{difference}")
    if objection.outside_limits:
        yield Text(f"  outside the job's limits: {', '.join(objection.outside_limits)}")


def _verdict(objection: Objection) -> str:
    """Return the verdict in words: of no plan at all it is known that none is likely enough."""
    if objection.verdict == "does_not_fit" and objection.strategy is None:
        return "too little memory"
    return objection.verdict.replace("_", " ")


def _heatmap(heatmap: Heatmap | None) -> Iterator[RenderableType]:
    if heatmap is None:
        return
    yield ""
    title = f"{_words(heatmap.row_field)} (down) x {_words(heatmap.column_field)} (across)"
    table = Table(title=title, title_justify="left", box=None, pad_edge=False)
    table.add_column("", justify="right")
    for column in heatmap.columns:
        table.add_column(str(column), justify="right")
    width = len(heatmap.columns)
    for index, row in enumerate(heatmap.rows):
        cells = heatmap.cells[index * width : (index + 1) * width]
        table.add_row(str(row), *(_cell(cell, heatmap.objective) for cell in cells))
    yield table
    for cell in heatmap.cells:
        if cell.reason is not None:
            yield Text(f"  {cell.row} x {cell.column}: {cell.reason}", style="dim")


def _cell(cell: HeatmapCell, objective: Objective) -> Text:
    if cell.step_seconds is not None:
        by_step = objective is Objective.THROUGHPUT or cell.objective_value is None
        ratio = cell.slower_ratio if by_step else cell.more_ratio
        style = "bold green" if ratio is not None and ratio <= _EQUAL_RATIO else ""
        return Text(_cell_value(cell, objective), style=style)
    if cell.missing_bytes is not None:
        return Text(f"≥ {cell.missing_bytes / GIB:.1f} GiB more", style="red")
    words = "too little memory" if cell.status == "does_not_fit" else cell.status.replace("_", " ")
    return Text(words, style="dim")


def _cell_value(cell: HeatmapCell, objective: Objective) -> str:
    """Return the cell's objective in few letters; a plan that may not be the best has a tilde."""
    value = cell.objective_value or 0.0
    match objective:
        case Objective.COST:
            words = f"${value:.4g}"
        case Objective.MEMORY:
            words = format_bytes(value)
        case Objective.DEVICES:
            words = device_words(value)
        case Objective.THROUGHPUT:
            words = format_seconds(cell.step_seconds or 0.0)
    return words if cell.proven else f"~{words}"


def _words(field: str) -> str:
    return field.replace("_", " ")
