"""Processes: whose they are, whether they live, and how all of them end.

Every process of a run inherits one variable of its environment, which no process group and no new
session hides: torch gives each rank a session of its own. Linux alone shows it, in /proc.
"""

from __future__ import annotations

import os
import signal
import time
from collections.abc import Callable, Iterator
from dataclasses import dataclass
from pathlib import Path

TAG = "MESHWRIGHT_LEASE"
_PROC = Path("/proc")
_POLL_SECONDS = 0.02
_STAT_START_TIME = 19  # field 22 of proc(5)'s stat, counted from field 3


@dataclass(frozen=True, slots=True, kw_only=True)
class ProcessMark:
    """A process, told from a later one with the same number by when it started."""

    pid: int
    start_ticks: int


def mark_of(pid: int) -> ProcessMark | None:
    """Return the mark of a living process, `None` if there is none or it is a zombie."""
    try:
        text = (_PROC / str(pid) / "stat").read_text(encoding="utf-8", errors="replace")
    except (FileNotFoundError, ProcessLookupError):
        return None
    fields = text.rpartition(")")[2].split()
    if fields[0] in {"Z", "X"}:
        return None
    return ProcessMark(pid=pid, start_ticks=int(fields[_STAT_START_TIME]))


def is_alive(mark: ProcessMark) -> bool:
    """Return whether the very process of `mark` lives."""
    return mark_of(mark.pid) == mark


def tagged(prefix: str, spared: frozenset[int] = frozenset()) -> list[int]:
    """Return the processes of ours whose tag begins with `prefix`, but this one and `spared`."""
    wanted = f"{TAG}={prefix}".encode()
    left_out = spared | {os.getpid()}
    return [pid for pid in _process_numbers() if pid not in left_out and _has_variable(pid, wanted)]


def end_all(prefix: str, *, grace_seconds: float, is_late: Callable[[], bool]) -> None:
    """End every process whose tag begins with `prefix`: asked first, then killed.

    Returns when none is left, which takes `grace_seconds` and some milliseconds at most unless the
    kernel cannot end one. Once it `is_late`, grace is over.
    """
    for pid in tagged(prefix):
        _signal(pid, signal.SIGTERM)
        _signal(pid, signal.SIGCONT)
    deadline = time.monotonic() + grace_seconds
    while tagged(prefix) and time.monotonic() < deadline and not is_late():
        time.sleep(_POLL_SECONDS)
    kill_all(prefix)


def kill_all(prefix: str) -> None:
    """Kill every process whose tag begins with `prefix`, and those that they start meanwhile."""
    unseen = 0
    # A process that is between fork and exec can be missed once.
    while unseen < 2:
        found = tagged(prefix)
        unseen = 0 if found else unseen + 1
        for pid in found:
            _signal(pid, signal.SIGKILL)
        time.sleep(_POLL_SECONDS)


def kill_others(prefix: str, *, kept: tuple[str, ...]) -> None:
    """Kill every process whose tag begins with `prefix` but with none of those `kept`."""
    while True:
        found = tagged(prefix, frozenset(pid for tag in kept for pid in tagged(tag)))
        if not found:
            return
        for pid in found:
            _signal(pid, signal.SIGKILL)
        time.sleep(_POLL_SECONDS)


def _process_numbers() -> Iterator[int]:
    return (int(entry) for entry in os.listdir(_PROC) if entry.isdigit())  # noqa: PTH208


def _has_variable(pid: int, wanted: bytes) -> bool:
    try:
        content = (_PROC / str(pid) / "environ").read_bytes()
    except OSError:  # it ended, or belongs to another user
        return False
    return content.startswith(wanted) or b"\0" + wanted in content


def _signal(pid: int, number: signal.Signals) -> None:
    try:
        os.kill(pid, number)
    except ProcessLookupError:
        return
