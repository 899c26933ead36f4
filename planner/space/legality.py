"""Legality: the rules that model, cluster, job and stack put on degrees and strategies."""

from __future__ import annotations

from collections.abc import Iterator

from planner.errors import IllegalStrategyError
from planner.hardware import ClusterHardware
from planner.schema.job import Job, OffloadStore, Optimizer, Stack
from planner.schema.model import ModelGraph
from planner.schema.strategy import ContextParallelKind, Offload, Strategy
from planner.space.breach import Breach
from planner.space.choices import is_legal_in, is_legal_offload
from planner.space.device_groups import device_breaches
from planner.space.divisibility import (
    context_parallel_obstacle,
    divisors,
    expert_count,
    has_experts,
    sequence_parallel_obstacle,
    tensor_parallel_obstacles,
    tensor_parallel_sizes,
)
from planner.space.schedules import schedule_breaches


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
    yield from device_breaches(hardware, strategy)
    yield from _tensor(graph, job, strategy)
    yield from _context(graph, job, strategy)
    yield from _expert(graph, strategy)
    yield from schedule_breaches(job, strategy, graph.block_count)
    yield from _batch(job, strategy)
    yield from _offload(strategy)
    yield from _on_nvme(job, strategy)


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
    for obstacle in tensor_parallel_obstacles(graph, degree, job):
        yield Breach(
            field="tensor_parallel_degree",
            value=degree,
            problem=f"does not divide the model's {obstacle}",
            remedy=f"use one of {_degrees_text(graph, job)}{_shapes_remedy(graph)}"
            f"{_sharing_remedy(graph, degree, job)}",
        )
    undivided = sequence_parallel_obstacle(
        graph,
        parts=degree * strategy.context_parallel_degree,
        length=job.sequence_length or 0,
    )
    if strategy.sequence_parallel and undivided is not None:
        yield Breach(
            field="sequence_parallel",
            value=True,
            problem=f"tensor_parallel_degree {degree} x context_parallel_degree "
            f"{strategy.context_parallel_degree} does not divide {undivided}",
            remedy="switch sequence_parallel off or pad the sequence",
        )
    if degree > 1 and not strategy.sequence_parallel and needs_sequence_parallel(job.stack, graph):
        yield Breach(
            field="sequence_parallel",
            value=False,
            problem=f"{job.stack.value} refuses a mixture of experts under tensor_parallel_degree "
            f"{degree} without it",
            remedy="switch sequence_parallel on, or use tensor_parallel_degree 1",
        )


def _degrees_text(graph: ModelGraph, job: Job) -> str:
    largest = max(tensor_parallel_sizes(graph, job).values(), default=1)
    degrees = [d for d in divisors(largest) if not tensor_parallel_obstacles(graph, d, job)]
    return ", ".join(str(d) for d in degrees[:12])


def _sharing_remedy(graph: ModelGraph, degree: int, job: Job) -> str:
    """Return what would let ranks share key-value heads, empty if nothing does."""
    on_megatron = {"stack": Stack.MEGATRON}
    if not tensor_parallel_obstacles(graph, degree, job.model_copy(update=on_megatron)):
        return ", or stack megatron, whose ranks can share key-value heads"
    other = on_megatron | {"optimizer": Optimizer.ADAMW}
    if not tensor_parallel_obstacles(graph, degree, job.model_copy(update=other)):
        return (
            ", or stack megatron and adamw: ranks there share key-value heads, but Muon takes "
            "queries, keys and values of whole groups alone"
        )
    return ""


def _shapes_remedy(graph: ModelGraph) -> str:
    if not graph.is_measured:
        return ""
    return ", or describe the model by its shapes: a config.json or a model graph with blocks"


def _context(graph: ModelGraph, job: Job, strategy: Strategy) -> Iterator[Breach]:
    degree = strategy.context_parallel_degree

    def obstacle(kind: ContextParallelKind, degree: int) -> str | None:
        return context_parallel_obstacle(
            graph,
            kind,
            context=degree,
            tensor=strategy.tensor_parallel_degree,
            length=job.sequence_length or 0,
            stack=job.stack,
        )

    problem = obstacle(strategy.context_parallel_kind, degree)
    if problem is None:
        return
    kinds = [kind.value for kind in ContextParallelKind if obstacle(kind, degree) is None]
    smaller = [
        d for d in divisors(degree)[:-1] if obstacle(strategy.context_parallel_kind, d) is None
    ]
    remedy = f"use context_parallel_degree {smaller[-1]}{_shapes_remedy(graph)}"
    if kinds:
        remedy += f", or context_parallel_kind {kinds[0]}"
    yield Breach(field="context_parallel_degree", value=degree, problem=problem, remedy=remedy)


def _expert(graph: ModelGraph, strategy: Strategy) -> Iterator[Breach]:
    degree, tensor = strategy.expert_parallel_degree, strategy.tensor_parallel_degree
    split = strategy.expert_tensor_parallel_degree or tensor
    experts = expert_count(graph)
    if experts % degree:
        yield Breach(
            field="expert_parallel_degree",
            value=degree,
            problem=f"does not divide the model's {experts} experts"
            if has_experts(graph)
            else "the model has no routed experts",
            remedy="use a divisor of the number of experts" if has_experts(graph) else "use 1",
        )
    if tensor % split:
        yield Breach(
            field="expert_tensor_parallel_degree",
            value=split,
            problem=f"does not divide tensor_parallel_degree {tensor}",
            remedy=f"use {tensor} to split each expert over all tensor-parallel ranks, 1 to give "
            "them different experts, or a divisor between",
        )
        return
    holders = tensor // split * strategy.shard_degree * strategy.context_parallel_degree
    if holders % degree:
        axes = "data-parallel shard x context degree"
        axes = axes if split == tensor else f"tensor x {axes}"
        yield Breach(
            field="expert_parallel_degree",
            value=degree,
            problem=f"does not divide {axes} = {holders}",
            remedy=f"use a divisor of {holders}",
        )


def needs_sequence_parallel(stack: Stack, graph: ModelGraph) -> bool:
    """Return whether the stack refuses tensor parallelism of the model without sequence parallel.

    Megatron's arguments refuse it for any mixture of experts.
    """
    return stack is Stack.MEGATRON and has_experts(graph)


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


def _on_nvme(job: Job, strategy: Strategy) -> Iterator[Breach]:
    """Yield each group whose activations, or unsharded states, would have to lie on NVMe."""
    if job.offload_to is OffloadStore.HOST:
        return
    for stage in strategy.stages or ():
        for index, group in enumerate(stage.layers):
            if Offload.ACTIVATIONS in group.offload:
                yield Breach(
                    field=f"stages.{stage.stage}.layers.{index}.offload",
                    value="activations",
                    problem="activations are not offloaded to NVMe",
                    remedy="remove activations from the list, or use offload_to host in the job",
                )
            elif not is_legal_in(job.offload_to, group.zero_stage, group.offload):
                yield Breach(
                    field=f"stages.{stage.stage}.layers.{index}.offload",
                    value=", ".join(group.offload),
                    problem=f"NVMe takes states that are sharded whole, and zero_stage is "
                    f"{group.zero_stage}",
                    remedy="use zero_stage 3, or offload_to host in the job",
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
