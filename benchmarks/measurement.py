"""A measured row: a number, the bar that it should stay under, and how it was taken."""

from __future__ import annotations

import statistics
import time
from collections.abc import Callable
from dataclasses import asdict, dataclass
from typing import Any


@dataclass(frozen=True, slots=True, kw_only=True)
class Measurement:
    """Seconds of one piece of work.

    `bar_seconds` is `None` where no bar was set. `baseline_seconds` is another way to the same
    answer, timed in the same process.
    """

    seconds: float
    bar_seconds: float | None = None
    baseline_seconds: float | None = None
    note: str = ""
    holds: bool = True

    def passed(self) -> bool:
        """Return whether the row's claim holds and its bar, if any, was kept."""
        return self.holds and (self.bar_seconds is None or self.seconds < self.bar_seconds)

    def fields(self) -> dict[str, Any]:
        """Return the measurement with its verdict, for JSON."""
        return {**asdict(self), "passed": self.passed()}


def median_seconds(work: Callable[[], object], *, repeat_count: int) -> float:
    """Return the median wall time of `work` after one warm-up that is not counted."""
    work()
    times = []
    for _ in range(repeat_count):
        start = time.perf_counter()
        work()
        times.append(time.perf_counter() - start)
    return statistics.median(times)
