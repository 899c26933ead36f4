"""Configurations of small requests, counted by hand."""

from __future__ import annotations

from typing import Any

import pytest

from planner.cost.configuration import Configuration
from planner.hardware import ClusterHardware, cluster_hardware
from planner.schema.cluster import NodeGroup
from planner.schema.model import BlockRun, MixtureFeedForward, ModelGraph
from planner.schema.strategy import PipelineSchedule
from planner.space.degrees import ConfigurationSpace, divisors, enumerate_configurations
from tests.builders import a_cluster, a_job, a_model


def nodes(node_count: int, devices_per_node: int) -> ClusterHardware:
    """So many nodes of so many H100."""
    group = NodeGroup(
        name="h100",
        device="h100-sxm5-80gb",
        node_count=node_count,
        devices_per_node=devices_per_node,
    )
    return cluster_hardware(a_cluster(node_groups=(group,)))


def space_of(
    *, graph: ModelGraph | None = None, hardware: ClusterHardware | None = None, **job: Any
) -> ConfigurationSpace:
    """The space of the tiny model on one node of four, with changes."""
    return enumerate_configurations(graph or a_model(), hardware or nodes(1, 4), a_job(**job))


def a_mixture(expert_count: int) -> ModelGraph:
    """The tiny model with routed experts."""
    run = a_model().runs[0]
    experts = MixtureFeedForward(expert_count=expert_count, experts_per_token=2, expert_ffn_size=64)
    block = run.block.model_copy(update={"feed_forward": experts})
    return a_model(runs=(BlockRun(block=block, block_count=4),))


def devices(row: Configuration) -> int:
    """The devices that a configuration takes."""
    return (
        row.tensor_parallel_degree
        * row.pipeline_parallel_degree
        * row.context_parallel_degree
        * row.data_parallel_shard_degree
        * row.data_parallel_replicate_degree
    )


def test_divisors_come_in_order() -> None:
    assert divisors(36) == (1, 2, 3, 4, 6, 9, 12, 18, 36)


def test_every_configuration_uses_all_devices_and_the_whole_batch() -> None:
    rows = space_of(global_batch_size=12).rows
    assert rows
    assert {devices(row) for row in rows} == {4}
    batches = {
        row.micro_batch_size
        * row.micro_batch_count
        * row.data_parallel_shard_degree
        * row.data_parallel_replicate_degree
        for row in rows
    }
    assert batches == {12}


def test_no_configuration_comes_twice() -> None:
    rows = space_of().rows
    assert len(set(rows)) == len(rows)


def test_one_device_leaves_the_micro_batch_size_alone() -> None:
    """Batch 8: sizes 1, 2, 4 and 8."""
    rows = space_of(hardware=nodes(1, 1), global_batch_size=8).rows
    assert [row.micro_batch_size for row in rows] == [1, 2, 4, 8]
    assert [row.micro_batch_count for row in rows] == [8, 4, 2, 1]


def test_tensor_parallelism_divides_key_value_heads() -> None:
    """The tiny model has two: 4 is refused, and said so."""
    space = space_of()
    assert {row.tensor_parallel_degree for row in space.rows} == {1, 2}
    assert space.refused["tensor_parallel_degree does not divide the model"] == 1


def test_tensor_parallelism_stays_within_a_node() -> None:
    space = space_of(hardware=nodes(4, 1), global_batch_size=16)
    assert {row.tensor_parallel_degree for row in space.rows} == {1}
    assert space.refused["tensor parallelism beyond the innermost network level"] == 2


def test_no_stage_is_without_a_block() -> None:
    run = a_model().runs[0].model_copy(update={"block_count": 2})
    space = space_of(graph=a_model(runs=(run,)))
    assert {row.pipeline_parallel_degree for row in space.rows} == {1, 2}
    assert space.refused["more stages than blocks"] >= 1


def test_torch_runs_1f1b_only_with_a_full_pipeline() -> None:
    """Four stages, two sequences: GPipe may wait, 1F1B is refused."""
    limits = {"pipeline_parallel_degree": 4}
    space = space_of(global_batch_size=2, limits=limits)
    assert {row.pipeline_schedule for row in space.rows} == {PipelineSchedule.GPIPE}
    assert space.refused["fewer micro-batches than stages"] == 2


def test_megatron_runs_1f1b_with_any_number_of_micro_batches() -> None:
    rows = space_of(
        global_batch_size=2, stack="megatron", limits={"pipeline_parallel_degree": 4}
    ).rows
    assert {row.pipeline_schedule for row in rows} == set(PipelineSchedule) & {
        PipelineSchedule.GPIPE,
        PipelineSchedule.ONE_F_ONE_B,
    }


def test_the_schedule_of_one_stage_is_one_that_the_limits_allow() -> None:
    rows = space_of(hardware=nodes(1, 1), limits={"pipeline_schedules": ["gpipe"]}).rows
    assert {row.pipeline_schedule for row in rows} == {PipelineSchedule.GPIPE}


def test_data_parallel_ranks_shard_whole_or_within_a_node() -> None:
    """Two nodes of four: shard over eight, or over four and replicate twice."""
    rows = space_of(
        hardware=nodes(2, 4),
        limits={"tensor_parallel_degree": 1, "pipeline_parallel_degree": 1},
    ).rows
    pairs = {(r.data_parallel_shard_degree, r.data_parallel_replicate_degree) for r in rows}
    assert pairs == {(8, 1), (4, 2)}


def test_context_parallelism_waits_for_long_sequences() -> None:
    graph = a_model(maximum_sequence_length=2**17)
    assert {r.context_parallel_degree for r in space_of().rows} == {1}
    long = space_of(graph=graph, sequence_length=2**15).rows
    assert {r.context_parallel_degree for r in long} == {1, 2, 4}


def test_experts_are_spread_over_ranks_that_they_divide_into() -> None:
    """Six experts over the four data-parallel ranks: 1 or 2, not 3 or 6."""
    limits = {"tensor_parallel_degree": 1, "pipeline_parallel_degree": 1}
    space = space_of(graph=a_mixture(6), limits=limits)
    assert {row.expert_parallel_degree for row in space.rows} == {1, 2}


@pytest.mark.parametrize(
    ("limits", "reason"),
    [
        ({"tensor_parallel_degree": 3}, "job.limits.tensor_parallel_degree is 3"),
        ({"pipeline_parallel_degree": 3}, "job.limits.pipeline_parallel_degree is 3"),
        ({"expert_parallel_degree": 2}, "job.limits.expert_parallel_degree is 2"),
        ({"pipeline_schedules": ["zb_v"]}, "no schedule of pipeline_schedules can be priced"),
    ],
)
def test_a_limit_that_leaves_nothing_is_named(limits: dict[str, Any], reason: str) -> None:
    space = space_of(limits=limits)
    assert len(space.rows) == 0
    assert any(rule.startswith(reason) and count > 0 for rule, count in space.refused.items())
