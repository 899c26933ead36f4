"""Output of `scontrol show node` and `scontrol show topology` -> a cluster.

Records of KEY=VALUE, one a node, lines indented; values may have blanks. Gres names a type and a
count: gpu:h100:8(S:0-1). Nodes that are down, drained, without GPUs or with GPUs cut into instances
are left out, and said to be.
"""

from __future__ import annotations

import re
from collections.abc import Iterator, Mapping

from planner.errors import DocumentError, InputError
from planner.importers.discovered import Discovered, Node, device_called, discovered
from planner.units import MIB

_KEY = re.compile(r"(?:^|\s)([A-Za-z][A-Za-z0-9_/:]*)=")
_RECORD = re.compile(r"^(?=NodeName=|SwitchName=|BlockName=)", re.MULTILINE)
_GRES = re.compile(r"gpu(?::([A-Za-z][A-Za-z0-9_.-]*))?:([0-9]{1,4})")
_INSTANCE = re.compile(r"gpu:[A-Za-z0-9_.-]*[0-9]g[._][0-9]+gb", re.IGNORECASE)  # gpu:a100_1g.5gb:7
_OUT = frozenset({"DOWN", "DRAIN", "DRAINED", "DRAINING", "FAIL", "FAILING", "FUTURE", "UNKNOWN"})
_RANGES = r"[0-9]{1,9}(?:-[0-9]{1,9})?(?:,[0-9]{1,9}(?:-[0-9]{1,9})?)*"
_HOST = re.compile(rf"(?:[A-Za-z0-9_.-]+|\[{_RANGES}\])+")
_PIECE = re.compile(rf"([A-Za-z0-9_.-]*)(?:\[({_RANGES})\]|$)")
_EXPRESSION_LIMIT = 2**20
_NODE_LIMIT = 2**17
_MEMORY_LIMIT_MIB = 2**30


def cluster_from_slurm(
    text: str,
    *,
    source: str,
    device: str | None,
    devices_per_node: int | None = None,
) -> Discovered:
    """Return the cluster of the nodes in service; of `show topology` alone, of those it names.

    Raises:
        InputError: if nothing can be read, a device is unknown, or must be told and is not.
    """
    records = [dict(_pairs(part)) for part in _RECORD.split(text) if part.strip()]
    nodes = [record for record in records if "NodeName" in record]
    switches = [r for r in records if "SwitchName" in r or "BlockName" in r]
    if not nodes and not switches:
        raise DocumentError(
            "has no record that begins with NodeName=, SwitchName= or BlockName=",
            field=source,
            remedy="give the output of `scontrol show node` or `scontrol show topology`",
        )
    notes = _topology_notes(switches)
    if not nodes:
        return _of_topology(
            switches, notes, source=source, device=device, devices_per_node=devices_per_node
        )
    left_out: dict[str, int] = {}
    mixed = 0
    used = []
    for record in nodes:
        why = _why_out(record)
        if why is not None:
            left_out[why] = left_out.get(why, 0) + 1
            continue
        used.append(_node(record, device, source))
        mixed += len(_GRES.findall(record["Gres"])) > 1
    if mixed:
        notes = [f"GPUs of several types in a node, the first in Gres was read: {mixed}", *notes]
    notes = [*(f"left out, {why}: {count}" for why, count in left_out.items()), *notes]
    return discovered(used, name=source, notes=notes)


def hosts(expression: str, *, source: str) -> tuple[str, ...]:
    """Return the names that a hostlist stands for: `tux[0-2,7],login` is four.

    Raises:
        DocumentError: if brackets do not close, or it stands for too many.
    """
    names: list[str] = []
    for part in _HOST.findall(expression[:_EXPRESSION_LIMIT]):
        found = [""]
        for literal, ranges in _PIECE.findall(part):
            digits = _digits(ranges) if ranges else [""]
            if len(found) * len(digits) + len(names) > _NODE_LIMIT:
                raise _too_many(part, source)
            found = [f"{name}{literal}{digit}" for name in found for digit in digits]
        names.extend(name for name in found if name)
    if _HOST.sub("", expression).strip(", ") or len(expression) > _EXPRESSION_LIMIT:
        raise DocumentError(
            "has a hostlist that cannot be read",
            field=source,
            value=expression,
            remedy="write it as node[01-16,20]",
        )
    return tuple(names)


