"""What the demo knows of this machine: `meshwright profile`, and the cluster that it wrote."""

from __future__ import annotations

import sys
from pathlib import Path

from planner.cli.demo.process import ended_with
from planner.cli.demo.service import last_line
from planner.cli.demo.steps import DemoError
from planner.cli.profile import BUSY

PROFILE_SECONDS_LIMIT = 900.0


def measured_cluster_file(
    directory: Path, *, rank_count: int, seconds: float
) -> tuple[Path, list[str]]:
    """Return the cluster file of this machine's CPU ranks, and what the profile warns of.

    Kernels are measured for about `seconds`, and steps for as long or until they agree.

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
    said = log.read_text(encoding="utf-8", errors="replace").splitlines()
    return path, [line for line in said if line.startswith(BUSY)]
