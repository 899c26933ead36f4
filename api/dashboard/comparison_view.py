"""What the compare page shows: columns of plans, rows of facts, charts on common scales.

The last column may be a config that somebody pasted: priced for the baseline's job, not stored.
"""

from __future__ import annotations

from collections.abc import Iterator, Mapping, Sequence
from dataclasses import dataclass, replace
from itertools import groupby
from typing import Literal
from urllib.parse import urlencode

from api.dashboard.charts import Figure, memory_bars, memory_ceiling_bytes, step_bars
from api.dashboard.comparison_cards import (
    Cell,
    Metric,
    Verdict,
    differing_names,
    is_same_work,
    metrics,
)
from api.dashboard.comparison_findings import Finding, findings
from api.dashboard.palette import MEMORY_PARTS, STEP_PARTS, Part
from api.dashboard.pasted_config import packed
from api.dashboard.plan_view import (
    MemoryRow,
    StepRow,
    memory_place,
    memory_row,
    step_rows,
    used_memory_parts,
)
from api.dashboard.quantities import change, in_unit, memory
from api.dashboard.scatter import Spot, scatter
from planner.answers.comparison import Compared, Comparison, Difference, compare, every_fact
from planner.answers.explain import describe_strategy
from planner.answers.simplicity_words import fastest_words
from planner.errors import InputError
from planner.schema.job import Limits
from planner.schema.plan import Estimate, Plan
from planner.schema.strategy import Strategy

Shown = Literal["differences", "all"]

LETTERS = "ABCDEFGHIJKLMNOP"
_SECTIONS = {
    "job": "What was asked",
    "strategy": "Strategy",
    "prediction": "Prediction",
    "breakdown_seconds": "Where the step goes",
    "memory": "Memory per device",
    "certificate": "Certificate",
}
_CONFIG_NAME = "Your config"
_NO_NAMES: Mapping[str, str] = {}
_LIMITS = "job.limits."
_NO_LIMITS = {"limits": Limits()}


@dataclass(frozen=True, slots=True, kw_only=True)
class Column:
    """One compared plan: its letter, its charts, and links to the page without or before it.

    `name` is what people call the plan, or that it is what somebody pasted. `fastest` says what the
    fastest plan takes where this one is simpler, and the link compares the two.
    """

    letter: str
    plan: Compared
    plan_id: str | None
    name: str | None
    metrics: tuple[Metric, ...]
    strategy: str
    memory_figure: Figure
    memory_parts: tuple[Part, ...]
    memory_rows: tuple[MemoryRow, ...]
    memory_place: str
    step_rows: dict[str, StepRow]
    baseline_url: str | None
    without_url: str | None
    fastest: str | None
    fastest_url: str | None

    def metric(self, label: str) -> Metric | None:
        """Return the number of that name; nothing where the plan does not say it."""
        return next((metric for metric in self.metrics if metric.label == label), None)


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
    metric_labels: tuple[str, ...]
    sections: tuple[Section, ...]
    findings: tuple[Finding, ...]
    scatter_figure: Figure
    capacities: str
    step_figure: Figure
    step_parts: tuple[Part, ...]
    memory_parts: tuple[Part, ...]
    toggle_url: str
    plan_ids: tuple[str, ...]
    has_config: bool
    caveats: tuple[str, ...]
    asked_differently: tuple[str, ...]
    limits: tuple[str, ...]
    warnings: tuple[str, ...]


