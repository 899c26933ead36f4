"""Discovered: what tools say of a cluster, before it is a document.

Tools name products (NVIDIA H100 80GB HBM3); profiles have names of their own (h100-sxm5-80gb).
"""

from __future__ import annotations

import re
from collections import Counter
from collections.abc import Iterable, Sequence
from dataclasses import dataclass, replace

from planner.errors import DocumentError, InputError
from planner.schema.cluster import Cluster, NetworkLevel, NodeGroup

TEXT_LIMIT = 32 * 2**20
_MEMORY_MARGIN = 1.02

_Kind = tuple[str, int, int | None, float | None]

# Patterns over a product's name in lower case, its signs as single spaces. The first that is found
# counts. Sources: NVIDIA's product pages; names as `nvidia-smi -L` and GPU feature discovery print
# them.
_PRODUCTS = (
    (r"\bgb300\b", "gb300-nvl72"),
    (r"\bgb200\b", "gb200-nvl72"),
    (r"\bgh200\b", "gh200-96gb"),
    (r"\bb300\b", "b300-sxm-288gb"),
    (r"\bb200\b", "b200-sxm-180gb"),
    (r"\bh200 nvl\b", "h200-nvl-141gb"),
    (r"\bh200\b", "h200-sxm5-141gb"),
    (r"\bh100 nvl\b", "h100-nvl-94gb"),
    (r"\bh100\b.*\bpcie\b", "h100-pcie-80gb"),
    (r"\bh100\b", "h100-sxm5-80gb"),
    (r"\bh800\b.*\bpcie\b", None),
    (r"\bh800\b", "h800-sxm5-80gb"),
    (r"\bh20\b.*\b(141gb|3e)\b", None),
    (r"\bh20\b", "h20-sxm-96gb"),
    (r"\ba100\b.*\bpcie\b.*\b40 ?(g|gb)?\b", "a100-pcie-40gb"),
    (r"\ba100\b.*\b40 ?(g|gb)?\b.*\bpcie\b", "a100-pcie-40gb"),
    (r"\ba100\b.*\bpcie\b", "a100-pcie-80gb"),
    (r"\ba100\b.*\b40 ?(g|gb)?\b", "a100-sxm4-40gb"),
    (r"\ba100\b", "a100-sxm4-80gb"),
    (r"\ba800\b.*\bpcie\b", None),
    (r"\ba800\b", "a800-sxm4-80gb"),
    (r"\ba10g\b", "a10g-24gb"),
    (r"\ba10\b", "a10-24gb"),
    (r"\ba30\b", "a30-24gb"),
    (r"\ba40\b", "a40-48gb"),
    (r"\bl40s\b", "l40s-48gb"),
    (r"\bl4\b", "l4-24gb"),
    (r"\bl20\b", "l20-48gb"),
    (r"\brtx 3090\b", "rtx-3090-24gb"),
    (r"\brtx 4090 ?d\b", "rtx-4090d-24gb"),
    (r"\brtx 4090\b", "rtx-4090-24gb"),
    (r"\brtx 5090 ?d\b", None),
    (r"\brtx 5090\b", "rtx-5090-32gb"),
    (r"\brtx a5000\b", "rtx-a5000-24gb"),
    (r"\brtx a6000\b", "rtx-a6000-48gb"),
    (r"\brtx pro 6000\b.*\bmax q\b", None),
    (r"\brtx pro 6000\b", "rtx-pro-6000-96gb"),
    (r"\brtx 6000 ada\b", "rtx-6000-ada-48gb"),
    (r"\btitan rtx\b", "titan-rtx-24gb"),
    (r"\bt4\b", "t4-16gb"),
    (r"\bv100\b.*\bpcie\b.*\b32gb\b", "v100-pcie-32gb"),
    (r"\bv100\b.*\bpcie\b.*\b16gb\b", "v100-pcie-16gb"),
    (r"\bv100\b.*\bpcie\b", None),
    (r"\bv100\b.*\b32gb\b", "v100-sxm2-32gb"),
    (r"\bv100\b.*\b16gb\b", "v100-sxm2-16gb"),
    (r"\bmi210\b", "mi210-64gb"),
    (r"\bmi250x\b", "mi250x-128gb"),
    (r"\bmi300a\b", "mi300a-128gb"),
    (r"\bmi300x\b", "mi300x-192gb"),
    (r"\bmi325x\b", "mi325x-256gb"),
    (r"\bmi350x\b", "mi350x-288gb"),
    (r"\bmi355x\b", "mi355x-288gb"),
    (r"\bgaudi ?2\b", "gaudi2-96gb"),
    (r"\bgaudi ?3\b", "gaudi3-128gb"),
    (r"\btrainium ?2\b", "trainium2-96gb"),
    (r"\btpu v4\b", "tpu-v4-32gb"),
    (r"\btpu (v5e|v5 ?lite)\b", "tpu-v5e-16gb"),
    (r"\btpu v5p\b", "tpu-v5p-95gb"),
    (r"\btpu v6e\b", "tpu-v6e-32gb"),
    (r"\bascend ?910b\b", "ascend-910b-64gb"),
)


_FAMILIES = frozenset({"a100", "h100"})  # of several memories or sockets


@dataclass(frozen=True, slots=True, kw_only=True)
class Discovered:
    """A cluster document, and in words what was assumed or could not be read."""

    cluster: Cluster
    notes: tuple[str, ...] = ()


