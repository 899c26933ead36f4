"""A comparison, as a person reads it: one row per difference, one column per plan."""

from __future__ import annotations

from collections.abc import Callable
from itertools import groupby

from pydantic import JsonValue
from rich.console import Group, RenderableType
from rich.markup import escape
from rich.table import Table
from rich.text import Text

from planner.answers.comparison import Comparison, Difference, Unit
from planner.units import format_bytes, format_seconds

_SECTION_TITLES = {
    "job": "what was asked",
    "strategy": "strategy",
    "prediction": "prediction",
    "breakdown_seconds": "where the step goes",
    "memory": "memory per device",
    "certificate": "certificate",
}


def comparison_view(comparison: Comparison, *, one_work: bool = False) -> RenderableType:
    """Return the differences in sections, or that there are none.

    `one_work` is whether the jobs differ in their limits alone, if at all.
    """
    lines: list[RenderableType] = [*_warnings(comparison, one_work=one_work), _table(comparison)]
    equal = comparison.equal_fact_count
    closing = f"{equal} facts are the same in all" if comparison.differences else "no differences"
    return Group(*lines, f"[dim]{closing}[/]")


def _warnings(comparison: Comparison, *, one_work: bool) -> list[str]:
    flags = {
        "models": comparison.models_differ,
        "clusters": comparison.clusters_differ,
        "jobs": comparison.jobs_differ and not one_work,
    }
    differing = [name for name, differs in flags.items() if differs]
    if not differing:
        within = comparison.jobs_differ and one_work
        return ["[dim]the same job, searched within different limits[/]"] if within else []
    what = " and the ".join(differing)
    return [f"[yellow]the {what} differ: these plans answer different questions[/]"]


def _table(comparison: Comparison) -> Table:
    table = Table(box=None, pad_edge=False)
    table.add_column("")
    for plan in comparison.plans:
        table.add_column(
            f"{escape(plan.id)}\n[dim]{escape(plan.model)}\n{escape(plan.cluster)}[/]",
            justify="right",
        )
    for section, rows in groupby(comparison.differences, key=lambda row: row.section):
        table.add_row(f"[bold]{_SECTION_TITLES[section]}[/]")
        for row in rows:
            table.add_row(f"  {escape(row.label)}", *_cells(row))
    return table


def _cells(row: Difference) -> list[Text]:
    cells = []
    for index, (value, delta) in enumerate(zip(row.values, row.delta_ratios, strict=True)):
        cell = Text(shown(value, row.unit))
        if index and delta is not None:
            cell.append(f" {delta:+.1%}", style=_delta_style(delta, row))
        cells.append(cell)
    return cells


def _delta_style(delta: float, row: Difference) -> str:
    if row.better is None or delta == 0.0:
        return "dim"
    return "green" if (delta < 0.0) == (row.better == "lower") else "red"


def shown(value: JsonValue, unit: Unit | None) -> str:
    """Return `value` in `unit` as text; `-` where a plan has no such thing."""
    if value is None:
        return "-"
    if unit is None or not isinstance(value, (int, float)):
        return str(value)
    return _FORMATS[unit](value)


_FORMATS: dict[Unit, Callable[[float], str]] = {
    "seconds": format_seconds,
    "bytes": format_bytes,
    "ratio": lambda value: f"{value:.1%}",
    "currency": lambda value: f"${value:.3g}",
    "tokens_per_second": lambda value: f"{value:,.0f}",
}
