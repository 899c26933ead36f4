"""Slurm rows: metrics of a job's nodes, from a file of each into the run's one.

Appending to one file from several nodes is not safe on network file systems.
"""

from __future__ import annotations

import os
from pathlib import Path

from executor.agent.spool import read_row
from planner.schema.lease import Lease


class RowMerger:
    """Appends to `metrics.jsonl` what nodes have written since."""

    def __init__(self, folder: Path, lease: Lease) -> None:
        self._folder = folder
        self._span = lease.node_span
        self._ranks = lease.ranks
        self._offsets: list[int] | None = None

    def merge(self) -> None:
        """Append all whole lines that are new."""
        if self._offsets is None:
            self._offsets = [self._merged_bytes(node) for node in range(self._span)]
        with (self._folder / "metrics.jsonl").open("ab") as merged:
            for node in range(self._span):
                content = _whole_lines(self._folder / node_metrics_name(node), self._offsets[node])
                for line in content.splitlines(keepends=True):
                    if read_row(line) is not None:
                        merged.write(line)
                self._offsets[node] += len(content)
            merged.flush()
            os.fsync(merged.fileno())

    def _merged_bytes(self, node: int) -> int:
        """Return how far a node's file was merged before: as many rows as are in the one file."""
        per_node = max(1, len(self._ranks) // self._span)
        ranks = set(self._ranks[node * per_node : (node + 1) * per_node])
        merged = _whole_lines(self._folder / "metrics.jsonl", 0).splitlines()
        count = sum(row.rank in ranks for line in merged if (row := read_row(line)) is not None)
        end = 0
        for line in _whole_lines(self._folder / node_metrics_name(node), 0).splitlines(True):
            if count == 0:
                break
            end += len(line)
            count -= read_row(line) is not None
        return end


def node_metrics_name(node: int) -> str:
    """Return the name of the file that the ranks of a job's node append to."""
    return f"metrics-{node}.jsonl"


def _whole_lines(path: Path, offset: int) -> bytes:
    try:
        with path.open("rb") as file:
            file.seek(offset)
            content = file.read()
    except FileNotFoundError:
        return b""
    return content[: content.rfind(b"\n") + 1]
