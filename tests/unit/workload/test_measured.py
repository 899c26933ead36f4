"""Traced blocks: their document, what they ask per token, and what cannot divide them."""

from __future__ import annotations

from typing import Any

import pytest

from planner.errors import DocumentError, InputError
from planner.importers.models import model_from_fields
from planner.planning import estimate, resolved_cluster, resolved_model
from planner.schema.job import Job
from planner.schema.model import ModelGraph
from planner.schema.strategy import Strategy
from planner.workload.model import model_workload


def traced_fields(**changes: Any) -> dict[str, Any]:
    """A model of four equal traced blocks."""
    block = {
        "parameter_count": 1000,
        "products": [{"rows_per_token": 0.5, "inner_size": 10, "outer_size": 20}],
        "attention": {
            "head_count": 2,
            "key_head_size": 8,
            "value_head_size": 4,
            "key_value_width": 24,
            "causal": False,
        },
        "elementwise_elements_per_token": 50.0,
        "kernel_count": 3,
        "saved": {"elements_per_token": 30.0, "bytes_per_token": 8.0},
        "saved_selective": {"elements_per_token": 12.0},
        "selective_recompute_ratio": 0.25,
        "input_size": 6,
        "output_size": 7,
    }
    return {
        "name": "traced",
        "architecture": "traced",
        "hidden_size": 6,
        "vocabulary_size": 5,
        "maximum_sequence_length": 64,
        "runs": [{"measured": block, "block_count": 4}],
        "measured_embedding": {"parameter_count": 300, "saved": {"bytes_per_token": 16.0}},
        "measured_head": {"parameter_count": 40, "saved": {"elements_per_token": 6.0}},
        **changes,
    }


def test_a_measured_block_asks_what_was_counted() -> None:
    workload = model_workload(model_from_fields(traced_fields(), name="traced"))
    ((layer, count),) = workload.runs
    assert count == 4
    assert workload.parameter_count == 4 * 1000 + 300 + 40
    # 2 x 0.5 x 10 x 20 of the product; 2 x 2 heads x (8 + 4) x 64 keys
    assert layer.forward_flop_per_token(64) == 200.0 + 3072.0
    assert layer.activations.none.replicated == 30.0
    assert layer.activations.none.float32 == 2.0
    assert layer.activations.selective.replicated == 12.0
    assert layer.activations.full.replicated == 6.0
    assert layer.selective_recompute_ratio == 0.25
    assert layer.boundary.elements(64) == 64 * 7
    assert layer.elementwise.replicated == 50.0
    assert layer.elementwise.kernel_count == 3


def test_what_stands_at_the_ends_is_kept_whatever_is_checkpointed() -> None:
    workload = model_workload(model_from_fields(traced_fields(), name="traced"))
    assert workload.embedding.activations.full.float32 == 4.0
    assert workload.head.layer.activations.selective.replicated == 6.0
    assert workload.head.vocabulary_size == 5


def test_a_document_comes_back_as_it_was() -> None:
    graph = model_from_fields(traced_fields(), name="traced")
    assert ModelGraph.model_validate_json(graph.to_json()) == graph
    assert "block" not in graph.model_dump(mode="json")["runs"][0]


SHAPE = {
    "attention": {
        "kind": "grouped_query",
        "head_count": 2,
        "key_value_head_count": 2,
        "head_size": 3,
    },
    "feed_forward": {"kind": "dense", "ffn_size": 8},
}


@pytest.mark.parametrize(
    ("run", "said"),
    [
        ({"block_count": 1}, "is required"),
        ({"block_count": 1, "block": SHAPE}, "measured embedding and head"),
        (
            {"block_count": 1, "block": SHAPE, "measured": {"parameter_count": 1}},
            "both a shape and",
        ),
    ],
)
def test_a_run_is_either_of_a_shape_or_measured(run: dict[str, Any], said: str) -> None:
    with pytest.raises(DocumentError, match=said) as caught:
        model_from_fields(traced_fields(runs=[run]), name="traced")
    assert caught.value.field is not None
    assert caught.value.field.startswith("runs.0")


@pytest.mark.parametrize(
    ("degrees", "said"),
    [
        ({"tensor_parallel_degree": 2}, "does not divide the model's blocks, of which a trace"),
        ({"context_parallel_degree": 2}, "cannot divide the sequence of blocks of which a trace"),
    ],
)
def test_nothing_divides_a_traced_block(degrees: dict[str, int], said: str) -> None:
    with pytest.raises(InputError, match=f"{said} knows totals alone .* describe the model by its"):
        _estimate(Job(global_batch_size=8, sequence_length=64), Strategy(**degrees))


def test_a_pipeline_cuts_between_traced_blocks() -> None:
    job = Job(global_batch_size=8, sequence_length=64, precision="fp32")
    _estimate(job, Strategy(pipeline_parallel_degree=2, micro_batch_size=1))


def test_a_sequence_longer_than_the_traced_one_is_refused() -> None:
    with pytest.raises(InputError, match="64 tokens that the model was traced with"):
        _estimate(Job(global_batch_size=8, sequence_length=65), Strategy(data_parallel_degree=2))


def _estimate(job: Job, strategy: Strategy) -> None:
    answer = estimate(
        resolved_model(traced_fields()), resolved_cluster("2xcpu-gloo"), job, strategy
    )
    assert answer.prediction.step_seconds.p50 > 0
