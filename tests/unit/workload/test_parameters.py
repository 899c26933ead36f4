"""Parameters by how they shard; all numbers by hand."""

from __future__ import annotations

from typing import Any

from planner.schema.model import (
    Block,
    DenseFeedForward,
    GroupedQueryAttention,
    LatentAttention,
    MixtureFeedForward,
    Norm,
)
from planner.workload.layer import ParameterCounts
from planner.workload.model import model_workload
from planner.workload.parameters import block_parameters, embedding_parameters, head_parameters
from tests.builders import a_model

HIDDEN = 64
ATTENTION = 64 * 64 + 2 * 64 * 32 + 64 * 64  # queries, keys and values, output
NORMS = 2 * 64


def a_block(**changes: Any) -> Block:
    """Four heads of 16 on two key-value heads, SwiGLU of 128."""
    fields = {
        "attention": GroupedQueryAttention(head_count=4, key_value_head_count=2, head_size=16),
        "feed_forward": DenseFeedForward(ffn_size=128),
    }
    return Block(**{**fields, **changes})


def test_dense_block_shards_its_matrices_and_replicates_its_norms():
    assert block_parameters(a_block(), HIDDEN) == ParameterCounts(
        sharded=ATTENTION + 3 * 64 * 128, replicated=NORMS
    )


def test_layer_norm_has_a_bias_as_well():
    assert block_parameters(a_block(norm=Norm.LAYER), HIDDEN).replicated == 2 * NORMS


def test_input_biases_shard_with_their_columns_and_output_biases_are_whole():
    attention = GroupedQueryAttention(
        head_count=4,
        key_value_head_count=2,
        head_size=16,
        query_key_value_bias=True,
        output_bias=True,
    )
    feed_forward = DenseFeedForward(ffn_size=128, gated=False, bias=True)
    counts = block_parameters(a_block(attention=attention, feed_forward=feed_forward), HIDDEN)
    assert counts.sharded == ATTENTION + (64 + 32 + 32) + 2 * 64 * 128 + 128
    assert counts.replicated == NORMS + 64 + 64


def test_norms_of_queries_and_keys_have_one_head_s_width_each():
    attention = GroupedQueryAttention(
        head_count=4, key_value_head_count=2, head_size=16, query_key_norm=True
    )
    assert block_parameters(a_block(attention=attention), HIDDEN).replicated == NORMS + 16 + 16


def test_routed_experts_are_counted_apart_and_the_router_is_whole():
    mixture = MixtureFeedForward(
        expert_count=4, experts_per_token=2, expert_ffn_size=32, shared_ffn_size=48
    )
    assert block_parameters(a_block(feed_forward=mixture), HIDDEN) == ParameterCounts(
        sharded=ATTENTION + 3 * 64 * 48,
        replicated=NORMS + 64 * 4,
        expert=4 * 3 * 64 * 32,
    )


def test_gate_of_the_shared_expert_is_one_column():
    mixture = MixtureFeedForward(
        expert_count=4,
        experts_per_token=2,
        expert_ffn_size=32,
        shared_ffn_size=48,
        shared_gate=True,
    )
    assert block_parameters(a_block(feed_forward=mixture), HIDDEN).replicated == NORMS + 64 * 5


def test_latent_attention_replicates_what_compresses_and_shards_what_expands():
    """Ranks 24 and 20, four heads of 16 + 8 for queries and keys and 12 for values."""
    attention = LatentAttention(
        head_count=4,
        query_rank=24,
        key_value_rank=20,
        no_position_head_size=16,
        rotary_head_size=8,
        value_head_size=12,
    )
    counts = block_parameters(a_block(attention=attention), HIDDEN)
    down = 64 * 24 + 64 * (20 + 8)
    up = 24 * 4 * 24 + 20 * 4 * (16 + 12)
    assert counts.replicated == NORMS + down + 24 + 20
    assert counts.sharded == up + 4 * 12 * 64 + 3 * 64 * 128


def test_latent_attention_without_query_rank_shards_its_queries():
    attention = LatentAttention(
        head_count=4,
        query_rank=None,
        key_value_rank=20,
        no_position_head_size=16,
        rotary_head_size=8,
        value_head_size=12,
    )
    counts = block_parameters(a_block(attention=attention), HIDDEN)
    assert counts.replicated == NORMS + 64 * (20 + 8) + 20
    assert counts.sharded == 64 * 4 * 24 + 20 * 4 * 28 + 4 * 12 * 64 + 3 * 64 * 128


def test_learned_positions_are_whole_beside_the_sharded_vocabulary():
    graph = a_model(learned_position_count=128)
    assert embedding_parameters(graph) == ParameterCounts(sharded=256 * 64, replicated=128 * 64)


def test_head_has_a_norm_a_matrix_and_where_told_a_bias():
    assert head_parameters(a_model()) == ParameterCounts(sharded=256 * 64, replicated=64)
    assert head_parameters(a_model(head_bias=True)).sharded == 256 * 64 + 256


def test_tied_head_has_its_norm_alone():
    graph = a_model(tied_embeddings=True, final_norm=Norm.LAYER)
    assert head_parameters(graph) == ParameterCounts(sharded=0, replicated=128)


def test_tied_weights_count_once_and_the_head_knows_its_copy():
    apart, tied = model_workload(a_model()), model_workload(a_model(tied_embeddings=True))
    assert apart.parameter_count - tied.parameter_count == 256 * 64
    assert (apart.head.tied_parameter_count, tied.head.tied_parameter_count) == (0, 256 * 64)


def test_model_has_the_parameters_of_its_layers():
    block = ATTENTION + 3 * 64 * 128 + NORMS
    assert model_workload(a_model()).parameter_count == 4 * block + 2 * 256 * 64 + 64
