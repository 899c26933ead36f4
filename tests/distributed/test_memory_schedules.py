"""What ranks with several stages hold: as much as is in flight, and about what was predicted.

Tolerance: 9 %, predicted too high, since torch's own stages hold a buffer to receive into for every
micro-batch of a step and the executor's only for those in flight. Under ZB-V without checkpointing
the last rank holds 11 % more than predicted: between the two parts of a divided backward all of a
stage's activations stay, and the gradients in between come on top.
"""

from __future__ import annotations

from itertools import product
from typing import Any

import pytest
import torch

from tests.distributed.group import RankGroup
from tests.distributed.parity import cases, some_of
from tests.distributed.plans import WIDE_SEQUENCE_LENGTH
from tests.distributed.test_memory import assert_predicted, counted_live_bytes

pytestmark = pytest.mark.distributed

SCHEDULES: dict[str, dict[str, Any]] = {
    "1f1b": {"pipeline_schedule": "1f1b"},
    "interleaved": {"pipeline_schedule": "interleaved_1f1b", "virtual_pipeline_degree": 2},
    "zb_v": {"pipeline_schedule": "zb_v"},
    "dualpipe_v": {"pipeline_schedule": "dualpipe_v"},
}
TOLERANCE = 0.09
DIVIDED_TOLERANCE = 0.12
LOSS_BYTES_MOST = 16  # a loss and what it counts, of 8 bytes each


@pytest.mark.parametrize("schedule", cases(SCHEDULES, always={"1f1b"}))
def test_more_micro_batches_need_no_more_memory(
    two_ranks: RankGroup, schedule: dict[str, Any]
) -> None:
    """Six micro-batches of one sequence, then eight: only tokens and losses are more."""
    strategy = {**schedule, "pipeline_parallel_degree": 2, "activation_checkpointing": "full"}
    few = counted_live_bytes(two_ranks, strategy, 6)
    many = counted_live_bytes(two_ranks, strategy, 8)
    tokens = 2 * 2 * WIDE_SEQUENCE_LENGTH * torch.int64.itemsize  # inputs and targets of two
    for more in (late - early for early, late in zip(few, many, strict=True)):
        assert tokens <= more <= tokens + 2 * LOSS_BYTES_MOST


@pytest.mark.parametrize(
    ("name", "checkpointing"),
    some_of(
        product(("interleaved", "zb_v", "dualpipe_v"), ("none", "full")),
        always={("interleaved", "full"), ("zb_v", "none")},
    ),
)
def test_several_stages_on_a_rank_hold_what_is_predicted(
    two_ranks: RankGroup, name: str, checkpointing: str
) -> None:
    strategy = {
        **SCHEDULES[name],
        "pipeline_parallel_degree": 2,
        "micro_batch_size": 2,
        "activation_checkpointing": checkpointing,
    }
    is_divided = name == "zb_v" and checkpointing == "none"
    tolerance = DIVIDED_TOLERANCE if is_divided else TOLERANCE
    assert_predicted(two_ranks, strategy, tolerance=tolerance)
