"""Kubernetes nodes as clouds and device plugins label them."""

from __future__ import annotations

import json
from typing import Any

import pytest

from planner.errors import InputError
from planner.importers.cluster.discovered import Discovered
from planner.importers.cluster.formats import cluster_from_output

PRODUCT = "nvidia.com/gpu.product"
TYPE = "node.kubernetes.io/instance-type"


def node(
    labels: dict[str, str], *, resource: str = "nvidia.com/gpu", offered: str = "8", **status: Any
):
    """Return a node that is ready."""
    capacity = {"memory": "2113411308Ki", **status}
    return {
        "kind": "Node",
        "metadata": {"name": "n", "labels": labels},
        "status": {
            "allocatable": {resource: offered},
            "capacity": capacity,
            "conditions": [{"type": "Ready", "status": "True"}],
        },
    }


def read(*nodes: dict[str, Any]) -> Discovered:
    """Return the cluster of nodes."""
    content = json.dumps({"kind": "List", "items": nodes}).encode()
    return cluster_from_output(content, source="it")


@pytest.mark.parametrize(
    ("labels", "device"),
    [
        ({PRODUCT: "NVIDIA-B200"}, "b200-sxm-180gb"),
        ({PRODUCT: "NVIDIA-H100-NVL"}, "h100-nvl-94gb"),
        ({"cloud.google.com/gke-accelerator": "nvidia-h100-mega-80gb"}, "h100-sxm5-80gb"),
        ({"cloud.google.com/gke-accelerator": "nvidia-tesla-a100"}, "a100-sxm4-40gb"),
        ({"cloud.google.com/gke-accelerator": "nvidia-a100-80gb"}, "a100-sxm4-80gb"),
        ({TYPE: "p5.48xlarge"}, "h100-sxm5-80gb"),
        ({TYPE: "p5en.48xlarge"}, "h200-sxm5-141gb"),
        ({TYPE: "p4d.24xlarge"}, "a100-sxm4-40gb"),
        ({TYPE: "Standard_ND96amsr_A100_v4"}, "a100-sxm4-80gb"),
        ({TYPE: "Standard_ND96isr_H100_v5"}, "h100-sxm5-80gb"),
        ({TYPE: "p4d.24xlarge", PRODUCT: "NVIDIA-A100-SXM4-80GB"}, "a100-sxm4-80gb"),
    ],
)
def test_the_product_is_named_by_its_own_label_or_by_that_of_a_cloud(labels, device):
    (group,) = read(node(labels)).cluster.node_groups
    assert (group.device, group.devices_per_node) == (device, 8)


def test_amd_has_a_resource_and_a_label_of_its_own():
    labels = {"amd.com/gpu.product-name": "AMD_Instinct_MI300X_OAM"}
    (group,) = read(node(labels, resource="amd.com/gpu")).cluster.node_groups
    assert (group.device, group.devices_per_node) == ("mi300x-192gb", 8)


def test_nodes_of_a_cloud_have_the_network_of_their_instances():
    """400 Gb/s for eight devices, of which 0.73 are reached: 4.5625 GB/s each."""
    found = read(node({TYPE: "p4d.24xlarge"}), node({TYPE: "p4d.24xlarge"}))
    (group,) = found.cluster.node_groups
    assert (group.node_count, group.devices_per_node) == (2, 8)
    assert group.network_bandwidth_bytes_per_second == 4.5625e9
    assert found.notes == (
        "p4d.24xlarge has 400 Gb/s between nodes, of which collectives were assumed to reach 0.73",
    )


def test_nodes_of_several_instances_are_several_groups():
    found = read(node({TYPE: "p5.48xlarge"}), node({TYPE: "a3-megagpu-8g"}))
    networks = {group.network_bandwidth_bytes_per_second for group in found.cluster.node_groups}
    assert networks == {36.5e9, 18.25e9}


def test_an_unknown_instance_type_asks_for_the_device():
    with pytest.raises(InputError, match="--device"):
        read(node({TYPE: "x9.metal"}))


def test_nodes_whose_kernels_left_some_pages_less_are_alike_and_have_the_least():
    nodes = [node({PRODUCT: "NVIDIA-H200"}, memory=f"{2113411308 + 4 * i}Ki") for i in range(3)]
    (group,) = read(*nodes).cluster.node_groups
    assert group.node_count == 3
    assert group.host_memory_bytes == 2113411308 * 2**10


def test_nodes_with_another_module_of_memory_are_a_group_of_their_own():
    sizes = ["1056000000Ki", "2113411308Ki"]
    found = read(*(node({PRODUCT: "NVIDIA-H200"}, memory=size) for size in sizes))
    assert [group.node_count for group in found.cluster.node_groups] == [1, 1]


@pytest.mark.parametrize(
    ("changed", "why"),
    [
        (node({PRODUCT: "NVIDIA-H200", "nvidia.com/gpu.count": "8"}, offered="0"), "no GPUs"),
        (node({PRODUCT: "NVIDIA-H200", "nvidia.com/gpu.replicas": "4"}, offered="32"), "shared"),
    ],
)
def test_a_node_that_offers_no_whole_gpu_is_left_out(changed, why):
    found = read(changed, node({PRODUCT: "NVIDIA-H200"}))
    assert found.cluster.device_count == 8
    assert why in found.notes[0]
