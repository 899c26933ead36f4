"""Outputs of `rocm-smi` and `amd-smi` -> a cluster of one such node, or of several alike.

`rocm-smi --showtopo` and `amd-smi topology` have a matrix of link types between GPUs, XGMI or
PCIE; `rocm-smi --showproductname` and `amd-smi static --asic` name the products. Both may stand in
one file. Of an MI250X each of a module's two dies is a GPU here, and the module a device of ours.
"""

from __future__ import annotations

import re

from planner.errors import DocumentError, InputError
from planner.importers.cluster.discovered import Discovered, Node, device_called, discovered
from planner.importers.cluster.link_levels import LinkLevels, link_levels

ROCM_MARK = r"ROCm System Management Interface"
AMD_MARK = r"^LINK TYPE TABLE:|^\s+MARKET_NAME:|^ACCESS TABLE:"

_PRODUCT = re.compile(
    r"^GPU\[\d+\]\s*:\s*Card [Ss]eries:\s*(\S.*?)\s*$|^\s+MARKET_NAME:\s*(\S.*?)\s*$", re.MULTILINE
)
_TABLE = re.compile(r"Link Type between two GPUs|^LINK TYPE TABLE:", re.MULTILINE)
_ROW = re.compile(r"(?:GPU\d+|[0-9a-f]{4}:[0-9a-f]{2}:[0-9a-f]{2}\.\d)")
_CELL = re.compile(r"XGMI|PCIE|SELF|0|N/A")
_TWO_DIES = frozenset({"mi250x-128gb"})
_COUNT_LIMIT = 1024
_NO_MATRIX = (
    "how GPUs reach one another is not stated, and the profile's levels are used; add the output "
    "of `rocm-smi --showtopo` or `amd-smi topology`"
)
_REMEDY = (
    "give the output of `rocm-smi --showtopo --showproductname`, or of `amd-smi topology` and "
    "`amd-smi static --asic`"
)


def cluster_from_amd(
    text: str, *, source: str, device: str | None, node_count: int = 1
) -> Discovered:
    """Return `node_count` nodes such as the outputs show, of the device that is told or named.

    Raises:
        InputError: if no device is told or named, or the outputs cannot be read.
    """
    products = [first or second for first, second in _PRODUCT.findall(text)]
    links = _links(text, source=source)
    if len(set(products)) > 1:
        raise DocumentError(
            "has GPUs of several kinds in one node, which cannot be planned for",
            field=source,
            value=", ".join(sorted(set(products))),
            remedy="leave out those that the job does not use",
        )
    count = len(products) if links is None else len(links)
    if not count or count > _COUNT_LIMIT:
        raise DocumentError("names no GPU", field=source, remedy=_REMEDY)
    if device is None and not products:
        raise InputError(
            "names no product",
            field=source,
            value=f"{count} GPUs",
            remedy="say which with --device, or add `rocm-smi --showproductname`",
        )
    device = device or device_called(products[0], field=source)
    node, notes, found = _node(source, device=device, count=count, links=links)
    levels = None if found is None else found.levels
    return discovered([node] * node_count, name=source, notes=notes, levels=levels)


def _node(
    source: str, *, device: str, count: int, links: list[list[str]] | None
) -> tuple[Node, list[str], LinkLevels | None]:
    """Return one node, what is told of it, and its levels where they are not the profile's."""
    notes: list[str] = []
    dies = 2 if device in _TWO_DIES and count % 2 == 0 else 1
    if dies > 1:
        notes.append(f"{count} GPUs are the dies of {count // dies} modules, which are planned as")
    found = None
    if links is None:
        notes.append(_NO_MATRIX)
    else:
        kinds = {cell for row in links for cell in row if cell in {"XGMI", "PCIE"}}
        shown = " and ".join(sorted(kinds)) or "no other"
        notes.append(f"GPUs reach one another over {shown}")
        found = link_levels(
            device,
            count // dies,
            lambda one, other: int(links[one * dies][other * dies] == "XGMI"),
        )
    if found is not None:
        notes.append(found.note)
    return Node(name=source, device=device, device_count=count // dies), notes, found


def _links(text: str, *, source: str) -> list[list[str]] | None:
    """Return the kind of link between each two GPUs, None where there is no such table.

    Raises:
        DocumentError: if a row is missing or cut short.
    """
    table = _TABLE.search(text)
    if table is None:
        return None
    header, rows = _table_rows(text[table.end() :].splitlines())
    if not header or len(rows) != header or any(len(row) != header for row in rows):
        raise DocumentError(
            "has an incomplete table of links",
            field=source,
            value=f"{len(rows)} rows of {header} GPUs",
            remedy=_REMEDY,
        )
    return rows


def _table_rows(lines: list[str]) -> tuple[int, list[list[str]]]:
    """Return how many GPUs the table's header names, and the cells of each row that follows."""
    header = 0
    rows: list[list[str]] = []
    for words in (line.split() for line in lines):
        if not words and not rows:
            continue
        named = all(map(_ROW.fullmatch, words))
        if not header and words and named:
            header = len(words)
        elif header and words and _ROW.fullmatch(words[0]) and all(map(_CELL.fullmatch, words[1:])):
            rows.append(words[1:])
        elif rows:
            break
    return header, rows
