"""Short forms: how many nodes of how many devices, and what no such nodes are sold of."""

from __future__ import annotations

import pytest

from planner.errors import InputError
from planner.hardware import cluster_hardware, device_names, device_profile
from planner.importers.cluster.short_form import read_short_form

# The devices of a whole node, and the most that one can have, as vendors sell them.
NODES = {
    "a100-pcie-40gb": (8, 32),
    "a100-pcie-80gb": (8, 32),
    "a100-sxm4-40gb": (8, 16),
    "a100-sxm4-80gb": (8, 16),
    "a10-24gb": (8, 32),
    "a10g-24gb": (8, 8),
    "a30-24gb": (8, 32),
    "a40-48gb": (8, 32),
    "a800-sxm4-80gb": (8, 8),
    "ascend-910b-64gb": (8, 8),
    "b200-sxm-180gb": (8, 8),
    "b300-sxm-288gb": (8, 8),
    "cpu-gloo": (None, 1024),
    "gaudi2-96gb": (8, 8),
    "gaudi3-128gb": (8, 8),
    "gb200-nvl72": (4, 4),
    "gb300-nvl72": (4, 4),
    "gh200-96gb": (4, 4),
    "h100-nvl-94gb": (8, 32),
    "h100-pcie-80gb": (8, 32),
    "h100-sxm5-80gb": (8, 8),
    "h20-sxm-96gb": (8, 8),
    "h200-nvl-141gb": (8, 32),
    "h200-sxm5-141gb": (8, 8),
    "h800-sxm5-80gb": (8, 8),
    "l20-48gb": (8, 32),
    "l4-24gb": (8, 32),
    "l40s-48gb": (8, 32),
    "mi210-64gb": (8, 8),
    "mi250x-128gb": (4, 8),
    "mi300a-128gb": (4, 4),
    "mi300x-192gb": (8, 8),
    "mi325x-256gb": (8, 8),
    "mi350x-288gb": (8, 8),
    "mi355x-288gb": (8, 8),
    "rtx-3090-24gb": (8, 32),
    "rtx-4090-24gb": (8, 32),
    "rtx-4090d-24gb": (8, 32),
    "rtx-5090-32gb": (8, 32),
    "rtx-6000-ada-48gb": (8, 32),
    "rtx-a5000-24gb": (8, 32),
    "rtx-a6000-48gb": (8, 32),
    "rtx-pro-6000-96gb": (8, 32),
    "t4-16gb": (8, 32),
    "titan-rtx-24gb": (8, 32),
    "tpu-v4-32gb": (4, 4),
    "tpu-v5e-16gb": (8, 8),
    "tpu-v5p-95gb": (4, 4),
    "tpu-v6e-32gb": (8, 8),
    "trainium2-96gb": (16, 16),
    "v100-pcie-16gb": (8, 32),
    "v100-pcie-32gb": (8, 32),
    "v100-sxm2-16gb": (8, 8),
    "v100-sxm2-32gb": (8, 16),
}
SOLD = [(name, size) for name, (size, _) in NODES.items() if size is not None]


def nodes_of(text: str) -> tuple[int, int, str]:
    """Nodes, devices a node and device of a short form."""
    (group,) = read_short_form(text).cluster.node_groups
    return group.node_count, group.devices_per_node, group.device


def refusal(text: str) -> str:
    """What is said of a short form that is refused."""
    with pytest.raises(InputError) as refused:
        read_short_form(text)
    return str(refused.value)


@pytest.mark.parametrize("device", device_names())
def test_every_device_states_the_nodes_that_it_is_sold_in_and_who_says_so(device):
    node = device_profile(device).node
    assert node is not None
    assert (node.device_count, node.device_limit) == NODES[device]
    assert len(node.source) > 10


@pytest.mark.parametrize(("device", "size"), SOLD)
def test_as_many_devices_as_a_node_has_or_fewer_are_one_node(device, size):
    for count in range(1, size + 1):
        found = read_short_form(f"{count}x{device}")
        assert nodes_of(f"{count}x{device}") == (1, count, device)
        assert found.notes == ()


@pytest.mark.parametrize(
    ("text", "name", "nodes"),
    [
        ("32 h100", "32xh100", (4, 8, "h100-sxm5-80gb")),
        ("4 x 8 x H100", "4x8xH100", (4, 8, "h100-sxm5-80gb")),
        ("2\u00d74*mi300x", "2x4xmi300x", (2, 4, "mi300x-192gb")),
        ("2 p5.48xlarge", "2xp5.48xlarge", (2, 8, "h100-sxm5-80gb")),
    ],
)
def test_spaces_and_other_signs_of_times_are_read_as_the_form_without_them(text, name, nodes):
    assert nodes_of(text) == nodes
    assert read_short_form(text).cluster.name == name


@pytest.mark.parametrize(("device", "size"), SOLD)
def test_multiples_of_a_node_are_whole_nodes_and_said_to_be(device, size):
    for nodes in (2, 3, 16, 128):
        found = read_short_form(f"{nodes * size}x{device}")
        assert nodes_of(f"{nodes * size}x{device}") == (nodes, size, device)
        assert f"{nodes} nodes of {size}" in found.notes[0]


