"""Every rule of legality, broken one at a time."""

from __future__ import annotations

from typing import Any

import pytest

from planner.cost.configuration import Configuration
from planner.errors import IllegalStrategyError
from planner.hardware import ClusterHardware, cluster_hardware
from planner.schema.cluster import NodeGroup
from planner.schema.job import Job, Stack
from planner.schema.model import (
    BlockRun,
    GroupedQueryAttention,
    MixtureFeedForward,
    ModelGraph,
)
from planner.schema.strategy import EdgeChoice, Strategy
from planner.space.degrees import enumerate_configurations
from planner.space.divisibility import (
    sharing_assumptions,
    tensor_parallel_obstacles,
    vocabulary_assumption,
)
from planner.space.legality import breaches, check_strategy
from tests.builders import a_cluster, a_job, a_model, a_strategy


def message(strategy: Strategy, *, job: Job | None = None, graph: ModelGraph | None = None) -> str:
    """What is said of the strategy on eight H100; empty if it is legal."""
    try:
        check_strategy(graph or a_model(), cluster_hardware(a_cluster()), job or a_job(), strategy)
    except IllegalStrategyError as error:
        return str(error)
    return ""


def changed(**changes: Any) -> Strategy:
    """The builder's legal strategy, resolved, with single fields overwritten."""
    return a_strategy().model_copy(update=changes)


def test_the_builders_strategy_is_legal() -> None:
    assert message(a_strategy()) == ""


def test_world_size_must_be_the_cluster() -> None:
    text = message(a_strategy(data_parallel_shard_degree=4))
    assert text.startswith("strategy: ")
    assert "8 devices" in text
    assert "16" in text


def test_tensor_parallelism_names_what_it_does_not_divide_and_what_would_do() -> None:
    text = message(a_strategy(tensor_parallel_degree=4, data_parallel_shard_degree=1))
    assert text == (
        "tensor_parallel_degree: does not divide the model's 2 key-value heads (got 4); "
        "use one of 1, 2, or stack megatron, whose ranks can share key-value heads"
    )


FOUR_RANKS = a_strategy(tensor_parallel_degree=4, data_parallel_shard_degree=1)


def with_attention(**changes: Any) -> ModelGraph:
    """The tiny model whose attention has other fields."""
    block = a_model().runs[0].block
    attention = block.attention.model_copy(update=changes)
    changed_block = block.model_copy(update={"attention": attention})
    return a_model(runs=(BlockRun(block=changed_block, block_count=4),))


def test_megatrons_ranks_share_key_value_heads() -> None:
    assert message(FOUR_RANKS, job=a_job(stack="megatron")) == ""


@pytest.mark.parametrize(
    ("attention", "job"),
    [
        ({"value_head_size": 8}, {}),
        ({"values_are_keys": True}, {}),
        ({"shares_keys": True}, {}),
        ({"differential": True}, {}),
        ({"head_size": 1, "key_value_head_count": 1}, {}),  # 2 columns of keys and values
        ({}, {"stack": "deepspeed"}),
    ],
)
def test_no_others_do(attention: dict[str, Any], job: dict[str, Any]) -> None:
    graph = with_attention(**attention)
    said = message(FOUR_RANKS, graph=graph, job=a_job(**{"stack": "megatron", **job}))
    assert "key-value heads (got 4)" in said


def test_ranks_are_a_multiple_of_the_key_value_heads_that_they_share() -> None:
    graph = with_attention(head_count=12, key_value_head_count=3)
    assert tensor_parallel_obstacles(graph, 4, a_job(stack="megatron")) == ("3 key-value heads",)
    assert tensor_parallel_obstacles(graph, 6, a_job(stack="megatron")) == (
        "128 columns of the feed-forward",
    )


def test_muon_takes_queries_keys_and_values_of_whole_groups() -> None:
    said = message(FOUR_RANKS, job=a_job(stack="megatron", optimizer="muon"))
    assert said.endswith(
        "use one of 1, 2, or stack megatron and adamw: ranks there share key-value heads, but Muon "
        "takes queries, keys and values of whole groups alone"
    )


def test_how_ranks_share_key_value_heads_is_said() -> None:
    said = (
        "4 tensor-parallel ranks share 2 key-value heads: they gather queries, keys and values, "
        "which Megatron-Core does from 0.16 on"
    )
    assert sharing_assumptions(a_model(), 4) == (said,)
    gated = sharing_assumptions(with_attention(output_gate=True), 4)
    assert gated == (said.replace("0.16", "0.17"),)
    assert sharing_assumptions(a_model(), 2) == ()


