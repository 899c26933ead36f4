"""Builders of valid documents: a test sets only what it is about."""

from __future__ import annotations

from typing import Any

from planner.schema.cluster import Cluster, NodeGroup
from planner.schema.job import Job
from planner.schema.model import (
    Block,
    BlockRun,
    DenseFeedForward,
    GroupedQueryAttention,
    ModelGraph,
)
from planner.schema.plan import (
    Certificate,
    Explanation,
    Interval,
    MemoryBreakdown,
    Plan,
    Prediction,
    ResolvedCluster,
    ResolvedJob,
    ResolvedModel,
    Simplicity,
    StagePrediction,
    StepBreakdown,
)
from planner.schema.strategy import Strategy
from planner.units import GIB


def a_model(**changes: Any) -> ModelGraph:
    """A tiny Llama-style model: 4 blocks, hidden 64, 4 heads, 2 key-value heads."""
    block = Block(
        attention=GroupedQueryAttention(head_count=4, key_value_head_count=2, head_size=16),
        feed_forward=DenseFeedForward(ffn_size=128),
    )
    fields: dict[str, Any] = {
        "name": "tiny",
        "architecture": "llama",
        "hidden_size": 64,
        "vocabulary_size": 256,
        "maximum_sequence_length": 128,
        "runs": (BlockRun(block=block, block_count=4),),
    }
    return ModelGraph(**{**fields, **changes})


def a_cluster(**changes: Any) -> Cluster:
    """One node of eight H100."""
    group = NodeGroup(name="h100", device="h100-sxm5-80gb", node_count=1, devices_per_node=8)
    return Cluster(**{"name": "8xh100-sxm5-80gb", "node_groups": (group,), **changes})


def a_job(**changes: Any) -> Job:
    """Sixteen sequences of 128 tokens."""
    return Job(**{"global_batch_size": 16, "sequence_length": 128, **changes})


def a_strategy(**changes: Any) -> Strategy:
    """Two stages, tensor parallel 2, two shards, eight micro-batches; resolved for `a_model`."""
    fields: dict[str, Any] = {
        "tensor_parallel_degree": 2,
        "pipeline_parallel_degree": 2,
        "data_parallel_shard_degree": 2,
        "zero_stage": 1,
    }
    strategy = Strategy(**{**fields, **changes})
    return strategy.resolved(block_count=4, global_batch_size=16)


def a_stage_prediction(stage: int = 0, **changes: Any) -> StagePrediction:
    """A stage with 10 GiB used of 76."""
    memory = MemoryBreakdown(
        parameters=2 * GIB,
        gradients=1 * GIB,
        optimizer=3 * GIB,
        activations=1.5 * GIB,
        logits=0.5 * GIB,
        communication_buffers=0.25 * GIB,
        workspace=0.25 * GIB,
        runtime=1.5 * GIB,
    )
    fields: dict[str, Any] = {
        "stage": stage,
        "peak_memory_bytes": 10.0 * GIB,
        "capacity_bytes": 76.0 * GIB,
        "memory_bytes": memory,
        "host_memory_bytes": 0.0,
        "host_capacity_bytes": 200.0 * GIB,
        "forward_seconds": 0.01,
        "backward_seconds": 0.02,
        "step_end_seconds": 0.01,
    }
    return StagePrediction(**{**fields, **changes})


def a_prediction(**changes: Any) -> Prediction:
    """A step of 1 s whose parts sum to it, on two stages."""
    breakdown = StepBreakdown(
        compute=0.6,
        recompute=0.05,
        tensor_parallel=0.1,
        context_parallel=0.0,
        expert_parallel=0.0,
        pipeline_point_to_point=0.01,
        bubble=0.12,
        data_parallel_exposed=0.06,
        offload_exposed=0.0,
        optimizer=0.04,
        host=0.02,
    )
    fields: dict[str, Any] = {
        "step_seconds": Interval(p10=0.9, p50=1.0, p90=1.2),
        "tokens_per_second_per_device": 256.0,
        "model_flop_utilization": 0.41,
        "breakdown_seconds": breakdown,
        "stages": (a_stage_prediction(0), a_stage_prediction(1)),
        "cost_per_million_tokens": 2.5,
        "fits": True,
        "fits_probability": 0.99,
    }
    return Prediction(**{**fields, **changes})


def a_certificate(**changes: Any) -> Certificate:
    """Proven optimal."""
    fields: dict[str, Any] = {
        "status": "optimal",
        "lower_bound_seconds": 1.0,
        "gap_ratio": 0.0,
        "configurations_total": 100,
        "configurations_pruned": 96,
        "configurations_branched": 3,
        "configurations_programmed": 1,
        "milp_count": 4,
        "solver": "HiGHS",
        "solve_seconds": 0.06,
    }
    return Certificate(**{**fields, **changes})


def a_plan(**changes: Any) -> Plan:
    """A whole plan of the tiny model on eight H100."""
    model, cluster, job = a_model(), a_cluster(), a_job()
    fields: dict[str, Any] = {
        "id": "plan-0123456789abcdef",
        "model": ResolvedModel(given="tiny", resolved=model, digest=model.digest()),
        "cluster": ResolvedCluster(given=cluster.name, resolved=cluster, digest=cluster.digest()),
        "job": ResolvedJob(given=job.model_dump(mode="json"), resolved=job, digest=job.digest()),
        "strategy": a_strategy(),
        "prediction": a_prediction(),
        "certificate": a_certificate(),
        "explanation": Explanation(summary="Built by hand for tests."),
        "planner_version": "0.1.0",
    }
    return Plan(**{**fields, **changes})


def a_simplicity(fastest: Strategy, **changes: object) -> Simplicity:
    """One technique in place of two, 1 % longer than the fastest plan."""
    fields = {
        "status": "optimal",
        "tolerance_ratio": 0.02,
        "techniques": ("a pipeline",),
        "least_technique_count": 1,
        "fastest": fastest,
        "fastest_step_seconds": 0.99,
        "fastest_techniques": ("a pipeline", "virtual stages"),
    }
    return Simplicity.model_validate({**fields, **changes})
