"""Legality: the rules that model, cluster, job and stack put on degrees and strategies."""

from __future__ import annotations

from collections.abc import Iterator
from dataclasses import dataclass
from math import gcd

from planner.cost.schedule import PRICED_SCHEDULES
from planner.errors import IllegalStrategyError
from planner.hardware import ClusterHardware
from planner.schema.job import Job, Stack
from planner.schema.model import Block, LatentAttention, MixtureFeedForward, ModelGraph
from planner.schema.strategy import Offload, PipelineSchedule, Strategy
from planner.space.choices import is_legal_offload


@dataclass(frozen=True, slots=True, kw_only=True)
class Breach:
    """One broken rule, in the words of an error message."""

    field: str
    value: object
    problem: str
    remedy: str


def tensor_parallel_sizes(graph: ModelGraph) -> dict[str, int]:
    """Return every size that the tensor-parallel degree has to divide, by what it counts."""
    sizes = {"entries of the vocabulary": graph.vocabulary_size}
    for run in graph.runs:
        sizes.update(_block_sizes(run.block))
    return sizes


def _block_sizes(block: Block) -> dict[str, int]:
    attention, feed_forward = block.attention, block.feed_forward
    sizes = {f"{attention.head_count} attention heads": attention.head_count}
    if not isinstance(attention, LatentAttention):
        heads = attention.key_value_head_count
        sizes[f"{heads} key-value heads"] = heads
    if isinstance(feed_forward, MixtureFeedForward):
        sizes["columns of an expert"] = feed_forward.expert_ffn_size
        if feed_forward.shared_ffn_size:
            sizes["columns of the shared expert"] = feed_forward.shared_ffn_size
    else:
        sizes["columns of the feed-forward"] = feed_forward.ffn_size
    return sizes


def expert_count(graph: ModelGraph) -> int:
    """Return the greatest common divisor of the blocks' routed experts, 1 for a model without."""
    counts = {
        run.block.feed_forward.expert_count
        for run in graph.runs
        if isinstance(run.block.feed_forward, MixtureFeedForward)
    }
    return gcd(*counts) or 1


def check_strategy(
    graph: ModelGraph, hardware: ClusterHardware, job: Job, strategy: Strategy
) -> None:
    """Raise unless the resolved strategy can be run as it stands.

    Raises:
        IllegalStrategyError: naming the first broken rule's field, value and remedy.
    """
    for breach in breaches(graph, hardware, job, strategy):
        raise IllegalStrategyError(
            breach.problem, field=breach.field, value=breach.value, remedy=breach.remedy
        )


def breaches(
    graph: ModelGraph, hardware: ClusterHardware, job: Job, strategy: Strategy
) -> Iterator[Breach]:
    """Yield every rule that the resolved strategy breaks."""
    yield from _world(hardware, strategy)
    yield from _tensor(graph, job, strategy)
    yield from _context(job, strategy)
    yield from _expert(graph, strategy)
    yield from _pipeline(job, strategy)
    yield from _batch(job, strategy)
    yield from _offload(strategy)


def _world(hardware: ClusterHardware, strategy: Strategy) -> Iterator[Breach]:
    if strategy.world_size != hardware.device_count:
        yield Breach(
            field="strategy",
            value=f"tensor x pipeline x context x data-parallel degrees = {strategy.world_size}",
            problem=f"does not use the cluster's {hardware.device_count} devices",
            remedy=f"choose degrees whose product is {hardware.device_count}",
        )


def _tensor(graph: ModelGraph, job: Job, strategy: Strategy) -> Iterator[Breach]:
    degree = strategy.tensor_parallel_degree
    for what, size in tensor_parallel_sizes(graph).items():
        if size % degree:
            count = "" if what[0].isdigit() else f"{size} "
            yield Breach(
                field="tensor_parallel_degree",
                value=degree,
                problem=f"does not divide the model's {count}{what}",
                remedy=f"use one of {_divisors_text(graph)}",
            )
    length = job.sequence_length or 0
    if strategy.sequence_parallel and length % (degree * strategy.context_parallel_degree):
        yield Breach(
            field="sequence_parallel",
            value=True,
            problem=f"tensor_parallel_degree {degree} x context_parallel_degree "
            f"{strategy.context_parallel_degree} does not divide sequence_length {length}",
            remedy="switch sequence_parallel off or pad the sequence",
        )


