"""Slurm: a run as a batch job, submitted, watched and cancelled through Slurm's own programs.

The job's script is one fixed line; what it runs is data in the run's folder, which all nodes of the
job must see (a shared file system).
"""

from __future__ import annotations

import json
import os
import shlex
import subprocess
import sys
import time
from collections.abc import Sequence
from dataclasses import asdict

from executor.agent.commands import PACKAGE_ROOT
from executor.agent.configuration import Slurm
from executor.agent.errors import AgentError
from executor.agent.processes import TAG
from executor.agent.run_folder import Command, Ending, EndReason, RunFolder
from executor.agent.slurm_rows import RowMerger
from executor.replaced_file import replace_file
from planner.errors import shorten
from planner.schema.lease import Lease

FIRST_HOST = "{first_host}"
_PROGRAM_SECONDS = 60.0
_POLL_SECONDS = 0.2
_CANCEL_SECONDS = 60.0
# squeue(1), "job state codes": those in which a job is or will be running.
_LIVE = frozenset(
    {"PENDING", "CONFIGURING", "RUNNING", "COMPLETING", "SUSPENDED", "STOPPED", "REQUEUED",
     "REQUEUE_HOLD", "REQUEUE_FED", "RESIZING", "SIGNALING", "STAGE_OUT", "SPECIAL_EXIT",
     "RESV_DEL_HOLD"}
)  # fmt: skip


