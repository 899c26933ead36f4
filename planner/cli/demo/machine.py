"""What the demo knows of this machine: `meshwright profile`, and the cluster that it wrote."""

from __future__ import annotations

import sys
from pathlib import Path

from planner.cli.demo.process import ended_with
from planner.cli.demo.service import last_line
from planner.cli.demo.steps import DemoError

PROFILE_SECONDS_LIMIT = 300.0


def measured_cluster_file(directory: Path, *, rank_count: int, seconds: float) -> Path:
    """Return the cluster file of this machine's CPU ranks, measured for about `seconds`.

    Raises:
        DemoError: if they cannot be measured.
    """
    path, log = directory / "cluster.json", directory / "profile.log"
    path.unlink(missing_ok=True)
    command = [sys.executable, "-m", "planner.cli", "profile", "--out", str(path)]
    command += ["--ranks", str(rank_count), "--device", "cpu", "--seconds", str(seconds)]
    code = ended_with(command, log=log, seconds_limit=PROFILE_SECONDS_LIMIT)
    if code != 0:
        raise DemoError(f"`meshwright profile` ended with code {code}: {last_line(log)}; see {log}")
    return path
