"""Configurations of small requests, counted by hand."""

from __future__ import annotations

from dataclasses import fields
from typing import Any

import pytest

from planner.cost.configuration import Configuration, Configurations
from planner.hardware import ClusterHardware, cluster_hardware
from planner.importers.models import read_model
from planner.schema.cluster import NetworkLevel, NodeGroup
from planner.schema.model import (
    BlockRun,
    DenseFeedForward,
    GroupedQueryAttention,
    MixtureFeedForward,
    ModelGraph,
)
from planner.schema.strategy import PipelineSchedule
from planner.space.degrees import ConfigurationSpace, enumerate_configurations
from planner.space.divisibility import divisors
from planner.space.rules import WIDE_SPACE_MOST
from tests.builders import a_cluster, a_job, a_model

ONLY_DATA = {
    "tensor_parallel_degree": 1,
    "pipeline_parallel_degree": 1,
    "context_parallel_degree": 1,
}


def nodes(
    node_count: int, devices_per_node: int, device: str = "h100-sxm5-80gb", **changes: Any
) -> ClusterHardware:
    """So many nodes of so many devices."""
    group = NodeGroup(
        name="nodes", device=device, node_count=node_count, devices_per_node=devices_per_node
    )
    return cluster_hardware(a_cluster(node_groups=(group,), **changes))


def space_of(
    *, graph: ModelGraph | None = None, hardware: ClusterHardware | None = None, **job: Any
) -> ConfigurationSpace:
    """The space of the tiny model on one node of four, with changes."""
    return enumerate_configurations(graph or a_model(), hardware or nodes(1, 4), a_job(**job))


def large_space_of(
    *, graph: ModelGraph | None = None, hardware: ClusterHardware | None = None, **job: Any
) -> ConfigurationSpace:
    """The same as if it were too large to have everything legal."""
    return enumerate_configurations(
        graph or a_model(), hardware or nodes(1, 4), a_job(**job), wide_most=0
    )


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
    rule = "tensor_parallel_degree does not divide the model's 2 key-value heads"
    assert space.refused[rule] == 1


def test_megatrons_tensor_parallelism_goes_beyond_key_value_heads() -> None:
    """Four query heads and two key-value heads."""
    space = space_of(stack="megatron")
    assert {row.tensor_parallel_degree for row in space.rows} == {1, 2, 4}
    assert not [rule for rule in space.not_searched if "key-value" in rule]


def test_tensor_parallelism_stays_within_a_node_in_large_spaces() -> None:
    """Nodes of one device; the tiny model's two key-value heads allow 2."""
    rule = "tensor parallelism beyond the innermost network level"
    large = large_space_of(hardware=nodes(4, 1), global_batch_size=16)
    assert {row.tensor_parallel_degree for row in large.rows} == {1}
    assert large.refused[rule] == 2
    assert rule in large.not_searched
    small = space_of(hardware=nodes(4, 1), global_batch_size=16)
    assert {row.tensor_parallel_degree for row in small.rows} == {1, 2}
    assert rule not in small.not_searched


def test_no_stage_is_without_a_block() -> None:
    run = a_model().runs[0].model_copy(update={"block_count": 2})
    space = space_of(graph=a_model(runs=(run,)))
    assert {row.pipeline_parallel_degree for row in space.rows} == {1, 2}
    assert space.refused["more stages than the model's 2 blocks"] >= 1


def test_large_micro_batches_wait_for_small_spaces() -> None:
    """A batch of 128 on one device."""
    lone, rule = nodes(1, 1), "micro-batches of more than 64 sequences"
    large = large_space_of(hardware=lone, global_batch_size=128)
    assert max(row.micro_batch_size for row in large.rows) == 64
    assert large.not_searched == (rule,)
    small = space_of(hardware=lone, global_batch_size=128)
    assert max(row.micro_batch_size for row in small.rows) == 128
    assert small.not_searched == ()


def test_virtual_stages_of_an_uneven_split_are_named() -> None:
    """Ten blocks on two ranks: five or one virtual stages, not two, three or four."""
    blocks = a_model(runs=(a_model().runs[0].model_copy(update={"block_count": 10}),))
    limits = {**ONLY_DATA, "pipeline_parallel_degree": 2}
    space = space_of(graph=blocks, hardware=nodes(1, 2), global_batch_size=8, limits=limits)
    assert {row.virtual_pipeline_degree for row in space.rows} == {1, 2, 5}
    assert any("virtual stages on a rank" in rule for rule in space.not_searched)


