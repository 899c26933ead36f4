"""Outputs of `nvidia-smi`, `-L`, `topo -m` or its CSV -> a cluster of one such node, or of several.

The matrix is separated by tabs (or by spaces where it was pasted): a header of GPUs and NICs, a row
for each, affinities after a GPU's row, and two legends. NV18 stands for 18 bonded links, PIX to SYS
for paths over PCIe. It names no product: `nvidia-smi -L` does, in the same file, or the device has
to be told.
"""

from __future__ import annotations

import re
from collections import Counter
from dataclasses import dataclass

from planner.errors import DocumentError, InputError
from planner.importers.cluster.discovered import Discovered, Node, device_called, discovered
from planner.importers.cluster.link_levels import link_levels
from planner.importers.cluster.nvidia_smi_tables import (
    CSV_MARK,
    PLAIN_MARK,
    csv_products,
    plain_products,
)

_CELL = re.compile(r"X|NV[0-9]{1,3}|PIX|PXB|PHB|NODE|SYS|N/A|C2C")
_NAME = re.compile(r"(GPU|NIC)[0-9]{1,4}|[a-z][a-z0-9_]*[0-9](?:_[0-9]+)?")
_TOUCHING = re.compile(r"(?<=[0-9])(?=NIC[0-9])")  # NIC11NIC12, of eight columns each
_LISTED = re.compile(r"^\s*GPU [0-9]{1,4}: (.+?) \(UUID:", re.MULTILINE)  # of `nvidia-smi -L`
_INSTANCE = re.compile(r"^\s*MIG [0-9]", re.MULTILINE)
_HEADER = re.compile(r"GPU[0-9]{1,4}")
_DEVICE_LIMIT = 1024
_NO_MATRIX = (
    "how GPUs reach one another is not stated, and the profile's levels are used; add the output "
    "of `nvidia-smi topo -m`"
)


@dataclass(frozen=True, slots=True, kw_only=True)
class TopologyMatrix:
    """How the GPUs and NICs of a node reach one another: `cells[row][column]` by name."""

    gpus: tuple[str, ...]
    nics: tuple[str, ...]
    cells: dict[str, dict[str, str]]
    numa: dict[str, str]

    def nvlinks(self, one: int, other: int) -> int:
        """Return how many NVLinks join two GPUs by their places, 0 where none does."""
        cell = self.cells[self.gpus[one]][self.gpus[other]]
        return int(cell[2:]) if cell.startswith("NV") else 0

    def links(self) -> Counter[str]:
        """Return how many pairs of GPUs have each kind of path."""
        return Counter(
            self.cells[first][second]
            for index, first in enumerate(self.gpus)
            for second in self.gpus[index + 1 :]
        )


def cluster_from_matrix(
    text: str, *, source: str, device: str | None, node_count: int = 1
) -> Discovered:
    """Return `node_count` nodes such as the matrix shows, of the device that is told.

    Raises:
        InputError: if no device is told or listed, or the matrix cannot be read.
    """
    products = _products(text, source)
    if _INSTANCE.search(text):
        raise DocumentError(
            "has GPUs cut into instances (MIG), which cannot be planned for",
            field=source,
            remedy="switch MIG off with `nvidia-smi -mig 0`",
        )
    matrix = None if products and not _has_header(text) else topology_matrix(text, source=source)
    count = len(products) if matrix is None else len(matrix.gpus)
    device = device or _product(products, source)
    if device is None:
        raise InputError(
            "names no product",
            field=source,
            value=f"{count} GPUs",
            remedy="say which with --device, or put the output of `nvidia-smi -L` into the same "
            "file; `meshwright devices` lists the profiles",
        )
    node = Node(name=source, device=device, device_count=count)
    if matrix is None:
        return discovered([node] * node_count, name=source, notes=[_NO_MATRIX])
    found = link_levels(device, count, matrix.nvlinks)
    notes = [*_notes(matrix), *([found.note] if found is not None else [])]
    levels = None if found is None else found.levels
    return discovered([node] * node_count, name=source, notes=notes, levels=levels)


