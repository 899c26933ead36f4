"""Llama-3-8B under FSDP2 with tensor and sequence parallel and loss_parallel: peak live bytes.

Fake tensors of torch 2.13 on a fake process group, which equal real gloo ranks to three digits;
FSDP over eight, sequence 8,192, micro-batch 1, fp32 parameters and bf16 compute.
Tolerance: 1 % without checkpointing; 5 % with full checkpointing, whose loss peaks a little lower.
"""

from __future__ import annotations

import pytest

from planner.cost.step import predict
from planner.hardware import cluster_hardware
from planner.importers.clusters import cluster_from_short_form
from planner.importers.models import read_model
from planner.schema.job import Job
from planner.schema.strategy import ActivationCheckpointing, Strategy
from planner.units import GIB
from planner.workload.model import model_workload


@pytest.mark.parametrize(
    ("tensor_parallel_degree", "checkpointing", "peak_gib", "tolerance"),
    [
        (8, ActivationCheckpointing.NONE, 13.26, 0.01),
        (4, ActivationCheckpointing.FULL, 7.64, 0.05),
    ],
)
def test_peak_of_live_bytes(
    tensor_parallel_degree: int,
    checkpointing: ActivationCheckpointing,
    peak_gib: float,
    tolerance: float,
) -> None:
    _, graph = read_model("llama-3-8b")
    strategy = Strategy(
        tensor_parallel_degree=tensor_parallel_degree,
        sequence_parallel=True,
        data_parallel_shard_degree=8,
        zero_stage=3,
        activation_checkpointing=checkpointing,
    ).resolved(block_count=graph.block_count, global_batch_size=8)
    cluster = cluster_from_short_form(f"{tensor_parallel_degree}x8xh100-sxm5-80gb")
    job = Job(global_batch_size=8, sequence_length=8192)
    prediction = predict(model_workload(graph), cluster_hardware(cluster), job, strategy)
    memory = prediction.stages[0].memory_bytes
    live = memory.total_bytes() - memory.runtime
    assert live / GIB == pytest.approx(peak_gib, rel=tolerance)
