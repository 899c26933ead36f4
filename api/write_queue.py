"""The queue of writers: who may write now, how many may wait for it, and for how long."""

from __future__ import annotations

import time
from collections.abc import Iterator
from contextlib import contextmanager
from threading import BoundedSemaphore, Lock

from sqlalchemy.exc import TimeoutError as PoolTimeoutError


class WriteQueue:
    """Writers of this process, of whom each waits for a bounded time and not too many wait.

    SQLite has one writer at a time, and has others sleep and look again, for up to 100 ms: threads
    of one process wait for each other here instead, and go on at once.
    """

    def __init__(self, *, one_at_a_time: bool, length_limit: int) -> None:
        self._places = BoundedSemaphore(length_limit)
        self._turn = Lock() if one_at_a_time else None

    @contextmanager
    def place(self) -> Iterator[None]:
        """Hold a place in the queue, without which threads that only read would find none free.

        Raises:
            PoolTimeoutError: if the queue is full.
        """
        if not self._places.acquire(blocking=False):
            raise PoolTimeoutError("too many writes wait for the database")
        try:
            yield
        finally:
            self._places.release()

    @contextmanager
    def turn(self, wait_seconds: float) -> Iterator[float]:
        """Wait for a turn, and yield the seconds that are left of the wait.

        Raises:
            PoolTimeoutError: if it does not come in that time.
        """
        if self._turn is None:
            yield wait_seconds
            return
        deadline = time.monotonic() + wait_seconds
        if not self._turn.acquire(timeout=wait_seconds):
            raise PoolTimeoutError(f"no turn to write came within {wait_seconds:g} s")
        try:
            yield max(0.0, deadline - time.monotonic())
        finally:
            self._turn.release()
