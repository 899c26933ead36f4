"""Clusters: short forms, documents, and what is wrong with bad ones."""

from __future__ import annotations

from pathlib import Path

import pytest

from planner.errors import InputError
from planner.hardware import cluster_hardware
from planner.importers.clusters import cluster_from_short_form, read_cluster


def test_a_short_form_of_two_parts_is_one_node() -> None:
    group = cluster_from_short_form("8xh100-sxm5-80gb").node_groups[0]
    assert (group.node_count, group.devices_per_node) == (1, 8)


def test_a_short_form_of_three_parts_begins_with_the_nodes() -> None:
    group = cluster_from_short_form("16x8xh100-sxm5-80gb").node_groups[0]
    assert (group.node_count, group.devices_per_node) == (16, 8)


def test_device_names_may_be_written_in_capitals() -> None:
    assert cluster_from_short_form("8xH100-SXM5-80GB").node_groups[0].device == "h100-sxm5-80gb"


@pytest.mark.parametrize("text", ["", "h100", "8x", "x8xh100", "8 x", "8xh100 80gb", "1.5xh100"])
def test_other_forms_are_refused_with_an_example(text: str) -> None:
    with pytest.raises(InputError, match="16x8xh100-sxm5-80gb"):
        cluster_from_short_form(text)


@pytest.mark.parametrize("text", ["0xh100-sxm5-80gb", "0x8xh100-sxm5-80gb", "-1xh100-sxm5-80gb"])
def test_counts_below_one_are_refused(text: str) -> None:
    with pytest.raises(InputError, match="must lie between 1 and"):
        cluster_from_short_form(text)


def test_more_devices_than_a_node_can_hold_are_refused() -> None:
    with pytest.raises(InputError, match="1024"):
        cluster_from_short_form("1025xh100-sxm5-80gb")


def test_a_yaml_document_is_read_and_recorded(tmp_path: Path) -> None:
    path = tmp_path / "cluster.yaml"
    path.write_text(
        "name: two\nnode_groups:\n"
        "  - {name: h100, device: h100-sxm5-80gb, node_count: 2, devices_per_node: 8}\n"
    )
    given, cluster, _ = read_cluster(str(path))
    assert isinstance(given, dict)
    assert cluster.device_count == 16


def test_a_missing_file_is_named(tmp_path: Path) -> None:
    with pytest.raises(InputError, match="no such file"):
        read_cluster(str(tmp_path / "none.yaml"))


def test_a_negative_bandwidth_is_refused_by_name(tmp_path: Path) -> None:
    path = tmp_path / "cluster.yaml"
    path.write_text(
        "name: bad\nnode_groups:\n"
        "  - {name: g, device: h100-sxm5-80gb, node_count: 1, devices_per_node: 8}\n"
        "levels:\n  - {name: l, bandwidth_bytes_per_second: -1, latency_seconds: 0}\n"
    )
    with pytest.raises(InputError, match="bandwidth_bytes_per_second"):
        read_cluster(str(path))


@pytest.mark.parametrize(
    "reference", ["x" * 5000, "a\0b", "\0.json", "\u0663xh100-sxm5-80gb", "8xh100\n\n8x"]
)
def test_text_that_can_name_no_file_is_refused_in_words(reference):
    with pytest.raises(InputError):
        read_cluster(reference)


def test_a_short_form_of_more_than_a_million_devices_is_refused():
    with pytest.raises(InputError, match=r"number of devices.*1048576 \(got 134217728\)"):
        cluster_from_short_form("131072x1024xh100-sxm5-80gb")


@pytest.mark.parametrize(
    ("short_form", "devices"),
    [("18x4xgb200-nvl72", 72), ("4xl40s-48gb", 4), ("72xgb300-nvl72", 72)],
)
def test_short_forms_name_nodes_of_any_size(short_form, devices):
    assert cluster_from_short_form(short_form).device_count == devices


EXAMPLES = Path(__file__).parents[3] / "examples" / "clusters"


@pytest.mark.parametrize(
    ("name", "domains"),
    [
        ("two-h100-nodes", [[8, 16]]),
        ("oversubscribed-a100", [[8, 32, 256]]),
        ("h100-and-a100", [[8, 64, 128], [8, 64, 128]]),
        ("two-gb200-racks", [[72, 144]]),
    ],
)
def test_examples_have_the_networks_that_they_describe(name, domains):
    _, cluster, _ = read_cluster(str(EXAMPLES / f"{name}.yaml"))
    kinds = cluster_hardware(cluster).kinds
    assert [[level.device_count for level in kind.levels] for kind in kinds] == domains


def test_every_example_is_read():
    for path in EXAMPLES.glob("*.yaml"):
        assert read_cluster(str(path))[1].name == path.stem
