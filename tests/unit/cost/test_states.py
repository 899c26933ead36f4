"""Where routed experts' states lie, and which ranks sum their gradients."""

from __future__ import annotations

import pytest

from planner.cost.configuration import Choice, Choices
from planner.cost.states import local_parameters, sharded_parameters, state_memory, sync_seconds
from planner.workload.layer import ParameterCounts
from tests.unit.cost.test_model_parallel import NETWORK, NODE, a_setting

EXPERTS = ParameterCounts(sharded=0, replicated=0, expert=1_600_000_000)


def test_split_experts_are_divided_by_tensor_and_expert_ranks() -> None:
    """2 x 4 ranks hold different parts, and 4 shards over 4 ranks leave one to each."""
    priced = a_setting(
        tensor_parallel_degree=2, expert_parallel_degree=4, data_parallel_shard_degree=4
    )
    local = local_parameters(EXPERTS, priced)
    assert local.expert.item() == 2e8
    assert sharded_parameters(local, priced).item() == 2e8


def test_unsplit_experts_spread_over_tensor_ranks_too() -> None:
    """8 expert-parallel ranks out of 2 tensor ranks x 8 shards: two hold the same, and shard it."""
    priced = a_setting(
        tensor_parallel_degree=2,
        expert_parallel_degree=8,
        expert_tensor_parallel_degree=1,
        data_parallel_shard_degree=8,
    )
    local = local_parameters(EXPERTS, priced)
    assert local.expert.item() == 2e8
    assert sharded_parameters(local, priced).item() == 1e8


def test_copies_of_unsplit_experts_are_summed_over_tensor_ranks() -> None:
    """One expert-parallel rank, 2 tensor ranks x 4 shards: 8 copies, in one node, in fp32."""
    priced = a_setting(
        tensor_parallel_degree=2, expert_tensor_parallel_degree=1, data_parallel_shard_degree=4
    )
    sync = sync_seconds(local_parameters(EXPERTS, priced), priced)
    assert sync.gather.item() == pytest.approx(7 / 8 * 1.6e9 * 2 / NODE)
    assert sync.reduce_scatter.item() == pytest.approx(7 / 8 * 1.6e9 * 4 / NODE)


def test_replicas_of_expert_shards_are_summed_across_nodes() -> None:
    """Two nodes hold the same 1/8: all_reduce of 0.2e9 fp32 gradients over one link each."""
    priced = a_setting(
        expert_parallel_degree=8, data_parallel_shard_degree=8, data_parallel_replicate_degree=2
    )
    sync = sync_seconds(local_parameters(EXPERTS, priced), priced)
    assert sync.replicas.item() == pytest.approx(2e8 * 4 / NETWORK)


def test_zero_3_keeps_a_shard_of_the_experts() -> None:
    """fp32 shards of torch: 4 bytes for each of 0.1e9 parameters."""
    priced = a_setting(
        tensor_parallel_degree=2,
        expert_parallel_degree=8,
        expert_tensor_parallel_degree=1,
        data_parallel_shard_degree=8,
    )
    memory = state_memory(
        local_parameters(EXPERTS, priced), Choices.of([Choice(zero_stage=3)]), priced
    )
    assert memory.parameters.item() == 4e8
