"""Run folder: all that is on disk of one lease. Each file is written whole or appended to.

lease.json     what the server gave, as it came
plan.json      the plan alone, for the launcher
command.json   what the keeper starts
keeper.json    which process keeps it
until          when the lease runs out, on this machine's own clock since it booted
log            what the command and its ranks print
metrics.jsonl  one line a step and rank
sent.json      how far the server has acknowledged both
ending.json    how the command ended
refusal        what the command would be refused with again, if it was
closed         the server knows the result, or wants none
"""

from __future__ import annotations

import fcntl
import json
import time
from collections.abc import Mapping
from dataclasses import asdict, dataclass, field
from pathlib import Path
from typing import IO, Any, Literal

from executor.agent.processes import ProcessMark
from executor.replaced_file import replace_file

EndReason = Literal["completed", "failed", "stopped", "lease_lost"]


@dataclass(frozen=True, slots=True, kw_only=True)
class Command:
    """What the keeper starts: arguments of a process, never a shell's line."""

    argv: tuple[str, ...]
    directory: str
    environment: Mapping[str, str]
    grace_seconds: float


@dataclass(frozen=True, slots=True, kw_only=True)
class Ending:
    """How a command ended. `exit_status` is negative for a signal, `None` if it never ran."""

    reason: EndReason
    exit_status: int | None
    message: str = ""


@dataclass(frozen=True, slots=True, kw_only=True)
class Sent:
    """How far the server has acknowledged: bytes of the log, rows and bytes of the metrics."""

    log_bytes: int = 0
    metric_rows: int = 0
    metric_bytes: int = 0


@dataclass(frozen=True, slots=True)
class RunFolder:
    """The files of one lease under `path`."""

    path: Path
    log_path: Path = field(init=False)
    metrics_path: Path = field(init=False)
    plan_path: Path = field(init=False)
    refusal_path: Path = field(init=False)

    def __post_init__(self) -> None:
        object.__setattr__(self, "log_path", self.path / "log")
        object.__setattr__(self, "metrics_path", self.path / "metrics.jsonl")
        object.__setattr__(self, "plan_path", self.path / "plan.json")
        object.__setattr__(self, "refusal_path", self.path / "refusal")

    def claim(self) -> IO[bytes] | None:
        """Return the folder's lock, `None` if a keeper has it or had it: a command starts once."""
        file = (self.path / "lock").open("ab")
        try:
            fcntl.flock(file, fcntl.LOCK_EX | fcntl.LOCK_NB)
        except OSError:
            file.close()
            return None
        if (self.path / "keeper.json").exists():
            file.close()
            return None
        return file

    def seconds_left(self) -> float:
        """Return how long the lease still runs; nothing if nobody ever said."""
        try:
            return float((self.path / "until").read_text()) - machine_seconds()
        except (FileNotFoundError, ValueError):
            return 0.0

    def write_until(self, until_seconds: float) -> None:
        """Let the lease run until the machine's clock shows `until_seconds`."""
        replace_file(self.path / "until", f"{until_seconds:.3f}", is_synced=False)

    def read_command(self) -> Command:
        """Return what the keeper is to start."""
        fields = json.loads((self.path / "command.json").read_text(encoding="utf-8"))
        return Command(**{**fields, "argv": tuple(fields["argv"])})

    def write_command(self, command: Command) -> None:
        """Write what the keeper is to start."""
        self._write("command.json", asdict(command))

    def read_keeper(self) -> ProcessMark | None:
        """Return which process keeps or kept the command, `None` if none was started."""
        fields = self._read("keeper.json")
        return None if fields is None else ProcessMark(**fields)

    def write_keeper(self, mark: ProcessMark) -> None:
        """Write which process keeps the command."""
        self._write("keeper.json", asdict(mark))

    def read_ending(self) -> Ending | None:
        """Return how the command ended, `None` if nobody wrote it."""
        fields = self._read("ending.json")
        return None if fields is None else Ending(**fields)

    def write_ending(self, ending: Ending) -> None:
        """Write how the command ended, unless that is known already: the first word counts."""
        if self.read_ending() is None:
            self._write("ending.json", asdict(ending))

    def read_sent(self) -> Sent:
        """Return how far the server has acknowledged."""
        fields = self._read("sent.json")
        return Sent() if fields is None else Sent(**fields)

    def write_sent(self, sent: Sent) -> None:
        """Write how far the server has acknowledged."""
        self._write("sent.json", asdict(sent))

    def is_closed(self) -> bool:
        """Return whether nothing of the lease is left to do."""
        return (self.path / "closed").exists()

    def close(self, why: str) -> None:
        """Say that nothing of the lease is left to do."""
        replace_file(self.path / "closed", why + "\n")

    def _write(self, name: str, fields: Mapping[str, Any]) -> None:
        replace_file(self.path / name, json.dumps(fields, indent=1) + "\n")

    def _read(self, name: str) -> dict[str, Any] | None:
        try:
            fields: dict[str, Any] = json.loads((self.path / name).read_text(encoding="utf-8"))
        except FileNotFoundError:
            return None
        return fields


def machine_seconds() -> float:
    """Return seconds since this machine booted: one clock for all its processes, never set."""
    return time.clock_gettime(time.CLOCK_BOOTTIME)
