"""The simplest plan within a tolerance of the fastest, against every strategy of tiny jobs.

Every strategy is written out and priced, and its techniques are counted here.
"""

from __future__ import annotations

from dataclasses import dataclass
from functools import cache

import pytest

from planner.answers.objectives import Attained, attained
from planner.cost.step import predictions
from planner.ilp.problem import Found
from planner.requests.inquiry import Inquiry
from planner.requests.resolution import Request
from planner.requests.variation import with_cluster, with_limits
from planner.schema.plan import Simplicity
from planner.schema.strategy import Offload, Strategy
from planner.units import GIB
from tests.contract.test_objectives_equal_brute_force import a_tiny_request, every_strategy

SPACES = {
    "mixed ZeRO stages": {
        "zero_stages": (0, 1, 3),
        "activation_checkpointing": ("none",),
        "tensor_parallel_degree": 1,
    },
    "mixed checkpointing": {
        "zero_stages": (1,),
        "activation_checkpointing": ("none", "selective", "full"),
        "pipeline_parallel_degree": {"min": 2},
    },
    "both mixed": {
        "zero_stages": (0, 3),
        "activation_checkpointing": ("none", "selective"),
        "tensor_parallel_degree": 1,
    },
    "offload": {
        "zero_stages": (2,),
        "activation_checkpointing": ("none",),
        "offload": ("optimizer",),
    },
}
RATIOS = (0.005, 0.02, 0.1, 0.5, 1.0)
MEMORY_GIB = {
    "mixed ZeRO stages": (6.0, 8.0),
    "mixed checkpointing": (5.0, 7.0),
    "both mixed": (6.0, 40.0),
    "offload": (4.0, 4.5, 5.0, 7.0),
}
CASES = [(space, memory_gib) for space in SPACES for memory_gib in MEMORY_GIB[space]]


@dataclass(frozen=True, slots=True, kw_only=True)
class Fitting:
    """A strategy that fits."""

    step_seconds: float
    count: int


def technique_count(strategy: Strategy) -> int:
    """Count what a strategy of these jobs has beyond data parallelism."""
    count = sum(
        degree > 1
        for degree in (strategy.tensor_parallel_degree, strategy.pipeline_parallel_degree)
    )
    shards, replicas = strategy.data_parallel_shard_degree, strategy.data_parallel_replicate_degree
    count += min(shards or 1, replicas or 1) > 1
    stages, ends = strategy.stages or (), (strategy.embedding, strategy.head)
    lengths = [sum(group.block_count for group in stage.layers) for stage in stages]
    count += lengths not in ([3], [2, 1], [1, 1, 1])  # three blocks, the remainder first
    blocks = [group for stage in stages for group in stage.layers]
    layers = [*blocks, *(end for end in ends if end is not None)]
    count += len({layer.zero_stage for layer in layers}) - 1
    count += len({block.activation_checkpointing for block in blocks}) - 1
    held = [Offload.OPTIMIZER in layer.offload for layer in layers]
    return count + any(held) + (any(held) and not all(held))


@cache
def a_request(space: str, memory_gib: float) -> Request:
    limits = {"offload": (), "fits_probability": None, **SPACES[space]}
    request = a_tiny_request(limits, hidden_size=4096, vocabulary_size=64000)
    (group,) = request.cluster.resolved.node_groups
    smaller = group.model_copy(update={"memory_bytes": memory_gib * GIB})
    place = request.cluster.resolved.model_copy(update={"node_groups": (smaller,)})
    return with_cluster(request, place)


@cache
def fitting(space: str, memory_gib: float) -> tuple[Fitting, ...]:
    request = a_request(space, memory_gib)
    strategies = list(every_strategy(request))
    job = request.job.resolved
    priced = predictions(request.workload, request.hardware, job, strategies)
    return tuple(
        Fitting(step_seconds=one.step_seconds.p50, count=technique_count(strategy))
        for strategy, one in zip(strategies, priced, strict=True)
        if one.fits
    )


def simplest(request: Request, ratio: float) -> tuple[Found, Simplicity]:
    """Return the simplest plan, all being compared by their closed forms."""
    inquiry = Inquiry.within(120.0, share_ratio=1.0)
    asked = with_limits(request, simplicity_ratio=ratio)
    best = attained(asked, inquiry=inquiry)
    assert isinstance(best, Attained)
    found = inquiry.simplest(asked, best.found)
    said = found.certificate.simplicity
    assert said is not None
    return found, said


@pytest.mark.parametrize(("space", "memory_gib"), CASES)
def test_the_simplest_plan_is_that_of_all_strategies_written_out(space, memory_gib):
    known = fitting(space, memory_gib)
    fastest = min(one.step_seconds for one in known)
    for ratio in RATIOS:
        near = [one for one in known if one.step_seconds <= fastest * (1.0 + ratio)]
        count = min(one.count for one in near)
        step = min(one.step_seconds for one in near if one.count == count)
        found, said = simplest(a_request(space, memory_gib), ratio)
        assert said.status == "optimal"
        assert said.fastest_step_seconds == pytest.approx(fastest, rel=1e-9)
        assert (len(said.techniques), said.least_technique_count) == (count, count)
        assert technique_count(found.strategy) == count
        assert found.step_seconds == pytest.approx(step, rel=1e-9)


def test_the_spaces_have_answers_of_many_kinds():
    """Else a search that always says the same would pass."""
    counts, slower = set(), 0
    for space, memory_gib in CASES:
        known = fitting(space, memory_gib)
        fastest = min(known, key=lambda one: one.step_seconds)
        for ratio in RATIOS:
            limit = fastest.step_seconds * (1.0 + ratio)
            counts.add(min(one.count for one in known if one.step_seconds <= limit))
        slower += min(one.count for one in known) < fastest.count
    assert counts == {0, 1, 2, 3, 4}
    assert slower >= 6
