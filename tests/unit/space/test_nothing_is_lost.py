"""The searched space is all that is legal, or but for the rules, found by trying everything."""

from __future__ import annotations

from collections.abc import Iterator
from dataclasses import fields
from itertools import product
from typing import Any

import pytest

from planner.cost.configuration import Configuration
from planner.hardware import ClusterHardware, cluster_hardware
from planner.schema.cluster import NodeGroup
from planner.schema.job import Job, Stack
from planner.schema.model import BlockRun, MixtureFeedForward, ModelGraph
from planner.schema.strategy import ContextParallelKind, PipelineSchedule, Strategy
from planner.space.degrees import enumerate_configurations
from planner.space.legality import breaches
from tests.builders import a_cluster, a_job, a_model

BATCH = 4
LENGTH = 2048
KINDS, SCHEDULES = tuple(ContextParallelKind), tuple(PipelineSchedule)


def a_mixture() -> ModelGraph:
    """Four blocks of four experts, and sequences of 2,048 tokens."""
    experts = MixtureFeedForward(expert_count=4, experts_per_token=2, expert_ffn_size=64)
    block = a_model().runs[0].block.model_copy(update={"feed_forward": experts})
    return a_model(runs=(BlockRun(block=block, block_count=4),), maximum_sequence_length=LENGTH)


def nodes(node_count: int, devices_per_node: int) -> ClusterHardware:
    group = NodeGroup(
        name="h100",
        device="h100-sxm5-80gb",
        node_count=node_count,
        devices_per_node=devices_per_node,
    )
    return cluster_hardware(a_cluster(node_groups=(group,)))


def all_meshes(device_count: int) -> Iterator[tuple[int, ...]]:
    """Every five degrees whose product is the devices: tensor, pipeline, context, shard, copies."""
    some = range(1, device_count + 1)
    for mesh in product(some, repeat=4):
        used = mesh[0] * mesh[1] * mesh[2] * mesh[3]
        if device_count % used == 0:
            yield (*mesh, device_count // used)


def all_configurations(device_count: int) -> Iterator[Configuration]:
    """Every configuration, legal or not, whose micro-batches make up the batch."""
    experts, virtual, sizes = (1, 2, 3, 4), (1, 2, 3, 4), range(1, BATCH + 1)
    for tensor, pipeline, context, shard, replicate in all_meshes(device_count):
        for size in sizes:
            count, rest = divmod(BATCH, size * shard * replicate)
            if rest or not count:
                continue
            for kind, expert, split, sequence, schedule, v in product(
                KINDS, experts, (1, 2, 4), (False, True), SCHEDULES, virtual
            ):
                yield Configuration(
                    tensor_parallel_degree=tensor,
                    sequence_parallel=sequence,
                    pipeline_parallel_degree=pipeline,
                    virtual_pipeline_degree=v,
                    pipeline_schedule=schedule,
                    context_parallel_degree=context,
                    context_parallel_kind=kind,
                    expert_parallel_degree=expert,
                    expert_tensor_parallel_degree=split,
                    data_parallel_replicate_degree=replicate,
                    data_parallel_shard_degree=shard,
                    micro_batch_size=size,
                    micro_batch_count=count,
                )


def is_left_out(row: Configuration, *, node: int) -> bool:
    """Whether a rule of large spaces keeps the configuration out."""
    tensor, context = row.tensor_parallel_degree, row.context_parallel_degree
    shard, data = row.data_parallel_shard_degree, row.data_parallel_replicate_degree
    data *= shard
    fills = shard == data or (shard > 1 and shard * tensor * context == node)
    return is_far_or_short(row, node=node) or not fills


def is_far_or_short(row: Configuration, *, node: int) -> bool:
    """Whether TP leaves the node or CP makes short parts, as in no large space."""
    tensor, context = row.tensor_parallel_degree, row.context_parallel_degree
    return tensor > node or (context > 1 and LENGTH // context < 2048)


def is_meant_by_another(row: Configuration) -> bool:
    """Whether it means the same as another configuration, or is GPipe where 1F1B may run."""
    tensor, context = row.tensor_parallel_degree, row.context_parallel_degree
    shard, replicate = row.data_parallel_shard_degree, row.data_parallel_replicate_degree
    lone = row.pipeline_parallel_degree == 1
    full = row.micro_batch_count >= row.pipeline_parallel_degree
    return (
        (context == 1 and row.context_parallel_kind is not ContextParallelKind.RING)
        or (shard == 1 and replicate > 1)
        or (tensor == 1 and row.sequence_parallel)
        or (lone and row.pipeline_schedule is not PipelineSchedule.ONE_F_ONE_B)
        or (row.pipeline_schedule is PipelineSchedule.GPIPE and not lone and full)
    )


@pytest.mark.parametrize(("node_count", "devices_per_node"), [(1, 4), (2, 2), (4, 1), (3, 2)])
def test_the_space_is_all_that_is_legal_and_a_large_one_but_for_the_rules(
    node_count: int, devices_per_node: int
) -> None:
    hardware, graph, job = nodes(node_count, devices_per_node), a_mixture(), a_long_job()
    legal = {
        row
        for row in all_configurations(node_count * devices_per_node)
        if not is_meant_by_another(row) and is_legal(row, graph, hardware, job)
    }
    near = {row for row in legal if not is_left_out(row, node=devices_per_node)}
    sharded = {row for row in legal if not is_far_or_short(row, node=devices_per_node)}
    for expected, wide_most in ((legal, 10**6), (sharded, len(sharded)), (near, 0)):
        space = enumerate_configurations(graph, hardware, job, wide_most=wide_most)
        rows = tuple(space.rows)
        assert len(set(rows)) == len(rows)
        assert set(rows) == expected
    assert len(legal) >= len(sharded) >= len(near) > 5


def a_long_job(**changes: Any) -> Job:
    """Four sequences of 2,048 tokens."""
    return a_job(global_batch_size=BATCH, sequence_length=LENGTH, stack=Stack.TORCH, **changes)


def is_legal(row: Configuration, graph: ModelGraph, hardware: ClusterHardware, job: Job) -> bool:
    """Whether the configuration with even stages breaks no rule."""
    names = [field.name for field in fields(Configuration) if field.name != "device_order"]
    strategy = Strategy(**{name: getattr(row, name) for name in names})
    if strategy.virtual_stage_count > graph.block_count:
        return False
    whole = strategy.resolved(block_count=graph.block_count, global_batch_size=BATCH)
    if whole.virtual_pipeline_degree != row.virtual_pipeline_degree:
        return False
    return next(breaches(graph, hardware, job, whole), None) is None
