"""Towers bind degrees as decoders do: their tokens, their heads and their feed-forwards divide."""

from __future__ import annotations

from typing import Any

import pytest

from planner.errors import IllegalStrategyError
from planner.hardware import cluster_hardware
from planner.schema.model import BlockRun, DenseFeedForward, ModelGraph, RunPart
from planner.space.degrees import enumerate_configurations
from planner.space.divisibility import tensor_parallel_sizes
from planner.space.legality import check_strategy
from tests.builders import a_cluster, a_job, a_model, a_strategy


def with_tower(tokens: int, ffn_size: int = 128) -> ModelGraph:
    """The tiny model behind a block of a tower of so many tokens."""
    (run,) = a_model().runs
    attention = run.block.attention.model_copy(update={"causal": False})
    block = run.block.model_copy(
        update={"attention": attention, "feed_forward": DenseFeedForward(ffn_size=ffn_size)}
    )
    tower = BlockRun(block=block, block_count=1, part=RunPart.ENCODER, tokens_per_sequence=tokens)
    rest = run.model_copy(update={"block_count": 3})
    return a_model(runs=(tower, rest))


def message(graph: ModelGraph, **changes: Any) -> str:
    """What is said of the builder's strategy with some fields changed; empty if it is legal."""
    strategy = a_strategy().model_copy(update=changes)
    try:
        check_strategy(graph, cluster_hardware(a_cluster()), a_job(), strategy)
    except IllegalStrategyError as error:
        return str(error)
    return ""


SPLIT = {"context_parallel_degree": 2, "data_parallel_shard_degree": 1, "micro_batch_count": 16}


def test_sequence_parallelism_divides_a_tower_s_tokens() -> None:
    text = message(with_tower(17), sequence_parallel=True)
    assert text.startswith("sequence_parallel: ")
    assert "the 17 tokens of a tower" in text
    assert message(with_tower(18), sequence_parallel=True) == ""
    assert message(with_tower(17)) == ""


@pytest.mark.parametrize("kind", ["ring", "all_to_all"])
def test_context_parallelism_divides_a_tower_s_tokens(kind: str) -> None:
    text = message(with_tower(17), context_parallel_kind=kind, **SPLIT)
    assert text.startswith("context_parallel_degree: does not divide the 17 tokens of a tower")
    assert message(with_tower(18), context_parallel_kind=kind, **SPLIT) == ""


def test_no_enumerated_configuration_splits_a_tower_that_does_not_divide() -> None:
    graph, hardware = with_tower(17), cluster_hardware(a_cluster())
    rows = enumerate_configurations(graph, hardware, a_job()).rows
    assert rows
    assert not any(row.sequence_parallel or row.context_parallel_degree > 1 for row in rows)


def test_the_narrower_of_two_feed_forwards_binds_the_tensor_parallel_degree() -> None:
    """33 columns in the tower, 128 in the decoder."""
    graph = with_tower(18, ffn_size=33)
    assert {33, 128} <= set(tensor_parallel_sizes(graph).values())
    assert "33 columns of the feed-forward" in message(graph)