def _divisors_text(graph: ModelGraph) -> str:
    sizes = tensor_parallel_sizes(graph).values()
    degrees = [d for d in range(1, 1025) if all(size % d == 0 for size in sizes)]
    return ", ".join(str(d) for d in degrees[:12])


def _context(job: Job, strategy: Strategy) -> Iterator[Breach]:
    degree = strategy.context_parallel_degree
    length = job.sequence_length or 0
    if degree > 1 and length % (2 * degree):
        yield Breach(
            field="context_parallel_degree",
            value=degree,
            problem=f"twice the degree does not divide sequence_length {length}, so causal work "
            "cannot be balanced",
            remedy="choose a degree whose double divides the sequence",
        )


def _expert(graph: ModelGraph, strategy: Strategy) -> Iterator[Breach]:
    degree = strategy.expert_parallel_degree
    experts = expert_count(graph)
    if experts % degree:
        yield Breach(
            field="expert_parallel_degree",
            value=degree,
            problem=f"does not divide the model's {experts} experts"
            if experts > 1
            else "the model has no routed experts",
            remedy="use a divisor of the number of experts" if experts > 1 else "use 1",
        )
    ranks = strategy.shard_degree * strategy.context_parallel_degree
    if ranks % degree:
        yield Breach(
            field="expert_parallel_degree",
            value=degree,
            problem=f"does not divide data-parallel shard x context degree = {ranks}",
            remedy=f"use a divisor of {ranks}",
        )


def _pipeline(job: Job, strategy: Strategy) -> Iterator[Breach]:
    schedule = strategy.pipeline_schedule
    if schedule not in PRICED_SCHEDULES:
        yield Breach(
            field="pipeline_schedule",
            value=schedule.value,
            problem="cannot be priced yet",
            remedy=f"use one of {', '.join(item.value for item in PRICED_SCHEDULES)}",
        )
    degree, count = strategy.pipeline_parallel_degree, strategy.micro_batch_count or 1
    if needs_full_pipeline(job.stack, schedule) and count < degree:
        yield Breach(
            field="micro_batch_count",
            value=count,
            problem=f"is less than pipeline_parallel_degree {degree}, which 1f1b of "
            f"{job.stack.value} refuses",
            remedy="use smaller micro-batches, fewer stages, or gpipe",
        )


def needs_full_pipeline(stack: Stack, schedule: PipelineSchedule) -> bool:
    """Return whether the stack refuses the schedule with fewer micro-batches than stages."""
    return stack is Stack.TORCH and schedule is PipelineSchedule.ONE_F_ONE_B


def _batch(job: Job, strategy: Strategy) -> Iterator[Breach]:
    replicas = strategy.shard_degree * strategy.replicate_degree
    count = strategy.micro_batch_count or 1
    product = strategy.micro_batch_size * count * replicas
    if product != job.global_batch_size:
        yield Breach(
            field="micro_batch_count",
            value=count,
            problem=f"micro_batch_size x micro_batch_count x data-parallel degree = {product} is "
            f"not global_batch_size {job.global_batch_size}",
            remedy="leave micro_batch_count out to have it derived, or correct the batch",
        )


def _offload(strategy: Strategy) -> Iterator[Breach]:
    choices: list[tuple[str, int, tuple[Offload, ...]]] = [
        (f"stages.{stage.stage}.layers.{index}.offload", group.zero_stage, group.offload)
        for stage in strategy.stages or ()
        for index, group in enumerate(stage.layers)
    ]
    for name, edge in (("embedding", strategy.embedding), ("head", strategy.head)):
        if edge is not None:
            choices.append((f"{name}.offload", edge.zero_stage, edge.offload))
            if Offload.ACTIVATIONS in edge.offload:
                yield Breach(
                    field=f"{name}.offload",
                    value="activations",
                    problem=f"the {name} keeps no activations to offload",
                    remedy="remove activations from the list",
                )
    for field, zero_stage, offload in choices:
        if not is_legal_offload(zero_stage, offload):
            yield Breach(
                field=field,
                value="parameters",
                problem=f"parameters are offloaded only when sharded, and zero_stage is "
                f"{zero_stage}",
                remedy="use zero_stage 3 or remove parameters from the list",
            )
