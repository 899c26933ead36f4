"""Meshes: how the devices of a cluster may be divided over the axes of parallelism."""

from __future__ import annotations

from collections import Counter
from collections.abc import Iterator
from dataclasses import dataclass, field
from math import gcd

from planner.hardware import ClusterHardware
from planner.schema.job import Job
from planner.schema.model import ModelGraph
from planner.schema.strategy import ContextParallelKind
from planner.space.divisibility import (
    context_parallel_obstacle,
    divisors,
    tensor_parallel_obstacles,
)
from planner.space.refusals import Outside, Refusal
from planner.space.rules import (
    Rule,
    searched_shard_degrees,
    searches_context_degree,
    searches_tensor_degree,
)


@dataclass(frozen=True, slots=True, kw_only=True)
class Mesh:
    """Degrees whose product is the number of devices."""

    tensor: int
    pipeline: int
    context: int
    kind: ContextParallelKind
    shard: int
    replicate: int


@dataclass(frozen=True, slots=True, kw_only=True)
class MeshRequest:
    """What is asked for; `refused` counts what is left out, by rule.

    Only the rules that are `held` leave any out. What `obstacles` speak against context
    parallelism is the same for all stages with a tensor degree, and is found once.
    """

    graph: ModelGraph
    hardware: ClusterHardware
    job: Job
    refused: Counter[Refusal]
    held: frozenset[Rule]
    obstacles: dict[tuple[ContextParallelKind, int, int], str | None] = field(default_factory=dict)

    def context_obstacle(
        self, kind: ContextParallelKind, *, context: int, tensor: int
    ) -> str | None:
        """Return why the sequences cannot be shared so, None if they can."""
        if (kind, context, tensor) not in self.obstacles:
            self.obstacles[kind, context, tensor] = context_parallel_obstacle(
                self.graph,
                kind,
                context=context,
                tensor=tensor,
                length=self.job.sequence_length or 1,
                stack=self.job.stack,
            )
        return self.obstacles[kind, context, tensor]


def meshes(asked: MeshRequest) -> Iterator[Mesh]:
    """Yield every mesh of the searched space.

    A stage sits on one kind of device and all have the same size, which therefore divides the
    number of devices of each kind.
    """
    hardware = asked.hardware
    common = gcd(*(kind.device_count for kind in hardware.kinds))
    tensors = tuple(_tensor_degrees(asked, common))
    for tensor in tensors:
        for ranks in reversed(divisors(common // tensor)):
            pipeline = hardware.device_count // (tensor * ranks)
            if _allows_pipeline(pipeline, asked):
                yield from _stage_meshes(tensor, pipeline, ranks, asked)


def _allows_pipeline(pipeline: int, asked: MeshRequest) -> bool:
    if pipeline > asked.graph.block_count:
        asked.refused[f"more stages than the model's {asked.graph.block_count} blocks"] += 1
        return False
    if not asked.job.limits.pipeline_parallel_degree.allows(pipeline):
        asked.refused[Outside("pipeline_parallel_degree", pipeline)] += 1
        return False
    return True


def _stage_meshes(tensor: int, pipeline: int, ranks: int, asked: MeshRequest) -> Iterator[Mesh]:
    """Yield what `ranks` tensor-parallel groups of one stage may be."""
    for context, kind in _context_options(tensor, ranks, asked):
        data = ranks // context
        for shard in _shard_degrees(data, tensor * context, asked):
            yield Mesh(
                tensor=tensor,
                pipeline=pipeline,
                context=context,
                kind=kind,
                shard=shard,
                replicate=data // shard,
            )


def _tensor_degrees(asked: MeshRequest, common: int) -> Iterator[int]:
    limits, degrees = asked.job.limits, divisors(common)
    near = tuple(
        d
        for d in degrees
        if Rule.TENSOR not in asked.held or searches_tensor_degree(d, asked.hardware, limits)
    )
    obstacles = {d: tensor_parallel_obstacles(asked.graph, d, asked.job) for d in near}
    for degree in degrees:
        if degree not in near:
            asked.refused[Rule.TENSOR] += 1
        elif obstacles[degree]:
            reason = f"tensor_parallel_degree does not divide the model's {obstacles[degree][0]}"
            asked.refused[reason] += 1
        elif not limits.tensor_parallel_degree.allows(degree):
            asked.refused[Outside("tensor_parallel_degree", degree)] += 1
        else:
            yield degree


def _context_options(
    tensor: int, ranks: int, asked: MeshRequest
) -> Iterator[tuple[int, ContextParallelKind]]:
    """Yield degrees of context parallelism with their kinds; one rank is a ring of one."""
    limits, length = asked.job.limits, asked.job.sequence_length or 1
    for degree in divisors(ranks):
        allowed = limits.context_parallel_degree.allows(degree)
        if not allowed and (degree == 1 or _has_kind(degree, tensor, asked)):
            asked.refused[Outside("context_parallel_degree", degree)] += 1
        elif degree == 1:
            yield 1, ContextParallelKind.RING
        elif allowed and not (
            Rule.CONTEXT not in asked.held or searches_context_degree(degree, length, limits)
        ):
            asked.refused[Rule.CONTEXT] += 1
        else:  # where the limit leaves it out, what speaks against every kind is all that is said
            yield from _context_kinds(degree, tensor, asked)


def _has_kind(degree: int, tensor: int, asked: MeshRequest) -> bool:
    """Return whether some kind that is wanted can share the sequences so."""
    return any(
        asked.context_obstacle(kind, context=degree, tensor=tensor) is None
        for kind in asked.job.limits.context_parallel_kinds
    )


def _context_kinds(
    degree: int, tensor: int, asked: MeshRequest
) -> Iterator[tuple[int, ContextParallelKind]]:
    wanted = asked.job.limits.context_parallel_kinds
    for kind in ContextParallelKind:
        obstacle = asked.context_obstacle(kind, context=degree, tensor=tensor)
        if kind not in wanted:
            asked.refused[f"job.limits.context_parallel_kinds leaves out {kind.value}"] += 1
        elif obstacle is not None:
            asked.refused[f"context_parallel_degree {degree} ({kind.value}): {obstacle}"] += 1
        else:
            yield degree, kind


def _shard_degrees(data: int, stride: int, asked: MeshRequest) -> Iterator[int]:
    """Yield shard groups; a lone rank shards nothing, as ZeRO stage 0 of any other group does."""
    limits = asked.job.limits
    near = searched_shard_degrees(data, stride=stride, hardware=asked.hardware, limits=limits)
    for degree in divisors(data):
        if degree == 1 and degree not in near:
            continue
        if Rule.SHARDS in asked.held and degree not in near:
            asked.refused[Rule.SHARDS] += 1
        elif not limits.data_parallel_shard_degree.allows(degree):
            asked.refused[Outside("data_parallel_shard_degree", degree)] += 1
        elif not limits.data_parallel_replicate_degree.allows(data // degree):
            asked.refused[Outside("data_parallel_replicate_degree", data // degree)] += 1
        else:
            yield degree
