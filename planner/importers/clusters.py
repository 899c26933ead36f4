"""Clusters by short form, by file or by fields."""

from __future__ import annotations

import re
from collections.abc import Mapping
from pathlib import Path
from typing import Any

from pydantic import JsonValue

from planner.errors import InputError
from planner.importers.discovered import TEXT_LIMIT
from planner.schema.cluster import DEVICE_LIMIT, Cluster, NodeGroup
from planner.schema.document import read_fields
from planner.schema.files import file_content

_SHORT_FORM = re.compile(r"(?:(-?[0-9]{1,9})x)?(-?[0-9]{1,9})x([A-Za-z][A-Za-z0-9._-]{0,60})")
_DOCUMENTS = frozenset({".json", ".yaml", ".yml"})
_KUBERNETES = frozenset({"List", "NodeList", "Node"})
_REMEDY = "write for example 8xh100-sxm5-80gb, 16x8xh100-sxm5-80gb, or give a YAML or JSON file"


def read_cluster(reference: str) -> tuple[JsonValue, Cluster, tuple[str, ...]]:
    """Return what to record of, the cluster of, and what was assumed of a short form or a path.

    Raises:
        InputError: if it is neither a short form nor a readable, valid document.
    """
    if _names_a_file(reference):
        return _read_file(Path(reference))
    return reference, cluster_from_short_form(reference), ()


def _read_file(path: Path) -> tuple[JsonValue, Cluster, tuple[str, ...]]:
    """Return the cluster in a file: our document, or what a tool has printed.

    A tool's output is recorded as the cluster that it was read as, and what was left out of it or
    assumed is told.
    """
    if path.suffix in _DOCUMENTS:
        fields = read_fields(path)
        if fields.get("kind") not in _KUBERNETES and not isinstance(fields.get("nodes"), list):
            return fields, cluster_from_fields(fields, source=str(path)), ()
    elif path.is_dir():
        read_fields(path)  # says that it is one
    from planner.importers.cluster_formats import cluster_from_output  # noqa: PLC0415

    content = file_content(path, bytes_limit=TEXT_LIMIT, too_large="give one command's output")
    found = cluster_from_output(content, source=str(path))
    return found.cluster.model_dump(mode="json"), found.cluster, found.notes


def _names_a_file(reference: str) -> bool:
    path = Path(reference)
    try:
        return path.exists() or path.suffix in _DOCUMENTS
    except (OSError, ValueError):  # longer than any file's name, or no name at all
        return False


def cluster_from_fields(fields: Mapping[str, Any], *, source: str = "cluster") -> Cluster:
    """Return the cluster in `fields`.

    Raises:
        InputError: naming the bad field, its value and the remedy.
    """
    return Cluster.from_fields(fields, source=source)


def cluster_from_short_form(text: str) -> Cluster:
    """Return the cluster that `[NODES x] DEVICES x DEVICE` stands for: 16x8xh100-sxm5-80gb.

    Raises:
        InputError: if the text has another form or a count is not positive.
    """
    match = _SHORT_FORM.fullmatch(text.strip())
    if match is None:
        raise InputError(
            "is neither a short form nor a file", field="cluster", value=text, remedy=_REMEDY
        )
    node_count = int(match.group(1)) if match.group(1) else 1
    devices_per_node = int(match.group(2))
    for name, count, limit in (
        ("node count", node_count, 2**17),
        ("devices per node", devices_per_node, 1024),
        ("number of devices", node_count * devices_per_node, DEVICE_LIMIT),
    ):
        if not 1 <= count <= limit:
            raise InputError(
                f"{name} must lie between 1 and {limit}",
                field="cluster",
                value=count,
                remedy=_REMEDY,
            )
    device = match.group(3).lower()
    group = NodeGroup(
        name=device, device=device, node_count=node_count, devices_per_node=devices_per_node
    )
    return Cluster(name=text.strip(), node_groups=(group,))
