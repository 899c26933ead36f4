"""The optimizer's step: what it needs beside states meets neither activations nor the loss.

By hand: Llama-3-8B has 8.03 billion parameters; over 8 devices each steps with 1.004 billion, and
16 bytes each are 14.96 GiB of states and gradients, of which 4 bytes are 3.74 GiB. torch 2.13
takes 4.0 bytes a parameter more in AdamW's step by foreach, and none fused (allocations counted).
"""

from __future__ import annotations

import pytest

from planner.cost.step import predict
from planner.hardware import cluster_hardware
from planner.importers.clusters import cluster_from_short_form
from planner.importers.models import read_model
from planner.schema.strategy import Strategy
from planner.units import GIB
from planner.workload.model import model_workload
from tests.builders import a_job

WORKLOAD = model_workload(read_model("llama-3-8b")[1])
SHARD = 8_030_261_248 / 8


def live_gib(length: int, count: int, kept: str = "full", **flags: object) -> float:
    """Return the predicted peak under ZeRO-3 on eight devices, without runtime and slack."""
    batch = 8 * count
    job = a_job(sequence_length=length, global_batch_size=batch, **flags)
    strategy = Strategy(
        data_parallel_shard_degree=8, zero_stage=3, activation_checkpointing=kept
    ).resolved(block_count=32, global_batch_size=batch)
    hardware = cluster_hardware(cluster_from_short_form("1x8xh100-sxm5-80gb"))
    memory = predict(WORKLOAD, hardware, job, strategy).stages[0].memory_bytes
    return (memory.total_bytes() - memory.runtime) / GIB


@pytest.mark.parametrize("count", [1, 2])
@pytest.mark.parametrize(("length", "most_ratio"), [(128, 1.15), (2048, 1.054), (4096, 1.054)])
def test_a_step_by_foreach_needs_20_bytes_a_parameter(
    count: int, length: int, most_ratio: float
) -> None:
    """Whole gradients of the embedding are gone by then, and are counted with few tokens."""
    found = live_gib(length, count, foreach_optimizer=True)
    least = max(20 * SHARD / GIB, live_gib(length, count))
    assert least <= found <= most_ratio * least


def test_many_tokens_leave_room_for_the_step() -> None:
    """Activations are 49 GiB, and gone by then."""
    assert live_gib(8192, 2, "none", foreach_optimizer=True) == live_gib(8192, 2, "none")


@pytest.mark.parametrize("optimizer", ["sgd", "adam8bit"])
def test_only_adamw_takes_roots_of_all_at_once(optimizer: str) -> None:
    plain = live_gib(128, 2, optimizer=optimizer)
    assert live_gib(128, 2, optimizer=optimizer, foreach_optimizer=True) == plain
