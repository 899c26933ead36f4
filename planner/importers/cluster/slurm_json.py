"""Output of `scontrol show node --json` or `sinfo --json` -> a cluster.

Each of `nodes` has `name`, `gres`, `real_memory` in MiB and `state`: a list of words, in versions
before 23.02 one word with `state_flags` beside it; a number may stand under `number`.
"""

from __future__ import annotations

from collections.abc import Mapping
from typing import Any

from planner.errors import DocumentError
from planner.importers.cluster.discovered import Discovered
from planner.importers.cluster.slurm import Record, cluster_from_records


def cluster_from_slurm_json(
    fields: Mapping[str, Any], *, source: str, device: str | None
) -> Discovered:
    """Return the cluster of the nodes in service.

    Raises:
        InputError: if they are no nodes, a device is unknown, or must be told and is not.
    """
    nodes = fields.get("nodes")
    if not isinstance(nodes, list) or not nodes or not all(map(_is_node, nodes)):
        raise DocumentError(
            "holds no list of nodes with a name and a state each",
            field=f"{source}: nodes",
            value=type(nodes).__name__,
            remedy="give the output of `scontrol show node --json`",
        )
    return cluster_from_records([_record(n) for n in nodes], source=source, device=device)


def _is_node(node: object) -> bool:
    return isinstance(node, Mapping) and isinstance(node.get("name"), str) and "state" in node


def _record(node: Mapping[str, Any]) -> Record:
    states = [*_words(node["state"]), *_words(node.get("state_flags"))]
    return {
        "nodename": node["name"],
        "gres": str(node.get("gres") or ""),
        "realmemory": str(_number(node.get("real_memory"))),
        "state": "+".join(states),
    }


def _words(value: object) -> list[str]:
    return [str(word) for word in (value if isinstance(value, list) else [value or ""])]


def _number(value: object) -> object:
    return value.get("number") if isinstance(value, Mapping) else value
