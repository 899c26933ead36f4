"""Chains of several parts: tokens, FLOPs, parameters, and what crosses a cut; numbers by hand."""

from __future__ import annotations

import pytest

from planner.importers.models import read_model
from planner.schema.model import (
    Block,
    BlockRun,
    CrossAttention,
    DenseFeedForward,
    Entry,
    Exit,
    GroupedQueryAttention,
    ModelGraph,
    Norm,
    NormPlacement,
    Product,
    RunPart,
)
from planner.workload.activations import block_activations
from planner.workload.chain import tower_lengths
from planner.workload.flops import attention_core, norm_count
from planner.workload.model import model_workload
from planner.workload.parameters import block_parameters
from tests.builders import a_model

ATTENTION = GroupedQueryAttention(head_count=4, key_value_head_count=4, head_size=16, rotary=False)
BOTH_SIDES = ATTENTION.model_copy(update={"causal": False})
FEED_FORWARD = DenseFeedForward(ffn_size=128, gated=False)
CROSS = CrossAttention(head_count=4, key_value_head_count=2, head_size=16, source_width=64)
PLAIN = Block(attention=ATTENTION, feed_forward=FEED_FORWARD)
READING = Block(attention=ATTENTION, feed_forward=FEED_FORWARD, cross_attention=CROSS)
SEEING = Block(attention=BOTH_SIDES, feed_forward=FEED_FORWARD, norm=Norm.LAYER)
ENCODER = BlockRun(block=SEEING, block_count=3, part=RunPart.ENCODER)


def translator() -> ModelGraph:
    """Three blocks of an encoder, two of a decoder that reads it."""
    return a_model(runs=(ENCODER, BlockRun(block=READING, block_count=2)))