@pytest.mark.parametrize(("device", "size"), SOLD)
def test_a_part_of_a_node_beside_whole_ones_is_refused_with_both_spellings(device, size):
    half = size // 2
    said = refusal(f"{size + half}x{device}")
    assert f"{size + half} devices are 1.5 nodes of {size}" in said
    assert f"2x{3 * size // 4}x{device} for 2 nodes of {3 * size // 4}" in said
    assert f"{2 * size}x{device} for 2 nodes of {size}" in said


@pytest.mark.parametrize(("device", "size"), SOLD)
def test_a_node_has_at_most_what_is_sold_in_one(device, size):
    _, most = NODES[device]
    assert nodes_of(f"2x{most}x{device}") == (2, most, device)
    said = refusal(f"{size}x{most + 1}x{device}")
    assert f"has {most + 1} devices a node, and {device} is sold in nodes of {size}" in said
    assert f"{most + 1}x{size}x{device} or {size * (most + 1)}x{device}" in said


@pytest.mark.parametrize(
    ("text", "nodes"),
    [
        ("16x8xh100-sxm5-80gb", (16, 8, "h100-sxm5-80gb")),
        ("64xh100-sxm5-80gb", (8, 8, "h100-sxm5-80gb")),
        ("8xH100-SXM5-80GB", (1, 8, "h100-sxm5-80gb")),
        ("4x4xh100-sxm5-80gb", (4, 4, "h100-sxm5-80gb")),
        ("72xgb300-nvl72", (18, 4, "gb300-nvl72")),
        ("18x4xgb200-nvl72", (18, 4, "gb200-nvl72")),
        ("2x16xv100-sxm2-32gb", (2, 16, "v100-sxm2-32gb")),
        ("1x16xa100-sxm4-40gb", (1, 16, "a100-sxm4-40gb")),
        ("3x10xrtx-4090-24gb", (3, 10, "rtx-4090-24gb")),
        ("16xl40s-48gb", (2, 8, "l40s-48gb")),
        ("2x4x4090", (2, 4, "rtx-4090-24gb")),
        ("4xcpu-gloo", (1, 4, "cpu-gloo")),
        ("64xcpu-gloo", (1, 64, "cpu-gloo")),
        ("2x4xcpu-gloo", (2, 4, "cpu-gloo")),
    ],
)
def test_machines_that_there_are_can_be_written(text, nodes):
    assert nodes_of(text) == nodes


def test_racks_of_72_are_one_domain_of_trays():
    (kind,) = cluster_hardware(read_short_form("144xgb200-nvl72").cluster).kinds
    assert kind.devices_per_node == 4
    assert [level.device_count for level in kind.levels] == [72, 144]


def test_nodes_that_are_not_sold_are_refused_with_both_spellings():
    said = refusal("2x16xh100-sxm5-80gb")
    assert said.startswith(
        "cluster: has 16 devices a node, and h100-sxm5-80gb is sold in nodes of 8"
    )
    assert "(got 2x16xh100-sxm5-80gb)" in said
    assert "4x8xh100-sxm5-80gb or 32xh100-sxm5-80gb for 4 nodes of 8" in said


def test_a_rack_is_no_node():
    assert "18x4xgb200-nvl72 or 72xgb200-nvl72" in refusal("1x72xgb200")


def test_a_remainder_that_one_server_can_hold_is_offered_as_one_node():
    assert "1x12xrtx-4090-24gb for 1 node of 12" in refusal("12x4090")


def test_a_number_of_devices_is_its_nodes_in_all_but_the_name():
    short, long = (read_short_form(text) for text in ("1024xh100", "128x8xh100"))
    assert short.cluster.name == "1024xh100"
    assert short.cluster.node_groups == long.cluster.node_groups
    assert short.cluster.levels == long.cluster.levels
    assert cluster_hardware(short.cluster) == cluster_hardware(long.cluster)


@pytest.mark.parametrize("text", ["", "8x", "x8xh100", "8 x", "8xh100 80gb", "1.5xh100", "h100:32"])
def test_other_forms_are_refused_with_an_example(text):
    assert "16x8xh100-sxm5-80gb" in refusal(text)


def test_a_device_without_a_number_is_refused_with_two():
    said = refusal("h100")
    assert "1xh100-sxm5-80gb for one, or 8xh100-sxm5-80gb for a whole node" in said


@pytest.mark.parametrize(
    "text", ["0xh100-sxm5-80gb", "0x8xh100-sxm5-80gb", "-1xh100-sxm5-80gb", "0xp5.48xlarge"]
)
def test_counts_below_one_are_refused(text):
    assert "must lie between 1 and" in refusal(text)


@pytest.mark.parametrize(
    ("text", "told"),
    [
        ("131072x1024xh100-sxm5-80gb", "number of devices must lie between 1 and 1048576"),
        ("1048584xh100-sxm5-80gb", "count must lie between 1 and 1048576"),
        ("1025xcpu-gloo", "devices per node must lie between 1 and 1024"),
        ("1048576xgb200-nvl72", "node count must lie between 1 and 131072"),
        ("131073xg5.xlarge", "number of instances must lie between 1 and 131072"),
    ],
)
def test_more_than_there_can_be_is_refused(text, told):
    assert told in refusal(text)