def comparison_view(
    plans: Sequence[Plan],
    *,
    shown: Shown,
    names: Mapping[str, str] = _NO_NAMES,
    config: Estimate | None = None,
    link: str | None = None,
) -> ComparisonView:
    """Return two to six `plans` side by side; the first is the baseline.

    `names` are what people call them, by id. `config` is what somebody pasted, priced, and `link`
    what stands for it in URLs.
    """
    compared: list[Compared] = [*plans, *([config] if config is not None else [])]
    comparison = compare(compared)
    facts = comparison.differences if shown == "differences" else every_fact(compared)
    address = _Address(ids=tuple(plan.id for plan in plans), shown=shown, config=link)
    columns = _columns(compared, names, address)
    asked = [fact for fact in comparison.differences if fact.section == "job"]
    jobs_differ = len({each.job.resolved.model_copy(update=_NO_LIMITS) for each in compared}) > 1
    return ComparisonView(
        comparison=comparison,
        shown=shown,
        columns=columns,
        metric_labels=tuple(
            dict.fromkeys(metric.label for column in columns for metric in column.metrics)
        ),
        sections=_sections(facts, [is_same_work(each, compared[0]) for each in compared]),
        findings=findings(compared, comparison.differences, letters=LETTERS),
        scatter_figure=_scatter(columns),
        capacities=_capacities(columns),
        step_figure=step_bars([(_name(c), c.plan.prediction.breakdown_seconds) for c in columns]),
        step_parts=_used(STEP_PARTS, [name for column in columns for name in column.step_rows]),
        memory_parts=_used(
            MEMORY_PARTS, [part.name for column in columns for part in column.memory_parts]
        ),
        toggle_url=address.toggled(),
        plan_ids=address.ids,
        has_config=config is not None,
        caveats=tuple(_caveats(comparison, jobs_differ=jobs_differ)),
        asked_differently=(
            *differing_names("model", [each.model for each in compared]),
            *differing_names("cluster", [each.cluster for each in compared]),
            *(_asked(fact) for fact in asked if not fact.name.startswith(_LIMITS)),
        ),
        limits=tuple(
            _asked(fact).removeprefix("limits: ") for fact in asked if fact.name.startswith(_LIMITS)
        ),
        warnings=tuple(_warnings(compared)),
    )


def compare_url(
    plan_ids: Sequence[str], *, shown: Shown = "differences", config: str | None = None
) -> str:
    """Return the link to the comparison of these plans."""
    query = [("plan", plan_id) for plan_id in plan_ids]
    if config is not None:
        query.append(("config", config))
    if shown == "all":
        query.append(("show", "all"))
    return f"/compare?{urlencode(query)}"


def strategy_url(plan_id: str, strategy: Strategy) -> str | None:
    """Return the link that compares the plan with a strategy, `None` where no link can hold it."""
    try:
        return compare_url([plan_id], config=packed(strategy.model_dump_json(exclude_none=True)))
    except InputError:
        return None


def fastest_url(plan: Plan) -> str | None:
    """Return the link that compares a plan with the fastest, where that is another."""
    said = plan.certificate.simplicity
    if said is None or said.fastest == plan.strategy:
        return None
    return strategy_url(plan.id, said.fastest)


@dataclass(frozen=True, slots=True, kw_only=True)
class _Address:
    """What a comparison's URL says, and the URLs of its neighbours."""

    ids: tuple[str, ...]
    shown: Shown
    config: str | None

    def toggled(self) -> str:
        other: Shown = "all" if self.shown == "differences" else "differences"
        return compare_url(self.ids, shown=other, config=self.config)

    def led_by(self, index: int) -> str | None:
        """Return the link that makes this plan the baseline; a config cannot be it."""
        if index == 0 or index >= len(self.ids):
            return None
        ids = [self.ids[index], *self.ids[:index], *self.ids[index + 1 :]]
        return compare_url(ids, shown=self.shown, config=self.config)

    def without(self, index: int) -> str | None:
        """Return the link without this plan or config, where two are left."""
        if len(self.ids) + (self.config is not None) < 3:
            return None
        if index >= len(self.ids):
            return compare_url(self.ids, shown=self.shown)
        others = [*self.ids[:index], *self.ids[index + 1 :]]
        return compare_url(others, shown=self.shown, config=self.config)


def _columns(
    compared: Sequence[Compared], names: Mapping[str, str], address: _Address
) -> tuple[Column, ...]:
    ceiling = max(memory_ceiling_bytes(each.prediction.stages) for each in compared)
    columns = (
        _column(each, index, compared[0], ceiling_bytes=ceiling, address=address)
        for index, each in enumerate(compared)
    )
    return tuple(
        replace(each, name=names.get(each.plan_id) if each.plan_id else _CONFIG_NAME)
        for each in columns
    )


