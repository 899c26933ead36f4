"""Which level neighbouring stages exchange over, found device by device."""

from __future__ import annotations

import pytest

from planner.cost.stage import boundary_places, crossed_level
from planner.hardware import cluster_hardware
from planner.schema.cluster import NodeGroup
from tests.builders import a_cluster
from tests.unit.cost.test_collectives import a_level

LEVELS = (a_level(8, 100.0), a_level(72, 50.0), a_level(1440, 10.0))


def crossed_by_any_device(stage_size: int, stage: int, other: int) -> int:
    """The outermost level at which some device and its peer part, one by one."""
    place = 0
    for device in range(stage * stage_size, (stage + 1) * stage_size):
        peer = device + (other - stage) * stage_size
        while device // LEVELS[place].device_count != peer // LEVELS[place].device_count:
            place += 1
    return place


@pytest.mark.parametrize("stage_size", [1, 2, 4, 6, 8, 12, 16, 24, 72, 144])
def test_the_worst_placed_device_sets_the_level(stage_size: int) -> None:
    for stage in range(9):
        for other in range(9):
            expected = crossed_by_any_device(stage_size, stage, other)
            found = crossed_level(LEVELS, stage_size=stage_size, stage=stage, other=other)
            assert found == expected


def test_stages_of_a_million_devices_are_told_apart_at_once() -> None:
    levels = (a_level(8, 100.0), a_level(2**20, 10.0))
    assert crossed_level(levels, stage_size=2**19, stage=0, other=1) == 1


def test_between_kinds_each_end_has_its_outermost_link() -> None:
    """One node of A100, then two of H100, a stage each."""
    groups = (
        NodeGroup(name="a100", device="a100-sxm4-80gb", node_count=1, devices_per_node=8),
        NodeGroup(name="h100", device="h100-sxm5-80gb", node_count=2, devices_per_node=8),
    )
    hardware = cluster_hardware(a_cluster(node_groups=groups))
    kinds = (0, 1, 1)
    assert boundary_places(hardware, kinds, stage=0, other=1) == ((0, 2), (1, 2))
    assert boundary_places(hardware, kinds, stage=1, other=2) == ((1, 1),)


def test_stages_of_one_kind_are_as_far_apart_as_their_devices_wherever_they_stand() -> None:
    """Two nodes of H100 with two stages each, one of which stands behind A100s."""
    groups = (
        NodeGroup(name="a100", device="a100-sxm4-80gb", node_count=1, devices_per_node=8),
        NodeGroup(name="h100", device="h100-sxm5-80gb", node_count=2, devices_per_node=8),
    )
    hardware = cluster_hardware(a_cluster(node_groups=groups))
    kinds = (1, 1, 0, 0, 1, 1)
    assert boundary_places(hardware, kinds, stage=4, other=5) == ((1, 0),)
    assert boundary_places(hardware, kinds, stage=5, other=0) == ((1, 1),)
