"""What differs between plans: facts side by side, and how far each is from the first plan's."""

from __future__ import annotations

import math
from collections import Counter
from collections.abc import Callable, Iterable, Iterator, Sequence
from dataclasses import dataclass
from itertools import groupby
from operator import attrgetter
from typing import Literal

from pydantic import JsonValue

from planner.errors import InputError
from planner.requests.asked import differing_answers
from planner.schema.block import later
from planner.schema.document import Document, Part
from planner.schema.job import Job
from planner.schema.plan import (
    Estimate,
    MemoryBreakdown,
    Plan,
    Prediction,
    StagePrediction,
    StepBreakdown,
)
from planner.schema.strategy import LayerGroup, Strategy
from planner.space.complexity import features

PLAN_COUNT_LIMIT = 16
ESTIMATE_ID = "estimate"

Section = Literal["job", "strategy", "prediction", "breakdown_seconds", "memory", "certificate"]
Unit = Literal["seconds", "bytes", "ratio", "tokens_per_second", "currency"]
Better = Literal["lower", "higher"]
Fact = str | int | float | bool | None
Compared = Plan | Estimate


class ComparedPlan(Part):
    """Which plan a column is about; `name` is what people call it, where a service keeps that."""

    id: str
    name: str | None = later(None)
    model: str
    cluster: str
    device_count: int
    global_batch_size: int | None
    sequence_length: int | None
    planner_version: str


class Difference(Part):
    """One fact that is not the same in all plans.

    `values` and `delta_ratios` have one entry per plan, in the plans' order. A value is `None`
    where the plan has no such thing (a fourth stage, say). `delta_ratios` are value / first - 1
    for quantities with a unit, and `None` for words and degrees and where the first is 0.
    """

    name: str
    label: str
    section: Section
    unit: Unit | None = None
    better: Better | None = None
    values: tuple[JsonValue, ...]
    delta_ratios: tuple[float | None, ...]


class Comparison(Document):
    """Differences between plans; the first is the baseline.

    Where the models, clusters or jobs differ, the flags say so: the numbers then answer different
    questions and their deltas are no judgement of the strategies alone.
    """

    plans: tuple[ComparedPlan, ...]
    models_differ: bool
    clusters_differ: bool
    jobs_differ: bool
    differences: tuple[Difference, ...]
    equal_fact_count: int


def compare(plans: Sequence[Compared]) -> Comparison:
    """Return what differs between `plans` or estimates, with deltas to the first.

    An estimate has no certificate, and stands under the id "estimate".

    Raises:
        InputError: if there are fewer than two plans, or more than fit side by side.
    """
    if not 2 <= len(plans) <= PLAN_COUNT_LIMIT:
        raise InputError(
            f"a comparison takes 2 to {PLAN_COUNT_LIMIT} plans",
            field="plans",
            value=f"{len(plans)} plans",
            remedy="give at least two" if len(plans) < 2 else "leave some out",
        )
    facts = list(_facts(plans))
    differing = [fact for fact in facts if not _all_equal(fact.values)]
    return Comparison(
        plans=tuple(_heading(plan) for plan in plans),
        models_differ=len({plan.model.digest for plan in plans}) > 1,
        clusters_differ=len({plan.cluster.digest for plan in plans}) > 1,
        jobs_differ=len({plan.job.digest for plan in plans}) > 1,
        differences=tuple(fact.difference() for fact in differing),
        equal_fact_count=len(facts) - len(differing),
    )


def every_fact(plans: Sequence[Compared]) -> tuple[Difference, ...]:
    """Return all facts of `plans` side by side, those that are the same in all included."""
    return tuple(fact.difference() for fact in _facts(plans))


@dataclass(frozen=True, slots=True, kw_only=True)
class _Row:
    """One fact of all plans, differing or not."""

    name: str
    label: str
    section: Section
    values: tuple[Fact, ...]
    unit: Unit | None = None
    better: Better | None = None

    def difference(self) -> Difference:
        deltas = tuple(_delta_ratio(value, self.values[0]) for value in self.values)
        return Difference(
            name=self.name,
            label=self.label,
            section=self.section,
            unit=self.unit,
            better=self.better,
            values=self.values,
            delta_ratios=deltas if self.unit else (None,) * len(self.values),
        )


def _heading(plan: Compared) -> ComparedPlan:
    return ComparedPlan(
        id=plan.id if isinstance(plan, Plan) else ESTIMATE_ID,
        model=plan.model.resolved.name,
        cluster=plan.cluster.resolved.name,
        device_count=plan.cluster.resolved.device_count,
        global_batch_size=plan.job.resolved.global_batch_size,
        sequence_length=plan.job.resolved.sequence_length,
        planner_version=plan.planner_version,
    )


