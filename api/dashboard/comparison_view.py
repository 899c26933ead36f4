"""What the compare page shows: columns of plans, rows of facts, charts on common scales."""

from __future__ import annotations

from collections.abc import Sequence
from dataclasses import dataclass
from itertools import groupby
from typing import Literal
from urllib.parse import urlencode

from api.dashboard.charts import Figure, memory_bars, memory_ceiling_bytes, step_bars
from api.dashboard.palette import MEMORY_PARTS, STEP_PARTS, Part
from api.dashboard.plan_view import (
    MemoryRow,
    StepRow,
    memory_place,
    memory_row,
    step_rows,
    used_memory_parts,
)
from api.dashboard.quantities import change, in_unit
from planner.comparison import Comparison, Difference, compare, every_fact
from planner.explain import describe_strategy
from planner.schema.job import Limits
from planner.schema.plan import Plan

Shown = Literal["differences", "all"]
Verdict = Literal["better", "worse", "same"]

LETTERS = "ABCDEFGHIJKLMNOP"
_SECTIONS = {
    "prediction": "Prediction",
    "strategy": "Strategy",
    "breakdown_seconds": "Where the step goes",
    "memory": "Memory per device",
    "certificate": "Certificate",
}
_NO_LIMITS = {"limits": Limits()}


@dataclass(frozen=True, slots=True, kw_only=True)
class Column:
    """One compared plan: its letter, its charts, and links to the page without or before it."""

    letter: str
    plan: Plan
    strategy: str
    memory_figure: Figure
    memory_parts: tuple[Part, ...]
    memory_rows: tuple[MemoryRow, ...]
    memory_place: str
    step_rows: dict[str, StepRow]
    baseline_url: str | None
    without_url: str | None


@dataclass(frozen=True, slots=True, kw_only=True)
class Cell:
    """A plan's value, and how far it is from the baseline's, in words where that is judged."""

    text: str
    delta: str = ""
    verdict: Verdict = "same"


@dataclass(frozen=True, slots=True, kw_only=True)
class Row:
    """One fact of all plans."""

    label: str
    cells: tuple[Cell, ...]


@dataclass(frozen=True, slots=True, kw_only=True)
class Section:
    """Facts of one kind."""

    title: str
    rows: tuple[Row, ...]


@dataclass(frozen=True, slots=True, kw_only=True)
class ComparisonView:
    """A comparison, arranged for its page."""

    comparison: Comparison
    shown: Shown
    columns: tuple[Column, ...]
    sections: tuple[Section, ...]
    step_figure: Figure
    step_parts: tuple[Part, ...]
    memory_parts: tuple[Part, ...]
    toggle_url: str
    caveats: tuple[str, ...]
    limits_differ: bool


def comparison_view(plans: Sequence[Plan], *, shown: Shown) -> ComparisonView:
    """Return `plans`, two to six, arranged side by side; the first is the baseline."""
    comparison = compare(plans)
    facts = comparison.differences if shown == "differences" else every_fact(plans)
    columns = _columns(plans, shown=shown)
    other: Shown = "all" if shown == "differences" else "differences"
    jobs_differ = len({plan.job.resolved.model_copy(update=_NO_LIMITS) for plan in plans}) > 1
    used = {name for column in columns for name in column.step_rows}
    kept = {part for column in columns for part in column.memory_parts}
    return ComparisonView(
        comparison=comparison,
        shown=shown,
        columns=columns,
        sections=_sections(facts),
        step_figure=step_bars(
            [
                (f"Plan {column.letter}", column.plan.prediction.breakdown_seconds)
                for column in columns
            ]
        ),
        step_parts=tuple(part for part in STEP_PARTS if part.name in used),
        memory_parts=tuple(part for part in MEMORY_PARTS if part in kept),
        toggle_url=compare_url([plan.id for plan in plans], shown=other),
        caveats=tuple(_caveats(comparison, jobs_differ=jobs_differ)),
        limits_differ=comparison.jobs_differ and not jobs_differ,
    )


def compare_url(plan_ids: Sequence[str], *, shown: Shown = "differences") -> str:
    """Return the link to the comparison of these plans."""
    query = [("plan", plan_id) for plan_id in plan_ids]
    if shown == "all":
        query.append(("show", "all"))
    return f"/compare?{urlencode(query)}"


def _columns(plans: Sequence[Plan], *, shown: Shown) -> tuple[Column, ...]:
    ceiling = max(memory_ceiling_bytes(plan.prediction.stages) for plan in plans)
    ids = [plan.id for plan in plans]
    columns = []
    for index, plan in enumerate(plans):
        others = ids[:index] + ids[index + 1 :]
        stages = plan.prediction.stages
        parts = used_memory_parts(stages)
        columns.append(
            Column(
                letter=LETTERS[index],
                plan=plan,
                strategy=describe_strategy(plan.strategy),
                memory_figure=memory_bars(
                    stages, ceiling_bytes=ceiling, place=memory_place(plan.strategy)
                ),
                memory_parts=parts,
                memory_rows=tuple(memory_row(stage, parts) for stage in stages),
                memory_place=memory_place(plan.strategy),
                step_rows={row.part.name: row for row in step_rows(plan.prediction)},
                baseline_url=compare_url([plan.id, *others], shown=shown) if index else None,
                without_url=compare_url(others, shown=shown) if len(others) > 1 else None,
            )
        )
    return tuple(columns)


def _sections(facts: Sequence[Difference]) -> tuple[Section, ...]:
    order = list(_SECTIONS)
    ordered = sorted(facts, key=lambda fact: order.index(fact.section))
    return tuple(
        Section(title=_SECTIONS[name], rows=tuple(_row(fact) for fact in group))
        for name, group in groupby(ordered, key=lambda fact: fact.section)
    )


def _row(fact: Difference) -> Row:
    cells = tuple(
        _cell(fact, value, delta)
        for value, delta in zip(fact.values, fact.delta_ratios, strict=True)
    )
    first, *others = cells
    label = fact.label[:1].upper() + fact.label[1:]
    return Row(label=label, cells=(Cell(text=first.text), *others))


def _cell(fact: Difference, value: object, delta_ratio: float | None) -> Cell:
    text = in_unit(value, fact.unit)
    if delta_ratio is None:
        return Cell(text=text)
    shown = change(delta_ratio)
    verdict: Verdict = "same" if shown == change(0.0) else _verdict(fact, delta_ratio)
    return Cell(text=text, delta=shown, verdict=verdict)


def _verdict(fact: Difference, delta_ratio: float) -> Verdict:
    """Return how the totals compare; a part of a step or of memory is neither good nor bad."""
    if fact.better is None or fact.section not in {"prediction", "certificate"}:
        return "same"
    is_lower = delta_ratio < 0
    return "better" if is_lower == (fact.better == "lower") else "worse"


def _caveats(comparison: Comparison, *, jobs_differ: bool) -> list[str]:
    flags = {
        "models": comparison.models_differ,
        "clusters": comparison.clusters_differ,
        "jobs": jobs_differ,
    }
    return [name for name, differ in flags.items() if differ]
