"""Activations kept under each checkpointing choice; all numbers by hand, hidden size 64."""

from __future__ import annotations

import pytest
from hypothesis import given
from hypothesis import strategies as st

from planner.schema.model import (
    Block,
    DenseFeedForward,
    GroupedQueryAttention,
    LatentAttention,
    MixtureFeedForward,
    Norm,
)
from planner.workload.activations import (
    block_activations,
    embedding_activations,
    head_activations,
)
from planner.workload.flops import block_gemms
from planner.workload.layer import ActivationElements
from planner.workload.selection import kept_products, recomputed_ratio

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
MIXTURE = MixtureFeedForward(expert_count=4, experts_per_token=2, expert_ffn_size=32)
LLAMA = Block(attention=GROUPED, feed_forward=DENSE)


def test_plain_block_keeps_all_that_backward_reads():
    """Norms 2 x (1 + 2 copies + 1 output); queries, keys, values, output; four rows of 128.

    Of these rows silu's is a copy, and the product is read by the down projection alone.
    """
    assert block_activations(LLAMA, 64).none == ActivationElements(
        gathered=2 * 64,
        replicated=2 * 64,
        norm_copies=4 * 64,
        sharded=64 + 64 + 64 + 2 * 128,
        row_copies=128,
        products=128,
        float32=4,
        masks=2 * 64,
        key_values=64,
    )


def test_full_checkpointing_keeps_the_block_s_input():
    assert block_activations(LLAMA, 64).full == ActivationElements(
        gathered=0, replicated=64, sharded=0
    )


def test_selective_checkpointing_keeps_attention_and_every_second_product():
    """Input; attention's output; queries, values, gate and the down projection's partial sum."""
    assert block_activations(LLAMA, 64).selective == ActivationElements(
        gathered=64, replicated=64, sharded=64 + (64 + 32 + 128), float32=4, reduced=2 * 64
    )


def test_selective_checkpointing_runs_keys_output_and_up_again():
    """Of 36,864 weights in products, 2,048 + 4,096 + 8,192."""
    assert recomputed_ratio(block_gemms(LLAMA, 64)) == pytest.approx(14_336 / 36_864)


def test_selective_checkpointing_runs_all_routed_products_again():
    """Queries, values and the router are kept: 4,096 + 2,048 + 256 of 24,832."""
    gemms = block_gemms(Block(attention=GROUPED, feed_forward=MIXTURE), 64)
    assert recomputed_ratio(gemms) == pytest.approx(1 - 6_400 / 24_832)
    assert kept_products(gemms) == ActivationElements(gathered=4, replicated=0, sharded=64 + 32)


def test_odd_number_of_attention_products_shifts_the_kept_ones_of_the_feed_forward():
    """Five products in latent attention: 1, 3 and 5 are kept, then the feed-forward's second."""
    gemms = block_gemms(Block(attention=LATENT, feed_forward=DENSE), 64)
    assert kept_products(gemms) == ActivationElements(
        gathered=24 + 28 + 64, replicated=0, sharded=128
    )


def test_layer_without_products_runs_nothing_again():
    assert recomputed_ratio(()) == 0.0


def test_layer_norm_keeps_its_input_and_output_alone():
    block = Block(
        attention=GROUPED.model_copy(update={"rotary": False}),
        feed_forward=DenseFeedForward(ffn_size=256, gated=False),
        norm=Norm.LAYER,
    )
    assert block_activations(block, 64).none == ActivationElements(
        gathered=2 * 64,
        replicated=2 * 64,
        sharded=3 * 64 + 256,
        products=256,
        float32=4,
        masks=2 * 64,
        key_values=64,
    )


def test_gpt_block_keeps_32_bytes_per_hidden_element():
    """34 s b h of Korthikanti et al. 2022 less two dropout masks, with flash attention."""
    attention = GroupedQueryAttention(head_count=4, key_value_head_count=4, head_size=16)
    feed_forward = DenseFeedForward(ffn_size=4 * 64, gated=False)
    kept = block_activations(
        Block(attention=attention, feed_forward=feed_forward, norm=Norm.LAYER), 64
    ).none
    assert kept.norm_copies == kept.row_copies == 0.0
    assert 2 * (kept.gathered + kept.replicated + kept.sharded + kept.products) == 32 * 64
    assert kept.masks == 2 * 64


def test_norms_of_queries_and_keys_keep_three_rows_per_head():
    normed = GROUPED.model_copy(update={"query_key_norm": True})
    kept = block_activations(Block(attention=normed, feed_forward=DENSE), 64).none
    plain = block_activations(LLAMA, 64).none
    assert kept.sharded - plain.sharded == (4 + 2) * 16
    assert kept.row_copies - plain.row_copies == 2 * (4 + 2) * 16
    assert kept.float32 - plain.float32 == 4 + 2
    assert kept.key_values == 2 * 2 * 16 + 2 * 16