def _digits(ranges: str) -> list[str]:
    """Return the numbers of `01-16,20`, as many digits wide as their first; none if too many."""
    numbers: list[str] = []
    for piece in ranges.split(","):
        first, _, last = piece.partition("-")
        low, high = int(first), int(last or first)
        if high - low > _NODE_LIMIT:
            return [""] * (_NODE_LIMIT + 1)
        numbers.extend(str(number).zfill(len(first)) for number in range(low, high + 1))
    return numbers


def _too_many(part: str, source: str) -> DocumentError:
    return DocumentError(
        f"stands for more than {_NODE_LIMIT} nodes",
        field=source,
        value=part,
        remedy="give the nodes of one job's partition",
    )


def _pairs(record: str) -> Iterator[tuple[str, str]]:
    """Yield keys and values; a value ends where the next key begins."""
    found = list(_KEY.finditer(record))
    for index, match in enumerate(found):
        end = found[index + 1].start() if index + 1 < len(found) else len(record)
        yield match.group(1), record[match.end() : end].strip()


def _why_out(record: Mapping[str, str]) -> str | None:
    states = {word.strip("*~#!%$@^-") for word in record.get("State", "").upper().split("+")}
    down = sorted(states & _OUT)
    if down:
        return f"state {down[0]}"
    if _INSTANCE.search(record.get("Gres", "")):
        return "GPUs cut into instances (MIG)"
    return None if _GRES.search(record.get("Gres", "")) else "no GPUs in Gres"


def _node(record: Mapping[str, str], device: str | None, source: str) -> Node:
    found = _GRES.search(record["Gres"])
    kind, count = (None, "1") if found is None else found.groups()
    where = f"{source}: Gres of {record['NodeName']}"
    if device is None and kind is None:
        raise InputError(
            "names no type",
            field=where,
            value=record["Gres"],
            remedy="say which device it is with --device; `meshwright devices` lists them",
        )
    memory = record.get("RealMemory", "")
    known = memory.isdigit() and 0 < int(memory[:12]) <= _MEMORY_LIMIT_MIB
    return Node(
        name=record["NodeName"],
        device=device or device_called(kind or "", field=where),
        device_count=int(count),
        host_memory_bytes=int(memory) * MIB if known else None,
    )


def _of_topology(
    switches: list[dict[str, str]],
    notes: list[str],
    *,
    source: str,
    device: str | None,
    devices_per_node: int | None,
) -> Discovered:
    if device is None or devices_per_node is None:
        raise InputError(
            "names switches and nodes, but no devices",
            field=source,
            remedy="add --device NAME and --devices-per-node N, or put the output of "
            "`scontrol show node` into the same file",
        )
    names = {name for record in _leaves(switches) for name in hosts(record["Nodes"], source=source)}
    nodes = [Node(name=name, device=device, device_count=devices_per_node) for name in names]
    return discovered(nodes, name=source, notes=notes)


def _leaves(switches: list[dict[str, str]]) -> list[dict[str, str]]:
    """Return the switches that nodes hang on: those without others, or blocks."""
    named = [r for r in switches if r.get("Nodes") not in {None, "", "(null)"}]
    return [r for r in named if r.get("Switches") in {None, "", "(null)"}]


def _topology_notes(switches: list[dict[str, str]]) -> list[str]:
    leaves = _leaves(switches)
    if not leaves:
        return []
    sizes = sorted({len(hosts(record["Nodes"], source="Nodes")) for record in leaves})
    kind = "blocks" if "BlockName" in leaves[0] else "leaf switches"
    shown = " or ".join(map(str, sizes[:4]))
    said = (
        f"{len(leaves)} {kind} of {shown} nodes; what they are oversubscribed by is not stated, so "
        "the network between nodes is written as one level, the profile's"
    )
    return [said]
