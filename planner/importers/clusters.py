"""Clusters by short form, by file or by fields."""

from __future__ import annotations

from collections.abc import Mapping
from pathlib import Path
from typing import Any

from pydantic import JsonValue

from planner.importers.cluster.discovered import TEXT_LIMIT
from planner.importers.cluster.short_form import read_short_form
from planner.schema.cluster import Cluster
from planner.schema.document import read_fields
from planner.schema.files import file_content

_DOCUMENTS = frozenset({".json", ".yaml", ".yml"})
_JOBS = frozenset({"available_node_types", "resources"})  # of Ray's clusters and SkyPilot's tasks
_KUBERNETES = frozenset({"List", "NodeList", "Node"})


def read_cluster(reference: str) -> tuple[JsonValue, Cluster, tuple[str, ...]]:
    """Return what to record of, the cluster of, and what was assumed of a short form or a path.

    Raises:
        InputError: if it is neither a short form nor a readable, valid document.
    """
    if _names_a_file(reference):
        return _read_file(Path(reference))
    found = read_short_form(reference)
    return reference, found.cluster, found.notes


def _read_file(path: Path) -> tuple[JsonValue, Cluster, tuple[str, ...]]:
    """Return the cluster in a file: our document, or what a tool has printed.

    A tool's output is recorded as the cluster that it was read as, and what was left out of it or
    assumed is told.
    """
    if path.suffix in _DOCUMENTS:
        fields = read_fields(path)
        if _JOBS & fields.keys() and "node_groups" not in fields:
            from planner.importers.cluster.formats import job_cluster  # noqa: PLC0415

            asked = job_cluster(fields, path.name)
            return asked.cluster.model_dump(mode="json"), asked.cluster, asked.notes
        if fields.get("kind") not in _KUBERNETES and not isinstance(fields.get("nodes"), list):
            if "node_groups" not in fields:
                _refuse_look_alike(path)
            return fields, cluster_from_fields(fields, source=str(path)), ()
    elif path.is_dir():
        read_fields(path)  # says that it is one
    from planner.importers.cluster.formats import cluster_from_output  # noqa: PLC0415

    content = file_content(path, bytes_limit=TEXT_LIMIT, too_large="give one command's output")
    found = cluster_from_output(content, source=str(path))
    return found.cluster.model_dump(mode="json"), found.cluster, found.notes


def _refuse_look_alike(path: Path) -> None:
    from planner.importers.cluster.formats import refuse_look_alike  # noqa: PLC0415

    content = file_content(path, bytes_limit=TEXT_LIMIT, too_large="give one cluster's document")
    refuse_look_alike(content.decode(errors="replace"), source=str(path))


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
    """Return the cluster that a short form stands for: 16x8xh100-sxm5-80gb.

    Raises:
        InputError: as `read_short_form`.
    """
    return read_short_form(text).cluster
