"""Requests small enough to be solved many times, tight enough in memory that answers differ."""

from __future__ import annotations

from typing import Any

from planner.requests.resolution import Request, cluster_document, model_document, resolved_request
from planner.schema.cluster import Cluster, NodeGroup
from planner.schema.job import DegreeLimit, Limits
from planner.schema.model import Block, BlockRun, DenseFeedForward, GroupedQueryAttention
from planner.schema.strategy import ActivationCheckpointing, PipelineSchedule
from planner.units import GIB
from tests.builders import a_job, a_model

# The headroom alone limits memory, so that what fits can be told from bytes.
FEW_CHOICES = Limits(
    fits_probability=None,
    context_parallel_degree=DegreeLimit(min=1, max=1),
    pipeline_schedules=(PipelineSchedule.GPIPE, PipelineSchedule.ONE_F_ONE_B),
    zero_stages=(1, 3),
    activation_checkpointing=(ActivationCheckpointing.NONE, ActivationCheckpointing.FULL),
    offload=(),
    solver_seconds=600.0,
    simplicity_ratio=0.0,
)


def a_tight_cluster(**changes: Any) -> Cluster:
    """One node of four H100 with 20 GiB each."""
    fields = {
        "name": "h100",
        "device": "h100-sxm5-80gb",
        "node_count": 1,
        "devices_per_node": 4,
        "memory_bytes": 20.0 * GIB,
    }
    return Cluster(name="tight", node_groups=(NodeGroup(**{**fields, **changes}),))


def a_tight_request(
    *, cluster: Cluster | None = None, limits: Limits = FEW_CHOICES, **job: Any
) -> Request:
    """A model of 1.6 G parameters whose states and activations do not fit everywhere."""
    block = Block(
        attention=GroupedQueryAttention(head_count=16, key_value_head_count=4, head_size=128),
        feed_forward=DenseFeedForward(ffn_size=8192),
    )
    graph = a_model(
        hidden_size=2048,
        vocabulary_size=32000,
        maximum_sequence_length=4096,
        runs=(BlockRun(block=block, block_count=24),),
    )
    place = a_tight_cluster() if cluster is None else cluster
    fields = {"global_batch_size": 16, "sequence_length": 4096, "limits": limits}
    return resolved_request(
        model_document(graph.name, graph),
        cluster_document(place.name, place),
        a_job(**{**fields, **job}),
    )
