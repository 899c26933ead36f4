"""The watch: since when a process has been able to hear of agents."""

from __future__ import annotations

import math
import time
from collections.abc import Callable
from datetime import datetime


class Watch:
    """Since when a process has been able to hear of agents without a gap.

    A gap is a pause of more than `gap_seconds`, or a step of the database's clock against this
    process's own, which only goes forwards, of more than `step_seconds`.
    """

    def __init__(
        self,
        *,
        gap_seconds: float,
        step_seconds: float = math.inf,
        clock: Callable[[], float] = time.monotonic,
    ) -> None:
        self._gap_seconds = gap_seconds
        self._step_seconds = step_seconds
        self._clock = clock
        self._ahead_seconds: float | None = None
        self._since = self._last = clock()

    def keep(self) -> None:
        """Note that the process is there; a gap since the last time starts the watch anew."""
        now = self._clock()
        if now - self._last > self._gap_seconds:
            self._since = now
        self._last = now

    def compare(self, at: datetime, *, before: float, after: float) -> None:
        """Note the database's time `at`, read between two of this process's clock.

        A step since the watch began starts it anew.
        """
        least, most = at.timestamp() - after, at.timestamp() - before
        known = self._ahead_seconds
        if known is None or not least - self._step_seconds <= known <= most + self._step_seconds:
            self._ahead_seconds = least
            if known is not None:
                self._since = self._last

    def break_off(self) -> None:
        """Start the watch anew: the database could not be reached."""
        self._since = self._last = self._clock()

    def has_lasted(self, seconds: float) -> bool:
        """Return whether the watch is at least so long."""
        return self._last - self._since >= seconds
