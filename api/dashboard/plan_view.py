"""What the page of one plan shows: headline numbers, strategy, memory, step, each as rows."""

from __future__ import annotations

from collections.abc import Iterator
from dataclasses import dataclass

from api.dashboard import quantities
from api.dashboard.charts import Figure, memory_bars, step_waterfall
from api.dashboard.palette import MEMORY_PARTS, Part, memory_bytes, step_seconds
from api.dashboard.timeline import TimelineView, timeline_view
from planner.answers.comparison import (
    activation_checkpointing,
    blocks_per_stage,
    offload,
    zero_stages,
)
from planner.answers.simplicity_words import simplicity_words
from planner.cost.schedule import rank_of_virtual_stage
from planner.schema.plan import Plan, Prediction, StagePrediction
from planner.schema.strategy import EdgeChoice, LayerGroup, Offload, Strategy


@dataclass(frozen=True, slots=True, kw_only=True)
class Headline:
    """One number of the summary, with its unit and what puts it into proportion."""

    label: str
    value: str
    note: str = ""


@dataclass(frozen=True, slots=True, kw_only=True)
class LayerRow:
    """How some consecutive blocks, the embedding or the head are kept."""

    layers: str
    block_count: int | None
    zero_stage: int
    activation_checkpointing: str
    offload: str


@dataclass(frozen=True, slots=True, kw_only=True)
class StageLayers:
    """The rows of one stage, in the model's order; virtual stages say which rank holds them."""

    stage: int
    label: str
    rows: tuple[LayerRow, ...]


@dataclass(frozen=True, slots=True, kw_only=True)
class MemoryRow:
    """GiB of one stage by use, in the order of the columns."""

    label: str
    amounts: tuple[float, ...]
    peak_bytes: float
    capacity_bytes: float

    @property
    def used_ratio(self) -> float:
        """Return how much of the capacity the peak takes."""
        return self.peak_bytes / self.capacity_bytes if self.capacity_bytes else 1.0


@dataclass(frozen=True, slots=True, kw_only=True)
class StepRow:
    """Seconds of one cause, and their share of the step."""

    part: Part
    seconds: float
    ratio: float


@dataclass(frozen=True, slots=True, kw_only=True)
class PlanView:
    """A plan, arranged for its page."""

    plan: Plan
    headlines: tuple[Headline, ...]
    degrees: tuple[tuple[str, str], ...]
    stages: tuple[StageLayers, ...]
    layer_group_count: int
    step_rows: tuple[StepRow, ...]
    interval: str
    memory_parts: tuple[Part, ...]
    memory_rows: tuple[MemoryRow, ...]
    memory_place: str
    step_figure: Figure
    memory_figure: Figure
    timeline: TimelineView | None
    simplicity: str | None


def plan_view(plan: Plan) -> PlanView:
    """Return `plan` arranged for its page."""
    prediction = plan.prediction
    parts = used_memory_parts(prediction.stages)
    stages = stage_layers(plan.strategy)
    return PlanView(
        plan=plan,
        headlines=tuple(_headlines(plan)),
        degrees=tuple(_degrees(plan.strategy)),
        stages=stages,
        layer_group_count=sum(len(stage.rows) for stage in stages),
        step_rows=step_rows(prediction),
        interval=interval_reasons(prediction),
        memory_parts=parts,
        memory_rows=tuple(memory_row(stage, parts) for stage in prediction.stages),
        step_figure=step_waterfall(prediction.breakdown_seconds),
        memory_place=memory_place(plan.strategy),
        memory_figure=memory_bars(prediction.stages, place=memory_place(plan.strategy)),
        timeline=timeline_view(plan),
        simplicity=simplicity_words(plan),
    )


def step_rows(prediction: Prediction) -> tuple[StepRow, ...]:
    """Return the causes that take time, longest share of the step included."""
    total = prediction.breakdown_seconds.total_seconds() or 1.0
    return tuple(
        StepRow(part=part, seconds=seconds, ratio=seconds / total)
        for part, seconds in step_seconds(prediction.breakdown_seconds)
        if seconds > 0
    )


def interval_reasons(prediction: Prediction) -> str:
    """Return how far a measured step may be from p50 and why, widest reason first; or nothing."""
    step = prediction.step_seconds
    causes = sorted(prediction.interval_causes, key=lambda each: -each.ratio)
    if not causes or not step.p50:
        return ""
    reasons = "; ".join(f"{each.cause} ({quantities.percent(each.ratio)})" for each in causes)
    width = quantities.percent(step.p90 / step.p50 - 1.0)
    return f"Four runs in five are expected within {width} of this: {reasons}."


def memory_place(strategy: Strategy) -> str:
    """Return what memory is counted by: a stage, or a rank where it holds several."""
    return "stage" if strategy.virtual_degree == 1 else "rank"


def used_memory_parts(stages: tuple[StagePrediction, ...]) -> tuple[Part, ...]:
    """Return the uses of memory that at least one stage has."""
    return tuple(
        part
        for part in MEMORY_PARTS
        if any(getattr(stage.memory_bytes, part.name) > 0 for stage in stages)
    )