def test_gpipe_is_named_where_1f1b_stands_for_it_and_a_limit_lifts_that() -> None:
    rule = "gpipe where 1f1b runs"
    two = {**ONLY_DATA, "pipeline_parallel_degree": 2, "micro_batch_size": 1}
    space = space_of(global_batch_size=8, limits=two)
    assert PipelineSchedule.GPIPE not in {row.pipeline_schedule for row in space.rows}
    assert rule in space.not_searched
    alone = space_of(global_batch_size=8, limits={**two, "pipeline_schedules": ["gpipe"]})
    assert {row.pipeline_schedule for row in alone.rows} == {PipelineSchedule.GPIPE}
    assert rule not in alone.not_searched
    assert rule not in space_of(global_batch_size=8, stack="megatron", limits=two).not_searched


def test_torch_runs_1f1b_only_with_a_full_pipeline() -> None:
    """Four stages, two sequences in one or two micro-batches: GPipe may wait, 1F1B is refused."""
    limits = {"pipeline_parallel_degree": 4, "pipeline_schedules": ["gpipe", "1f1b"]}
    space = space_of(global_batch_size=2, limits=limits)
    assert {row.pipeline_schedule for row in space.rows} == {PipelineSchedule.GPIPE}
    assert space.refused["micro-batches of 1f1b: fewer than pipeline stages"] == 2


def test_megatron_runs_1f1b_with_any_number_of_micro_batches() -> None:
    rows = space_of(
        global_batch_size=2, stack="megatron", limits={"pipeline_parallel_degree": 4}
    ).rows
    assert {row.pipeline_schedule for row in rows} == {PipelineSchedule.ONE_F_ONE_B}


def test_all_schedules_are_searched_that_blocks_and_micro_batches_allow() -> None:
    """Two stages of two blocks each: two virtual stages a rank, and enough micro-batches of one."""
    rows = space_of(global_batch_size=8, limits={**ONLY_DATA, "pipeline_parallel_degree": 2}).rows
    ones = [r for r in rows if r.micro_batch_size == 1]
    assert [(r.pipeline_schedule.value, r.virtual_pipeline_degree) for r in ones] == [
        ("1f1b", 1),
        ("interleaved_1f1b", 2),
        ("zb_v", 2),
        ("dualpipe_v", 2),
    ]


def test_the_schedule_of_one_stage_is_one_that_the_limits_allow() -> None:
    rows = space_of(hardware=nodes(1, 1), limits={"pipeline_schedules": ["gpipe"]}).rows
    assert {row.pipeline_schedule for row in rows} == {PipelineSchedule.GPIPE}


def groups_of(space: ConfigurationSpace) -> set[tuple[int, int]]:
    """Shard and replicate degrees."""
    return {(r.data_parallel_shard_degree, r.data_parallel_replicate_degree) for r in space.rows}


def shards(hardware: ClusterHardware, batch: int, **limits: Any) -> set[tuple[int, int]]:
    """Shard and replicate degrees of a large space with data parallelism alone."""
    limits = {**ONLY_DATA, **limits}
    return groups_of(large_space_of(hardware=hardware, global_batch_size=batch, limits=limits))


def test_data_parallel_ranks_shard_whole_or_within_a_node_in_large_spaces() -> None:
    """Two nodes of four: shard over eight, or over four and replicate twice; else over two too."""
    assert shards(nodes(2, 4), 8) == {(8, 1), (4, 2)}
    small = space_of(hardware=nodes(2, 4), global_batch_size=8, limits=ONLY_DATA)
    assert groups_of(small) == {(8, 1), (4, 2), (2, 4)}


def test_shard_groups_fill_domains_of_any_level() -> None:
    """Four nodes of four in racks of eight."""
    levels = [
        NetworkLevel(
            name=f"level {size}",
            device_count=size,
            bandwidth_bytes_per_second=1e10,
            latency_seconds=1e-5,
        )
        for size in (4, 8, None)
    ]
    hardware = nodes(4, 4, levels=tuple(levels))
    assert shards(hardware, 16) == {(16, 1), (8, 2), (4, 4)}


