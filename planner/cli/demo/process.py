"""A command of the demo's own, as a process with its messages in a file."""

from __future__ import annotations

import os
import signal
import subprocess
from pathlib import Path

from planner.cli.demo.steps import DemoError


def ended_with(command: list[str], *, log: Path, seconds_limit: float) -> int:
    """Return the exit code of `command`, whose messages go to `log`.

    Nothing of it survives an interrupt.

    Raises:
        DemoError: if it takes longer than `seconds_limit`.
    """
    with log.open("wb") as messages:
        process = subprocess.Popen(
            command,
            env={**os.environ, "OMP_NUM_THREADS": os.environ.get("OMP_NUM_THREADS", "1")},
            stdin=subprocess.DEVNULL,
            stdout=messages,
            stderr=subprocess.STDOUT,
            start_new_session=True,
        )
    try:
        return process.wait(seconds_limit)
    except subprocess.TimeoutExpired:
        raise DemoError(f"it took more than {seconds_limit:.0f} s; see {log}") from None
    finally:
        if process.poll() is None:
            os.killpg(process.pid, signal.SIGKILL)
            process.wait()
