"""NCCL's topology file (NCCL_TOPO_DUMP_FILE, or a vendor's) -> a cluster of such nodes.

`system` holds `cpu` elements, those `pci` ones that nest, and at the leaves are `gpu` and `nic`
with `net`. A GPU is known by its compute capability `sm` alone, so that the device may have to be
told. Documents that declare a type or entities are refused before they are parsed.
"""

from __future__ import annotations

import re
from collections import Counter
from collections.abc import Iterator
from dataclasses import dataclass
from typing import TYPE_CHECKING

from planner.errors import DocumentError, InputError
from planner.importers.cluster.discovered import Discovered, Node, discovered
from planner.importers.cluster.link_levels import link_levels

if TYPE_CHECKING:
    from xml.etree.ElementTree import Element

_DECLARATION = re.compile(r"<!\s*(DOCTYPE|ENTITY)", re.IGNORECASE)
_DEPTH_LIMIT = 64
_ELEMENT_LIMIT = 100_000
_ONLY_OF_ITS_CAPABILITY = {"70": "v100-sxm2-32gb", "75": "t4-16gb"}
_MEGABITS = 1e6 / 8
_SPEED = re.compile(r"[0-9]{1,9}(?:\.[0-9]{1,9})?")


@dataclass(frozen=True, slots=True, kw_only=True)
class NodeTopology:
    """What one node has: GPUs by compute capability, NVLinks, and its ports' line rates.

    Where NVLink reaches several hosts the file has all of them: `host_gpu_counts` is of each.
    """

    capabilities: tuple[str, ...]
    nvlink_counts: tuple[int, ...]
    port_bytes_per_second: tuple[float, ...]
    host_gpu_counts: tuple[int, ...]


def cluster_from_nccl_topology(
    text: str, *, source: str, device: str | None, node_count: int = 1
) -> Discovered:
    """Return `node_count` times what the file describes: a node, or the hosts of one NVLink domain.

    Raises:
        InputError: if it is no such file, has no GPU, or the device must be told and is not.
    """
    node = node_topology(text, source=source)
    kinds = Counter(node.capabilities)
    if len(kinds) > 1:
        raise DocumentError(
            "has GPUs of several kinds in one node, which cannot be planned for",
            field=source,
            value=", ".join(f"sm {kind}" for kind in sorted(kinds)),
            remedy="leave out those that the job does not use",
        )
    (capability,) = kinds
    device = device or _ONLY_OF_ITS_CAPABILITY.get(capability)
    if device is None:
        raise InputError(
            "names no product",
            field=source,
            value=f"{len(node.capabilities)} GPUs of compute capability {capability}",
            remedy="say which with --device; `meshwright devices` lists the profiles",
        )
    nodes = [Node(name=source, device=device, device_count=n) for n in node.host_gpu_counts]
    found = None
    if not node.nvlink_counts and len(node.host_gpu_counts) == 1:
        found = link_levels(device, node.host_gpu_counts[0], lambda _one, _other: 0)
    notes = [*_notes(node), *([found.note] if found is not None else [])]
    levels = None if found is None else found.levels
    return discovered(nodes * node_count, name=source, notes=notes, levels=levels)


def node_topology(text: str, *, source: str) -> NodeTopology:
    """Return what the file says of its node.

    Raises:
        DocumentError: if it is no topology of NCCL's, or has no GPU.
    """
    root = _root(text, source)
    elements = list(_elements(root, source))
    capabilities = tuple(e.get("sm", "unknown")[:8] for e in elements if e.tag == "gpu")
    if not capabilities:
        raise DocumentError(
            "has no gpu element",
            field=source,
            remedy="dump it while GPUs are in use: NCCL_TOPO_DUMP_FILE=topo.xml and any NCCL job; "
            "a file that lists NICs alone says nothing of GPUs",
        )
    hosts: Counter[str] = Counter()
    for cpu in root.iter("cpu"):
        hosts[cpu.get("host_hash", "")] += sum(1 for _ in cpu.iter("gpu"))
    return NodeTopology(
        host_gpu_counts=tuple(count for count in hosts.values() if count) or (len(capabilities),),
        capabilities=capabilities,
        nvlink_counts=tuple(_whole(e.get("count")) for e in elements if e.tag == "nvlink"),
        port_bytes_per_second=tuple(
            speed for e in elements if e.tag == "net" and (speed := _speed(e.get("speed"))) > 0
        ),
    )


def _root(text: str, source: str) -> Element:
    from xml.etree import ElementTree as ET  # noqa: PLC0415  (no entities: refused above)

    if _DECLARATION.search(text):
        raise DocumentError(
            "declares a document type or entities, which are never read",
            field=source,
            remedy="remove the declaration",
        )
    try:
        root = ET.fromstring(text.lstrip())  # noqa: S314  (no declaration can be in it)
    except (ET.ParseError, ValueError, RecursionError) as error:
        place = getattr(error, "position", None)
        raise DocumentError(
            "is not valid XML",
            field=source,
            value=f"line {place[0]} column {place[1]}" if place else "unknown place",
            remedy="correct the syntax; is the file complete?",
        ) from None
    if root.tag != "system":
        raise DocumentError(
            "is not a topology of NCCL's, whose outermost element is system",
            field=source,
            value=root.tag,
            remedy="give the file that NCCL_TOPO_DUMP_FILE names",
        )
    return root


def _elements(root: Element, source: str) -> Iterator[Element]:
    """Yield all elements, without recursion."""
    stack, seen = [(root, 0)], 0
    while stack:
        element, depth = stack.pop()
        seen += 1
        if depth > _DEPTH_LIMIT or seen > _ELEMENT_LIMIT:
            raise DocumentError(
                f"is nested deeper than {_DEPTH_LIMIT} or has over {_ELEMENT_LIMIT} elements",
                field=source,
                remedy="give the topology of one node",
            )
        yield element
        stack.extend((child, depth + 1) for child in reversed(element))


def _whole(value: str | None) -> int:
    return int(value) if value is not None and value.isdigit() and len(value) < 6 else 0


def _speed(value: str | None) -> float:
    """Return a port's line rate in bytes per second; the file has it in Mb/s."""
    match = _SPEED.fullmatch(value or "")
    return float(match.group()) * _MEGABITS if match else 0.0


def _notes(node: NodeTopology) -> list[str]:
    count = len(node.capabilities)
    notes = []
    if len(node.host_gpu_counts) > 1:
        notes.append(f"{len(node.host_gpu_counts)} hosts in one NVLink domain")
    if node.nvlink_counts:
        links = sum(node.nvlink_counts) / count
        notes.append(f"{links:g} NVLinks a GPU, as the profile assumes that there are some")
    elif count > 1:
        notes.append("no NVLink between GPUs")
    if node.port_bytes_per_second:
        each = sum(node.port_bytes_per_second) / count / 1e9
        notes.append(
            f"{len(node.port_bytes_per_second)} ports, {each:g} GB/s of line rate a GPU; what of "
            "it collectives reach is not stated, and the profile's bandwidth is used"
        )
    return notes
