"""Slurm task: what a job runs on each of its nodes: the node's command, watched.

    python -m executor.agent.slurm_task FOLDER

Clocks of nodes differ. So the task watches whether the agent still writes to FOLDER/until, and ends
its processes when that has not changed for as long as the lease allows.
"""

from __future__ import annotations

import json
import os
import signal
import subprocess
import sys
import time
from pathlib import Path
from types import FrameType
from typing import Any

from executor.agent.processes import TAG, end_all

_POLL_SECONDS = 0.2
_FIRST_HOST = "{first_host}"
_stop: list[bool] = []


def main(arguments: list[str]) -> int:
    """Run this node's command; return its exit status."""
    folder = Path(arguments[0])
    task = json.loads((folder / "task.json").read_text(encoding="utf-8"))
    node = os.environ["SLURM_NODEID"]
    command = _placed(task["commands"][int(node)])
    # Slurm's own processes carry the job's tag; ours have one of this node.
    tag = f"{os.environ[TAG]}{node}/"
    signal.signal(signal.SIGTERM, _ask_stop)
    child = subprocess.Popen(
        command["argv"],
        cwd=command["directory"],
        env={**os.environ, **command["environment"], TAG: tag},
        stdin=subprocess.DEVNULL,
        start_new_session=True,
    )
    watch = Watch(folder / "until", task["silence_seconds"])
    while child.poll() is None and not _stop and not watch.is_silent():
        time.sleep(_POLL_SECONDS)
    grace = 0.0 if watch.is_silent() else command["grace_seconds"]
    status = child.poll()
    end_all(tag, grace_seconds=grace, is_late=watch.is_silent)
    child.wait()
    return 1 if status is None or status < 0 else status


class Watch:
    """Notices when a file has not changed for too long, by this node's own clock."""

    def __init__(self, path: Path, silence_seconds: float) -> None:
        self._path = path
        self._silence_seconds = silence_seconds
        self._content = b""
        self._changed_at = time.monotonic()

    def is_silent(self) -> bool:
        """Return whether nothing has changed for too long."""
        try:
            content = self._path.read_bytes()
        except OSError:
            content = self._content
        if content != self._content:
            self._content, self._changed_at = content, time.monotonic()
        return time.monotonic() - self._changed_at > self._silence_seconds


def _placed(command: dict[str, Any]) -> dict[str, Any]:
    """Return a command with the name of the job's first node where it is wanted."""
    host = _first_host()
    return {
        **command,
        "argv": [element.replace(_FIRST_HOST, host) for element in command["argv"]],
        "environment": {
            name: value.replace(_FIRST_HOST, host) for name, value in command["environment"].items()
        },
    }


def _first_host() -> str:
    nodes = os.environ.get("SLURM_JOB_NODELIST", "localhost")
    if int(os.environ.get("SLURM_JOB_NUM_NODES", "1")) == 1:
        return "127.0.0.1"
    answer = subprocess.run(
        ["scontrol", "show", "hostnames", nodes],  # noqa: S607 - Slurm's, on the PATH
        capture_output=True,
        text=True,
        check=True,
    )
    return answer.stdout.split()[0]


def _ask_stop(_number: int, _frame: FrameType | None) -> None:
    _stop.append(True)


if __name__ == "__main__":
    sys.exit(main(sys.argv[1:]))