def test_tensor_parallel_ranks_may_share_a_vocabulary_unevenly() -> None:
    assert message(a_strategy(), graph=a_model(vocabulary_size=255)) == ""


def test_how_ranks_share_a_vocabulary_is_said() -> None:
    """GPT-3's, as Megatron-LM pads it for eight ranks."""
    said = vocabulary_assumption(a_model(vocabulary_size=50257), 8)
    assert said is not None
    assert "Megatron pads it to 51200" in said
    assert said.endswith("needs vocab_size 50264")
    assert vocabulary_assumption(a_model(vocabulary_size=50257), 1) is None
    assert vocabulary_assumption(a_model(vocabulary_size=50304), 8) is None


def test_sequence_parallelism_divides_the_sequence() -> None:
    text = message(changed(sequence_parallel=True), job=a_job(sequence_length=127))
    assert text.startswith("sequence_parallel: ")
    assert "127" in text


def test_a_ring_needs_two_pieces_a_rank() -> None:
    split = changed(context_parallel_degree=2, data_parallel_shard_degree=1)
    assert message(split, job=a_job(sequence_length=126)) == (
        "context_parallel_degree: twice the degree does not divide sequence_length 126, so causal "
        "work cannot be balanced (got 2); use context_parallel_degree 1, or context_parallel_kind "
        "all_to_all"
    )


def heads_exchanged(context: int, tensor: int = 1, **changes: Any) -> Strategy:
    """Ranks exchange heads; eight devices, one stage."""
    return a_strategy(
        tensor_parallel_degree=tensor,
        pipeline_parallel_degree=1,
        context_parallel_degree=context,
        context_parallel_kind="all_to_all",
        data_parallel_shard_degree=8 // context // tensor,
        **changes,
    )


def test_ranks_that_exchange_heads_divide_them() -> None:
    """Four heads: 2 and 4 ranks may, 8 not; after tensor parallelism only 2."""
    assert message(heads_exchanged(2)) == ""
    assert message(heads_exchanged(4)) == ""
    assert "does not divide the model's 4 attention heads (got 8)" in message(heads_exchanged(8))
    assert message(heads_exchanged(2, tensor=2)) == ""
    assert "4 attention heads after tensor_parallel_degree 2" in message(
        heads_exchanged(4, tensor=2)
    )


def test_ranks_that_exchange_heads_share_key_value_heads_evenly() -> None:
    """12 heads and 6 key-value heads over 4 ranks: neither divides the other."""
    attention = GroupedQueryAttention(head_count=12, key_value_head_count=6, head_size=16)
    block = a_model().runs[0].block.model_copy(update={"attention": attention})
    graph = a_model(runs=(BlockRun(block=block, block_count=4),))
    assert "6 key-value heads do not divide one another (got 4)" in message(
        heads_exchanged(4), graph=graph
    )
    assert message(heads_exchanged(2), graph=graph) == ""


def test_transformer_engine_exchanges_whole_key_value_heads_alone() -> None:
    """Two: 2 ranks may, 4 not, and after tensor parallelism none."""
    megatron = a_job(stack="megatron")
    assert message(heads_exchanged(2), job=megatron) == ""
    whole = "key-value heads{}, of which Transformer Engine gives each rank whole ones"
    assert whole.format("") in message(heads_exchanged(4), job=megatron)
    after = whole.format(" after tensor_parallel_degree 2")
    assert after in message(heads_exchanged(2, tensor=2), job=megatron)


def test_ranks_that_exchange_heads_need_no_second_piece() -> None:
    """A sequence of 6 over 2 ranks: three tokens each, which a ring could not balance."""
    assert message(heads_exchanged(2), job=a_job(sequence_length=6)) == ""


def test_expert_parallelism_needs_experts() -> None:
    text = message(changed(expert_parallel_degree=2))
    assert text.startswith("expert_parallel_degree: ")
    assert "no routed experts" in text


def a_mixture(expert_count: int) -> ModelGraph:
    """The tiny model with routed experts."""
    experts = MixtureFeedForward(expert_count=expert_count, experts_per_token=2, expert_ffn_size=64)
    block = a_model().runs[0].block.model_copy(update={"feed_forward": experts})
    return a_model(runs=(BlockRun(block=block, block_count=4),))


