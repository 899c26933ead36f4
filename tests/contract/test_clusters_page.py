"""The page on clusters has every device's nodes and every instance, as the profiles do."""

from __future__ import annotations

import re
from pathlib import Path

import pytest

from planner.hardware import device_names, device_profile
from planner.importers.cluster.cloud_instances import cloud_instances
from planner.importers.cluster.short_form import read_short_form

PAGE = (Path(__file__).parents[2] / "docs" / "clusters.md").read_text(encoding="utf-8")


def rows(heading: str) -> list[list[str]]:
    """The rows of the table under a heading, without its first two lines."""
    _, _, rest = PAGE.partition(f"\n## {heading}\n")
    section = rest.partition("\n## ")[0]
    lines = [line for line in section.splitlines() if line.startswith("|")][2:]
    return [
        [cell.strip().replace("`", "") for cell in line.strip("|").split("|")] for line in lines
    ]


def test_the_nodes_of_every_device_are_those_of_its_profile():
    known = []
    for name in device_names():
        node = device_profile(name).node
        assert node is not None
        size = "any" if node.device_count is None else str(node.device_count)
        known.append([name, size, f"{node.device_limit:,}", node.source])
    assert rows("Nodes as they are sold") == known


def test_every_instance_has_its_row():
    known = []
    for one in cloud_instances():
        rate = one.network_gigabit_per_second
        network = "profile's" if rate is None else f"{rate:,.0f}"
        known.append([one.provider, one.name, f"{one.device_count} x {one.device}", network])
    assert rows("Instances of clouds") == known


@pytest.mark.parametrize("form", re.findall(r"^\| `([^`]+)` \|", PAGE, re.MULTILINE)[:6])
def test_the_forms_of_the_page_are_read(form):
    assert read_short_form(form).cluster.name == form


@pytest.mark.parametrize(
    ("form", "nodes"),
    [
        ("64xh100-sxm5-80gb", (8, 8)),
        ("4xh100-sxm5-80gb", (1, 4)),
        ("16xp5.48xlarge", (16, 8)),
        ("72xgb200", (18, 4)),
        ("1x10x4090", (1, 10)),
        ("2x4090", (1, 2)),
    ],
)
def test_what_the_page_says_of_a_form_holds(form, nodes):
    assert f"`{form}`" in PAGE
    (group,) = read_short_form(form).cluster.node_groups
    assert (group.node_count, group.devices_per_node) == nodes
