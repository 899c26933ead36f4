"""A measured row: a number, the bar that it should stay under, and how it was taken."""

from __future__ import annotations

import statistics
import time
from collections.abc import Callable
from dataclasses import asdict, dataclass, replace
from typing import Any

from benchmarks.memory import peak_resident_bytes

PEAK_BYTES_BAR = 500e6
LONG_SECONDS = 5.0


@dataclass(frozen=True, slots=True, kw_only=True)
class Measurement:
    """Seconds of one piece of work.

    `bar_seconds` is `None` where no bar was set. `baseline_seconds` is another way to the same
    answer, timed in the same process. `peak_resident_bytes` is of the row's own process; `None`
    where the work is done elsewhere. `skipped` rows measured nothing, and `note` says why.
    """

    seconds: float
    bar_seconds: float | None = None
    baseline_seconds: float | None = None
    note: str = ""
    holds: bool = True
    peak_resident_bytes: int | None = None
    skipped: bool = False

    def with_peak(self) -> Measurement:
        """Return the measurement with the most that this process had resident."""
        return replace(self, peak_resident_bytes=peak_resident_bytes())

    def passed(self) -> bool:
        """Return whether the row's claim holds and its bars, if any, were kept."""
        in_time = self.bar_seconds is None or self.seconds < self.bar_seconds
        in_memory = self.peak_resident_bytes is None or self.peak_resident_bytes < PEAK_BYTES_BAR
        return self.holds and in_time and in_memory

    def fields(self) -> dict[str, Any]:
        """Return the measurement with its verdict, for JSON."""
        return {**asdict(self), "passed": self.passed()}


def median_seconds(work: Callable[[], object], *, repeat_count: int) -> float:
    """Return the median wall time of `work` after one warm-up that is not counted.

    What takes long needs no warm-up, and is not repeated.
    """
    start = time.perf_counter()
    work()
    first = time.perf_counter() - start
    if first > LONG_SECONDS:
        return first
    times = []
    for _ in range(repeat_count):
        start = time.perf_counter()
        work()
        times.append(time.perf_counter() - start)
    return statistics.median(times)
