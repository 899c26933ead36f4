"""Folder lock: one run at a time saves into a folder, as saves remove what earlier ones wrote.

    directory/checkpoint.lock    its owner; the file is touched while the owner lives

The owner is a process of a host. What is left by one that died on this host, that belongs to an
earlier attempt at the same run, or that nobody has touched for `SILENT_SECONDS` is taken over.
"""

from __future__ import annotations

import atexit
import os
import socket
import threading
import uuid
from contextlib import suppress
from datetime import UTC, datetime
from pathlib import Path

from pydantic import ValidationError

from executor.agent.processes import ProcessMark, is_alive, mark_of
from executor.errors import CheckpointError
from executor.variables import RUN
from planner.schema.document import Part

LOCK_NAME = "checkpoint.lock"
TOUCH_SECONDS = 30.0
SILENT_SECONDS = 300.0
_PROCESSES = Path("/proc/self/ns/pid")


class LockOwner(Part):
    """Who saves into a folder. `processes` tells hosts' and containers' process numbers apart."""

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
                with suppress(OSError):  # of a moment: others wait for minutes of silence
                    if _owner_of(path) == owner:
                        os.utime(path)


_held = _Held()


def hold(directory: Path) -> None:
    """Make this process the one that saves into `directory`, until it ends.

    Raises:
        CheckpointError: if another run does.
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
        if not _is_over(path, found):
            raise _is_used(directory, found)
        _move_away(path)
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
        return str(_PROCESSES.readlink())
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


def _is_over(path: Path, owner: LockOwner | None) -> bool:
    """Return whether nobody saves there any more."""
    if owner is not None:
        if owner.run and owner.run == os.environ.get(RUN):
            return True  # an earlier attempt, which the service has ended
        if owner.host == socket.gethostname() and owner.processes == _process_space():
            return not is_alive(ProcessMark(pid=owner.pid, start_ticks=owner.start_ticks))
    return _silent_seconds(path) > SILENT_SECONDS


def _silent_seconds(path: Path) -> float:
    """Return for how long nobody has touched a lock, by the clock of its file system."""
    probe = path.with_name(f".{LOCK_NAME}.{uuid.uuid4().hex}")
    probe.touch()
    try:
        return probe.stat().st_mtime - path.stat().st_mtime
    except FileNotFoundError:
        return 0.0
    finally:
        probe.unlink()


def _move_away(path: Path) -> None:
    """Remove a lock that is over; of several that do so at once one finds it there."""
    gone = path.with_name(f".{LOCK_NAME}.{uuid.uuid4().hex}")
    try:
        path.rename(gone)
    except FileNotFoundError:
        return
    gone.unlink()


def _is_used(directory: Path, owner: LockOwner | None) -> CheckpointError:
    who = "another run"
    if owner is not None:
        name = f"run {owner.run}, " if owner.run else ""
        who = f"another run ({name}process {owner.pid} of {owner.host}, since {owner.since})"
    return CheckpointError(
        f"is where {who} saves, and each would remove the other's checkpoints",
        field="directory",
        value=str(directory),
        remedy="give each run a directory of its own, or end the other run; a lock whose run is "
        f"gone is taken over after {SILENT_SECONDS:.0f} s at most",
    )
