"""Launching: a run's processes on this node, through a keeper that outlives the agent."""

from __future__ import annotations

import os
import signal
import subprocess
import sys
import time
from collections.abc import Sequence
from pathlib import Path
from typing import Protocol

from executor.agent.commands import PACKAGE_ROOT
from executor.agent.processes import TAG, is_alive, kill_all
from executor.agent.run_folder import Command, Ending, RunFolder
from planner.schema.lease import Lease

_POLL_SECONDS = 0.05
_KEEPER_SECONDS = 2.0
KILLED = "the processes were killed, and nothing is known of how far they came"


class Launching(Protocol):
    """A way to run one lease's command."""

    def start(self, commands: Sequence[Command]) -> None:
        """Start it: a command for each node.

        Raises:
            AgentError: if it cannot be started.
        """

    def was_started(self) -> bool:
        """Return whether it was ever started, by this agent or one before."""

    def ending(self) -> Ending | None:
        """Return how it ended, `None` while it runs."""

    def stop(self) -> None:
        """End all its processes: asked first, then killed. Returns when they are gone."""

    def kill(self) -> None:
        """Kill all its processes. Returns when they are gone."""


class LocalLaunching:
    """Processes of this machine."""

    def __init__(self, folder: RunFolder, *, tag: str) -> None:
        self._folder = folder
        self._tag = tag
        self._keeper: subprocess.Popen[bytes] | None = None

    def start(self, commands: Sequence[Command]) -> None:
        """Start the keeper, which starts the command."""
        (command,) = commands
        kill_all(self._tag)
        self._folder.write_command(command)
        search_path = [PACKAGE_ROOT, *filter(None, [os.environ.get("PYTHONPATH")])]
        with (self._folder.path / "keeper.log").open("ab") as log:
            self._keeper = subprocess.Popen(
                [sys.executable, "-m", "executor.agent.keeper", str(self._folder.path)],
                env={**os.environ, TAG: self._tag, "PYTHONPATH": os.pathsep.join(search_path)},
                stdin=subprocess.DEVNULL,
                stdout=log,
                stderr=subprocess.STDOUT,
                start_new_session=True,
            )

    def was_started(self) -> bool:
        """Return whether a keeper ever took the folder."""
        return self._folder.read_keeper() is not None

    def ending(self) -> Ending | None:
        """Return what the keeper wrote; if it died without a word, end what it left behind."""
        if (written := self._folder.read_ending()) is not None:
            self._reap()
            return written
        if self._keeper_lives():
            return None
        kill_all(self._tag)
        self._folder.write_ending(Ending(reason="failed", exit_status=None, message=KILLED))
        return self._folder.read_ending()

    def stop(self) -> None:
        """Let the keeper end the processes; kill them if it does not within their grace."""
        mark = self._folder.read_keeper()
        if mark is not None and is_alive(mark):
            os.kill(mark.pid, signal.SIGTERM)
            grace = self._folder.read_command().grace_seconds + _KEEPER_SECONDS
            deadline = time.monotonic() + grace
            while self.ending() is None and time.monotonic() < deadline:
                time.sleep(_POLL_SECONDS)
        self._end(Ending(reason="stopped", exit_status=None))

    def kill(self) -> None:
        """Kill the keeper too."""
        self._end(Ending(reason="lease_lost", exit_status=None))

    def _end(self, ending: Ending) -> None:
        kill_all(self._tag)
        self._reap()
        self._folder.write_ending(ending)

    def _reap(self) -> None:
        """Let a keeper that has written its last word go; one that is stuck is killed."""
        if self._keeper is None:
            return
        try:
            self._keeper.wait(_KEEPER_SECONDS)
        except subprocess.TimeoutExpired:
            self._keeper.kill()
            self._keeper.wait()

    def _keeper_lives(self) -> bool:
        if self._keeper is not None:
            return self._keeper.poll() is None
        mark = self._folder.read_keeper()
        return mark is not None and is_alive(mark)


def tag_of(agent_id: str, lease: Lease) -> str:
    """Return what marks all processes of a lease."""
    return f"{agent_id}/{lease.id}/{lease.epoch}/"


def folder_of(work_folder: Path, lease: Lease) -> RunFolder:
    """Return where a lease's files lie."""
    return RunFolder(work_folder / "runs" / f"{lease.id}-{lease.epoch}")
