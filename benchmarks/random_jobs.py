"""Random jobs: batches, sequence lengths, precisions, optimisers, stacks and limits."""

from __future__ import annotations

from random import Random
from typing import Any

LIMITED_SHARE = 0.4
ODD_BATCH_SHARE = 0.15
FEWEST_TOKENS_PER_DEVICE = 2**9
MOST_TOKENS_PER_DEVICE = 2**18
MOST_TOKENS = 2**27


def random_job(
    random: Random, *, device_count: int, longest: int | None, seconds_limit: float
) -> dict[str, Any]:
    """Return the fields of a job with sequences of 2k to 128k tokens, `longest` at most.

    Tokens of a step for each device are even in their logarithm, from 512 to 256 k, and 128 M for
    all devices at most.
    """
    length = 2 ** random.randint(11, 17)
    length = length if longest is None else min(length, longest)
    spread = MOST_TOKENS_PER_DEVICE // FEWEST_TOKENS_PER_DEVICE
    each = FEWEST_TOKENS_PER_DEVICE * spread ** random.random()
    tokens = min(each * device_count, MOST_TOKENS)
    batch = max(round(tokens / length), 1)
    if random.random() >= ODD_BATCH_SHARE:
        batch = _round(batch)
    return {
        "global_batch_size": batch,
        "sequence_length": length,
        "precision": random.choice(("bf16", "bf16", "bf16", "bf16", "fp16", "fp8", "fp32")),
        "optimizer": random.choice(
            ("adamw", "adamw", "adamw", "adam8bit", "sgd", "muon", "adafactor")
        ),
        "stack": random.choice(("torch", "torch", "torch", "megatron", "deepspeed")),
        "limits": {**_limits(random), "solver_seconds": seconds_limit},
    }


def _round(batch: int) -> int:
    """Return the nearest of 1, 2, 3 and their doubles, as batches usually are."""
    usual = sorted(m << k for k in range(16) for m in (1, 3))
    return min(usual, key=lambda count: abs(count - batch))


def _limits(random: Random) -> dict[str, Any]:
    """Return none in most cases, else one or two of those that users set."""
    if random.random() >= LIMITED_SHARE:
        return {}
    offered: list[dict[str, Any]] = [
        {"tensor_parallel_degree": random.choice((1, 2, 4, 8))},
        {"tensor_parallel_degree": {"min": 2, "max": 8}},
        {"pipeline_parallel_degree": 1},
        {"pipeline_parallel_degree": {"min": 2, "max": 8}},
        {"context_parallel_degree": 1},
        {"context_parallel_degree": {"min": 2, "max": 8}},
        {"expert_parallel_degree": {"min": 1, "max": 8}},
        {"micro_batch_size": 1},
        {"micro_batch_size": {"min": 1, "max": 4}},
        {"virtual_pipeline_degree": {"min": 1, "max": 4}},
        {"offload": []},
        {"offload": ["optimizer"]},
        {"zero_stages": [0, 1]},
        {"zero_stages": [3]},
        {"zero_stages": [1, 2]},
        {"activation_checkpointing": ["none", "full"]},
        {"activation_checkpointing": ["selective"]},
        {"pipeline_schedules": ["1f1b"]},
        {"pipeline_schedules": ["interleaved_1f1b", "1f1b"]},
        {"pipeline_schedules": ["zb_v", "dualpipe_v"]},
        {"memory_headroom_ratio": random.choice((0.0, 0.1, 0.2))},
        {"sequence_parallel": random.choice((True, False))},
    ]
    chosen: dict[str, Any] = {}
    for limit in random.sample(offered, random.choice((1, 1, 2))):
        chosen.update(limit)
    return chosen