def test_shard_groups_are_aligned_with_what_a_job_fills_of_racks_of_72() -> None:
    """144 devices fill 72 twice, 128 fill 64 twice; of 37 nodes, 72 holds but 4 aligned."""
    assert shards(nodes(36, 4, "gb200-nvl72"), 144) == {(144, 1), (72, 2)}
    assert shards(nodes(32, 4, "gb200-nvl72"), 128) == {(128, 1), (64, 2)}
    assert shards(nodes(37, 4, "gb200-nvl72"), 148) == {(148, 1), (4, 37)}


def test_a_limit_on_shards_has_every_divisor_searched() -> None:
    assert shards(nodes(2, 4), 8, data_parallel_shard_degree={"max": 4}) == {(1, 8), (2, 4), (4, 2)}
    assert shards(nodes(2, 4), 8, data_parallel_replicate_degree=4) == {(2, 4)}


def test_tensor_parallelism_leaves_a_node_if_it_is_asked_to() -> None:
    rows = space_of(
        hardware=nodes(2, 1), global_batch_size=2, limits={"tensor_parallel_degree": 2}
    ).rows
    assert {row.tensor_parallel_degree for row in rows} == {2}


LONG = a_model(maximum_sequence_length=2**17)


def contexts(length: int, **limits: Any) -> set[tuple[int, str]]:
    """Degrees and kinds of context parallelism on four devices, in a large space."""
    rows = large_space_of(graph=LONG, sequence_length=length, limits=limits).rows
    return {(r.context_parallel_degree, r.context_parallel_kind.value) for r in rows}


def test_context_parallelism_waits_for_long_sequences_in_large_spaces() -> None:
    """2,048 tokens a rank; a small space has it for any length."""
    rows = space_of(graph=LONG, sequence_length=2**11).rows
    assert {row.context_parallel_degree for row in rows} == {1, 2, 4}
    assert contexts(2**11) == {(1, "ring")}
    assert contexts(2**12) == {(1, "ring"), (2, "ring"), (2, "all_to_all")}
    both = {(degree, kind) for degree in (2, 4) for kind in ("ring", "all_to_all")}
    assert contexts(2**13) == {(1, "ring"), *both}


def test_short_contexts_are_searched_where_nothing_else_is_legal() -> None:
    """Two sequences over four ranks that tensor and pipeline may not take."""
    limits = {"tensor_parallel_degree": 1, "pipeline_parallel_degree": 1}
    rows = space_of(graph=LONG, sequence_length=2**10, global_batch_size=2, limits=limits).rows
    assert {row.context_parallel_degree for row in rows} == {2, 4}


def test_context_parallelism_of_short_sequences_is_searched_if_asked_for() -> None:
    assert contexts(128, context_parallel_degree={"min": 2, "max": 2}) == {
        (2, "ring"),
        (2, "all_to_all"),
    }
    refused = large_space_of().refused
    assert any(rule.startswith("context parallelism with fewer than 2048") for rule in refused)


def test_kinds_of_context_parallelism_may_be_limited() -> None:
    assert contexts(2**12, context_parallel_kinds=["all_to_all"]) == {
        (1, "ring"),
        (2, "all_to_all"),
    }


def test_heads_are_exchanged_only_where_they_divide() -> None:
    """Four heads, eight ranks: a ring may, heads may not."""
    space = space_of(
        graph=LONG,
        hardware=nodes(1, 8),
        sequence_length=2**15,
        limits={"context_parallel_degree": 8},
    )
    assert {row.context_parallel_kind.value for row in space.rows} == {"ring"}
    assert any("4 attention heads" in rule for rule in space.refused)


def test_experts_are_spread_over_ranks_that_they_divide_into() -> None:
    """Six experts over the four data-parallel ranks: 1 or 2, not 3 or 6."""
    limits = {"tensor_parallel_degree": 1, "pipeline_parallel_degree": 1}
    space = space_of(graph=a_mixture(6), limits=limits)
    assert {row.expert_parallel_degree for row in space.rows} == {1, 2}


def expert_pairs(expert_count: int, **limits: Any) -> set[tuple[int | None, int]]:
    """Over how many ranks experts are split, and how many groups of them, on four tensor ranks."""
    run = a_mixture(expert_count).runs[0]
    attention = GroupedQueryAttention(head_count=4, key_value_head_count=4, head_size=16)
    block = run.block.model_copy(update={"attention": attention})
    graph = a_model(runs=(BlockRun(block=block, block_count=4),))
    fixed = {"tensor_parallel_degree": 4, "pipeline_parallel_degree": 1}
    rows = space_of(graph=graph, limits={**fixed, **limits}).rows
    return {(r.expert_tensor_parallel_degree, r.expert_parallel_degree) for r in rows}