def _facts(plans: Sequence[Compared]) -> Iterator[_Row]:
    yield from _job_facts([plan.job.resolved for plan in plans])
    yield from _strategy_facts([plan.strategy for plan in plans])
    yield from _prediction_facts([plan.prediction for plan in plans])
    yield from _breakdown_facts([plan.prediction.breakdown_seconds for plan in plans])
    yield from _memory_facts([plan.prediction.stages for plan in plans])
    yield _Row(
        name="strategy.techniques",
        label="techniques beyond data parallelism",
        section="strategy",
        values=tuple(", ".join(features(plan.strategy)) or "none" for plan in plans),
    )
    yield _Row(
        name="certificate.simplicity.fastest_step_seconds",
        label="step of the fastest plan",
        section="certificate",
        unit="seconds",
        better="lower",
        values=tuple(_fastest_step(plan) for plan in plans),
    )
    yield _Row(
        name="certificate.gap_ratio",
        label="gap to the bound",
        section="certificate",
        unit="ratio",
        better="lower",
        values=tuple(
            plan.certificate.gap_ratio if isinstance(plan, Plan) else None for plan in plans
        ),
    )


def _fastest_step(plan: Compared) -> float | None:
    """Return the step of the fastest plan where a simpler one was taken."""
    if isinstance(plan, Plan) and plan.certificate.simplicity is not None:
        return plan.certificate.simplicity.fastest_step_seconds
    return None


def _job_facts(jobs: Sequence[Job]) -> Iterator[_Row]:
    for path, values in differing_answers(jobs):
        label = path.replace("_", " ").replace(".", ": ")
        yield _Row(name=f"job.{path}", label=label, section="job", values=values)


_DEGREES = {
    "tensor_parallel_degree": "tensor parallel",
    "sequence_parallel": "sequence parallel",
    "pipeline_parallel_degree": "pipeline parallel",
    "virtual_pipeline_degree": "virtual stages",
    "pipeline_schedule": "schedule",
    "context_parallel_degree": "context parallel",
    "expert_parallel_degree": "expert parallel",
    "micro_batch_size": "micro-batch size",
    "micro_batch_count": "micro-batches",
}


def _strategy_facts(strategies: Sequence[Strategy]) -> Iterator[_Row]:
    def row(name: str, label: str, read: Callable[[Strategy], Fact]) -> _Row:
        values = tuple(read(strategy) for strategy in strategies)
        return _Row(name=f"strategy.{name}", label=label, section="strategy", values=values)

    for name, label in _DEGREES.items():
        yield row(name, label, lambda strategy, name=name: _degree(strategy, name))  # type: ignore[misc]
    yield row(
        "data_parallel_replicate_degree",
        "data parallel, replicated",
        lambda strategy: strategy.replicate_degree,
    )
    yield row(
        "data_parallel_shard_degree",
        "data parallel, sharded",
        lambda strategy: strategy.shard_degree,
    )
    yield row("stages.block_count", "blocks per stage", blocks_per_stage)
    yield row("zero_stage", "ZeRO stage", zero_stages)
    yield row("activation_checkpointing", "activation checkpointing", activation_checkpointing)
    yield row("offload", "offload", offload)
    yield row("embedding", "embedding", lambda strategy: _edge(strategy, "embedding"))
    yield row("head", "LM head", lambda strategy: _edge(strategy, "head"))


def strategy_differences(strategy: Strategy, beside: Strategy) -> tuple[str, ...]:
    """Return in what a strategy differs from another: `micro-batch size 2 in place of 1`."""
    return tuple(
        f"{fact.label} {_word(fact.values[0])} in place of {_word(fact.values[1])}"
        for fact in _strategy_facts([strategy, beside])
        if not _all_equal(fact.values)
    )


def _word(value: Fact) -> str:
    return {True: "on", False: "off"}[value] if isinstance(value, bool) else str(value)


def _degree(strategy: Strategy, name: str) -> Fact:
    value: Fact = getattr(strategy, name)
    return value.value if name == "pipeline_schedule" else value  # type: ignore[union-attr]


def blocks_per_stage(strategy: Strategy) -> str:
    """Return the blocks of each stage: `8` where all hold eight, otherwise `7 + 14 x 8 + 7`."""
    counts = [stage.block_count for stage in strategy.stages or ()]
    if len(set(counts)) == 1:
        return str(counts[0])
    runs = [(count, len(list(stages))) for count, stages in groupby(counts)]
    return " + ".join(
        str(count) if stage_count == 1 else f"{stage_count} x {count}"
        for count, stage_count in runs
    )