@dataclass(frozen=True, slots=True, kw_only=True)
class Node:
    """One node as a tool names it; `host_memory_bytes` is the node's, where it is known.

    `network_bandwidth_bytes_per_second` is as of a group of nodes, where the node is a cloud's.
    """

    name: str
    device: str
    device_count: int
    host_memory_bytes: int | None = None
    network_bandwidth_bytes_per_second: float | None = None

    @property
    def kind(self) -> _Kind:
        """Return what is the same of nodes that make a group."""
        return (
            self.device,
            self.device_count,
            self.host_memory_bytes,
            self.network_bandwidth_bytes_per_second,
        )


def device_called(product: str, *, field: str) -> str:
    """Return the profile's name of the device that a tool calls `product`.

    Raises:
        InputError: if no profile is known for it.
    """
    words = " ".join(re.split(r"[^a-z0-9]+", product.lower())).strip()
    for pattern, name in _PRODUCTS:
        if re.search(pattern, words):
            if name is not None:
                return name
            break
    raise InputError(
        "is a device that no profile is known for",
        field=field,
        value=product,
        remedy="say which profile stands for it with --device; `meshwright devices` lists them",
    )


def assumed_product(product: str, device: str) -> list[str]:
    """Return what is to be said where `product` names a family, and `device` is one of it."""
    if product.lower() not in _FAMILIES:
        return []
    return [f"{product} is read as {device}; `discover --device` names another"]


def discovered(
    nodes: Iterable[Node],
    *,
    name: str,
    notes: Iterable[str] = (),
    levels: Sequence[NetworkLevel] | None = None,
) -> Discovered:
    """Return the cluster of `nodes`, those alike as one group, with the profile's levels or these.

    Raises:
        DocumentError: if there is no node with a device.
    """
    notes = tuple(notes)
    alike = Counter(node.kind for node in _of_one_memory(nodes))
    if not alike:
        raise DocumentError(
            "names no node that has a device and is in service",
            field=name,
            value="; ".join(notes) or None,
            remedy="give the whole output; for nodes without GPUs write a cluster file by hand",
        )
    groups = []
    for index, ((device, count, memory, network), nodes_alike) in enumerate(_ordered(alike)):
        groups.append(
            NodeGroup(
                name=device if len(alike) == 1 else f"{device}-{index}",
                device=device,
                node_count=nodes_alike,
                devices_per_node=count,
                host_memory_bytes=memory,
                network_bandwidth_bytes_per_second=network,
            )
        )
    fields: dict[str, object] = {
        "name": name,
        "node_groups": [group.model_dump() for group in groups],
    }
    if levels is not None:
        fields["levels"] = [level.model_dump() for level in levels]
    cluster = Cluster.from_fields(fields, source=name)
    return Discovered(cluster=cluster, notes=notes)


def _of_one_memory(nodes: Iterable[Node]) -> list[Node]:
    """Return `nodes`, those whose host memory is nearly the same with the least of it.

    What a kernel leaves of the same modules differs by some pages from boot to boot.
    """
    kept: list[Node] = []
    for node in sorted(nodes, key=lambda n: (n.device, n.device_count, n.host_memory_bytes or 0)):
        memory = node.host_memory_bytes
        before = kept[-1] if kept else None
        same = before is not None and (before.device, before.device_count) == (
            node.device,
            node.device_count,
        )
        least = before.host_memory_bytes if before is not None and same else None
        if memory is not None and least is not None and memory <= least * _MEMORY_MARGIN:
            kept.append(replace(node, host_memory_bytes=least))
        else:
            kept.append(node)
    return kept


def _ordered(alike: Counter[_Kind]) -> list[tuple[_Kind, int]]:
    return sorted(alike.items(), key=lambda item: (-item[1], repr(item[0])))


def text_of(content: bytes, *, source: str) -> str:
    """Return a tool's output without a terminal's colours and line ends, and without mpirun's tags.

    Raises:
        DocumentError: if it is too large, empty, or no text.
    """
    if len(content) > TEXT_LIMIT:
        raise DocumentError(
            f"is larger than {TEXT_LIMIT} bytes",
            field=source,
            value=f"{len(content)} bytes",
            remedy="give the output of one command alone",
        )
    encoding = "utf-16" if content[:2] in {b"\xff\xfe", b"\xfe\xff"} else "utf-8-sig"
    try:
        text = content.decode(encoding)
    except UnicodeDecodeError as error:
        raise DocumentError(
            "is not text",
            field=source,
            value=f"byte {error.start}",
            remedy="give the command's output as UTF-8 text",
        ) from None
    plain = _TERMINAL.sub("", text).replace("\r\n", "\n").replace("\0", "")
    plain = _without_task_numbers(_RANK.sub("", plain))
    if not plain.strip():
        raise DocumentError(
            "is empty", field=source, remedy="give the output of the command; did it fail?"
        )
    return plain


def _without_task_numbers(text: str) -> str:
    """Return the text without the task's number that `srun --label` puts before every line."""
    lines = text.splitlines()
    if not all(_TASK.match(line) for line in lines if line.strip()):
        return text
    return "\n".join(_TASK.sub("", line) for line in lines) + "\n"


_TASK = re.compile(r"^\s*\d{1,7}: ?")
_TERMINAL = re.compile(r"\x1b\[[0-9;?]*[A-Za-z]|[\ufffd\u241b]?\[(?:0|1|4|24)?m")  # or pasted
_RANK = re.compile(r"^\[\d{1,9},\d{1,9}\]<std(?:out|err)>:", re.MULTILINE)  # mpirun --tag-output
