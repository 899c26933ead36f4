"""Checks: what must hold of a run whatever befell it, from the database and from marks."""

from __future__ import annotations

import json
from collections.abc import Iterator
from dataclasses import dataclass
from itertools import pairwise
from pathlib import Path
from typing import Any

from executor.agent.processes import tagged
from executor.agent.spool import as_text
from planner.schema.lifecycle import RUN_TRANSITIONS, RunState
from tests.chaos.fleet import FINAL, Fleet

# docs/agent-protocol.md: agents kill their ranks after three quarters of a lease.
GIVE_UP_RATIO = 0.75
_MOVES = {(move.source, move.target) for move in RUN_TRANSITIONS}


@dataclass(frozen=True, slots=True, kw_only=True)
class Marks:
    """When one node ran in one epoch, by the machine's clock, and which rank processes."""

    epoch: int
    node: int
    first: float
    last: float
    pids: frozenset[str]
    is_done: bool


def violations(fleet: Fleet, run_id: str, marks_folder: Path, *, lease_seconds: float) -> list[str]:
    """Return what does not hold of a run that has ended."""
    marks = read_marks(marks_folder)
    return [
        *_untrue_ends(fleet, run_id, marks),
        *_overlaps(marks),
        *_early_ends(fleet, run_id, lease_seconds=lease_seconds),
        *_losses(fleet, run_id),
        *_illegal_moves(fleet, run_id),
        *_survivors(fleet),
        *_half_made(fleet),
    ]


def read_marks(folder: Path) -> list[Marks]:
    """Return what workers wrote of themselves, by epoch and node."""
    found = []
    for path in sorted(folder.glob("*-*.txt")) if folder.exists() else []:
        epoch, node = path.stem.split("-")
        lines = [line.split(maxsplit=2) for line in path.read_text().splitlines()]
        found.append(
            Marks(
                epoch=int(epoch),
                node=int(node),
                first=min(float(line[0]) for line in lines),
                last=max(float(line[0]) for line in lines),
                pids=frozenset(line[1] for line in lines),
                is_done=any(line[2] == "done" for line in lines),
            )
        )
    return found


def _untrue_ends(fleet: Fleet, run_id: str, marks: list[Marks]) -> Iterator[str]:
    """Yield how the run's last state differs from what its workers did."""
    run = fleet.state(run_id)
    if run["state"] not in FINAL:
        yield f"the run is lost in state {run['state']}"
    live = fleet.database.query(
        "select id from leases where run_id = :run and ended_at is null", run=run_id
    )
    if run["state"] in FINAL and live:
        yield f"it has ended, and leases are live: {live}"
    last = [mark for mark in marks if mark.epoch == run["epoch"]]
    if run["state"] == "succeeded" and (not last or not all(mark.is_done for mark in last)):
        yield "it succeeded, and not all of its workers were done"
    if run["state"] == "failed":
        yield f"it failed, with restarts left: {run['reason']}"
    if run["state"] == "cancelled" and not run["cancel_requested"]:
        yield "it was cancelled, and nobody asked for that"


def _overlaps(marks: list[Marks]) -> Iterator[str]:
    """Yield epochs that ran at the same time, and parts that two processes ran."""
    for mark in marks:
        if len(mark.pids) > 1:
            yield f"epoch {mark.epoch} node {mark.node} was started {len(mark.pids)} times"
    for one in marks:
        for other in marks:
            if one.epoch < other.epoch and one.last > other.first:
                yield (
                    f"epochs {one.epoch} and {other.epoch} ran at once for "
                    f"{one.last - other.first:.3f} s"
                )


def _early_ends(fleet: Fleet, run_id: str, *, lease_seconds: float) -> Iterator[str]:
    """Yield leases that expired although their agents were heard and may still run."""
    expired = fleet.database.query(
        "select id from leases where run_id = :run and state = 'expired'", run=run_id
    )
    for (lease_id,) in expired:
        for node in fleet.nodes:
            silence = node.proxy.acknowledged.refused_after.get(lease_id)
            if silence is not None and silence < GIVE_UP_RATIO * lease_seconds:
                yield f"{lease_id} expired {silence:.1f} s after a heartbeat that was answered"


