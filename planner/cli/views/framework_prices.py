"""Framework prices, as a person reads them: one row a framework, beside the plan's own."""

from __future__ import annotations

from rich.console import Group, RenderableType
from rich.markup import escape
from rich.table import Table

from planner.cli.views.frontier import proof
from planner.schema.framework_prices import FrameworkPrice, FrameworkPrices
from planner.units import format_seconds

_LEFT = {"framework", "stack", "strategy"}


def framework_prices_view(found: FrameworkPrices) -> RenderableType:
    """Return the table, and in words why a framework has no plan."""
    table = Table(box=None, pad_edge=False)
    for heading in (
        *("framework", "stack", "step", "beside the plan", "cannot say", "its program"),
        *("proof", "strategy"),
    ):
        table.add_column(heading, justify="left" if heading in _LEFT else "right")
    table.add_row(
        escape(found.plan), found.stack, format_seconds(found.step_seconds), "", "", "", "",
        escape(found.description),
    )  # fmt: skip
    for price in found.prices:
        table.add_row(*_cells(price))
    reasons = [
        f"{price.framework}: {escape(price.reason)}" for price in found.prices if price.reason
    ]
    return Group(table, *reasons)


def _cells(price: FrameworkPrice) -> tuple[str, ...]:
    names = (price.framework.value, price.stack.value)
    if price.step_seconds is None or price.certificate is None:
        return (*names, "", "", "", "", "", price.absence)
    ratios = (price.slower_ratio, price.restriction_ratio, price.stack_ratio)
    return (
        *names,
        format_seconds(price.step_seconds),
        *(f"{ratio:+.1%}" for ratio in ratios if ratio is not None),
        proof(price.certificate),
        escape(price.description or ""),
    )
