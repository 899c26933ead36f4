"""Termination: a rank that is asked to end (SIGTERM) ends after the step that it is in.

A thread hears of the signal wherever the script is. Ranks agree after each step whether any was
asked, so that all stop after the same one. Schedulers and agents signal every process of a run, and
the launcher its ranks: signals that come together are one. Torch's agent sends the same signal when
a rank has failed, and then ranks end at once: our launcher marks its own stops, and under torchrun
ranks that fail tell the others.
"""

from __future__ import annotations

import ctypes
import os
import signal
import threading
import time
from collections.abc import Callable, Mapping
from pathlib import Path

from executor.open_files import flush_open_files
from executor.rank_place import main_thread_frames, write_place
from executor.tracker import end_trackers
from executor.variables import GRACE_SECONDS, OUTCOME_DIRECTORY

DEFAULT_GRACE_SECONDS = 120.0
# What an agent, a scheduler and the launcher send of one stop comes within a moment.
TOGETHER_SECONDS = 5.0
_MARK = "stopping"
_MARK_SECONDS = 2.0
_LOOK_SECONDS = 0.05
_TRACKER_SECONDS = 5.0


class Termination:
    """Whether this rank was asked to end, and its death where it does not in time."""

    def __init__(
        self,
        *,
        grace_seconds: float,
        directory: Path | None,
        rank: int,
        begun: Callable[[], int],
        has_failed: Callable[[], bool],
    ) -> None:
        self.is_asked = False
        self._begun = begun
        self._has_failed = has_failed
        self._grace_seconds = grace_seconds
        self._directory = directory
        self._rank = rank
        self._asked_at = 0.0

    @staticmethod
    def watched(
        variables: Mapping[str, str],
        *,
        rank: int,
        begun: Callable[[], int],
        has_failed: Callable[[], bool],
    ) -> Termination | None:
        """Return a termination that listens, `None` where the script does so itself.

        `begun` returns how many steps this rank has begun, `has_failed` whether any rank tells of
        an error.
        """
        is_own = signal.getsignal(signal.SIGTERM) is signal.SIG_DFL
        if not is_own or threading.current_thread() is not threading.main_thread():
            return None
        directory = variables.get(OUTCOME_DIRECTORY)
        termination = Termination(
            grace_seconds=float(variables.get(GRACE_SECONDS) or DEFAULT_GRACE_SECONDS),
            directory=Path(directory) if directory else None,
            rank=rank,
            begun=begun,
            has_failed=has_failed,
        )
        termination._listen()
        return termination

    def _listen(self) -> None:
        """Have a thread read the signals that come, whatever the main thread is at."""
        read, write = os.pipe2(os.O_NONBLOCK | os.O_CLOEXEC)
        os.set_blocking(read, True)
        signal.signal(signal.SIGTERM, _ignored)
        signal.set_wakeup_fd(write, warn_on_full_buffer=False)
        os.register_at_fork(after_in_child=_forget)
        threading.Thread(target=self._hear, args=(read,), name="termination", daemon=True).start()
        if self._directory is not None:
            (self._directory / f"rank-{self._rank}.pid").write_text(str(os.getpid()))

    def _hear(self, read: int) -> None:
        while heard := os.read(read, 1):
            if heard[0] == signal.SIGTERM:
                self._ask()

    def _ask(self) -> None:
        now = time.monotonic()
        if self.is_asked:
            if now - self._asked_at > TOGETHER_SECONDS:
                self._die()
            return
        is_of_failure = (
            self._has_failed() if self._directory is None else not _is_marked(self._directory)
        )
        if is_of_failure:
            self._die()
        self._asked_at, self.is_asked = now, True
        limit = threading.Timer(self._grace_seconds, self._die)
        limit.daemon = True
        limit.start()

    def _die(self) -> None:
        """End as a process without a handler does; say first where it was, and flush its files.

        Trackers, whose services may not answer, are told as long as there is time.
        """
        if self._directory is not None:
            frames = main_thread_frames()
            write_place(self._directory, frames, rank=self._rank, begun_steps=self._begun())
        flush_open_files()
        told = threading.Thread(target=end_trackers, kwargs={"has_failed": True}, daemon=True)
        told.start()
        told.join(_TRACKER_SECONDS)
        ctypes.CDLL(None).signal(signal.SIGTERM, 0)
        os.kill(os.getpid(), signal.SIGTERM)


class Stop:
    """The launcher's part: a stop that ranks are told of, and that a second signal makes hard."""

    def __init__(self, directory: Path, *, rank_count: int) -> None:
        self._directory = directory
        self._rank_count = rank_count
        self._asked_at: float | None = None

    @property
    def is_asked(self) -> bool:
        """Return whether the launcher was asked to stop."""
        return self._asked_at is not None

    def ask(self) -> bool:
        """Tell the ranks to end after their step; return whether all of them were listening.

        A repeated signal that comes with the first is the same stop; a later one is not heard here,
        and ends them at once.
        """
        now = time.monotonic()
        if self._asked_at is not None:
            return now - self._asked_at <= TOGETHER_SECONDS
        self._asked_at = now
        (self._directory / _MARK).touch()
        listening = [int(path.read_text() or 0) for path in self._directory.glob("rank-*.pid")]
        if len(listening) < self._rank_count or 0 in listening:
            return False
        for process_id in listening:
            try:
                os.kill(process_id, signal.SIGTERM)
            except ProcessLookupError:
                continue  # it has ended by itself
        return True


def _is_marked(directory: Path) -> bool:
    until = time.monotonic() + _MARK_SECONDS
    while not (directory / _MARK).exists():
        if time.monotonic() > until:
            return False
        time.sleep(_LOOK_SECONDS)
    return True


def _ignored(_number: int, _frame: object) -> None:
    """Let the thread hear of it: without a handler there is nothing to hear."""


def _forget() -> None:
    """Let a process that was forked end at the signal, as loaders' workers must."""
    if signal.getsignal(signal.SIGTERM) is _ignored:
        signal.signal(signal.SIGTERM, signal.SIG_DFL)
        signal.set_wakeup_fd(-1)
