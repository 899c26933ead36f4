"""Model graph: which chains hold, and what is said of those that do not."""

from __future__ import annotations

from typing import Any

import pytest

from planner.errors import DocumentError
from planner.importers.models import model_from_fields, read_model
from planner.schema.model import ModelGraph
from tests.builders import a_model

ATTENTION = {"kind": "grouped_query", "head_count": 4, "key_value_head_count": 4, "head_size": 16}
CROSS = {**ATTENTION, "kind": "cross", "source_width": 64}
FEED_FORWARD = {"kind": "dense", "ffn_size": 128}
DECODER = {
    "block": {"attention": ATTENTION, "feed_forward": FEED_FORWARD},
    "block_count": 2,
}
READER = {"block": {**DECODER["block"], "cross_attention": CROSS}, "block_count": 2}
ENCODER = {
    "block": {"attention": {**ATTENTION, "causal": False}, "feed_forward": FEED_FORWARD},
    "block_count": 3,
    "part": "encoder",
}
PATCHES = {"products": [{"inner_size": 48, "outer_size": 32}]}
TOWER = {
    **ENCODER,
    "hidden_size": 32,
    "tokens_per_sequence": 16,
    "entry": PATCHES,
    "exit": {"products": [{"inner_size": 32, "outer_size": 64}], "output_size": 64},
}


def a_graph(*runs: dict[str, Any], **changes: Any) -> ModelGraph:
    """A model of width 64 from its document."""
    fields = {
        "name": "it",
        "architecture": "chain",
        "hidden_size": 64,
        "vocabulary_size": 256,
        "maximum_sequence_length": 128,
        "runs": list(runs),
    }
    return model_from_fields({**fields, **changes}, name="it")


def refusal(*runs: dict[str, Any]) -> DocumentError:
    """Return how the chain is refused."""
    with pytest.raises(DocumentError) as caught:
        a_graph(*runs)
    return caught.value


@pytest.mark.parametrize(
    "runs",
    [
        (DECODER,),
        (ENCODER, READER),
        (ENCODER, DECODER),
        (TOWER, DECODER),
        (TOWER, ENCODER | {"entry": {"table_elements": 9}}, READER, DECODER),
        (TOWER, {**TOWER, "tokens_per_sequence": 9}, DECODER),
    ],
)
def test_chain_that_holds_survives_its_own_document(runs):
    graph = a_graph(*runs)
    assert ModelGraph.from_fields(graph.model_dump(mode="json"), source="it") == graph


def test_a_plain_decoder_leaves_later_fields_out_and_keeps_its_digest():
    """The digest is the one that the first version of the document gave Llama-3-8B."""
    fields = a_model().model_dump(mode="json")
    run, block = fields["runs"][0], fields["runs"][0]["block"]
    assert set(run) == {"block", "block_count"}
    assert set(block) == {"attention", "feed_forward", "norm"}
    assert "causal" not in block["attention"]
    first = "4332132456e1d70929e42d4a2a147d143942b362c7e6d0ae3cc08840175bf3e1"
    assert read_model("llama-3-8b")[1].digest() == first


def test_alternating_layers_are_short_runs_of_equal_blocks():
    _, graph = read_model("gemma-2-9b")
    assert [run.block_count for run in graph.runs] == [1] * 42
    assert len({run.block for run in graph.runs}) == 2
    assert graph.runs[0] == graph.runs[2]


@pytest.mark.parametrize(
    ("runs", "field"),
    [
        ((DECODER, ENCODER), "runs.1.part"),
        ((ENCODER,), "runs.0.part"),
        ((DECODER, ENCODER, DECODER), "runs.1.part"),
        (({**DECODER, "hidden_size": 32},), "runs.0.hidden_size"),
        (({**DECODER, "tokens_per_sequence": 32},), "runs.0.tokens_per_sequence"),
        (({**DECODER, "exit": {}},), "runs.0.exit"),
        ((READER,), "runs.0.block.cross_attention"),
        ((TOWER, READER), "runs.1.block.cross_attention"),
        (({**TOWER, "exit": None}, DECODER), "runs.0.exit"),
        (({**ENCODER, "hidden_size": 32}, DECODER), "runs.0.hidden_size"),
        ((TOWER, {**TOWER, "entry": None}, DECODER), "runs.1"),
        (({**ENCODER, "tokens_per_sequence": 0}, DECODER), "runs.0.tokens_per_sequence"),
        (({**ENCODER, "tokens_per_sequence": 2**25}, DECODER), "runs.0.tokens_per_sequence"),
        (({**DECODER, "part": "middle"},), "runs.0.part"),
    ],
)
def test_chain_that_does_not_hold_is_refused_by_its_field(runs, field):
    error = refusal(*runs)
    assert error.field == field
    assert error.remedy


def test_reader_of_nothing_is_told_what_towers_put_out():
    error = refusal(TOWER, READER)
    assert "sequence_length tokens of 64" in error.problem
    assert "16 tokens of 64" in error.remedy


def test_key_value_heads_of_a_cross_attention_divide_its_heads():
    cross = {**CROSS, "key_value_head_count": 3}
    error = refusal(ENCODER, {**READER, "block": {**READER["block"], "cross_attention": cross}})
    assert error.field == "runs.1.block.cross_attention.key_value_head_count"


def test_a_run_with_an_entry_begins_a_tower():
    graph = a_graph(TOWER, {**ENCODER, "entry": {}}, ENCODER, DECODER)
    assert graph.towers() == ((0,), (1, 2))
