"""Instances of clouds: the right devices, as many, and the network between nodes."""

from __future__ import annotations

import pytest

from planner.errors import InputError
from planner.hardware import cluster_hardware, device_profile
from planner.importers.cluster.cloud_instances import CloudInstance, cloud_instance, cloud_instances
from planner.importers.cluster.short_form import read_short_form
from planner.schema.cluster import Cluster

# Bytes per second of one device between nodes: 0.73 of the node's adapters, by hand. 3,200 Gb/s for
# eight devices are 50 GB/s each, and 36.5 of them are reached.
PUBLISHED = [
    ("p3dn.24xlarge", "v100-sxm2-32gb", 8, 1.140625e9),
    ("p4d.24xlarge", "a100-sxm4-40gb", 8, 4.5625e9),
    ("p4de.24xlarge", "a100-sxm4-80gb", 8, 4.5625e9),
    ("p5.48xlarge", "h100-sxm5-80gb", 8, 36.5e9),
    ("p5.4xlarge", "h100-sxm5-80gb", 1, 9.125e9),
    ("p5e.48xlarge", "h200-sxm5-141gb", 8, 36.5e9),
    ("p5en.48xlarge", "h200-sxm5-141gb", 8, 36.5e9),
    ("p6-b200.48xlarge", "b200-sxm-180gb", 8, 36.5e9),
    ("p6-b300.48xlarge", "b300-sxm-288gb", 8, 73e9),
    ("p6e-gb200.36xlarge", "gb200-nvl72", 4, 36.5e9),
    ("g4dn.12xlarge", "t4-16gb", 4, 1.140625e9),
    ("g5.48xlarge", "a10g-24gb", 8, None),
    ("g5.12xlarge", "a10g-24gb", 4, 0.9125e9),
    ("g6.48xlarge", "l4-24gb", 8, 1.140625e9),
    ("g6e.48xlarge", "l40s-48gb", 8, 4.5625e9),
    ("a2-highgpu-8g", "a100-sxm4-40gb", 8, 1.140625e9),
    ("a2-megagpu-16g", "a100-sxm4-40gb", 16, 0.5703125e9),
    ("a2-ultragpu-8g", "a100-sxm4-80gb", 8, 1.140625e9),
    ("a3-highgpu-8g", "h100-sxm5-80gb", 8, 9.125e9),
    ("a3-megagpu-8g", "h100-sxm5-80gb", 8, 18.25e9),
    ("a3-ultragpu-8g", "h200-sxm5-141gb", 8, 36.5e9),
    ("a4-highgpu-8g", "b200-sxm-180gb", 8, 36.5e9),
    ("a4x-highgpu-4g", "gb200-nvl72", 4, 36.5e9),
    ("g2-standard-96", "l4-24gb", 8, 1.140625e9),
    ("Standard_ND96asr_v4", "a100-sxm4-40gb", 8, 18.25e9),
    ("ND96amsr_A100_v4", "a100-sxm4-80gb", 8, 18.25e9),
    ("ND96isr_H100_v5", "h100-sxm5-80gb", 8, 36.5e9),
    ("Standard_ND96isr_H100_v5", "h100-sxm5-80gb", 8, 36.5e9),
    ("standard_nd96isr_h200_v5", "h200-sxm5-141gb", 8, 36.5e9),
    ("ND96isr_MI300X_v5", "mi300x-192gb", 8, 36.5e9),
    ("ND128isr_NDR_GB200_v6", "gb200-nvl72", 4, 36.5e9),
    ("NC80adis_H100_v5", "h100-nvl-94gb", 2, 3.65e9),
    ("BM.GPU4.8", "a100-sxm4-40gb", 8, 18.25e9),
    ("BM.GPU.A100-v2.8", "a100-sxm4-80gb", 8, 18.25e9),
    ("BM.GPU.H100.8", "h100-sxm5-80gb", 8, 36.5e9),
    ("BM.GPU.L40S.4", "l40s-48gb", 4, 18.25e9),
    ("BM.GPU.MI300X.8", "mi300x-192gb", 8, 36.5e9),
    ("gpu_8x_h100_sxm5", "h100-sxm5-80gb", 8, None),
]