def a_tower(tokens: int = 16) -> BlockRun:
    """Three blocks of width 32 over patches of 48 numbers, then a quarter of them at width 64."""
    return BlockRun(
        block=SEEING,
        block_count=3,
        part=RunPart.ENCODER,
        hidden_size=32,
        tokens_per_sequence=tokens,
        entry=Entry(products=(Product(inner_size=48, outer_size=32, bias=True),), table_elements=7),
        exit=Exit(
            products=(
                Product(inner_size=128, outer_size=100, tokens_per_sequence=tokens // 4),
                Product(inner_size=100, outer_size=64, tokens_per_sequence=tokens // 4),
            ),
            norm_widths=(32,),
            output_size=64,
            output_tokens_per_sequence=tokens // 4,
        ),
    )


def seer() -> ModelGraph:
    """A tower before a decoder."""
    return a_model(runs=(a_tower(), BlockRun(block=PLAIN, block_count=2)))


def crossing(graph: ModelGraph, sequence_length: int = 128) -> list[int]:
    """Return the elements per sequence that cross a cut after a block of each run."""
    layers = [layer for layer, _ in model_workload(graph).runs]
    return [layer.boundary.elements(sequence_length) for layer in layers]


def test_a_decoder_sends_its_rows():
    assert crossing(a_model()) == [128 * 64]


def test_an_encoder_s_text_waits_and_its_output_travels_to_the_last_reader():
    assert crossing(translator()) == [128 * 64 + 128 * 64, 128 * 64 + 128 * 64]


def test_embedded_text_travels_through_a_tower_whose_output_joins_it():
    assert crossing(seer()) == [16 * 32 + 128 * 64, 128 * 64]


def test_a_second_tower_s_input_travels_through_the_first():
    graph = a_model(runs=(a_tower(), a_tower(8), BlockRun(block=PLAIN, block_count=2)))
    assert crossing(graph) == [16 * 32 + 128 * 64 + 8 * 32, 8 * 32 + 128 * 64, 128 * 64]


def test_what_was_read_last_no_longer_travels():
    """Its only reader is one block, so that after it nobody needs the output."""
    runs = [ENCODER] + [BlockRun(block=b, block_count=1) for b in (PLAIN, READING, PLAIN)]
    own, output = 128 * 64, 128 * 64
    assert crossing(a_model(runs=tuple(runs))) == [own + output, own + output, own, own]


def test_runs_of_equal_blocks_are_one_workload():
    workload = model_workload(read_model("gpt-oss-120b")[1])
    assert len(workload.runs) == 36
    assert len({layer for layer, _ in workload.runs}) == 2


def test_tokens_of_a_tower_are_its_own():
    tower, decoder = (layer for layer, _ in model_workload(seer()).runs)
    assert (tower.token_count(128), tower.hidden_size) == (16, 32)
    assert (decoder.token_count(128), decoder.hidden_size) == (128, 64)


def test_towers_have_lengths_of_their_own():
    assert tower_lengths(seer()) == (16,)
    assert tower_lengths(translator()) == ()
    assert tower_lengths(read_model("whisper-large-v3")[1]) == (1500,)


def test_flop_of_a_tower_and_its_ends_by_hand():
    workload = model_workload(seer())
    tower = workload.runs[0][0]
    products = 2 * (32 * 64 * 4 + 2 * 32 * 128)
    attention = 2 * 4 * (16 + 16) * 16
    assert tower.forward_flop_per_sequence(128) == 16 * (products + attention)
    patches = 16 * 2 * 48 * 32
    merged = 4 * 2 * (128 * 100 + 100 * 64)
    assert workload.embedding.forward_flop_per_sequence(128) == patches + merged


def test_flop_of_a_cross_attention_by_hand():
    """96 tokens ask 40: keys and values are made of the 40, scores are 96 x 40."""
    cross = CROSS.model_copy(update={"source_tokens_per_sequence": 40})
    encoder = ENCODER.model_copy(update={"tokens_per_sequence": 40})
    block = READING.model_copy(update={"cross_attention": cross})
    graph = a_model(runs=(encoder, BlockRun(block=block, block_count=1)))
    layer = model_workload(graph).runs[1][0]
    own = 96 * 2 * (4 * 64 * 64 + 2 * 64 * 64 + 2 * 64 * 128)
    causal = 96 * 2 * 4 * 32 * 97 / 2
    read = 40 * 2 * (2 * 64 * 32) + 96 * 2 * 4 * 32 * 40
    assert layer.forward_flop_per_sequence(96) == own + causal + read


def test_model_flop_counts_every_part_of_a_sequence():
    """Three blocks of a tower of 16 tokens, two of a decoder of 128, ends and head."""
    workload = model_workload(seer())
    tower, decoder = (layer.forward_flop_per_sequence(128) for layer, _ in workload.runs)
    ends = workload.embedding.forward_flop_per_sequence(128)
    head = 128 * 2 * 64 * 256
    expected = 3.0 * (3 * tower + 2 * decoder + ends + head)
    assert workload.model_flop_per_sequence(128) == pytest.approx(expected, rel=1e-12)
    assert workload.model_flop_per_token(128) == pytest.approx(expected / 128, rel=1e-12)


def test_parameters_of_ends_stand_with_the_embedding_whole_on_every_rank():
    embedding = model_workload(seer()).embedding.parameters
    entry = 48 * 32 + 32 + 7
    exit_ = 128 * 100 + 100 * 64 + 2 * 32
    assert embedding.replicated == entry + exit_
    assert embedding.sharded == 256 * 64


def test_parameters_of_a_reading_block_by_hand():
    """Own queries and output 64 x 64 each, the source's keys and values 64 x 32 each, one norm."""
    plain, reading = block_parameters(PLAIN, 64), block_parameters(READING, 64)
    assert reading.sharded - plain.sharded == 2 * 64 * 64 + 2 * 64 * 32
    assert reading.replicated - plain.replicated == 64


@pytest.mark.parametrize(
    ("placement", "norms"),
    [(NormPlacement.BEFORE, 2), (NormPlacement.AFTER, 2), (NormPlacement.BOTH, 4)],
)
def test_norms_of_a_block_follow_their_placement(placement, norms):
    block = PLAIN.model_copy(update={"norm_placement": placement})
    assert norm_count(block) == norms
    assert block_parameters(block, 64).replicated == norms * 64


def test_a_norm_after_a_part_keeps_its_input_and_not_its_output():
    """RMSNorm keeps three elements of each; before a part its output is kept as well."""

    def kept(placement: NormPlacement) -> tuple[float, float]:
        block = PLAIN.model_copy(update={"norm_placement": placement})
        elements = block_activations(block, 64).none
        return elements.gathered, elements.replicated + elements.norm_copies

    assert kept(NormPlacement.BEFORE) == (2 * 64, 2 * 3 * 64)
    assert kept(NormPlacement.AFTER) == (2 * 64, 2 * 3 * 64)
    assert kept(NormPlacement.BOTH) == (2 * 64, 4 * 3 * 64)


@pytest.mark.parametrize(
    ("changes", "keys"),
    [
        ({"causal": False}, 6.0),
        ({"causal": False, "chunk_tokens": 2}, 2.0),
        ({"causal": False, "chunk_tokens": 4}, (4 * 4 + 2 * 2) / 6),
        ({"chunk_tokens": 4}, (1 + 2 + 3 + 4 + 1 + 2) / 6),
        ({"causal": False, "sliding_window_tokens": 2}, (2 + 3 * 4 + 2) / 6),
        ({"causal": False, "sliding_window_tokens": 9}, 6.0),
        ({"sliding_window_tokens": 2}, (1 + 2 * 5) / 6),
        ({"sliding_window_tokens": 2, "chunk_tokens": 3}, (1 + 2 + 2) / 3),
    ],
)
def test_mean_keys_of_six_tokens_are_counted_under_every_mask(changes, keys):
    core = attention_core(ATTENTION.model_copy(update=changes))
    assert core.mean_keys(6) == pytest.approx(keys, rel=1e-12)


def test_a_cross_attention_sees_every_source_token():
    assert attention_core(CROSS).mean_keys(40) == 40.0


@pytest.mark.parametrize(
    ("changes", "more"),
    [
        ({"query_key_value_bias": True}, 3 * 64),
        ({"query_key_value_bias": True, "key_bias": False}, 2 * 64),
        ({"sink": True}, 4),
        ({"query_key_norm": True}, 2 * 16),
        ({"query_key_norm": True, "query_key_norm_spans_heads": True}, 2 * 64),
    ],
)
def test_attention_s_own_vectors_are_counted(changes, more):
    block = PLAIN.model_copy(update={"attention": ATTENTION.model_copy(update=changes)})
    assert block_parameters(block, 64).total() - block_parameters(PLAIN, 64).total() == more


def test_rows_that_a_tower_carries_along_travel_beside_its_own():
    run = a_tower().model_copy(update={"carried_width": 2 * 32})
    graph = a_model(runs=(run, BlockRun(block=PLAIN, block_count=2)))
    assert crossing(graph) == [16 * 3 * 32 + 128 * 64, 128 * 64]


def test_a_block_that_reads_a_tower_alone_attends_to_no_token_of_its_own():
    """Llama 3.2 Vision: 96 queries of 4 heads of 16, 40 tokens read, no causal core."""
    cross = CROSS.model_copy(update={"source_tokens_per_sequence": 40, "query_key_norm": True})
    encoder = ENCODER.model_copy(update={"tokens_per_sequence": 40})
    block = Block(attention=cross, feed_forward=FEED_FORWARD)
    graph = a_model(runs=(encoder, BlockRun(block=block, block_count=1)))
    layer = model_workload(graph).runs[1][0]
    assert layer.attention is None
    assert [gemm.name for gemm in layer.gemms][:2] == ["cross_query", "cross_output"]
    own = 96 * 2 * (2 * 64 * 64 + 2 * 64 * 128)
    read = 40 * 2 * (2 * 64 * 32) + 96 * 2 * 4 * 32 * 40
    assert layer.forward_flop_per_sequence(96) == own + read
    norms = 2 * 64 + 2 * 16
    assert layer.parameters.replicated == norms
