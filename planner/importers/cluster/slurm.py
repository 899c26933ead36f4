"""What Slurm says of nodes and switches -> a cluster.

`scontrol show node` and `show topology` print records of KEY=VALUE, one a node, lines indented;
values may have blanks. slurm.conf and topology.conf have the same keys, a list of nodes in one
record, and NodeName=DEFAULT for what the next ones leave out. `scontrol show node --json` is read
into the same records. Gres names a type and a count: gpu:h100:8(S:0-1). Nodes that are down, do not
answer, are without GPUs or have GPUs cut into instances are left out, and said to be.
"""

from __future__ import annotations

import re
from collections import Counter
from collections.abc import Mapping, Sequence

from planner.errors import DocumentError, InputError
from planner.importers.cluster.discovered import (
    Discovered,
    Node,
    assumed_product,
    device_called,
    discovered,
)
from planner.units import MIB

Record = Mapping[str, str]

_KEY = re.compile(r"(?:^|\s)([A-Za-z][A-Za-z0-9_/:]*)=")
_RECORD = re.compile(r"^[ \t]*(?=(?:NodeName|SwitchName|BlockName)=)", re.MULTILINE | re.IGNORECASE)
_COMMENT = re.compile(r"(?:^|[ \t])#.*$|\\\n", re.MULTILINE)  # and lines that go on
_GRES = re.compile(r"gpu(?::([A-Za-z][A-Za-z0-9_.-]*?))?(?::no_consume)?:([0-9]{1,4})")
_INSTANCE = re.compile(r"gpu:[A-Za-z0-9_.-]*(?:[0-9]g[._][0-9]+gb|mig)", re.IGNORECASE)
_OUT = frozenset(
    {"DOWN", "DRAIN", "DRAINED", "DRAINING", "ERROR", "FAIL", "FAILING", "FUTURE", "INVAL"}
)
_UNREACHED = frozenset({"NOT_RESPONDING", "UNKNOWN"})  # but in slurm.conf, where UNKNOWN is usual
_NO_ANSWER = "*"  # after a state
_PRINTED = re.compile(r"\b(Arch|CPUAlloc|CPUTot|CfgTRES)=")  # by scontrol, and not in slurm.conf
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
    return cluster_from_records(
        _records(text), source=source, device=device, devices_per_node=devices_per_node
    )


def cluster_from_records(
    records: Sequence[Record],
    *,
    source: str,
    device: str | None,
    devices_per_node: int | None = None,
) -> Discovered:
    """Return the cluster of records whose keys are those of Slurm in lower case.

    Raises:
        InputError: as `cluster_from_slurm`.
    """
    nodes = [record for record in records if "nodename" in record]
    switches = [r for r in records if "switchname" in r or "blockname" in r]
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
    left_out: Counter[str] = Counter()
    mixed = 0
    used: list[Node] = []
    said: list[str] = []
    for record in nodes:
        names = hosts(record["nodename"], source=source)
        why = _why_out(record)
        if why is not None:
            left_out[why] += len(names)
            continue
        node = _node(record, device, source)
        used.extend([node] * len(names))
        kinds = {kind for kind, _ in _GRES.findall(record["gres"])}
        mixed += len(names) * (len(kinds) > 1)
        if device is None:
            said.extend(assumed_product(_GRES.findall(record["gres"])[0][0], node.device))
    if mixed:
        notes = [f"GPUs of several types in a node, the first in Gres was read: {mixed}", *notes]
    notes = [*dict.fromkeys(said), *notes]
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


def _records(text: str) -> list[Record]:
    """Return the records in `text`, with what NodeName=DEFAULT says put into those after it."""
    found: list[Record] = []
    defaults: Record = {}
    printed = _PRINTED.search(text) is not None
    if not printed:
        text = _COMMENT.sub("", text)
    for part in _RECORD.split(text):
        record = _pairs(part)
        if record.get("nodename", "").upper() == "DEFAULT":
            defaults = {**defaults, **record}
        elif "nodename" in record:
            state = {"state": record.get("state", "")} if printed else _configured(record)
            found.append({**defaults, **record, **state})
        elif record:
            found.append(record)
    return found


def _pairs(record: str) -> Record:
    """Return keys and values; a value ends where the next key begins.

    The first of a key counts: what people write into Comment and Reason stands last.
    """
    found = list(_KEY.finditer(record))
    pairs: dict[str, str] = {}
    for index, match in enumerate(found):
        end = found[index + 1].start() if index + 1 < len(found) else len(record)
        pairs.setdefault(match.group(1).lower(), record[match.end() : end].strip())
    return pairs


def _configured(record: Record) -> Record:
    """Return the state that slurm.conf gives a node to start from, none where it is unknown."""
    state = record.get("state", "")
    return {"state": "" if state.upper() == "UNKNOWN" else state}


def _why_out(record: Record) -> str | None:
    words = record.get("state", "").upper().split("+")
    states = {word.strip("*~#!%$@^-") for word in words}
    if any(word.endswith(_NO_ANSWER) for word in words):
        states.add("NOT_RESPONDING")
    down = sorted(states & _OUT) or sorted(states & _UNREACHED)
    if down:
        return f"state {down[0]}"
    gres = record.get("gres", "")
    if _INSTANCE.search(gres):
        return "GPUs cut into instances (MIG)"
    return None if any(int(count) for _, count in _GRES.findall(gres)) else "no GPUs in Gres"


def _node(record: Record, device: str | None, source: str) -> Node:
    found = _GRES.findall(record["gres"])
    kind = found[0][0]
    where = f"{source}: Gres of {record['nodename']}"
    if device is None and not kind:
        raise InputError(
            "names no type",
            field=where,
            value=record["gres"],
            remedy="say which device it is with --device; `meshwright devices` lists them",
        )
    memory = record.get("realmemory", "")
    known = memory.isdigit() and 0 < int(memory[:12]) <= _MEMORY_LIMIT_MIB
    return Node(
        name=record["nodename"],
        device=device or device_called(kind, field=where),
        device_count=sum(int(count) for other, count in found if other == kind),
        host_memory_bytes=int(memory) * MIB if known else None,
    )


def _of_topology(
    switches: Sequence[Record],
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
    names = {name for record in _leaves(switches) for name in hosts(record["nodes"], source=source)}
    nodes = [Node(name=name, device=device, device_count=devices_per_node) for name in names]
    return discovered(nodes, name=source, notes=notes)


def _leaves(switches: Sequence[Record]) -> list[Record]:
    """Return the switches that nodes hang on: those without others, or blocks."""
    named = [r for r in switches if r.get("nodes") not in {None, "", "(null)"}]
    return [r for r in named if r.get("switches") in {None, "", "(null)"}]


def _topology_notes(switches: Sequence[Record]) -> list[str]:
    leaves = _leaves(switches)
    if not leaves:
        return []
    sizes = sorted({len(hosts(record["nodes"], source="Nodes")) for record in leaves})
    kind = "blocks" if "blockname" in leaves[0] else "leaf switches"
    shown = " or ".join(map(str, sizes[:4]))
    said = (
        f"{len(leaves)} {kind} of {shown} nodes; what they are oversubscribed by is not stated, so "
        "the network between nodes is written as one level, the profile's"
    )
    return [said]
