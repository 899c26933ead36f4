"""Stopwatch: seconds of a piece of work on all ranks of a host at once, in a budget of time."""

from __future__ import annotations

import statistics
import time
from collections.abc import Callable, Sequence
from dataclasses import dataclass

import torch
from torch import distributed

LEAST_REPETITIONS, MOST_REPETITIONS = 3, 25
# Ranks that share a core take turns of a few milliseconds: what is over sooner was timed by a rank
# that had the core to itself.
LEAST_TIMED_SECONDS, MOST_AT_ONCE = 0.02, 64
Work = Callable[[], object]


@dataclass(frozen=True, slots=True, kw_only=True)
class Stopwatch:
    """Times work on this rank's device together with all other ranks.

    Repetitions stop when `budget_seconds` are spent, which all ranks decide together.
    """

    device: torch.device
    budget_seconds: float

    def seconds(self, work: Work) -> float:
        """Return the median over repetitions of the time until all ranks are done; collective."""
        return statistics.median(self._repeated(work))

    def least_seconds(self, work: Work) -> float:
        """Return the least of them: what the work takes where nothing disturbs it."""
        return min(self._repeated(work))

    def seconds_in_turn(self, works: Sequence[Work]) -> tuple[float, ...]:
        """Return the median of each of `works`, repeated in turn: their differences are of it.

        Each has the whole budget.
        """
        begun = time.perf_counter()
        for work in works:
            self._once(work, begun, 1)
        times: list[list[float]] = [[] for _ in works]
        elapsed = 0.0
        while self._goes_on(len(times[0]), elapsed / len(works)):
            for spent, work in zip(times, works, strict=True):
                seconds, elapsed = self._once(work, begun, 1)
                spent.append(seconds)
        return tuple(statistics.median(spent) for spent in times)

    def _repeated(self, work: Work) -> list[float]:
        """Return the seconds of each repetition.

        Work that is over sooner than `LEAST_TIMED_SECONDS` is timed several times at once.
        """
        begun = time.perf_counter()
        self._once(work, begun, 1)
        first, elapsed = self._once(work, begun, 1)
        at_once = min(max(round(LEAST_TIMED_SECONDS / max(first, 1e-9)), 1), MOST_AT_ONCE)
        times: list[float] = []
        while self._goes_on(len(times), elapsed):
            seconds, elapsed = self._once(work, begun, at_once)
            times.append(seconds / at_once)
        return times

    def _goes_on(self, count: int, elapsed: float) -> bool:
        within = count < MOST_REPETITIONS and elapsed < self.budget_seconds
        return count < LEAST_REPETITIONS or within

    def _once(self, work: Work, begun: float, count: int) -> tuple[float, float]:
        """Return seconds of `count` times `work`, and since `begun`: alike on all ranks.

        They are from the first rank's start to the last one's end. All ranks are of one host, and
        have one clock: a rank that starts late waited for a core that another one had.
        """
        distributed.barrier()
        self._finish()
        start = time.perf_counter()
        for _ in range(count):
            work()
        self._finish()
        end = time.perf_counter()
        ends = torch.tensor([-start, end, end - begun], device=self.device, dtype=torch.float64)
        distributed.all_reduce(ends, op=distributed.ReduceOp.MAX)
        minus_first, last, elapsed = ends.tolist()
        return last + minus_first, elapsed

    def _finish(self) -> None:
        if self.device.type == "cuda":
            torch.cuda.synchronize(self.device)