def _products(text: str, source: str) -> list[str]:
    """Return the products of GPUs by the list, the plain table or the CSV of them."""
    listed = _LISTED.findall(text)
    if listed:
        return listed
    if re.search(PLAIN_MARK, text, re.MULTILINE):
        return list(plain_products(text, source=source))
    if re.search(CSV_MARK, text, re.MULTILINE):
        return list(csv_products(text, source=source))
    return []


def _product(products: list[str], source: str) -> str | None:
    """Return the device that `nvidia-smi -L` lists, None where it is not in the output.

    Raises:
        InputError: if it lists several, or one without a profile.
    """
    if len(set(products)) > 1:
        raise DocumentError(
            "has GPUs of several kinds in one node, which cannot be planned for",
            field=source,
            value=", ".join(sorted(set(products))),
            remedy="leave out those that the job does not use",
        )
    return device_called(products[0], field=source) if products else None


def topology_matrix(text: str, *, source: str) -> TopologyMatrix:
    """Return the matrix in the output.

    Raises:
        DocumentError: if there is no header, or a GPU's row is missing or cut short.
    """
    header, rows = _lines(text, source=source)
    names = [word for word in header if _NAME.fullmatch(word)]
    gpus = tuple(name for name in names if name.startswith("GPU"))
    if len(gpus) > _DEVICE_LIMIT or len(set(names)) != len(names):
        raise DocumentError(
            "has a header with a name twice, or with too many",
            field=source,
            value=len(gpus),
            remedy="give the output of one node",
        )
    cells: dict[str, dict[str, str]] = {}
    numa: dict[str, str] = {}
    for name, *words in rows:
        if name not in names or len(words) < len(names):
            continue
        row = words[: len(names)]
        if all(_CELL.fullmatch(word) for word in row):
            cells[name] = dict(zip(names, row, strict=True))
            numa[name] = words[len(names) + 1].split(",")[0] if len(words) > len(names) + 1 else ""
    for gpu in gpus:
        if gpu not in cells or cells[gpu][gpu] != "X":
            raise DocumentError(
                f"has no whole row for {gpu}",
                field=source,
                remedy="give all of the output of `nvidia-smi topo -m`",
            )
    nics = tuple(name for name in names if name not in gpus)
    return TopologyMatrix(gpus=gpus, nics=nics, cells=cells, numa=numa)


def _has_header(text: str) -> bool:
    return any(_HEADER.fullmatch(line.split()[0]) for line in text.splitlines() if line.strip())


def _lines(text: str, *, source: str) -> tuple[list[str], list[list[str]]]:
    lines = [line.split() for line in text.splitlines() if line.strip()]
    for index, words in enumerate(lines):
        if _HEADER.fullmatch(words[0]) and not any(_CELL.fullmatch(word) for word in words):
            return _TOUCHING.sub(" ", " ".join(words)).split(), lines[index + 1 :]
    raise DocumentError(
        "has no header that names GPUs",
        field=source,
        remedy="give the output of `nvidia-smi topo -m`",
    )


def _notes(matrix: TopologyMatrix) -> list[str]:
    """Return in words what the matrix says beyond the number of devices."""
    links = matrix.links()
    bonded = sorted(kind for kind in links if kind.startswith("NV"))
    over_pcie = sum(count for kind, count in links.items() if not kind.startswith("NV"))
    notes = []
    if bonded and not over_pcie:
        kinds = ", ".join(bonded)
        notes.append(f"all GPUs reach one another over NVLink ({kinds}), as the profile assumes")
    elif len(matrix.gpus) > 1:
        paths = ", ".join(f"{kind} {count}" for kind, count in sorted(links.items()))
        notes.append(f"pairs of GPUs by path: {paths}")
    if matrix.nics:
        near = sum(
            any(matrix.cells[gpu][nic] in {"PIX", "PXB"} for nic in matrix.nics)
            for gpu in matrix.gpus
        )
        notes.append(
            f"{len(matrix.nics)} NICs, {near} of {len(matrix.gpus)} GPUs with one behind the same "
            "PCIe switch; their speed is not stated, and the profile's is used"
        )
    sides = {matrix.numa[gpu] for gpu in matrix.gpus if matrix.numa.get(gpu)}
    if len(sides) > 1:
        notes.append(f"GPUs on NUMA nodes {', '.join(sorted(sides))}")
    return notes
