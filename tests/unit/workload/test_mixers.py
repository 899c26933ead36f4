"""Mixers: parameters, FLOPs and kept elements of one layer, counted by hand."""

from __future__ import annotations

import pytest

from planner.errors import InputError
from planner.schema.model import (
    Block,
    GatedDeltaMixer,
    LinearAttentionMixer,
    ModelGraph,
    StateSpaceMixer,
)
from planner.schema.strategy import ContextParallelKind
from planner.space.divisibility import context_parallel_obstacle, tensor_parallel_sizes
from planner.workload.mixers import mixer_activations, mixer_gemms, mixer_parameters
from planner.workload.selection import kept_products

HIDDEN = 10
STATE_SPACE = StateSpaceMixer(
    head_count=4, head_size=2, group_count=2, state_size=3, chunk_tokens=8
)
DELTA = GatedDeltaMixer(
    key_head_count=2, value_head_count=4, key_head_size=3, value_head_size=2, chunk_tokens=16
)
LINEAR = LinearAttentionMixer(head_count=4, head_size=3, chunk_tokens=16)
GRAPH = {
    "name": "it",
    "architecture": "hybrid",
    "hidden_size": 64,
    "vocabulary_size": 128,
    "maximum_sequence_length": 64,
    "runs": [
        {
            "block_count": 2,
            "block": {
                "attention": {"kind": "none"},
                "mixer": {
                    "kind": "state_space",
                    "head_count": 8,
                    "head_size": 16,
                    "group_count": 2,
                    "state_size": 16,
                },
                "feed_forward": {"kind": "none"},
            },
        }
    ],
}


def flop(mixer):
    """Return the forward FLOPs of a token by the name of the product."""
    return {gemm.name: gemm.flop_per_token() for gemm in mixer_gemms(mixer, HIDDEN)}


def test_state_space_projects_gate_rows_and_a_step_per_head():
    """8 of heads twice, 2 groups x 3 twice, 4 heads: 32 wide."""
    assert flop(STATE_SPACE)["mixer_in"] == 2 * 10 * 32
    assert flop(STATE_SPACE)["mixer_out"] == 2 * 8 * 10


def test_state_space_scores_a_chunk_per_group_and_keeps_a_state_per_head():
    counted = flop(STATE_SPACE)
    assert counted["scan_scores"] == 2 * 3 * 2 * 8
    assert counted["scan_values"] == 2 * 8 * 8
    assert counted["state_write"] == counted["state_read"] == 2 * 3 * 8


def test_state_space_parameters_are_counted_by_hand():
    """Projections 320 + 80, convolution 20 x 4 and its bias 20, three per head, the norm 8."""
    counts = mixer_parameters(STATE_SPACE, HIDDEN)
    assert (counts.sharded, counts.replicated) == (320 + 80 + 80 + 20 + 12 + 8, 0)


def test_gated_delta_parameters_are_counted_by_hand():
    """Gate 8, rows 6 + 6 + 8, two per head 8: 36 wide; convolution 20 x 4; the norm of a head 2."""
    counts = mixer_parameters(DELTA, HIDDEN)
    assert (counts.sharded, counts.replicated) == (360 + 80 + 80 + 8, 2)


def test_gated_delta_meets_its_state_three_times():
    counted = flop(DELTA)
    states = [counted[name] for name in ("state_correct", "state_write", "state_read")]
    assert states == [2 * 3 * 8] * 3
    assert counted["scan_keys"] == 2 * 3 * 4 * 16


def test_state_space_keeps_what_it_projected_and_what_it_scanned():
    assert mixer_activations(STATE_SPACE).sharded == 32 + 8


def test_a_scan_is_run_again_under_selective_checkpointing():
    """Of two projections the first is kept, and nothing between."""
    assert kept_products(mixer_gemms(STATE_SPACE, HIDDEN)).sharded == 32


def test_tensor_ranks_have_whole_heads_and_groups():
    sizes = tensor_parallel_sizes(ModelGraph.from_fields(GRAPH, source="it"))
    assert sizes["2 state-space groups"] == 2
    assert sizes["8 state-space heads"] == 8


def test_context_ranks_cannot_share_a_sequence_with_a_state():
    graph = ModelGraph.from_fields(GRAPH, source="it")
    ring = ContextParallelKind.RING
    said = context_parallel_obstacle(graph, ring, context=2, tensor=1, length=64)
    assert said == "cannot divide a sequence along which blocks carry a state"


def test_a_block_without_attention_needs_a_mixer():
    fields = {"attention": {"kind": "none"}, "feed_forward": {"kind": "dense", "ffn_size": 8}}
    run = {"block_count": 1, "block": fields}
    with pytest.raises(InputError, match="there is no mixer"):
        ModelGraph.from_fields({**GRAPH, "runs": [run]}, source="it")
    assert Block.model_fields["mixer"].default is None


def test_linear_attention_has_five_projections_and_a_norm_as_wide_as_all_heads():
    """Queries, keys, values and gate 10 x 12 each, back 12 x 10, the norm 12."""
    counts = mixer_parameters(LINEAR, HIDDEN)
    assert (counts.sharded, counts.replicated) == (5 * 120 + 12, 0)


def test_linear_attention_scores_a_chunk_and_meets_its_state_twice():
    counted = flop(LINEAR)
    assert counted["scan_scores"] == 2 * 3 * 4 * 16
    assert counted["scan_values"] == 2 * 16 * 12
    assert counted["state_write"] == counted["state_read"] == 2 * 3 * 12


def test_linear_attention_keeps_ten_rows():
    """Three before and after their activation, what is read, normed, the gate, their product."""
    assert mixer_activations(LINEAR).sharded == 10 * 12


def test_ranks_share_heads_of_linear_attention():
    mixer = {"kind": "linear_attention", "head_count": 6, "head_size": 8}
    (run,) = GRAPH["runs"]
    graph = ModelGraph.from_fields(
        {**GRAPH, "runs": [{**run, "block": {**run["block"], "mixer": mixer}}]}, source="it"
    )
    assert tensor_parallel_sizes(graph) == {"6 linear-attention heads": 6}
