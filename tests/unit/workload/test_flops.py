"""Matrix products, attention and elementwise traffic of a block; all numbers by hand."""

from __future__ import annotations

from dataclasses import replace

import pytest
from hypothesis import given
from hypothesis import strategies as st

from planner.importers.models import read_model
from planner.schema.model import (
    Block,
    DenseFeedForward,
    GroupedQueryAttention,
    LatentAttention,
    MixtureFeedForward,
    Norm,
)
from planner.workload.elementwise import elementwise_traffic
from planner.workload.flops import attention_core, block_gemms
from planner.workload.layer import AttentionCore
from planner.workload.model import model_workload
from tests.builders import a_model

GROUPED = GroupedQueryAttention(head_count=4, key_value_head_count=2, head_size=16)
LATENT = LatentAttention(
    head_count=4,
    query_rank=24,
    key_value_rank=20,
    no_position_head_size=16,
    rotary_head_size=8,
    value_head_size=12,
)
DENSE = DenseFeedForward(ffn_size=128)
MIXTURE = MixtureFeedForward(
    expert_count=4, experts_per_token=2, expert_ffn_size=32, shared_ffn_size=48
)


def shapes_of(block: Block) -> list[tuple[str, int, int, str]]:
    """Return name, sizes and split of a block's products, hidden size 64."""
    return [
        (gemm.name, gemm.inner_size, gemm.outer_size, gemm.split) for gemm in block_gemms(block, 64)
    ]


def a_core(window_tokens: int | None) -> AttentionCore:
    """One head of width one."""
    return AttentionCore(
        head_count=1,
        key_head_size=1,
        value_head_size=1,
        key_value_width=2,
        window_tokens=window_tokens,
    )


def test_dense_block_has_seven_products_in_order_of_execution():
    assert shapes_of(Block(attention=GROUPED, feed_forward=DENSE)) == [
        ("query", 64, 64, "outer"),
        ("key", 64, 32, "outer"),
        ("value", 64, 32, "outer"),
        ("output", 64, 64, "inner"),
        ("ffn_gate", 64, 128, "outer"),
        ("ffn_up", 64, 128, "outer"),
        ("ffn_down", 128, 64, "inner"),
    ]


def test_ungated_feed_forward_has_two_products():
    block = Block(attention=GROUPED, feed_forward=DenseFeedForward(ffn_size=128, gated=False))
    assert [shape[0] for shape in shapes_of(block)][4:] == ["ffn_up", "ffn_down"]


def test_latent_attention_compresses_unsplit_and_expands_split():
    assert shapes_of(Block(attention=LATENT, feed_forward=DENSE))[:5] == [
        ("query_down", 64, 24, "none"),
        ("query_up", 24, 96, "outer"),
        ("key_value_down", 64, 28, "none"),
        ("key_value_up", 20, 112, "outer"),
        ("output", 48, 64, "inner"),
    ]


def test_routed_products_count_every_chosen_expert():
    gemms = {
        gemm.name: gemm for gemm in block_gemms(Block(attention=GROUPED, feed_forward=MIXTURE), 64)
    }
    assert gemms["router"].flop_per_token() == 2 * 64 * 4
    assert gemms["expert_gate"].flop_per_token() == 2 * (2 * 64 * 32)
    assert gemms["expert_gate"].expert_count == 4
    assert gemms["shared_down"].flop_per_token() == 2 * 48 * 64
    assert gemms["shared_down"].expert_count == 0


def test_mixture_without_shared_experts_has_no_shared_products():
    mixture = MixtureFeedForward(expert_count=4, experts_per_token=2, expert_ffn_size=32)
    names = [shape[0] for shape in shapes_of(Block(attention=GROUPED, feed_forward=mixture))]
    assert names[4:] == ["router", "expert_gate", "expert_up", "expert_down"]


def test_grouped_attention_exchanges_its_key_value_heads_alone():
    core = attention_core(GROUPED)
    assert (core.head_count, core.key_value_width) == (4, 2 * 2 * 16)


def test_latent_attention_has_keys_and_values_of_different_widths():
    core = attention_core(LATENT)
    assert (core.key_head_size, core.value_head_size) == (24, 12)
    assert core.key_value_width == 4 * (24 + 12)