def test_routed_experts_keep_rows_for_each_choice_and_the_row_sent_and_returned():
    kept = block_activations(Block(attention=GROUPED, feed_forward=MIXTURE), 64).none
    assert kept == ActivationElements(
        gathered=2 * 64,
        replicated=2 * 64,
        norm_copies=4 * 64,
        routed=2 * 2 * 64,
        sharded=3 * 64 + 2 * 2 * 32,
        row_copies=2 * 32,
        products=2 * 32,
        float32=4 + (4 + 10 * 2),
        masks=2 * 64,
        key_values=64,
    )


def test_shared_expert_keeps_rows_of_its_own():
    shared = MIXTURE.model_copy(update={"shared_ffn_size": 48})
    kept = block_activations(Block(attention=GROUPED, feed_forward=shared), 64).none
    plain = block_activations(Block(attention=GROUPED, feed_forward=MIXTURE), 64).none
    assert kept.sharded - plain.sharded == 2 * 48
    assert kept.row_copies - plain.row_copies == 48
    assert kept.products - plain.products == 48


def test_latent_attention_keeps_queries_keys_and_the_expansion_that_values_view():
    """Compressed rows pass a norm whole: 4 x (24 + 20); fused kernels copy values out."""
    kept = block_activations(Block(attention=LATENT, feed_forward=DENSE), 64).none
    assert kept == ActivationElements(
        gathered=2 * 64 + 4 * 44,
        replicated=2 * 64,
        norm_copies=4 * 64,
        sharded=2 * 4 * 24 + 4 * 12 + 4 * 12 + 2 * 128,
        row_copies=4 * 16 + 128,
        products=128,
        float32=4,
        masks=2 * 64,
    )


def test_embedding_keeps_the_token_s_index_of_eight_bytes():
    assert embedding_activations().none.float32 * 4 == 8


@pytest.mark.parametrize(("norm", "rows"), [(Norm.RMS, 4), (Norm.LAYER, 2)])
def test_head_keeps_its_norm(norm, rows):
    kept = head_activations(64, norm).none
    assert kept.gathered + kept.replicated + kept.norm_copies == rows * 64


grouped = st.builds(
    GroupedQueryAttention,
    head_count=st.sampled_from([8, 16]),
    key_value_head_count=st.sampled_from([1, 8]),
    head_size=st.sampled_from([32, 128]),
    query_key_norm=st.booleans(),
)
latents = st.builds(
    LatentAttention,
    head_count=st.sampled_from([8, 16]),
    query_rank=st.none() | st.integers(16, 512),
    key_value_rank=st.integers(16, 512),
    no_position_head_size=st.sampled_from([64, 128]),
    rotary_head_size=st.sampled_from([32, 64]),
    value_head_size=st.sampled_from([64, 128]),
)
feed_forwards = st.builds(
    DenseFeedForward, ffn_size=st.integers(512, 4096), gated=st.booleans()
) | st.builds(
    MixtureFeedForward,
    expert_count=st.integers(8, 64),
    experts_per_token=st.integers(1, 8),
    expert_ffn_size=st.integers(64, 1024),
    shared_ffn_size=st.sampled_from([0, 512]),
)
# Latent attention comes with RMSNorm. Selective checkpointing keeps the outputs of its unsplit
# products and of reductions, which is more than all that LayerNorm alone would keep.
blocks = st.builds(
    Block, attention=grouped, feed_forward=feed_forwards, norm=st.sampled_from(list(Norm))
) | st.builds(Block, attention=latents, feed_forward=feed_forwards)


@given(block=blocks, tensor_parallel=st.sampled_from([1, 2, 8]), sequence=st.booleans())
def test_more_checkpointing_never_keeps_more(block, tensor_parallel, sequence):
    """On any rank, with or without sequence parallel: full <= selective <= none."""
    spread = tensor_parallel if sequence else 1

    def rank_bytes(kept: ActivationElements) -> float:
        reduced = kept.reduced / spread if tensor_parallel > 1 else 0.0
        whole = kept.gathered + kept.routed + reduced
        narrow = whole + (kept.replicated + kept.norm_copies) / spread
        narrow += (kept.sharded + kept.products + kept.row_copies) / tensor_parallel
        return 2 * narrow + 4 * kept.float32 / tensor_parallel

    kept = block_activations(block, 1024)
    assert rank_bytes(kept.full) <= rank_bytes(kept.selective) <= rank_bytes(kept.none)


@given(block=blocks)
def test_recomputed_share_lies_between_nothing_and_everything(block):
    assert 0.0 < recomputed_ratio(block_gemms(block, 1024)) < 1.0
