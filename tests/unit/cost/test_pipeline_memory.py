"""What pipelines hold beside activations: messages, logits, gradients; and gradients of rows.

A tiny model of 4 blocks on 4 stages with 8 micro-batches: hidden 64, feed-forward 128, 4 heads,
a vocabulary of 256, 128 tokens, bf16.
"""

from __future__ import annotations

from typing import Any

import pytest

from planner.cost.step import predict
from planner.hardware import cluster_hardware
from planner.schema.job import Stack
from planner.schema.plan import MemoryBreakdown
from planner.schema.strategy import PipelineSchedule, Strategy
from planner.workload.model import model_workload
from tests.builders import a_cluster, a_job, a_model

TOKENS, HIDDEN, FFN, HEADS = 128, 64, 128, 4
MESSAGE = TOKENS * HIDDEN * 2
LOGITS = TOKENS * 256
BLOCK = 2 * HIDDEN * 64 + 2 * HIDDEN * 32 + 3 * HIDDEN * FFN + 2 * HIDDEN
GPIPE = PipelineSchedule.GPIPE


def held(job: dict[str, Any] | None = None, **fields: Any) -> list[MemoryBreakdown]:
    """Return what each stage holds."""
    strategy = Strategy(
        **{"pipeline_parallel_degree": 4, "data_parallel_shard_degree": 2, **fields}
    ).resolved(block_count=4, global_batch_size=16)
    found = predict(
        model_workload(a_model()),
        cluster_hardware(a_cluster()),
        a_job(global_batch_size=16, sequence_length=TOKENS, **(job or {})),
        strategy,
    )
    return [stage.memory_bytes for stage in found.stages]


@pytest.mark.parametrize(
    ("stack", "messages"),
    [
        # outputs of 4, 3 and 2 micro-batches in flight, and 8 buffers for each direction
        (Stack.TORCH, [4 + 8, 3 + 16, 2 + 16, 8]),
        (Stack.DEEPSPEED, [4, 3, 2, 0]),
        (Stack.MEGATRON, [0, 0, 0, 0]),
    ],
)
def test_stages_hold_what_they_sent_and_buffers_for_what_they_receive(
    stack: Stack, messages: list[int]
) -> None:
    buffers = [memory.communication_buffers for memory in held({"stack": stack})]
    assert buffers == [count * MESSAGE for count in messages]


def test_a_pipeline_of_its_own_holds_neither() -> None:
    own = held({"stack": Stack.TORCH, "stage_buffers": False})
    assert [memory.communication_buffers for memory in own] == [0.0] * 4


@pytest.mark.parametrize(
    ("job", "fields", "bytes_per_logit"),
    [
        ({}, {"pipeline_parallel_degree": 1, "data_parallel_shard_degree": 8}, 12),
        ({}, {}, 12 + 2),
        ({}, {"pipeline_schedule": GPIPE}, 12 + 2 + 7 * (4 + 2)),
        ({"stage_buffers": False}, {}, 12),
        ({"fused_loss": True}, {}, 4),
        ({"fused_loss": True}, {"pipeline_schedule": GPIPE}, 4 + 7 * 2),
        ({"stack": Stack.MEGATRON}, {}, 6),
    ],
)
def test_a_pipelines_last_stage_holds_its_logits(
    job: dict[str, Any], fields: dict[str, Any], bytes_per_logit: int
) -> None:
    """Torch's stage its 16-bit output; GPipe the log-softmax of the 7 that wait as well."""
    assert held(job, **fields)[-1].logits == bytes_per_logit * LOGITS


def test_zero_stage_1_accumulates_whole_gradients_and_has_no_shards_yet() -> None:
    """Shards come into being in the last backward, as the whole ones go."""
    assert held(zero_stage=1)[1].gradients == 4 * BLOCK
    assert held(zero_stage=2)[1].gradients == 4 * BLOCK / 2


def test_gpipe_has_no_gradients_while_all_micro_batches_are_in_flight() -> None:
    """A block's gradients come when its activations of one micro-batch go, which are more."""
    assert held(zero_stage=0)[1].gradients == 4 * BLOCK
    assert held(zero_stage=0, pipeline_schedule=GPIPE)[1].gradients == 0.0


def test_backward_holds_the_gradients_of_a_blocks_rows() -> None:
    """Of its input, and inside the feed-forward of gate and up, in 2 bytes."""
    assert held()[1].workspace == TOKENS * (HIDDEN + 2 * FFN) * 2


def test_tensor_parallel_ranks_hold_whole_gradients_before_they_are_summed() -> None:
    """And the whole rows beside them, under sequence parallel as well."""
    for sequence_parallel in (False, True):
        memory = held(
            tensor_parallel_degree=2,
            data_parallel_shard_degree=1,
            sequence_parallel=sequence_parallel,
            micro_batch_count=8,
            micro_batch_size=2,
        )
        assert memory[1].workspace == 2 * TOKENS * (2 * HIDDEN + 2 * FFN / 2) * 2


def test_scores_that_are_written_get_gradients() -> None:
    assert held({"fused_attention": False})[1].workspace == HEADS * TOKENS * TOKENS * 2