def test_experts_are_split_over_some_tensor_ranks_where_whole_ones_do_not_divide() -> None:
    """Two experts on two pairs of ranks; of eight, four ranks have two whole ones each instead."""
    assert expert_pairs(2) == {(4, 1), (2, 2), (1, 1), (1, 2)}
    assert expert_pairs(8) == {(4, 1), (1, 1), (1, 2), (1, 4)}


def test_limits_ask_for_experts_that_are_split_over_some_tensor_ranks() -> None:
    assert expert_pairs(8, expert_tensor_parallel_degree=2) == {(2, 1), (2, 2)}
    assert expert_pairs(8, expert_parallel_degree=2) == {(2, 2), (1, 2)}


def test_experts_are_split_over_both_tensor_ranks_or_none() -> None:
    """Two tensor ranks x two shards, four experts: split, over 1 or 2 ranks; unsplit, to 4."""
    limits = {"tensor_parallel_degree": 2, "pipeline_parallel_degree": 1}
    rows = space_of(graph=a_mixture(4), limits=limits).rows
    pairs = {(r.expert_tensor_parallel_degree, r.expert_parallel_degree) for r in rows}
    assert pairs == {(2, 1), (2, 2), (1, 1), (1, 2), (1, 4)}


def test_models_without_experts_have_nothing_to_split() -> None:
    rows = space_of(limits={"tensor_parallel_degree": 2}).rows
    assert {r.expert_tensor_parallel_degree for r in rows} == {2}


def test_megatron_splits_sequences_of_mixtures() -> None:
    rows = space_of(graph=a_mixture(4), stack="megatron", limits={"tensor_parallel_degree": 2}).rows
    assert {r.sequence_parallel for r in rows} == {True}


def mixed(*node_counts: int) -> ClusterHardware:
    """So many nodes of four H100, A100 and H200 each."""
    devices = ("h100-sxm5-80gb", "a100-sxm4-80gb", "h200-sxm5-141gb")
    return cluster_hardware(
        a_cluster(
            node_groups=tuple(
                NodeGroup(name=device, device=device, node_count=count, devices_per_node=4)
                for device, count in zip(devices, node_counts, strict=False)
            )
        )
    )


def test_stages_of_a_mixed_cluster_have_one_size_and_one_kind_each() -> None:
    """8 H100 and 4 A100: stages of 4, of 2 or of 1, of which four blocks allow three."""
    rows = space_of(hardware=mixed(2, 1), global_batch_size=12).rows
    assert {row.pipeline_parallel_degree for row in rows} == {3}
    assert {devices(row) for row in rows} == {12}
    assert {row.device_order for row in rows} == {0, 1}


def test_returns_to_a_kind_are_named_where_there_could_be_some_and_searched_on_demand() -> None:
    """Two nodes of H100 and one of A100 can stand in three orders, one node of each in two."""
    rule = "more returns of the pipeline to a kind of device than limits.device_returns"
    three = {"pipeline_parallel_degree": 3}
    usual = space_of(hardware=mixed(2, 1), global_batch_size=12, limits=three)
    assert rule in usual.not_searched
    asked = space_of(
        hardware=mixed(2, 1), global_batch_size=12, limits={**three, "device_returns": 1}
    )
    assert rule not in asked.not_searched
    assert {row.device_order for row in asked.rows} == {0, 1, 2}
    assert rule not in space_of(hardware=mixed(1, 1)).not_searched
    assert rule not in space_of(hardware=nodes(1, 3), global_batch_size=12).not_searched


def test_three_kinds_come_in_six_orders() -> None:
    rows = space_of(hardware=mixed(1, 1, 1), global_batch_size=12).rows
    assert {row.device_order for row in rows} == set(range(6))


def test_kinds_that_fill_no_equal_stages_leave_nothing() -> None:
    """20 H100 and 4 A100: six stages at least, and four blocks."""
    space = space_of(hardware=mixed(5, 1), global_batch_size=24)
    assert len(space.rows) == 0
    assert space.refused["more stages than the model's 4 blocks"] > 0


