"""Plans of a small model for gloo ranks: hidden 32, 8 heads of 8, batches of 8 x 16 tokens."""

from __future__ import annotations

from collections.abc import Mapping
from typing import Any

from planner.schema.cluster import Cluster, NodeGroup
from planner.schema.job import Job
from planner.schema.model import (
    Block,
    BlockRun,
    DenseFeedForward,
    GroupedQueryAttention,
    MixtureFeedForward,
    ModelGraph,
)
from planner.schema.plan import Plan, ResolvedCluster, ResolvedJob, ResolvedModel
from planner.schema.strategy import Strategy
from tests.builders import a_job, a_model, a_plan
from tests.draws import EVERYTHING

BLOCK_COUNT = 4
WIDE_BLOCK_COUNT = 6 if EVERYTHING else 3
FEWEST_BLOCKS = 2
GLOBAL_BATCH_SIZE = 8
SEQUENCE_LENGTH = 16
WIDE_SEQUENCE_LENGTH = 256


def small_model(
    *, tied: bool = False, block_count: int = BLOCK_COUNT, vocabulary_size: int = 256
) -> ModelGraph:
    """Blocks with grouped-query attention, four unless said otherwise."""
    block = Block(
        attention=GroupedQueryAttention(head_count=8, key_value_head_count=4, head_size=8),
        feed_forward=DenseFeedForward(ffn_size=64),
    )
    return a_model(
        hidden_size=32,
        vocabulary_size=vocabulary_size,
        tied_embeddings=tied,
        runs=(BlockRun(block=block, block_count=block_count),),
    )


def block_count_of(strategy: Mapping[str, Any]) -> int:
    """Return as few blocks as a strategy has room for: those that it lists, or one a stage."""
    if "stages" in strategy:
        groups = (group for stage in strategy["stages"] for group in stage["layers"])
        return sum(group["block_count"] for group in groups)
    is_v = strategy.get("pipeline_schedule") in {"zb_v", "dualpipe_v"}
    virtual = 2 if is_v else strategy.get("virtual_pipeline_degree", 1)
    return max(FEWEST_BLOCKS, virtual * strategy.get("pipeline_parallel_degree", 1))


def cpu_plan(
    *,
    model: ModelGraph | None = None,
    precision: str = "fp32",
    clipping: bool = False,
    adapters: dict[str, Any] | None = None,
    **strategy: Any,
) -> Plan:
    """The plan of `strategy` (fields of the document) for a model, the smallest, on CPU ranks."""
    job = a_job(
        global_batch_size=GLOBAL_BATCH_SIZE,
        sequence_length=SEQUENCE_LENGTH,
        precision=precision,
        gradient_clipping=clipping,
        adapters=adapters,
    )
    model = model or small_model(block_count=block_count_of(strategy))
    return plan_of(model, job, strategy)


def plan_of(model: ModelGraph, job: Job, strategy: dict[str, Any]) -> Plan:
    """Return the plan of `strategy` for a model and a job, on CPU ranks."""
    cluster = Cluster(
        name="8xcpu-gloo",
        node_groups=(NodeGroup(name="cpu", device="cpu-gloo", node_count=1, devices_per_node=8),),
    )
    resolved = Strategy(**strategy).resolved(
        block_count=model.block_count, global_batch_size=job.global_batch_size or 1
    )
    return a_plan(
        model=ResolvedModel(given=model.name, resolved=model, digest=model.digest()),
        cluster=ResolvedCluster(given=cluster.name, resolved=cluster, digest=cluster.digest()),
        job=ResolvedJob(given={}, resolved=job, digest=job.digest()),
        strategy=resolved,
    )


def wide_model(block_count: int) -> ModelGraph:
    """Blocks wide enough that what a peak is made of are rows and weights, not odd scalars."""
    block = Block(
        attention=GroupedQueryAttention(head_count=8, key_value_head_count=8, head_size=16),
        feed_forward=DenseFeedForward(ffn_size=320),
    )
    return a_model(
        hidden_size=128,
        vocabulary_size=1024,
        maximum_sequence_length=WIDE_SEQUENCE_LENGTH,
        runs=(BlockRun(block=block, block_count=block_count),),
    )


def wide_mixture(block_count: int) -> ModelGraph:
    """The wide model with eight experts in every block, of which a token takes two."""
    model = wide_model(block_count)
    (run,) = model.runs
    experts = MixtureFeedForward(expert_count=8, experts_per_token=2, expert_ffn_size=160)
    block = run.block.model_copy(update={"feed_forward": experts})
    return model.model_copy(update={"runs": (run.model_copy(update={"block": block}),)})


def wide_plan(
    *, global_batch_size: int = GLOBAL_BATCH_SIZE, mixture: bool = False, **strategy: Any
) -> Plan:
    """The plan of `strategy` for the wide model or mixture on CPU ranks, in bf16."""
    block_count = max(WIDE_BLOCK_COUNT, block_count_of(strategy))
    return plan_of(
        wide_mixture(block_count) if mixture else wide_model(block_count),
        a_job(global_batch_size=global_batch_size, sequence_length=WIDE_SEQUENCE_LENGTH),
        strategy,
    )


def stages(*counts: int, **group: Any) -> list[dict[str, Any]]:
    """Stages with `counts` blocks, all treated alike."""
    listed = []
    first = 0
    for index, count in enumerate(counts):
        layers = [{"first_block": first, "block_count": count, **group}]
        listed.append({"stage": index, "layers": layers})
        first += count
    return listed


def mixed_stages(*groups: list[dict[str, Any]]) -> list[dict[str, Any]]:
    """Stages of layer groups that differ; `first_block` is filled in."""
    listed = []
    first = 0
    for index, stage in enumerate(groups):
        layers = []
        for group in stage:
            layers.append({"first_block": first, **group})
            first += group["block_count"]
        listed.append({"stage": index, "layers": layers})
    return listed
