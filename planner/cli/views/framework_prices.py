"""Framework prices, as a person reads them: one row a framework, beside the plan's own."""

from __future__ import annotations

from rich.console import Group, RenderableType
from rich.markup import escape
from rich.table import Table

from planner.cli.views.frontier import proof
from planner.schema.framework_prices import FrameworkPrice, FrameworkPrices
from planner.units import format_seconds

_NOTHING = {
    "refused": "cannot run the job",
    "infeasible": "nothing that it can say is likely enough to fit",
    "out_of_time": "nothing found in time: give more --solver-seconds",
}


def framework_prices_view(found: FrameworkPrices) -> RenderableType:
    """Return the table, and in words why a framework has no plan."""
    table = Table(box=None, pad_edge=False)
    for heading in ("framework", "stack", "step", "beside the plan", "proof", "strategy"):
        right = heading in {"step", "beside the plan", "proof"}
        table.add_column(heading, justify="right" if right else "left")
    table.add_row(
        escape(found.plan), found.stack, format_seconds(found.step_seconds), "", "",
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
    if price.step_seconds is None or price.slower_ratio is None or price.certificate is None:
        return (*names, "", "", "", _NOTHING[price.status])
    return (
        *names,
        format_seconds(price.step_seconds),
        f"{price.slower_ratio:+.1%}",
        proof(price.certificate),
        escape(price.description or ""),
    )
