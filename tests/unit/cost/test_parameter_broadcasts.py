"""Parameters that ranks send one after another."""

from __future__ import annotations

import pytest

from planner.cost.step import predict
from planner.hardware import cluster_hardware
from planner.importers.clusters import cluster_from_short_form
from planner.importers.models import read_model
from planner.schema.strategy import Strategy
from planner.workload.model import model_workload
from tests.builders import a_job

_, GRAPH = read_model("llama-3-8b")


def seconds(shard: int, *, broadcasts: bool) -> float:
    """Return the step of 64 sequences on 16 devices, in groups of `shard` that share a step."""
    job = a_job(global_batch_size=64, sequence_length=4096, parameter_broadcasts=broadcasts)
    strategy = Strategy(
        data_parallel_shard_degree=shard,
        data_parallel_replicate_degree=16 // shard,
        micro_batch_size=1,
        zero_stage=1 if shard > 1 else 0,
    ).resolved(block_count=GRAPH.block_count, global_batch_size=64)
    hardware = cluster_hardware(cluster_from_short_form("2x8xh100-sxm5-80gb"))
    return predict(model_workload(GRAPH), hardware, job, strategy).step_seconds.p50


@pytest.mark.parametrize(("shard", "added"), [(16, 38.4e-3), (8, 19.2e-3), (1, 0.0)])
def test_every_rank_of_a_shard_group_adds_its_broadcast(shard: int, added: float) -> None:
    more = seconds(shard, broadcasts=True) - seconds(shard, broadcasts=False)
    assert more == pytest.approx(added)
