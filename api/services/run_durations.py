"""Run durations: how long runs took, whatever the database's clock was set to on the way.

The database notes when a run was leased and when it ended, by a clock that can be set. Between them
lies no less than this process saw the run go on for by its own monotonic clock, and no more than
from when it last saw the run wait. A process that began to look later has no such bound.
"""

from __future__ import annotations

import math
import time
from collections.abc import Callable, Collection
from dataclasses import dataclass
from datetime import datetime


@dataclass(slots=True, kw_only=True)
class _Sightings:
    """Moments of the monotonic clock at which a run was seen to wait, and to go on."""

    last_waiting: float | None = None
    first_going: float | None = None
    last_going: float | None = None


class RunDurations:
    """Remembers when this process saw which runs wait and go on."""

    def __init__(self, clock: Callable[[], float] = time.monotonic) -> None:
        self._clock = clock
        self._seen: dict[str, _Sightings] = {}

    def saw(self, run_id: str, *, started: bool) -> None:
        """Note that a run that has not ended waits for its agents, or has `started`."""
        at, seen = self._clock(), self._seen.setdefault(run_id, _Sightings())
        if not started:
            seen.last_waiting = at
        else:
            seen.first_going = at if seen.first_going is None else seen.first_going
            seen.last_going = at

    def forget_others(self, run_ids: Collection[str]) -> None:
        """Forget all runs but these."""
        self._seen = {name: seen for name, seen in self._seen.items() if name in run_ids}

    def seconds(self, run_id: str, started_at: datetime | None, ended_at: datetime | None) -> float:
        """Return how long a run that has just ended took, 0 if it never started."""
        seen = self._seen.get(run_id, _Sightings())
        if started_at is None or ended_at is None:
            return 0.0
        least, most = 0.0, math.inf
        if seen.first_going is not None and seen.last_going is not None:
            least = seen.last_going - seen.first_going
        if seen.last_waiting is not None:
            most = self._clock() - seen.last_waiting
        return min(max((ended_at - started_at).total_seconds(), least), most)
