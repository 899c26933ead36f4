"""Folder lock: one run at a time saves into a folder, as saves remove what earlier ones wrote.

    directory/checkpoint.lock    its owner; the file is touched while the owner lives

The owner is a process of a host. What is left by one that died on this host, or that belongs to an
earlier attempt at the same run, is taken over at once. Of another host's it is seen whether it is
touched: only when nobody has for `SILENT_SECONDS` of this process's own clock, which only goes
forwards, is it taken over. Times of files are not compared with one another, nor with a clock.
"""

from __future__ import annotations

import atexit
import os
import socket
import sys
import threading
import time
import uuid
from collections.abc import Callable
from contextlib import suppress
from dataclasses import dataclass
from datetime import UTC, datetime
from pathlib import Path

from pydantic import ValidationError

from executor.agent.processes import ProcessMark, is_alive, mark_of
from executor.errors import CheckpointFilesError
from executor.variables import RUN
from planner.schema.document import Part

LOCK_NAME = "checkpoint.lock"
TOUCH_SECONDS = 10.0
SILENT_SECONDS = 90.0
_LOOK_SECONDS = 1.0
_PROCESSES = Path("/proc/self/ns/pid")
_BOOT = Path("/proc/sys/kernel/random/boot_id")


class LockOwner(Part):
    """Who saves into a folder.

    `processes` tells process numbers apart: those of hosts of one name, of each time that a host
    was started, and of containers.
    """

    token: str
    host: str
    processes: str
    pid: int
    start_ticks: int
    run: str
    since: str


class _Held:
    """The folders that this process holds, and the thread that touches their locks."""

    def __init__(self) -> None:
        self.owners: dict[Path, LockOwner] = {}
        self._ended = threading.Event()
        self._thread: threading.Thread | None = None

    def add(self, path: Path, owner: LockOwner) -> None:
        """Keep a lock alive until this process ends."""
        self.owners[path] = owner
        if self._thread is None:
            self._thread = threading.Thread(target=self._touch, name="folder-lock", daemon=True)
            self._thread.start()
            atexit.register(release_all)

    def _touch(self) -> None:
        while not self._ended.wait(TOUCH_SECONDS):
            for path, owner in list(self.owners.items()):
                with suppress(OSError):  # of a moment: others wait for a long silence
                    if _owner_of(path) == owner:
                        os.utime(path)


_held = _Held()


@dataclass(frozen=True, slots=True, kw_only=True)
class Watch:
    """How whoever looks at another host's lock passes the time."""

    clock: Callable[[], float] = time.monotonic
    pause: Callable[[float], None] = time.sleep


_WATCH = Watch()


def hold(directory: Path, *, watch: Watch = _WATCH) -> None:
    """Make this process the one that saves into `directory`, until it ends.

    What a run of another host has left takes `SILENT_SECONDS` to be told from one that goes on.

    Raises:
        CheckpointFilesError: if another run does.
        OSError: if nothing can be written there.
    """
    path = directory.resolve() / LOCK_NAME
    known = _held.owners.get(path)
    if known is not None:
        if _owner_of(path) == known:
            return
        del _held.owners[path]
    own = _own()
    while not _written(path, own):
        found = _owner_of(path)
        if not (_is_known_over(found) or _is_silent(path, found, watch)):
            raise _is_used(directory, _owner_of(path) or found)
        _move_away(path, found)
    _held.add(path, own)


def release_all() -> None:
    """Let others save into the folders that this process holds."""
    for path, owner in list(_held.owners.items()):
        if _owner_of(path) == owner:
            path.unlink(missing_ok=True)
    _held.owners.clear()


def _own() -> LockOwner:
    mark = mark_of(os.getpid())
    return LockOwner(
        token=uuid.uuid4().hex,
        host=socket.gethostname(),
        processes=_process_space(),
        pid=os.getpid(),
        start_ticks=0 if mark is None else mark.start_ticks,
        run=os.environ.get(RUN, ""),
        since=datetime.now(UTC).isoformat(timespec="seconds"),
    )


