"""Layouts that the planner searches for adapters on a small model, as strategies of the executor.

Configurations come from the planner's own enumeration, and each gets choices of layers that are
drawn from those that it lists: every second block, the others, embedding and head have one each.
"""

from __future__ import annotations

from collections import defaultdict
from dataclasses import asdict
from random import Random
from typing import Any

from planner.cost.configuration import Choice, Configuration
from planner.requests.resolution import (
    Request,
    model_document,
    resolved_cluster,
    resolved_request,
)
from planner.schema.job import DegreeLimit, Job, Limits
from planner.schema.strategy import Strategy
from planner.space.choices import block_choices, edge_choices
from planner.space.degrees import enumerate_configurations
from planner.space.legality import breaches
from tests.distributed.plans import GLOBAL_BATCH_SIZE, SEQUENCE_LENGTH, small_model

BLOCK_COUNT = 4
ADAPTER_RANK = 4
Mesh = tuple[int, ...]


def request(rank_count: int) -> Request:
    """Return the request for adapters on CPU ranks, of degrees that short rows leave out too."""
    anything = DegreeLimit(min=1, max=rank_count)
    job = Job(
        global_batch_size=GLOBAL_BATCH_SIZE,
        sequence_length=SEQUENCE_LENGTH,
        precision="fp32",
        adapters={"rank": ADAPTER_RANK},
        limits=Limits(tensor_parallel_degree=anything, context_parallel_degree=anything),
    )
    group = {"name": "cpu", "device": "cpu-gloo", "node_count": 1, "devices_per_node": rank_count}
    cluster = resolved_cluster({"name": "ranks", "node_groups": [group]})
    return resolved_request(model_document({}, small_model(block_count=BLOCK_COUNT)), cluster, job)


def layouts(rank_count: int) -> dict[Mesh, list[dict[str, Any]]]:
    """Return the strategies of each mesh that the planner searches, as documents.

    Each configuration has as many as there are choices of a block over configurations, one at
    least: every choice is there, and drawn beside others.
    """
    asked = request(rank_count)
    graph, job = asked.model.resolved, asked.job.resolved
    random = Random(rank_count)  # noqa: S311 - a sample of layouts
    rows = enumerate_configurations(graph, asked.hardware, job).rows
    blocks, edges = block_choices(job.limits), edge_choices(job.limits)
    found = defaultdict(list)
    for index in range(max(len(rows), len(blocks))):
        row, first = rows[index % len(rows)], blocks[index % len(blocks)]
        while True:
            halves = (first, random.choice(blocks))
            strategy = strategy_of(row, halves, (random.choice(edges), random.choice(edges)))
            if not list(breaches(graph, asked.hardware, job, strategy)):
                break
            first = random.choice(blocks)
        found[mesh_of(row)].append(strategy.model_dump(mode="json", exclude_defaults=True))
    return dict(found)


def mesh_of(row: Configuration) -> Mesh:
    """Return the degrees of a configuration: pipeline, data, context and tensor parallelism."""
    return (
        row.pipeline_parallel_degree,
        row.data_parallel_replicate_degree,
        row.data_parallel_shard_degree,
        row.context_parallel_degree,
        row.tensor_parallel_degree,
    )


def strategy_of(
    row: Configuration, choices: tuple[Choice, Choice], edges: tuple[Choice, Choice]
) -> Strategy:
    """Return the resolved strategy whose blocks take turns with two choices.

    `edges` are the choices of embedding and head.
    """
    count = row.pipeline_parallel_degree * row.virtual_pipeline_degree
    per_stage = BLOCK_COUNT // count
    stages = []
    for stage in range(count):
        held = range(stage * per_stage, (stage + 1) * per_stage)
        groups = [
            {"first_block": block, "block_count": 1, **asdict(choices[block % 2])} for block in held
        ]
        stages.append({"stage": stage, "device_group": "cpu", "layers": groups})
    fields = asdict(row)
    del fields["device_order"]
    ends = {"embedding": _edge(edges[0]), "head": _edge(edges[1])}
    return Strategy(**fields, stages=stages, **ends).resolved(
        block_count=BLOCK_COUNT, global_batch_size=GLOBAL_BATCH_SIZE
    )


def _edge(choice: Choice) -> dict[str, Any]:
    fields = asdict(choice)
    del fields["activation_checkpointing"]
    return fields
