"""Plain output of `nvidia-smi`, and its CSV: the products of a node's GPUs.

The plain table cuts names short (`Tesla V100-SXM2...`, `NVIDIA A100-PCI...`); the memory in the
line below tells those apart. CSV is of `--query-gpu=name,... --format=csv`, with its header.
"""

from __future__ import annotations

import csv
import re
from collections.abc import Iterator

from planner.errors import DocumentError

PLAIN_MARK = r"^\|\s+NVIDIA-SMI\s+[0-9]"
CSV_MARK = r"^(?:[a-z_.]+(?: \[[A-Za-z/%]+\])?, )*name(?:, [a-z_.]+(?: \[[A-Za-z/%]+\])?)*\s*$"

_NAMED = re.compile(
    r"^\|\s+\d{1,4}\s+(\S.*?)\s+(?:On|Off|N/A)\s+\|\s*[0-9A-Fa-f]{8}:[0-9A-Fa-f]{2}:", re.MULTILINE
)
_MEMORY = re.compile(r"\|\s*\d+MiB\s*/\s*(\d+)MiB\s*\|")
_INSTANCES = re.compile(r"^\|\s+MIG devices:", re.MULTILINE)
_PCIE = re.compile(r"PCIe?\.\.\.$|PC\.\.\.$|PCI\.\.\.$")
_SIZED = re.compile(r"[0-9]\s?GB")
_MIB_PER_GIB = 1024
_COUNT_LIMIT = 1024


def plain_products(text: str, *, source: str) -> tuple[str, ...]:
    """Return the product of each GPU in the plain table, with its memory where its name has none.

    Raises:
        DocumentError: if GPUs are cut into instances, or there is none.
    """
    if _INSTANCES.search(text):
        raise _instances(source)
    names = [(match.group(1), match.end()) for match in _NAMED.finditer(text)]
    if not names or len(names) > _COUNT_LIMIT:
        raise DocumentError(
            "has no row of a GPU",
            field=source,
            remedy="give all of the output of `nvidia-smi`, or `nvidia-smi -L`",
        )
    return tuple(_whole(name, _MEMORY.search(text, place)) for name, place in names)


def csv_products(text: str, *, source: str) -> tuple[str, ...]:
    """Return the product of each GPU in the CSV.

    Raises:
        DocumentError: if GPUs are cut into instances, or there is none.
    """
    rows = list(_rows(text))
    if any(row.get("mig.mode.current") == "Enabled" for row in rows):
        raise _instances(source)
    if not rows or len(rows) > _COUNT_LIMIT:
        raise DocumentError(
            "has no row of a GPU",
            field=source,
            remedy="give the output of `nvidia-smi --query-gpu=name,memory.total --format=csv`",
        )
    return tuple(row["name"] for row in rows)


def _rows(text: str) -> Iterator[dict[str, str]]:
    lines = text.splitlines()
    start = next(index for index, line in enumerate(lines) if re.match(CSV_MARK, line))
    header = [word.strip().partition(" [")[0] for word in lines[start].split(",")]
    for cells in csv.reader(lines[start + 1 :], skipinitialspace=True):
        if len(cells) == len(header):
            yield dict(zip(header, (cell.strip() for cell in cells), strict=True))


def _whole(name: str, memory: re.Match[str] | None) -> str:
    """Return a name as it is in full, as far as the table tells."""
    whole = _PCIE.sub("PCIe", name).removesuffix("...")
    if memory is None or _SIZED.search(whole):
        return whole
    return f"{whole} {round(int(memory.group(1)) / _MIB_PER_GIB)}GB"


def _instances(source: str) -> DocumentError:
    return DocumentError(
        "has GPUs cut into instances (MIG), which cannot be planned for",
        field=source,
        remedy="switch MIG off with `nvidia-smi -mig 0`",
    )