def test_batches_that_no_data_parallel_degree_divides_are_named() -> None:
    """Batch 3 on four devices: two or four ranks cannot share it."""
    refused = space_of(global_batch_size=3).refused
    assert (
        "job.global_batch_size 3 is not a multiple of the data-parallel degree; a multiple of one "
        "of 2, 4 would do"
    ) in refused


def test_rows_and_columns_say_the_same() -> None:
    space = space_of(graph=a_mixture(4))
    again = Configurations.of(tuple(space.rows))
    for field in fields(Configurations):
        ours, theirs = getattr(space.columns(), field.name), getattr(again, field.name)
        assert ours.tolist() == theirs.tolist()


def test_large_clusters_with_many_divisors_do_not_explode() -> None:
    """60,480 devices have 120 divisors."""
    graph = a_model(runs=(a_model().runs[0].model_copy(update={"block_count": 120}),))
    space = space_of(graph=graph, hardware=nodes(7560, 8), global_batch_size=60480)
    assert 1_000 < len(space.rows) <= WIDE_SPACE_MOST


def test_short_searches_have_smaller_spaces() -> None:
    """All that is legal on 5,040 devices takes seconds; the plan of 1 s has no such space."""
    graph = a_model(runs=(a_model().runs[0].model_copy(update={"block_count": 120}),))
    counts = [
        len(
            space_of(
                graph=graph,
                hardware=nodes(630, 8),
                global_batch_size=3_628_800,
                limits={"solver_seconds": seconds},
            ).rows
        )
        for seconds in (1.0, 60.0)
    ]
    assert counts[0] <= WIDE_SPACE_MOST // 2 < counts[1] <= WIDE_SPACE_MOST


@pytest.mark.parametrize(
    ("limits", "reason"),
    [
        ({"tensor_parallel_degree": 3}, "tensor_parallel_degree is 3, {} 1, 2"),
        ({"pipeline_parallel_degree": 3}, "pipeline_parallel_degree is 3, {} 1, 2, 4"),
        ({"expert_parallel_degree": 2}, "expert_parallel_degree is 2, {} 1"),
        (
            {"data_parallel_shard_degree": {"min": 5}},
            "data_parallel_shard_degree is 5 or more, {} 1, 2, 4",
        ),
        (
            {"context_parallel_degree": {"min": 5, "max": 7}},
            "context_parallel_degree is 5 to 7, {} 1, 2, 4",
        ),
        ({"micro_batch_size": 3}, "micro_batch_size is 3, {} 1, 2, 4, 8, 16"),
        ({"expert_tensor_parallel_degree": 3}, "expert_tensor_parallel_degree is 3, {} 1, 2"),
    ],
)
def test_a_limit_that_leaves_nothing_is_named(limits: dict[str, Any], reason: str) -> None:
    space = space_of(limits=limits)
    assert len(space.rows) == 0
    said = "job.limits." + reason.format("which rules these out; model and devices allow")
    assert any(rule.startswith(said) and count > 0 for rule, count in space.refused.items())


def test_degrees_that_no_kind_allows_are_not_what_a_limit_rules_out() -> None:
    """Blocks that carry a state along the sequence have no context parallelism at all."""
    graph = read_model("nemotron-h-56b")[1]
    space = space_of(graph=graph, hardware=nodes(1, 8), limits={"context_parallel_degree": 2})
    (said,) = (rule for rule in space.refused if "which rules these out" in rule)
    assert said.endswith("model and devices allow 1")
    assert any("carry a state" in rule for rule in space.refused)


@pytest.mark.parametrize(("bits", "degrees"), [(4, {1, 2}), (8, {1, 2, 4}), (16, {1, 2, 4})])
def test_bytes_of_weights_in_4_bits_are_not_split(bits: int, degrees: set[int]) -> None:
    """Of 100 columns four ranks have 25 each."""
    (run,) = a_model().runs
    parts = {
        "attention": GroupedQueryAttention(head_count=4, key_value_head_count=4, head_size=8),
        "feed_forward": DenseFeedForward(ffn_size=100),
    }
    narrow = run.model_copy(update={"block": run.block.model_copy(update=parts)})
    graph = a_model(runs=(narrow,))
    space = space_of(graph=graph, adapters={"rank": 4, "base_bits": bits})
    assert {row.tensor_parallel_degree for row in space.rows} == degrees
    told = any("50 pairs of 100 inputs, which share a byte in 4 bits" in r for r in space.refused)
    assert told is (bits == 4)