def _losses(fleet: Fleet, run_id: str) -> Iterator[str]:
    """Yield what was acknowledged and is not stored, or stored otherwise than it was written."""
    leases = fleet.database.query(
        "select id, epoch, state, log_offset, metric_sequence from leases where run_id = :run",
        run=run_id,
    )
    for lease_id, epoch, state, log_bytes, row_count in leases:
        heard_bytes = max(n.proxy.acknowledged.log_bytes.get(lease_id, 0) for n in fleet.nodes)
        heard_rows = max(n.proxy.acknowledged.metric_rows.get(lease_id, 0) for n in fleet.nodes)
        if heard_bytes > log_bytes or heard_rows > row_count:
            yield (
                f"{lease_id}: acknowledged {heard_bytes} bytes and {heard_rows} rows, "
                f"stored {log_bytes} and {row_count}"
            )
        heard = {n.proxy.acknowledged.results.get(lease_id, state) for n in fleet.nodes}
        if heard != {state}:
            yield f"{lease_id}: acknowledged as {heard - {state}}, stored as {state}"
        text, rows = _stored(fleet, lease_id)
        if len(text.encode()) != log_bytes or len(rows) != row_count:
            yield (
                f"{lease_id}: {log_bytes} bytes and {row_count} rows are said to be stored, "
                f"{len(text.encode())} and {len(rows)} are"
            )
        yield from _differences(
            fleet, f"{lease_id}-{epoch}", text, rows, whole=state == "succeeded"
        )


def _stored(fleet: Fleet, lease_id: str) -> tuple[str, list[tuple[int, int]]]:
    pieces = fleet.database.query(
        "select text from lease_logs where lease_id = :lease order by position", lease=lease_id
    )
    rows = fleet.database.query(
        "select rank, step from lease_metrics where lease_id = :lease order by number",
        lease=lease_id,
    )
    return "".join(piece[0] for piece in pieces), [tuple(row) for row in rows]


def _differences(
    fleet: Fleet, folder_name: str, text: str, rows: list[tuple[int, int]], *, whole: bool
) -> Iterator[str]:
    for node in fleet.nodes:
        folder = node.folder / "runs" / folder_name
        if not (folder / "log").exists():
            continue
        written = as_text((folder / "log").read_bytes(), is_final=True)
        steps = _written_rows(folder / "metrics.jsonl")
        if not written.startswith(text):
            yield f"{folder_name}: the stored log is not what was printed"
        if steps[: len(rows)] != rows:
            yield f"{folder_name}: the stored rows are not what was measured"
        if whole and (written != text or steps != rows):
            yield f"{folder_name}: it succeeded, and not all of its log and metrics arrived"


def _written_rows(path: Path) -> list[tuple[int, int]]:
    if not path.exists():
        return []
    found: list[dict[str, Any]] = [json.loads(line) for line in path.read_text().splitlines()]
    return [(row["rank"], row["step"]) for row in found]


def _illegal_moves(fleet: Fleet, run_id: str) -> Iterator[str]:
    """Yield moves in the history that no table allows."""
    items = fleet.server.ask("GET", f"/v1/runs/{run_id}/history")["items"]
    states = [RunState(item["state"]) for item in items if item["kind"] == "state"]
    for source, target in pairwise(states):
        if source != target and (source, target) not in _MOVES:
            yield f"it went from {source} to {target}"


def _survivors(fleet: Fleet) -> Iterator[str]:
    """Yield processes of runs although none is to run."""
    for node in fleet.nodes:
        if left := tagged(f"{node.agent_id}/"):
            yield f"{node.name} still has processes {left}"


def _half_made(fleet: Fleet) -> Iterator[str]:
    """Yield runs that nobody was told of, or that are gone, and other surprises of the fleet."""
    stored = {row[0] for row in fleet.database.query("select id from runs")}
    if stored != fleet.run_ids:
        yield (
            f"runs that nobody was told of: {stored - fleet.run_ids}; runs that are gone: "
            f"{fleet.run_ids - stored}"
        )
        fleet.run_ids |= stored
    yield from fleet.surprises
    fleet.surprises.clear()
