"""Clusters: documents, and what is wrong with bad ones."""

from __future__ import annotations

from pathlib import Path

import pytest

from planner.errors import InputError
from planner.hardware import cluster_hardware
from planner.importers.clusters import read_cluster


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
