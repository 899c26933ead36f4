"""Keeper: owns the processes of one run, and outlives the agent that started it.

    python -m executor.agent.keeper FOLDER

It starts the command of FOLDER once, writes what the command prints to FOLDER, and ends all of the
run's processes when it is told to (SIGTERM) or when the time in FOLDER/until has passed: then the
server may have given the run to others. An agent that is replaced finds the run still running.
"""

from __future__ import annotations

import ctypes
import os
import signal
import subprocess
import sys
import time
from pathlib import Path
from types import FrameType
from typing import IO

from executor.agent.processes import TAG, end_all, mark_of
from executor.agent.run_folder import Command, Ending, EndReason, RunFolder

_POLL_SECONDS = 0.05
_PR_SET_PDEATHSIG = 1


def main(arguments: list[str]) -> int:
    """Run the command of a folder to its end; return 0 if how it ended was written."""
    folder = RunFolder(Path(arguments[0]))
    lock = folder.claim()
    if lock is None:
        return 3
    with lock:
        return Keeper(folder).keep(lock)


class Keeper:
    """One command, from start to end."""

    def __init__(self, folder: RunFolder) -> None:
        self._folder = folder
        self._stop_asked = False
        signal.signal(signal.SIGTERM, self._ask_stop)
        signal.signal(signal.SIGINT, signal.SIG_IGN)

    def keep(self, lock: IO[bytes]) -> int:
        """Run to the end, and write how it was."""
        command = self._folder.read_command()
        own = mark_of(os.getpid())
        if own is None:  # pragma: no cover - a process sees itself
            return 3
        self._folder.write_keeper(own)
        if self._must_end() is not None:
            ending = Ending(reason=self._must_end() or "stopped", exit_status=None)
        else:
            ending = self._run(command, lock)
        self._folder.write_ending(ending)
        return 0

    def _run(self, command: Command, lock: IO[bytes]) -> Ending:
        try:
            child = _start(command, self._folder.log_path, lock)
        except OSError as error:
            return Ending(reason="failed", exit_status=None, message=f"cannot be started: {error}")
        reason: EndReason | None = None
        while child.poll() is None and reason is None:
            time.sleep(_POLL_SECONDS)
            reason = self._must_end()
        status = child.poll()
        # What the command has left behind, as a tracker's uploads, may end as on a stop; when the
        # lease is lost there is no time.
        grace = 0.0 if reason == "lease_lost" else command.grace_seconds
        end_all(os.environ[TAG], grace_seconds=grace, is_late=self._is_lost)
        child.wait()
        if reason is None:
            reason = "completed" if status == 0 else "failed"
        return Ending(reason=reason, exit_status=child.returncode)

    def _must_end(self) -> EndReason | None:
        if self._is_lost():
            return "lease_lost"
        return "stopped" if self._stop_asked else None

    def _is_lost(self) -> bool:
        return self._folder.seconds_left() <= 0

    def _ask_stop(self, _number: int, _frame: FrameType | None) -> None:
        self._stop_asked = True


def _start(command: Command, log_path: Path, lock: IO[bytes]) -> subprocess.Popen[bytes]:
    with log_path.open("ab") as log:
        return subprocess.Popen(
            command.argv,
            cwd=command.directory,
            env={**os.environ, **command.environment},
            stdin=subprocess.DEVNULL,
            stdout=log,
            stderr=subprocess.STDOUT,
            start_new_session=True,
            pass_fds=[lock.fileno()],
            preexec_fn=_die_with_keeper,  # noqa: PLW1509 - this process has one thread
        )


def _die_with_keeper() -> None:
    if sys.platform.startswith("linux"):
        ctypes.CDLL(None).prctl(_PR_SET_PDEATHSIG, signal.SIGKILL)


if __name__ == "__main__":
    sys.exit(main(sys.argv[1:]))
