"""Stages on the kinds of devices of a mixed cluster."""

from __future__ import annotations

from typing import Any

import pytest

from planner.hardware import cluster_hardware
from planner.schema.cluster import NodeGroup
from planner.schema.strategy import Strategy
from planner.space.device_groups import device_breaches
from tests.builders import a_cluster, a_strategy

HARDWARE = cluster_hardware(
    a_cluster(
        node_groups=(
            NodeGroup(name="new", device="h100-sxm5-80gb", node_count=2, devices_per_node=4),
            NodeGroup(name="old", device="a100-sxm4-80gb", node_count=1, devices_per_node=4),
            NodeGroup(name="newer", device="h100-sxm5-80gb", node_count=2, devices_per_node=4),
        )
    )
)


def on(*groups: str | None, **changes: Any) -> Strategy:
    """A strategy whose stages name these groups."""
    fields = {"tensor_parallel_degree": 2, "data_parallel_shard_degree": 2, **changes}
    virtual = fields.get("virtual_pipeline_degree", 1)
    whole = Strategy(pipeline_parallel_degree=len(groups) // virtual, **fields).resolved(
        block_count=10, global_batch_size=20
    )
    stages = tuple(
        stage.model_copy(update={"device_group": group})
        for stage, group in zip(whole.stages or (), groups, strict=True)
    )
    return whole.model_copy(update={"stages": stages})


def said(strategy: Strategy) -> list[str]:
    """What is wrong, as `field: problem; remedy`."""
    return [f"{b.field}: {b.problem}; {b.remedy}" for b in device_breaches(HARDWARE, strategy)]


def test_groups_of_like_nodes_are_one_kind() -> None:
    assert [kind.node_groups for kind in HARDWARE.kinds] == [("new", "newer"), ("old",)]


@pytest.mark.parametrize(
    "groups",
    [
        ("new", "new", "new", "new", "old"),
        ("old", "new", "new", "new", "new"),
        ("new", "newer", "new", "newer", "old"),
        ("newer", "newer", "newer", "newer", "old"),
        (None, None, None, None, None),
        ("old", None, None, None, None),
    ],
)
def test_kinds_follow_one_another_in_any_order(groups: tuple[str | None, ...]) -> None:
    """16 H100 and 4 A100 hold four stages of four devices and one."""
    assert said(on(*groups)) == []


def test_stages_of_one_kind_stand_apart_on_whole_nodes() -> None:
    """Of two devices a stage, two are a node's."""
    assert said(on("new", "new", "old", "new", "new")) == []
    apart = on("new", *["old"] * 2, *["new"] * 7, data_parallel_shard_degree=1)
    problem = "stages of one kind of device follow one another or fill whole nodes"
    assert said(apart) == [
        (
            f"stages.1.device_group: {problem}, 8 on new then 2 on old, so that stage 1 is on new; "
            "use new, or leave device_group out"
        ),
        (
            f"stages.2.device_group: {problem}, 8 on new then 2 on old, so that stage 2 is on new; "
            "use new, or leave device_group out"
        ),
        (
            f"stages.8.device_group: {problem}, 8 on new then 2 on old, so that stage 8 is on old; "
            "use old, or leave device_group out"
        ),
        (
            f"stages.9.device_group: {problem}, 8 on new then 2 on old, so that stage 9 is on old; "
            "use old, or leave device_group out"
        ),
    ]


def test_unknown_groups_are_named() -> None:
    assert said(on("new", "new", "new", "new", "older")) == [
        "stages.4.device_group: is not a node group of the cluster; use one of new, newer, old"
    ]


def test_a_group_of_another_cluster_is_refused_on_one_kind_too() -> None:
    """The builder's cluster has h100 only."""
    stages = tuple(
        stage.model_copy(update={"device_group": "a100"}) for stage in a_strategy().stages or ()
    )
    strategy = a_strategy().model_copy(update={"stages": stages})
    fields = [b.field for b in device_breaches(cluster_hardware(a_cluster()), strategy)]
    assert fields == ["stages.0.device_group", "stages.1.device_group"]


def test_stages_fill_every_kind() -> None:
    """Four equal stages of 20 devices would mix kinds."""
    assert said(on(*[None] * 4)) == [
        (
            "pipeline_parallel_degree: stages of equal size, each on one kind of device, do not "
            "fill 16 new + 4 old; use a multiple of 5"
        )
    ]


def test_virtual_stages_of_a_rank_share_its_kind() -> None:
    """Two rounds over five ranks: virtual stage 9 is the last rank's again."""
    turn = ("new", "new", "new", "new", "old")
    interleaved = {"pipeline_schedule": "interleaved_1f1b", "virtual_pipeline_degree": 2}
    assert said(on(*turn, *turn, **interleaved)) == []
    assert [line.split(":")[0] for line in said(on(*turn, *turn[::-1], **interleaved))] == [
        "stages.5.device_group",
        "stages.9.device_group",
    ]


def test_the_second_half_of_a_v_comes_back() -> None:
    turn = ("new", "new", "new", "new", "old")
    there_and_back = {"pipeline_schedule": "zb_v", "virtual_pipeline_degree": 2}
    assert said(on(*turn, *turn[::-1], **there_and_back)) == []