def memory_row(stage: StagePrediction, parts: tuple[Part, ...]) -> MemoryRow:
    """Return the row of `stage` with a column for each of `parts`."""
    amounts = dict(memory_bytes(stage.memory_bytes))
    return MemoryRow(
        label=str(stage.stage),
        amounts=tuple(amounts[part] for part in parts),
        peak_bytes=stage.peak_memory_bytes,
        capacity_bytes=stage.capacity_bytes,
    )


def stage_layers(strategy: Strategy) -> tuple[StageLayers, ...]:
    """Return each stage's layer groups; the embedding is on the first, the head on the last."""
    stages = strategy.stages or ()
    return tuple(
        StageLayers(
            stage=stage.stage,
            label=_stage_label(strategy, stage.stage),
            rows=(
                *_edge_rows("Embedding", strategy.embedding if stage is stages[0] else None),
                *(_group_row(group) for group in stage.layers),
                *_edge_rows("LM head", strategy.head if stage is stages[-1] else None),
            ),
        )
        for stage in stages
    )


def _stage_label(strategy: Strategy, stage: int) -> str:
    if strategy.virtual_degree == 1:
        return str(stage)
    rank = rank_of_virtual_stage(
        strategy.pipeline_schedule,
        pipeline_parallel_degree=strategy.pipeline_parallel_degree,
        virtual_stage=stage,
    )
    return f"{stage} (on rank {rank})"


def _headlines(plan: Plan) -> Iterator[Headline]:
    prediction, step = plan.prediction, plan.prediction.step_seconds
    device_count = plan.cluster.resolved.device_count
    tokens_per_second = prediction.tokens_per_second_per_device * device_count
    fullest = max(prediction.stages, key=lambda stage: stage.peak_memory_bytes)
    yield Headline(
        label="Step time",
        value=quantities.seconds(step.p50),
        note=f"{quantities.seconds(step.p10)} to {quantities.seconds(step.p90)} (p10 to p90)",
    )
    yield Headline(
        label="Throughput per device",
        value=quantities.rate(prediction.tokens_per_second_per_device),
        note=f"{quantities.large(tokens_per_second)} tokens/s on {_devices(device_count)}",
    )
    yield Headline(
        label="Model FLOP utilization",
        value=quantities.percent(prediction.model_flop_utilization),
        note="of the devices' peak",
    )
    yield Headline(
        label="Peak memory",
        value=quantities.memory(fullest.peak_memory_bytes),
        note=f"of {quantities.memory(fullest.capacity_bytes)} usable, "
        f"{_chance(prediction.fits_probability)} to fit",
    )
    if prediction.cost_per_million_tokens is not None:
        yield Headline(
            label="Cost",
            value=quantities.money(prediction.cost_per_million_tokens),
            note="per million tokens",
        )


def _devices(count: int) -> str:
    return f"{count:,} device" if count == 1 else f"{count:,} devices"


def _chance(probability: float) -> str:
    return f"{probability:.0%} chance"


def _degrees(strategy: Strategy) -> Iterator[tuple[str, str]]:
    sequence = " with sequence parallel" if strategy.sequence_parallel else ""
    yield "Tensor parallel", f"{strategy.tensor_parallel_degree}{sequence}"
    yield "Pipeline parallel", _counted(strategy.pipeline_parallel_degree, memory_place(strategy))
    if strategy.pipeline_parallel_degree > 1:
        yield "Pipeline schedule", strategy.pipeline_schedule.value
    if strategy.virtual_degree > 1:
        yield "Virtual stages per rank", str(strategy.virtual_degree)
    yield "Data parallel, sharded", _counted(strategy.shard_degree, "rank")
    if strategy.replicate_degree > 1:
        yield "Data parallel, replicated", _counted(strategy.replicate_degree, "replica")
    yield "Context parallel", str(strategy.context_parallel_degree)
    yield "Expert parallel", str(strategy.expert_parallel_degree)
    yield "Micro-batch size", _counted(strategy.micro_batch_size, "sequence")
    yield "Micro-batches per step", f"{strategy.micro_batch_count or 1:,}"
    yield "Blocks per stage", blocks_per_stage(strategy)
    yield "ZeRO stage", zero_stages(strategy)
    yield "Activation checkpointing", activation_checkpointing(strategy)
    yield "Offload to host", offload(strategy)


def _counted(count: int, noun: str) -> str:
    return f"{count:,} {noun}" if count == 1 else f"{count:,} {noun}s"


def _group_row(group: LayerGroup) -> LayerRow:
    last = group.first_block + group.block_count - 1
    blocks = f"Block {last}" if group.block_count == 1 else f"Blocks {group.first_block} to {last}"
    return LayerRow(
        layers=blocks,
        block_count=group.block_count,
        zero_stage=group.zero_stage,
        activation_checkpointing=group.activation_checkpointing.value,
        offload=_offload(group.offload),
    )


def _edge_rows(layers: str, choice: EdgeChoice | None) -> Iterator[LayerRow]:
    if choice is not None:
        yield LayerRow(
            layers=layers,
            block_count=None,
            zero_stage=choice.zero_stage,
            activation_checkpointing="none",
            offload=_offload(choice.offload),
        )


def _offload(items: tuple[Offload, ...]) -> str:
    return ", ".join(item.value for item in items) or "none"