def _column(
    each: Compared, index: int, baseline: Compared, *, ceiling_bytes: float, address: _Address
) -> Column:
    stages, place = each.prediction.stages, memory_place(each.strategy)
    parts = used_memory_parts(stages)
    return Column(
        letter=LETTERS[index],
        plan=each,
        plan_id=each.id if isinstance(each, Plan) else None,
        name=None,
        metrics=metrics(each, baseline),
        strategy=describe_strategy(each.strategy),
        memory_figure=memory_bars(stages, ceiling_bytes=ceiling_bytes, place=place),
        memory_parts=parts,
        memory_rows=tuple(memory_row(stage, parts) for stage in stages),
        memory_place=place,
        step_rows={row.part.name: row for row in step_rows(each.prediction)},
        baseline_url=address.led_by(index),
        without_url=address.without(index),
        fastest=_fastest(each),
        fastest_url=fastest_url(each) if isinstance(each, Plan) else None,
    )


def _fastest(compared: Compared) -> str | None:
    """Return what the fastest plan takes, where a simpler one was taken."""
    if not isinstance(compared, Plan):
        return None
    seconds = compared.prediction.step_seconds.p50
    return fastest_words(compared.certificate.simplicity, compared.strategy, seconds)


def _name(column: Column) -> str:
    return f"Plan {column.letter}" if column.plan_id else f"Config {column.letter}"


def _used(parts: Sequence[Part], names: Sequence[str]) -> tuple[Part, ...]:
    return tuple(part for part in parts if part.name in names)


def _scatter(columns: Sequence[Column]) -> Figure:
    return scatter(
        [
            Spot(
                label=column.letter,
                words=column.strategy,
                step_seconds=column.plan.prediction.step_seconds.p50,
                peak_memory_bytes=max(row.peak_bytes for row in column.memory_rows),
                cost_per_million_tokens=column.plan.prediction.cost_per_million_tokens,
            )
            for column in columns
        ],
        capacities_bytes=set(map(_capacity_bytes, columns)),
    )


def _capacity_bytes(column: Column) -> float:
    """Return the bytes that the plan may use on the device that has the least."""
    return min(stage.capacity_bytes for stage in column.plan.prediction.stages)


def _capacities(columns: Sequence[Column]) -> str:
    """Return what each plan may use of a device: `71.2 GiB`, or `71.2 GiB (A, C), 36 GiB (B)`."""
    letters: dict[str, list[str]] = {}
    for column in columns:
        letters.setdefault(memory(_capacity_bytes(column)), []).append(column.letter)
    if len(letters) == 1:
        return next(iter(letters))
    return ", ".join(f"{text} ({', '.join(own)})" for text, own in letters.items())


def _sections(facts: Sequence[Difference], judged: Sequence[bool]) -> tuple[Section, ...]:
    order = list(_SECTIONS)
    ordered = sorted(facts, key=lambda fact: order.index(fact.section))
    return tuple(
        Section(title=_SECTIONS[name], rows=tuple(_row(fact, judged) for fact in group))
        for name, group in groupby(ordered, key=lambda fact: fact.section)
    )


def _row(fact: Difference, judged: Sequence[bool]) -> Row:
    cells = tuple(
        _cell(fact, value, delta, is_judged)
        for value, delta, is_judged in zip(fact.values, fact.delta_ratios, judged, strict=True)
    )
    first, *others = cells
    label = fact.label[:1].upper() + fact.label[1:]
    return Row(label=label, cells=(Cell(text=first.text), *others))


def _cell(fact: Difference, value: object, delta_ratio: float | None, is_judged: bool) -> Cell:
    text = in_unit(value, fact.unit)
    if delta_ratio is None:
        return Cell(text=text)
    shown = change(delta_ratio)
    is_same = shown == change(0.0) or not is_judged
    verdict: Verdict = "same" if is_same else _verdict(fact, delta_ratio)
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


def _warnings(compared: Sequence[Compared]) -> Iterator[str]:
    """Yield each warning once, with the letters of the plans that have it unless all do."""
    letters: dict[str, list[str]] = {}
    for letter, each in zip(LETTERS, compared, strict=False):
        for warning in each.warnings:
            letters.setdefault(warning, []).append(letter)
    for warning, own in letters.items():
        yield warning if len(own) == len(compared) else f"{', '.join(own)}: {warning}"


def _asked(fact: Difference) -> str:
    """Return what of the questions differs in words: `precision bf16 → fp32`."""
    return f"{fact.label} {' → '.join(dict.fromkeys(in_unit(each, None) for each in fact.values))}"
