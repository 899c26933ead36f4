"""Selective scans, short convolutions, and an index that picks keys: what they ask, by hand."""

from __future__ import annotations

import pytest

from planner.errors import DocumentError
from planner.schema.compressed import KeyIndex
from planner.schema.mixer import SelectiveScanMixer, ShortConvolutionMixer
from planner.schema.model import (
    Block,
    BlockRun,
    DenseFeedForward,
    LatentAttention,
    ModelGraph,
    NoAttention,
)
from planner.schema.strategy import ContextParallelKind
from planner.space.divisibility import context_parallel_obstacle, tensor_parallel_obstacles
from planner.workload.flops import attention_core, block_gemms
from planner.workload.mixers import (
    mixer_activations,
    mixer_gemms,
    mixer_parameters,
    mixer_traffic,
)

SCAN = SelectiveScanMixer(inner_width=128, state_size=16, step_rank=4)
CONVOLUTION = ShortConvolutionMixer(inner_width=64)
LATENT = LatentAttention(
    head_count=4,
    query_rank=48,
    key_value_rank=40,
    no_position_head_size=24,
    rotary_head_size=8,
    value_head_size=16,
    index=KeyIndex(head_count=2, head_size=16, entries_per_token=100),
)


def graph_of(block: Block) -> ModelGraph:
    """Return a small model of two such blocks."""
    return ModelGraph(
        name="small",
        architecture="small",
        hidden_size=64,
        vocabulary_size=512,
        maximum_sequence_length=1024,
        runs=(BlockRun(block=block, block_count=2),),
    )


def mixed(mixer: SelectiveScanMixer | ShortConvolutionMixer) -> ModelGraph:
    """Return a small model that mixes and has a dense feed-forward."""
    dense = DenseFeedForward(ffn_size=96)
    return graph_of(Block(attention=NoAttention(), mixer=mixer, feed_forward=dense))


def test_scan_s_products_are_in_rows_step_and_out():
    sizes = [(gemm.inner_size, gemm.outer_size) for gemm in mixer_gemms(SCAN, 64)]
    assert sizes == [(64, 256), (128, 36), (4, 128), (128, 64)]


def test_short_convolution_s_products_are_three_rows_in_and_one_out():
    sizes = [(gemm.inner_size, gemm.outer_size) for gemm in mixer_gemms(CONVOLUTION, 64)]
    assert sizes == [(64, 192), (64, 64)]


def test_scan_s_parameters_are_those_of_a_mamba_layer_without_its_norm():
    # 97,472 of a model of two layers, 500 rows of 64, and three norms of 64
    assert mixer_parameters(SCAN, 64).sharded == (97_472 - 500 * 64 - 3 * 64) // 2


def test_norms_of_a_scan_s_rows_are_counted_whole():
    normed = SCAN.model_copy(update={"normed_rows": True})
    assert mixer_parameters(normed, 64).replicated == 36


def test_short_convolution_s_biases_are_of_both_projections_and_of_itself():
    plain, biased = CONVOLUTION, CONVOLUTION.model_copy(update={"bias": True})
    more = mixer_parameters(biased, 64).total() - mixer_parameters(plain, 64).total()
    assert more == 192 + 64 + 64


def test_scan_moves_its_row_six_times_and_the_state_s_two_rows():
    assert mixer_traffic(SCAN).sharded == 6 * 128 + 2 * 16


def test_scan_keeps_row_gate_output_and_a_state_now_and_then():
    kept = mixer_activations(SCAN)
    assert kept.sharded == 3 * 128 + 36
    assert kept.float32 == 2.0  # two numbers for each of 128 x 16 every 2048 tokens


def test_short_convolution_keeps_six_rows():
    assert mixer_activations(CONVOLUTION).sharded == 6 * 64


def test_nobody_divides_a_scan():
    obstacles = tensor_parallel_obstacles(mixed(SCAN), 2)
    assert obstacles == ("1 copy of a selective scan, which ranks cannot share",)


def test_ranks_divide_a_short_convolution_by_channels():
    assert tensor_parallel_obstacles(mixed(CONVOLUTION), 2) == ()
    assert "64 channels of a short convolution" in tensor_parallel_obstacles(mixed(CONVOLUTION), 48)


def test_index_has_products_of_its_own_which_nobody_divides():
    block = Block(attention=LATENT, feed_forward=DenseFeedForward(ffn_size=96))
    products = {g.name: (g.inner_size, g.outer_size, g.split) for g in block_gemms(block, 64)}
    assert products["index_query"] == (48, 32, "none")
    assert products["index_key"] == (64, 16, "none")
    assert products["index_weight"] == (64, 2, "none")


def test_token_attends_to_the_keys_that_are_picked_and_scores_all_before_it():
    # of 200 keys: 100 picked but for the first 99 tokens, which see fewer; the index sees 100.5
    core = attention_core(LATENT)
    picked = 100 - 100 * 99 / 400
    assert core.mean_keys(200) == picked
    assert core.flop_per_token(200) == pytest.approx(2 * (4 * 48 * picked + 32 * 100.5))


def test_layer_that_takes_what_another_picked_has_no_index_of_its_own():
    takes = LATENT.model_copy(update={"picks_again": False})
    block = Block(attention=takes, feed_forward=DenseFeedForward(ffn_size=96))
    assert not [g for g in block_gemms(block, 64) if g.name.startswith("index")]
    assert attention_core(takes).index_width == 0
    assert attention_core(takes).mean_keys(200) == attention_core(LATENT).mean_keys(200)


def test_no_ranks_share_a_sequence_of_whose_keys_an_index_picks():
    model = graph_of(Block(attention=LATENT, feed_forward=DenseFeedForward(ffn_size=96)))
    said = context_parallel_obstacle(
        model, ContextParallelKind.RING, context=2, tensor=1, length=1024
    )
    assert said == "cannot divide a sequence of whose keys an index picks some"


def test_index_needs_compressed_queries():
    with pytest.raises(DocumentError, match="query_rank"):
        LatentAttention(**{**dict(LATENT), "query_rank": None})