def test_expert_parallel_ranks_divide_experts() -> None:
    text = message(changed(expert_parallel_degree=2), graph=a_mixture(3))
    assert "does not divide the model's 3 experts" in text


def test_expert_parallel_ranks_lie_within_a_shard_group() -> None:
    """Two tensor ranks x two shards: four may hold different experts if they do not split them."""
    four = changed(expert_parallel_degree=4)
    assert "data-parallel shard x context degree = 2 (got 4)" in message(four, graph=a_mixture(8))
    unsplit = four.model_copy(update={"expert_tensor_parallel_degree": 1})
    assert message(unsplit, graph=a_mixture(8)) == ""


def test_an_expert_is_split_over_a_part_of_the_tensor_ranks_that_divides_them() -> None:
    text = message(changed(expert_tensor_parallel_degree=4), graph=a_mixture(8))
    assert text.startswith("expert_tensor_parallel_degree: does not divide")
    assert "use 2 to split each expert" in text


def test_megatron_splits_the_sequence_of_a_mixture() -> None:
    job = a_job(stack="megatron")
    text = message(a_strategy(), job=job, graph=a_mixture(8))
    assert text.startswith("sequence_parallel: megatron refuses a mixture of experts")
    assert message(changed(sequence_parallel=True), job=job, graph=a_mixture(8)) == ""
    assert message(a_strategy(), job=job) == ""


def test_batches_must_multiply_to_the_global_batch() -> None:
    text = message(changed(micro_batch_count=3))
    assert "micro_batch_count" in text
    assert "global_batch_size 16" in text


def test_parameters_are_offloaded_only_under_zero_3() -> None:
    text = message(a_strategy(zero_stage=2, offload=("parameters",)))
    assert text.startswith("stages.0.layers.0.offload: ")
    assert "zero_stage is 2" in text
    assert message(a_strategy(zero_stage=3, offload=("parameters",))) == ""


def test_edges_have_no_activations_to_offload() -> None:
    text = message(changed(head=EdgeChoice(offload=("activations",))))
    assert text.startswith("head.offload: ")


def strategy_of(row: Configuration, graph: ModelGraph, hardware: ClusterHardware) -> Strategy:
    """The configuration with plain choices and even stages, each on the kind of its order."""
    fields = {name: getattr(row, name) for name in type(row).__slots__ if name != "device_order"}
    strategy = Strategy(**fields).resolved(block_count=graph.block_count, global_batch_size=16)
    degree = row.pipeline_parallel_degree
    kinds = hardware.stage_kinds(row.device_order, pipeline_parallel_degree=degree)
    stages = tuple(
        stage.model_copy(
            update={"device_group": hardware.kinds[kinds[stage.stage % degree]].device_group}
        )
        for stage in strategy.stages or ()
    )
    return strategy.model_copy(update={"stages": stages})


def a_node_group(name: str, device: str, node_count: int, devices_per_node: int = 4) -> NodeGroup:
    return NodeGroup(
        name=name, device=device, node_count=node_count, devices_per_node=devices_per_node
    )


ONE_KIND = (a_node_group("h100", "h100-sxm5-80gb", 2),)
TWO_KINDS = (a_node_group("h100", "h100-sxm5-80gb", 2), a_node_group("a100", "a100-sxm4-80gb", 1))


@pytest.mark.parametrize("groups", [ONE_KIND, TWO_KINDS])
@pytest.mark.parametrize("graph", [a_model(), a_mixture(4)])
@pytest.mark.parametrize("stack", list(Stack))
@pytest.mark.parametrize("limits", [{}, {"context_parallel_degree": {"min": 2}}])
def test_whatever_the_space_contains_is_legal(
    groups: tuple[NodeGroup, ...], graph: ModelGraph, stack: Stack, limits: dict[str, Any]
) -> None:
    """Every configuration, with plain choices."""
    hardware = cluster_hardware(a_cluster(node_groups=groups))
    job = a_job(stack=stack, limits=limits)
    rows = enumerate_configurations(graph, hardware, job).rows
    assert len(rows) > 20
    for row in rows:
        strategy = strategy_of(row, graph, hardware)
        assert list(breaches(graph, hardware, job, strategy)) == []