@pytest.mark.parametrize(("name", "device", "count", "bandwidth"), PUBLISHED)
def test_instances_are_nodes_of_their_devices_and_their_network(name, device, count, bandwidth):
    found = read_short_form(f"16x{name}")
    (group,) = found.cluster.node_groups
    assert (group.device, group.node_count, group.devices_per_node) == (device, 16, count)
    assert group.network_bandwidth_bytes_per_second == pytest.approx(bandwidth)
    outermost = cluster_hardware(found.cluster).kinds[0].levels[-1]
    if bandwidth is not None:
        assert outermost.bandwidth_bytes_per_second == pytest.approx(bandwidth)


@pytest.mark.parametrize("instance", cloud_instances(), ids=lambda instance: instance.name)
def test_every_instance_is_a_node_that_its_device_is_sold_in(instance: CloudInstance):
    node = device_profile(instance.device).node
    assert node is not None
    assert 1 <= instance.device_count <= node.device_limit
    found = read_short_form(instance.name)
    (group,) = found.cluster.node_groups
    assert (group.device, group.devices_per_node) == (instance.device, instance.device_count)
    assert (group.node_count, group.name) == (1, instance.name)
    assert f"{instance.name} of {instance.provider} was taken as" in found.notes[0]


def test_names_of_instances_mean_one_each():
    names = [instance.name.lower() for instance in cloud_instances()]
    assert len(names) == len(set(names))
    assert all(cloud_instance(name) is not None for name in names)


def test_what_was_assumed_of_an_instance_is_said():
    assert read_short_form("16xp4d.24xlarge").notes == (
        "p4d.24xlarge of AWS was taken as 8 x a100-sxm4-40gb",
        "p4d.24xlarge has 400 Gb/s between nodes, of which collectives were assumed to reach 0.73",
    )


def test_an_instance_has_the_levels_of_its_device_within():
    own, profile = (
        cluster_hardware(read_short_form(text).cluster).kinds[0].levels
        for text in ("16xp4d.24xlarge", "128xa100-40gb")
    )
    assert own[0] == profile[0]
    assert own[1].bandwidth_bytes_per_second * 4 == profile[1].bandwidth_bytes_per_second


def test_an_instance_says_its_devices_itself():
    with pytest.raises(InputError, match=r"2xp5\.48xlarge for 2 nodes of 8"):
        read_short_form("2x8xp5.48xlarge")


@pytest.mark.parametrize("text", ["p5.24xlarge", "16xp5.24xlarge"])
def test_an_unknown_instance_is_refused_with_those_that_are_called_alike(text):
    with pytest.raises(InputError, match=r"did you mean p5\."):
        read_short_form(text)


def test_levels_of_a_document_leave_no_room_for_a_network_of_a_group():
    (group,) = read_short_form("2xp5.48xlarge").cluster.node_groups
    fields = {
        "name": "both",
        "node_groups": [group.model_dump()],
        "levels": [{"name": "all", "bandwidth_bytes_per_second": 1e9, "latency_seconds": 1e-5}],
    }
    with pytest.raises(InputError, match="is stated beside levels"):
        Cluster.from_fields(fields, source="cluster")


def test_groups_of_other_networks_are_other_kinds():
    groups = [
        *read_short_form("2xp5.48xlarge").cluster.node_groups,
        *read_short_form("2xa3-megagpu-8g").cluster.node_groups,
    ]
    cluster = Cluster(name="two clouds", node_groups=tuple(groups))
    kinds = cluster_hardware(cluster).kinds
    assert len(kinds) == 2
    assert {kind.levels[-1].bandwidth_bytes_per_second for kind in kinds} == {18.25e9}