def zero_stages(strategy: Strategy) -> str:
    """Return the ZeRO stages of the blocks: `1`, or `1 (24 blocks), 3 (8 blocks)`."""
    return _by_blocks(strategy, lambda group: str(group.zero_stage))


def activation_checkpointing(strategy: Strategy) -> str:
    """Return the checkpointing of the blocks: `none (24 blocks), full (8 blocks)`."""
    return _by_blocks(strategy, lambda group: group.activation_checkpointing.value)


def offload(strategy: Strategy) -> str:
    """Return what the blocks keep in host memory: `optimizer + parameters`, or `none`."""
    return _by_blocks(strategy, lambda group: _joined(group.offload))


def _by_blocks(strategy: Strategy, describe: Callable[[LayerGroup], str]) -> str:
    counts: Counter[str] = Counter()
    for stage in strategy.stages or ():
        for group in stage.layers:
            counts[describe(group)] += group.block_count
    if len(counts) == 1:
        return next(iter(counts))
    return ", ".join(
        f"{name} ({count} {'block' if count == 1 else 'blocks'})" for name, count in counts.items()
    )


def _edge(strategy: Strategy, name: Literal["embedding", "head"]) -> str:
    choice = getattr(strategy, name)
    if choice is None:
        return "as the blocks"
    kept = "" if not choice.offload else f", offload {_joined(choice.offload)}"
    return f"ZeRO {choice.zero_stage}{kept}"


def _joined(items: Iterable[str]) -> str:
    return " + ".join(items) or "none"


# the path of each figure below a prediction, what people call it, its unit, and which is better
_FIGURES: tuple[tuple[str, str, Unit, Better], ...] = (
    ("step_seconds.p50", "step", "seconds", "lower"),
    ("step_seconds.p10", "step, p10", "seconds", "lower"),
    ("step_seconds.p90", "step, p90", "seconds", "lower"),
    ("tokens_per_second_per_device", "tokens per second and device", "tokens_per_second", "higher"),
    ("model_flop_utilization", "model FLOP utilization", "ratio", "higher"),
    ("cost_per_million_tokens", "cost per million tokens", "currency", "lower"),
    ("fits_probability", "chance to fit", "ratio", "higher"),
)


def _prediction_facts(predictions: Sequence[Prediction]) -> Iterator[_Row]:
    for path, label, unit, better in _FIGURES:
        yield _Row(
            name=f"prediction.{path}",
            label=label,
            section="prediction",
            unit=unit,
            better=better,
            values=tuple(map(attrgetter(path), predictions)),
        )


def _breakdown_facts(breakdowns: Sequence[StepBreakdown]) -> Iterator[_Row]:
    for name in StepBreakdown.model_fields:
        yield _Row(
            name=f"prediction.breakdown_seconds.{name}",
            label=name.replace("_", " "),
            section="breakdown_seconds",
            unit="seconds",
            better="lower",
            values=tuple(getattr(breakdown, name) for breakdown in breakdowns),
        )


def _memory_facts(per_plan: Sequence[tuple[StagePrediction, ...]]) -> Iterator[_Row]:
    yield _bytes_row(
        "prediction.stages.memory_bytes",
        "fullest stage, peak",
        [max(stage.peak_memory_bytes for stage in stages) for stages in per_plan],
    )
    fullest = [max(stages, key=lambda stage: stage.peak_memory_bytes) for stages in per_plan]
    for name in MemoryBreakdown.model_fields:
        yield _bytes_row(
            f"prediction.stages.memory_bytes.{name}",
            f"fullest stage, {name.replace('_', ' ')}",
            [getattr(stage.memory_bytes, name) for stage in fullest],
        )
    for index in range(max(len(stages) for stages in per_plan)):
        peaks: list[Fact] = [
            stages[index].peak_memory_bytes if index < len(stages) else None for stages in per_plan
        ]
        yield _bytes_row(
            f"prediction.stages.{index}.peak_memory_bytes", f"stage {index}, peak", peaks
        )


def _bytes_row(name: str, label: str, values: Sequence[Fact]) -> _Row:
    return _Row(
        name=name,
        label=label,
        section="memory",
        unit="bytes",
        better="lower",
        values=tuple(values),
    )


def _all_equal(values: Sequence[Fact]) -> bool:
    first = values[0]
    return all(_equal(value, first) for value in values[1:])


def _equal(one: Fact, other: Fact) -> bool:
    if isinstance(one, float) and isinstance(other, float):
        return math.isclose(one, other, rel_tol=1e-9)
    return one == other


def _delta_ratio(value: Fact, first: Fact) -> float | None:
    if not isinstance(value, (int, float)) or not isinstance(first, (int, float)) or first == 0:
        return None
    return value / first - 1.0
