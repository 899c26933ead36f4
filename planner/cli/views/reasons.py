"""Why a plan is as it is, as a person reads it."""

from __future__ import annotations

from collections.abc import Iterator

from rich.console import Group, RenderableType
from rich.markup import escape
from rich.rule import Rule
from rich.table import Table
from rich.text import Text

from planner.schema.reasons import Heatmap, HeatmapCell, Objection, Reasons, Rival, ShadowPrice
from planner.units import GIB, format_bytes, format_seconds


def reasons_view(reasons: Reasons) -> RenderableType:
    """Return what binds, prices of memory, the runner-up, answers to objections, the heatmap."""
    return Group(
        Rule(f"[bold]why {escape(reasons.plan_id)}[/]", align="left"),
        Text(reasons.summary),
        *(Text(f"binds: {limit}") for limit in reasons.binding_constraints),
        *(Text(_price(price)) for price in reasons.shadow_prices),
        Text(_rival(reasons.runner_up)),
        *(line for objection in reasons.objections for line in _objection(objection)),
        *_heatmap(reasons.heatmap),
    )


def _price(price: ShadowPrice) -> str:
    what = price.resource.replace("_", " ")
    head = f"{format_bytes(price.added_bytes)} more {what} on every {price.device}"
    if price.saved_seconds is None:
        return f"{head}: was not solved in time"
    sure = "" if price.proven else " (not proven)"
    if price.saved_seconds <= 0.0:
        return f"{head} would save nothing{sure}"
    ratio = price.saved_seconds / price.step_seconds
    return f"{head} would save {format_seconds(price.saved_seconds)} a step ({ratio:.2%}){sure}"


def _rival(rival: Rival | None) -> str:
    if rival is None:
        return "runner-up: no other degrees fit, or none was found in time"
    sure = "" if rival.proven else " (not proven)"
    return (
        f"runner-up: {rival.description}: {format_seconds(rival.step_seconds)}, "
        f"{format_seconds(max(rival.slower_seconds, 0.0))} ({rival.slower_ratio:.2%}) slower{sure}"
    )


def _objection(objection: Objection) -> Iterator[RenderableType]:
    yield ""
    yield Text(f"why not {objection.asked}? {objection.verdict.replace('_', ' ')}", style="bold")
    yield Text(f"  {objection.answer}")
    for rule in objection.rules[1:]:
        yield Text(f"  {rule}")
    for excess in objection.excesses[1:]:
        where = "" if excess.stage is None else f"stage {excess.stage}: "
        resource = excess.resource.replace("_", " ")
        yield Text(f"  {where}{format_bytes(excess.excess_bytes)} too much {resource}")
    for cause in objection.causes if objection.verdict == "slower" else ():
        sign = "+" if cause.difference_seconds > 0.0 else "-"
        difference = format_seconds(abs(cause.difference_seconds))
        yield Text(f"  {cause.name.replace('_', ' ')}: {sign}{difference}")
    if objection.outside_limits:
        yield Text(f"  outside the job's limits: {', '.join(objection.outside_limits)}")


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
        table.add_row(str(row), *(_cell(cell) for cell in cells))
    yield table
    for cell in heatmap.cells:
        if cell.reason is not None:
            yield Text(f"  {cell.row} x {cell.column}: {cell.reason}", style="dim")


def _cell(cell: HeatmapCell) -> Text:
    if cell.step_seconds is not None:
        best = cell.slower_ratio is not None and cell.slower_ratio <= 1e-9
        return Text(format_seconds(cell.step_seconds), style="bold green" if best else "")
    if cell.missing_bytes is not None:
        return Text(f"+{cell.missing_bytes / GIB:.1f} GiB", style="red")
    return Text(cell.status.replace("_", " "), style="dim")


def _words(field: str) -> str:
    return field.replace("_", " ")
