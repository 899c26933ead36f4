"""Renewals: leases on work that a process of the service does, kept while it lives.

Who works renews its leases; who looks on takes a lease for lost that was not renewed for the length
of one. What renewals change stands in the database, and is never compared with a clock: whether it
*changes* is what tells, over the looker's own clock, which only goes forwards. So it does not
matter what time it is for either of them, nor whether a clock is set.
"""

from __future__ import annotations

import threading
import time
from collections.abc import Callable, Hashable, Mapping, Sequence
from typing import Any, Protocol

import structlog

from api.settings import Settings

Key = Any
"""What names a piece of work within its table."""

log = structlog.get_logger(__name__)


class Leased(Protocol):
    """Work of one kind under leases."""

    def forget_left(self) -> None:
        """Give up all that is at work: no process but this one has the database, and it starts."""

    def renew(self) -> None:
        """Renew the leases of what this process works on, and end what was ended elsewhere."""

    def leases(self) -> Mapping[Key, Hashable]:
        """Return what is at work anywhere, with what its renewals change."""

    def give_up(self, key: Key, lease: Hashable) -> None:
        """Have nobody work on what is still under this very lease."""


class Silence:
    """Since when leases have been as they are, while this process looked without a gap.

    In a gap it was paused, or could not read, and renewals may have waited as long.
    """

    def __init__(
        self,
        *,
        seconds: float,
        gap_seconds: float,
        clock: Callable[[], float] = time.monotonic,
    ) -> None:
        self._seconds = seconds
        self._gap_seconds = gap_seconds
        self._clock = clock
        self._last = clock()
        self._since: dict[Key, tuple[Hashable, float]] = {}

    def lost(self, leases: Mapping[Key, Hashable]) -> list[Key]:
        """Note what the leases are now, and return those that were not renewed for too long."""
        now = self._clock()
        known = self._since if now - self._last <= self._gap_seconds else {}
        self._last, self._since = now, {}
        for key, lease in leases.items():
            before, since = known.get(key, (None, now))
            self._since[key] = (lease, since if before == lease else now)
        return [key for key, (_, since) in self._since.items() if now - since >= self._seconds]


class Renewals:
    """A thread that renews this process's leases, and gives up what nobody renews."""

    def __init__(
        self,
        leased: Sequence[Leased],
        settings: Settings,
        *,
        clock: Callable[[], float] = time.monotonic,
    ) -> None:
        seconds = settings.lease_seconds
        self._is_alone = settings.embedded
        self._pause_seconds = seconds / 4
        self._leased = [
            (each, Silence(seconds=seconds, gap_seconds=seconds / 2, clock=clock))
            for each in leased
        ]
        self._closing = threading.Event()
        self._thread = threading.Thread(target=self._keep_on, name="leases", daemon=True)

    def open(self) -> None:
        """Give up what a dead service left, and keep the leases of this one from now on.

        A SQLite file belongs to one service, so whatever runs in it at the start was left behind;
        elsewhere it is once its lease was not renewed for as long as one lasts.
        """
        if self._is_alone:
            for each, _ in self._leased:
                each.forget_left()
        self._thread.start()

    def close(self) -> None:
        """Stop."""
        self._closing.set()
        if self._thread.is_alive():
            self._thread.join()

    def keep(self) -> None:
        """Renew leases, and give up those that were lost."""
        for each, silence in self._leased:
            each.renew()
            leases = each.leases()
            for key in silence.lost(leases):
                each.give_up(key, leases[key])

    def _keep_on(self) -> None:
        while not self._closing.wait(self._pause_seconds):
            try:
                self.keep()
            except Exception:
                log.exception("leases not kept")