class SlurmLaunching:
    """One lease as a job."""

    def __init__(self, folder: RunFolder, lease: Lease, slurm: Slurm, *, tag: str) -> None:
        self._folder = folder
        self._lease = lease
        self._slurm = slurm
        self._tag = tag
        self._asked_at = 0.0
        self._rows = RowMerger(folder.path, lease)

    def start(self, commands: Sequence[Command]) -> None:
        """Submit the job.

        Raises:
            AgentError: if Slurm does not take it.
        """
        self._write_task(commands)
        replace_file(self._folder.path / "submitted", self._name() + "\n")
        answer = _program(
            [
                "sbatch", "--parsable", "--no-requeue", f"--job-name={self._name()}",
                f"--nodes={len(commands)}", "--ntasks-per-node=1", "--export=ALL",
                "--open-mode=append", f"--output={_no_pattern(str(self._folder.log_path))}",
                *self._slurm.options, str(self._folder.path / "job.sh"),
            ],
            variables={TAG: self._tag, "PYTHONPATH": PACKAGE_ROOT},
        )  # fmt: skip
        number = answer.stdout.strip().partition(";")[0]
        if answer.returncode != 0 or not number.isdigit():
            (self._folder.path / "submitted").unlink()
            raise AgentError(
                "Slurm did not take the job",
                field="sbatch",
                value=shorten(answer.stderr.strip() or answer.stdout.strip()),
                remedy="correct slurm.options in the agent's configuration",
            )
        replace_file(self._folder.path / "job", number + "\n")

    def was_started(self) -> bool:
        """Return whether a job was submitted or may have been."""
        return (self._folder.path / "submitted").exists()

    def ending(self) -> Ending | None:
        """Return how the job ended, `None` while it waits or runs."""
        if (written := self._folder.read_ending()) is not None:
            return written
        now = time.monotonic()
        if self._asked_at and now - self._asked_at < self._slurm.poll_seconds:
            return None
        self._asked_at = now
        ending = self._asked()
        self._rows.merge()
        if ending is not None:
            self._folder.write_ending(ending)
        return ending

    def stop(self) -> None:
        """Cancel the job, first politely; return when Slurm has it no more."""
        self._cancel([], "stopped")

    def kill(self) -> None:
        """Cancel the job without asking its processes."""
        self._cancel(["--signal=KILL", "--full"], "lease_lost")

    def _cancel(self, options: Sequence[str], reason: EndReason) -> None:
        number = self._number()
        if number is not None and self._state(number) is not None:
            _program(["scancel", *options, number])
            deadline = time.monotonic() + _CANCEL_SECONDS
            while self._state(number) in _LIVE and time.monotonic() < deadline:
                time.sleep(_POLL_SECONDS)
                if deadline - time.monotonic() < _CANCEL_SECONDS - 5.0:
                    _program(["scancel", "--signal=KILL", "--full", number])
        self._rows.merge()
        self._folder.write_ending(Ending(reason=reason, exit_status=None))

    def _asked(self) -> Ending | None:
        """Return how the job ended, as Slurm or the job itself says."""
        number = self._number()
        state = "UNKNOWN" if number is None else self._state(number)
        if state in _LIVE:
            return None
        status = self._exit_status()
        if status is not None:
            return Ending(reason="completed" if status == 0 else "failed", exit_status=status)
        if state is None:
            return None  # Slurm does not answer: its controller may be restarting
        return Ending(reason="failed", exit_status=None, message=f"the Slurm job ended as {state}")

    def _state(self, number: str) -> str | None:
        """Return a job's state, `None` if Slurm does not answer, `UNKNOWN` if it forgot the job."""
        answer = _program(["squeue", "--noheader", f"--jobs={number}", "--format=%T"])
        if answer.returncode == 0 and answer.stdout.strip():
            return answer.stdout.split()[0]
        if answer.returncode != 0 and "Invalid job id" not in answer.stderr:
            return None
        account = _program(
            ["sacct", "--noheader", "--parsable2", "-X", f"--jobs={number}", "--format=State"]
        )
        words = account.stdout.split() if account.returncode == 0 else []
        return words[0] if words else "UNKNOWN"

    def _number(self) -> str | None:
        """Return the job's number; one that was submitted unnoticed is found by its name."""
        path = self._folder.path / "job"
        if not path.exists():
            answer = _program(["squeue", "--noheader", f"--name={self._name()}", "--format=%i"])
            found = answer.stdout.split()
            if not found:
                return None
            replace_file(path, found[0] + "\n")
        return path.read_text(encoding="utf-8").strip()

    def _exit_status(self) -> int | None:
        """Return what the job's script wrote last: where no accounting runs, all there is."""
        try:
            return int((self._folder.path / "exit_status").read_text())
        except (FileNotFoundError, ValueError):
            return None

    def _write_task(self, commands: Sequence[Command]) -> None:
        intervals = self._lease.intervals
        task = {
            "commands": [asdict(command) for command in commands],
            # A beat shows in the folder as late as its answer may come.
            "silence_seconds": max(
                1.0, intervals.give_up_seconds - max(2.0, intervals.heartbeat_seconds) - 1.0
            ),
        }
        replace_file(self._folder.path / "task.json", json.dumps(task, indent=1))
        folder = shlex.quote(str(self._folder.path))
        status = shlex.quote(str(self._folder.path / "exit_status"))
        python = shlex.quote(sys.executable)
        script = (
            "#!/bin/bash\n"
            f"srun --kill-on-bad-exit=1 {python} -m executor.agent.slurm_task {folder}\n"
            f"echo $? > {status}.draft && mv {status}.draft {status}\n"
        )
        replace_file(self._folder.path / "job.sh", script)

    def _name(self) -> str:
        return f"meshwright-{self._lease.id}-{self._lease.epoch}"


def _program(
    argv: Sequence[str], *, variables: dict[str, str] | None = None
) -> subprocess.CompletedProcess[str]:
    """Return what one of Slurm's programs said; a missing or silent one answers with failure."""
    try:
        return subprocess.run(
            list(argv),
            env={**os.environ, **(variables or {})},
            stdin=subprocess.DEVNULL,
            capture_output=True,
            text=True,
            errors="replace",
            timeout=_PROGRAM_SECONDS,
            check=False,
        )
    except (OSError, subprocess.TimeoutExpired) as error:
        return subprocess.CompletedProcess(list(argv), 127, "", str(error))


def _no_pattern(path: str) -> str:
    """Return a path in which sbatch sees no file name pattern."""
    return path.replace("%", "%%")
