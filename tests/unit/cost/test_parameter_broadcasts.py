"""Parameters that ranks send one after another."""

from __future__ import annotations

import pytest

from planner.cost.step import predict
from planner.hardware import cluster_hardware
from planner.importers.clusters import cluster_from_short_form
from planner.importers.models import read_model
from planner.schema.job import Stack
from planner.schema.plan import Prediction
from planner.schema.strategy import Strategy
from planner.workload.model import model_workload
from tests.builders import a_job

_, GRAPH = read_model("llama-3-8b")


def predicted(shard: int, stage: int, *, broadcasts: bool) -> Prediction:
    """Return what 64 sequences on 16 devices take, in groups of `shard` that share a step."""
    job = a_job(
        global_batch_size=64,
        sequence_length=4096,
        stack=Stack.DEEPSPEED,
        parameter_broadcasts=broadcasts,
    )
    strategy = Strategy(
        data_parallel_shard_degree=shard,
        data_parallel_replicate_degree=16 // shard,
        micro_batch_size=1,
        zero_stage=stage,
    ).resolved(block_count=GRAPH.block_count, global_batch_size=64)
    hardware = cluster_hardware(cluster_from_short_form("2x8xh100-sxm5-80gb"))
    return predict(model_workload(GRAPH), hardware, job, strategy)


def seconds(shard: int, *, broadcasts: bool) -> float:
    """Return the step."""
    return predicted(shard, 1 if shard > 1 else 0, broadcasts=broadcasts).step_seconds.p50


def gradient_bytes(stage: int, *, broadcasts: bool) -> float:
    """Return the gradients of one of sixteen ranks that share states."""
    return predicted(16, stage, broadcasts=broadcasts).stages[0].memory_bytes.gradients


@pytest.mark.parametrize(("shard", "added"), [(16, 38.4e-3), (8, 19.2e-3), (1, 0.0)])
def test_every_rank_of_a_shard_group_adds_its_broadcast(shard: int, added: float) -> None:
    more = seconds(shard, broadcasts=True) - seconds(shard, broadcasts=False)
    assert more == pytest.approx(added)


@pytest.mark.parametrize(("stage", "added"), [(1, 0.0), (2, 0.0), (3, 4.0)])
def test_such_an_optimizer_copies_the_gradients_of_sharded_parameters(
    stage: int, added: float
) -> None:
    """DeepSpeed's own stage 3 copies few at a time; stages 1 and 2 copy all by themselves."""
    plain, copied = (gradient_bytes(stage, broadcasts=broadcasts) for broadcasts in (False, True))
    shard = model_workload(GRAPH).parameter_count / 16
    assert copied - plain == pytest.approx(added * shard, rel=1e-3)
