"""Gradients that ranks under ZeRO-1 sum whole."""

from __future__ import annotations

import pytest

from planner.cost.step import predict
from planner.hardware import cluster_hardware
from planner.importers.clusters import cluster_from_short_form
from planner.importers.models import read_model
from planner.schema.job import Stack
from planner.schema.strategy import Strategy
from planner.workload.model import model_workload
from tests.builders import a_job

_, GRAPH = read_model("llama-3-8b")


def exposed_seconds(stage: int, *, summed: bool) -> float:
    """What syncing takes on one node of eight, all of it after backward and before forward."""
    job = a_job(
        global_batch_size=64,
        sequence_length=1024,
        stack=Stack.DEEPSPEED,
        gradients_in_16_bits=True,
        overlapped_gradients=False,
        summed_gradients=summed,
    )
    strategy = Strategy(
        data_parallel_shard_degree=8, micro_batch_size=1, zero_stage=stage
    ).resolved(block_count=GRAPH.block_count, global_batch_size=64)
    hardware = cluster_hardware(cluster_from_short_form("1x8xa100-sxm4-80gb"))
    workload = model_workload(GRAPH)
    return predict(workload, hardware, job, strategy).breakdown_seconds.data_parallel_exposed


def test_gradients_are_summed_in_32_bits_where_others_reduce_them_in_16() -> None:
    """Twice the bytes of the same collective; latency is little beside it."""
    wide, narrow = (exposed_seconds(0, summed=summed) for summed in (True, False))
    assert wide == pytest.approx(2 * narrow, rel=0.02)


def test_a_shared_step_sums_gradients_as_one_that_is_not_shared_and_gathers_parameters() -> None:
    """Scattering 16 bits takes as long as gathering 16, which both ways of sharing do."""
    gathered = exposed_seconds(1, summed=False) / 2
    more = exposed_seconds(1, summed=True) - exposed_seconds(0, summed=True)
    assert more == pytest.approx(gathered, rel=0.02)


@pytest.mark.parametrize("stage", [2, 3])
def test_what_is_scattered_for_each_micro_batch_is_not_summed(stage: int) -> None:
    assert exposed_seconds(stage, summed=True) == exposed_seconds(stage, summed=False)