def test_causal_attention_sees_half_the_keys_and_itself():
    """Per token 2 x 4 heads x (16 + 16) x (128 + 1) / 2 keys."""
    assert attention_core(GROUPED).flop_per_token(128) == 2 * 4 * 32 * 64.5


@given(length=st.integers(1, 60), window=st.none() | st.integers(1, 80))
def test_mean_keys_is_the_mean_over_all_queries_of_the_mask(length, window):
    """Query i sees itself and what is before it, no more than a window of them."""
    seen = [min(query + 1, window or length) for query in range(length)]
    assert a_core(window).mean_keys(length) == pytest.approx(sum(seen) / length)


@given(length=st.integers(1, 60), tokens=st.integers(1, 9), limit=st.none() | st.integers(1, 9))
def test_compressed_keys_are_the_whole_windows_before_a_query_as_many_as_are_chosen(
    length, tokens, limit
):
    entries = [(query + 1) // tokens for query in range(length)]
    chosen = sum(count if limit is None else min(count, limit) for count in entries) / length
    core = replace(a_core(3), entry_tokens=tokens, entry_limit=limit, index_width=5)
    alone = a_core(3)
    assert core.mean_keys(length) == pytest.approx(alone.mean_keys(length) + chosen)
    indexed = 2 * 5 * sum(entries) / length
    products = alone.flop_per_token(length) / alone.mean_keys(length) * core.mean_keys(length)
    assert core.flop_per_token(length) == pytest.approx(products + indexed)


def test_window_reaches_the_core_from_the_graph():
    sliding = GROUPED.model_copy(update={"sliding_window_tokens": 32})
    assert attention_core(sliding).window_tokens == 32


def test_model_flop_is_three_times_forward_with_causal_attention_and_no_lookup():
    """Four blocks of 36,864 weights in products, a head of 64 x 256."""
    block = 2 * 36_864 + 2 * 4 * 32 * 64.5
    expected = 3 * (4 * block + 2 * 64 * 256)
    assert model_workload(a_model()).model_flop_per_token(128) == expected


def test_tied_head_multiplies_all_the_same():
    tied = model_workload(a_model(tied_embeddings=True))
    assert tied.model_flop_per_token(128) == model_workload(a_model()).model_flop_per_token(128)


def test_llama_3_8b_needs_six_flop_per_weight_in_products_and_attention():
    """6 x (8,030,261,248 less embedding and norms) and 3 x 32 x 2 x 32 x 256 x 4096.5 keys."""
    in_products = 8_030_261_248 - 128_256 * 4096 - (2 * 32 + 1) * 4096
    expected = 6 * in_products + 3 * 32 * 2 * 32 * 256 * 4096.5
    workload = model_workload(read_model("llama-3-8b")[1])
    assert workload.model_flop_per_token(8192) == pytest.approx(expected, rel=1e-12)


def test_elementwise_traffic_of_a_dense_block():
    """Two norms of 4 passes and two residuals of 3; rotary 4 x (64 + 32); SwiGLU 5 x 128."""
    traffic = elementwise_traffic(Block(attention=GROUPED, feed_forward=DENSE), 64)
    assert traffic.replicated == (2 * 4 + 2 * 3) * 64
    assert traffic.sharded == 4 * 96 + 5 * 128
    assert traffic.kernel_count == 2 * 5 + 2 + 10 + 2


def test_plain_torch_moves_more_for_norms_of_squares_and_for_rotary():
    """Two RMS norms of 14 passes more, rotary 6 more over 64 + 32; a layer norm is one kernel.

    Two heads of keys and two of values are read, and written four times each: 2 x (2 + 4) x 16.
    """
    block = Block(attention=GROUPED, feed_forward=DENSE)
    traffic = elementwise_traffic(block, 64)
    assert (traffic.unfused_replicated, traffic.unfused_sharded) == (2 * 14 * 64, 6 * 96 + 192)
    assert traffic.unfused_kernel_count == 2 * 4 + 8 + 1
    assert (traffic.unfused_norms_sharded, traffic.unfused_norm_kernel_count) == (0.0, 2 * 4)
    layer_norm = elementwise_traffic(block.model_copy(update={"norm": Norm.LAYER}), 64)
    assert (layer_norm.unfused_replicated, layer_norm.unfused_sharded) == (0.0, 6 * 96 + 192)


def test_keys_of_every_query_are_not_repeated():
    own = GROUPED.model_copy(update={"key_value_head_count": 4})
    traffic = elementwise_traffic(Block(attention=own, feed_forward=DENSE), 64)
    assert traffic.unfused_sharded == 6 * 128


def test_norms_inside_attention_are_unfused_too():
    """14 passes over 64 + 32 of queries and keys, which ranks divide; over both ranks of MLA's."""
    normed = GROUPED.model_copy(update={"query_key_norm": True})
    inside = elementwise_traffic(Block(attention=normed, feed_forward=DENSE), 64)
    assert inside.unfused_sharded == 6 * 96 + 14 * 96 + 192
    assert inside.unfused_norms_sharded == 14 * 96
    assert inside.unfused_norm_kernel_count == 4 * 4
    latent = elementwise_traffic(Block(attention=LATENT, feed_forward=DENSE), 64)
    assert latent.unfused_replicated == 2 * 14 * 64 + 14 * (24 + 20)
    assert latent.unfused_kernel_count == 2 * 4 + 2 * 4 + (29 - 2) + 1


def test_norms_of_queries_and_keys_pass_over_every_head():
    normed = GROUPED.model_copy(update={"query_key_norm": True})
    plain = elementwise_traffic(Block(attention=GROUPED, feed_forward=DENSE), 64)
    more = elementwise_traffic(Block(attention=normed, feed_forward=DENSE), 64)
    assert more.sharded - plain.sharded == 4 * 96
    assert more.kernel_count - plain.kernel_count == 2 * 5


def test_gpt2_block_launches_few_kernels_and_rotates_nothing():
    attention = GROUPED.model_copy(update={"rotary": False})
    feed_forward = DenseFeedForward(ffn_size=128, gated=False)
    block = Block(attention=attention, feed_forward=feed_forward, norm=Norm.LAYER)
    traffic = elementwise_traffic(block, 64)
    assert traffic.sharded == 2 * 128
    assert traffic.kernel_count == 5


def test_latent_norms_are_whole_on_every_rank():
    traffic = elementwise_traffic(Block(attention=LATENT, feed_forward=DENSE), 64)
    assert traffic.replicated == 14 * 64 + 4 * (24 + 20)
    assert traffic.sharded == 4 * 2 * 4 * 24 + 5 * 128


def test_routing_moves_the_token_s_row_for_every_chosen_expert():
    traffic = elementwise_traffic(Block(attention=GROUPED, feed_forward=MIXTURE), 64)
    assert traffic.replicated == 14 * 64 + 4 * 4
    assert traffic.routed == 6 * 2 * 64  # gathered, weighed and scattered
    assert traffic.sharded == 4 * 96 + 5 * (2 * 32 + 48)


def test_products_of_the_same_rows_know_their_width_as_one():
    """Queries of 64, keys and values of 32 each; gate and up of 128; what is alone knows none."""
    gemms = block_gemms(Block(attention=GROUPED, feed_forward=DENSE), 64)
    widths = {gemm.name: gemm.fused_outer_size for gemm in gemms}
    assert widths == {
        **dict.fromkeys(("query", "key", "value"), 128),
        "output": None,
        **dict.fromkeys(("ffn_gate", "ffn_up"), 256),
        "ffn_down": None,
    }


def test_differential_attention_reads_keys_and_computes_scores_twice():
    """Two passes of 4 heads; keys and values of 2 heads of 16 each, read twice."""
    core = attention_core(GROUPED.model_copy(update={"differential": True}))
    assert (core.head_count, core.key_head_size, core.value_head_size) == (8, 16, 16)
    assert core.key_value_width == 2 * 2 * (16 + 16)


def test_latent_attention_sees_its_window():
    core = attention_core(LATENT.model_copy(update={"sliding_window_tokens": 40}))
    assert core.window_tokens == 40


def test_rows_of_residual_that_are_not_mixed_need_weights_to_collapse_and_to_add_alone():
    """Of 3 rows: 6 columns in place of 6 + 9, before each of two parts."""
    block = Block(
        attention=GROUPED, feed_forward=DENSE, residual_stream_count=3, residual_mixing=False
    )
    mixes = [shape for shape in shapes_of(block) if shape[0] == "residual_mix"]
    assert mixes == [("residual_mix", 3 * 64, 6, "none")] * 2
