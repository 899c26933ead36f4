"""Every rule of legality, broken one at a time."""

from __future__ import annotations

from typing import Any

import pytest

from planner.errors import IllegalStrategyError
from planner.hardware import cluster_hardware
from planner.schema.cluster import NodeGroup
from planner.schema.job import Job
from planner.schema.model import ModelGraph
from planner.schema.strategy import EdgeChoice, Strategy
from planner.space.degrees import enumerate_configurations
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
        "use one of 1, 2"
    )


def test_tensor_parallelism_divides_the_vocabulary() -> None:
    assert "255 entries of the vocabulary" in message(
        a_strategy(), graph=a_model(vocabulary_size=255)
    )


def test_sequence_parallelism_divides_the_sequence() -> None:
    text = message(changed(sequence_parallel=True), job=a_job(sequence_length=127))
    assert text.startswith("sequence_parallel: ")
    assert "127" in text


def test_context_parallelism_needs_two_pieces_a_rank() -> None:
    split = changed(context_parallel_degree=2, data_parallel_shard_degree=1)
    text = message(split, job=a_job(sequence_length=126))
    assert text.startswith("context_parallel_degree: ")
    assert "126" in text


def test_expert_parallelism_needs_experts() -> None:
    text = message(changed(expert_parallel_degree=2))
    assert text.startswith("expert_parallel_degree: ")
    assert "no routed experts" in text


@pytest.mark.parametrize(
    ("schedule", "said"), [("zb_v", "cannot be priced yet"), ("1f1b", "micro_batch_count")]
)
def test_schedules_that_cannot_run_are_refused(schedule: str, said: str) -> None:
    """1F1B on torch refuses fewer micro-batches than stages."""
    short = a_strategy(micro_batch_size=8, pipeline_schedule=schedule)
    assert short.micro_batch_count == 1
    assert said in message(short)


def test_interleaving_is_refused_with_its_value() -> None:
    text = message(changed(virtual_pipeline_degree=2))
    assert text.startswith("virtual_pipeline_degree: ")
    assert "(got 2)" in text


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


def test_whatever_the_space_contains_is_legal() -> None:
    """Every configuration, with plain choices, on two nodes of four."""
    group = NodeGroup(name="h100", device="h100-sxm5-80gb", node_count=2, devices_per_node=4)
    hardware = cluster_hardware(a_cluster(node_groups=(group,)))
    graph, job = a_model(), a_job()
    rows = enumerate_configurations(graph, hardware, job).rows
    assert len(rows) > 50
    for row in rows:
        fields = {name: getattr(row, name) for name in type(row).__slots__ if name != "device_order"}
        strategy = Strategy(**fields).resolved(block_count=graph.block_count, global_batch_size=16)
        assert list(breaches(graph, hardware, job, strategy)) == []
