"""Leases and folders for tests of the agent."""

from __future__ import annotations

from pathlib import Path
from typing import Any

from executor.agent.run_folder import RunFolder
from planner.schema.agent import Intervals
from planner.schema.lease import Lease
from planner.schema.lifecycle import LeaseState
from tests.builders import a_plan


def a_lease(**changes: Any) -> Lease:
    """A lease of two ranks on one node."""
    fields: dict[str, Any] = {
        "id": "lease-1",
        "run_id": "run-1",
        "epoch": 3,
        "attempt": 2,
        "state": LeaseState.OFFERED,
        "plan": a_plan(),
        "command": "train",
        "arguments": {},
        "node_rank": 0,
        "node_count": 1,
        "ranks": (0, 1),
        "master_address": "127.0.0.1",
        "master_port": 29400,
        "checkpoint_folder": "run-1",
        "resume": True,
        "intervals": Intervals(
            poll_seconds=1,
            heartbeat_seconds=0.5,
            flush_seconds=0.1,
            lease_seconds=8,
            give_up_seconds=5,
        ),
    }
    return Lease(**{**fields, **changes})


def a_folder(tmp_path: Path) -> RunFolder:
    """An empty run folder."""
    path = tmp_path / "run"
    path.mkdir()
    return RunFolder(path)
