"""Whole experts of more groups are never worse than ones split over some of the tensor ranks.

That is why the search leaves the latter out where the former exist (`planner.space.rules`).
"""

from __future__ import annotations

import random
from collections.abc import Iterator

import pytest

from planner.errors import InputError
from planner.planning import estimates, resolved_cluster, resolved_model
from planner.schema.job import Job
from planner.schema.plan import Estimate
from planner.schema.strategy import Strategy

DEVICES = 64
PAIRS = 40


def pairs(rng: random.Random, expert_count: int) -> Iterator[tuple[Strategy, Strategy]]:
    """Strategies with experts split over a ranks, and with a times as many groups of whole ones."""
    found = 0
    while found < PAIRS:
        tensor, pipeline, context = rng.choice((4, 8)), rng.choice((1, 2, 4)), rng.choice((1, 2))
        shard, split = DEVICES // (tensor * pipeline * context), rng.choice((2, tensor // 2))
        expert = rng.choice((1, 2, 4, 8, 16))
        if expert_count % (expert * split) or (tensor // split * shard * context) % expert:
            continue
        found += 1
        alike = Strategy(
            tensor_parallel_degree=tensor,
            sequence_parallel=rng.random() < 0.7,
            pipeline_parallel_degree=pipeline,
            context_parallel_degree=context,
            data_parallel_shard_degree=shard,
            micro_batch_size=rng.choice((1, 2)),
            zero_stage=rng.choice((0, 1, 2, 3)),
        )
        yield tuple(
            alike.model_copy(
                update={"expert_parallel_degree": e, "expert_tensor_parallel_degree": s}
            )
            for e, s in ((expert, split), (expert * split, 1))
        )


def peak_bytes(estimate: Estimate) -> float:
    return max(stage.peak_memory_bytes for stage in estimate.prediction.stages)


@pytest.mark.parametrize("cluster", ["8x8xh100-sxm5-80gb", "16x4xa100-sxm4-80gb"])
@pytest.mark.parametrize(
    ("model", "expert_count"), [("qwen3-30b-a3b", 128), ("gpt-oss-120b", 32), ("mixtral-8x7b", 8)]
)
@pytest.mark.parametrize("tokens", [512, 4096])
def test_whole_experts_of_more_groups_are_no_slower_and_hold_no_more(
    model: str, expert_count: int, cluster: str, tokens: int
) -> None:
    both = list(pairs(random.Random(20261125), expert_count))  # noqa: S311
    job = Job(global_batch_size=256, sequence_length=tokens)
    flat = [strategy for pair in both for strategy in pair]
    priced = list(estimates(resolved_model(model), resolved_cluster(cluster), job, flat))
    compared = 0
    for split, whole in zip(priced[::2], priced[1::2], strict=True):
        if isinstance(split, InputError) or isinstance(whole, InputError):
            assert isinstance(split, InputError)
            assert isinstance(whole, InputError)
            continue
        compared += 1
        rounding = 1.0 + 1e-9
        step = split.prediction.step_seconds.p50
        assert whole.prediction.step_seconds.p50 <= step * rounding
        assert peak_bytes(whole) <= peak_bytes(split) * rounding
    assert compared > PAIRS // 4