def _process_space() -> str:
    try:
        return f"{_BOOT.read_text(encoding='ascii').strip()} {_PROCESSES.readlink()}"
    except OSError:  # no Linux: processes of the host are one space
        return ""


def _written(path: Path, owner: LockOwner) -> bool:
    """Return whether `owner` has the lock now: a file is made once, and not all systems link."""
    try:
        with path.open("x", encoding="utf-8") as file:
            file.write(owner.model_dump_json())
    except FileExistsError:
        return False
    return True


def _owner_of(path: Path) -> LockOwner | None:
    """Return the owner that a lock names, `None` if it is gone or names none."""
    try:
        return LockOwner.model_validate_json(path.read_bytes())
    except (OSError, ValidationError):
        return None


def _is_known_over(owner: LockOwner | None) -> bool:
    """Return whether this host knows that nobody saves there any more."""
    if owner is None:
        return False
    if owner.run and owner.run == os.environ.get(RUN):
        return True  # an earlier attempt, which the service has ended
    mark = ProcessMark(pid=owner.pid, start_ticks=owner.start_ticks)
    return _is_here(owner) and not is_alive(mark)


def _is_here(owner: LockOwner) -> bool:
    if owner.processes != _process_space():
        return False
    return bool(owner.processes) or owner.host == socket.gethostname()


def _is_silent(path: Path, owner: LockOwner | None, watch: Watch) -> bool:
    """Return whether nobody touches a lock, having looked for so long, or until somebody does.

    A live one of this host is not looked at. Time in which this process was paused counts for
    nothing: its owner may have been, too.
    """
    if owner is not None and _is_here(owner):
        return False
    _say_that_it_waits(path, owner)
    first = seen = _mark(path)
    looked, left = watch.clock(), SILENT_SECONDS
    while seen is not None and left > 0.0:
        watch.pause(_LOOK_SECONDS)
        seen, before, looked = _mark(path), looked, watch.clock()
        if seen not in {first, None}:
            return False
        passed = looked - before
        left = left - passed if passed < TOUCH_SECONDS else SILENT_SECONDS
    return True


def _mark(path: Path) -> tuple[bytes, int] | None:
    """Return what whoever touches a lock changes, `None` of one that is gone.

    A file that is opened is asked for anew, also where a network file system remembers others.
    """
    try:
        with path.open("rb") as file:
            return file.read(), os.fstat(file.fileno()).st_mtime_ns
    except OSError:
        return None


def _say_that_it_waits(path: Path, owner: LockOwner | None) -> None:
    line = (
        f"waiting for up to {SILENT_SECONDS:.0f} s to see whether {_who(owner)} still saves "
        f"into {path.parent}"
    )
    print(line, file=sys.stderr, flush=True)  # noqa: T201 - whoever watches should know


def _move_away(path: Path, owner: LockOwner | None) -> None:
    """Remove the lock of an owner that is over, unless another has taken it meanwhile."""
    if _owner_of(path) != owner:
        return
    gone = path.with_name(f".{LOCK_NAME}.{uuid.uuid4().hex}")
    try:
        path.rename(gone)
    except FileNotFoundError:
        return
    gone.unlink()


def _who(owner: LockOwner | None) -> str:
    if owner is None:
        return "another run"
    name = f"run {owner.run}, " if owner.run else ""
    return f"another run ({name}process {owner.pid} of {owner.host}, since {owner.since})"


def _is_used(directory: Path, owner: LockOwner | None) -> CheckpointFilesError:
    return CheckpointFilesError(
        f"is where {_who(owner)} saves, and each would remove the other's checkpoints",
        field="directory",
        value=str(directory),
        remedy="give each run a directory of its own, or end the other run; a lock whose run is "
        f"gone is taken over after {SILENT_SECONDS:.0f} s at most",
    )
