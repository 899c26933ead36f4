"""Stopwatch: seconds of a piece of work on all ranks of a host at once, in a budget of time."""

from __future__ import annotations

import statistics
import time
from collections.abc import Callable, Sequence
from dataclasses import dataclass

import torch
from torch import distributed

LEAST_REPETITIONS, MOST_REPETITIONS = 3, 25
LEAST_TURNS = 9  # of works whose difference is asked for, which is small beside what they vary by
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
        """Return the median of each of `works`, in turn: what slows the machine slows all alike."""
        begun = time.perf_counter()
        turns: list[list[float]] = []
        elapsed = 0.0
        while len(turns) <= LEAST_TURNS or (
            len(turns) <= MOST_REPETITIONS and elapsed < self.budget_seconds
        ):
            turns.append([])
            for work in works:
                seconds, elapsed = self._once(work, begun, 1)
                turns[-1].append(seconds)
        return tuple(map(statistics.median, zip(*turns[1:], strict=True)))  # the first warms up

    def _repeated(self, work: Work) -> list[float]:
        """Return the seconds of each repetition.

        Work that is over sooner than `LEAST_TIMED_SECONDS` is timed several times at once, and what
        takes several budgets once, after a first time that counts for nothing.
        """
        begun = time.perf_counter()
        first, _ = self._once(work, begun, 1)
        if first > max(LEAST_REPETITIONS * self.budget_seconds, LEAST_TIMED_SECONDS):
            return [self._once(work, begun, 1)[0]]
        warm, elapsed = self._once(work, begun, 1)
        at_once = min(max(round(LEAST_TIMED_SECONDS / max(warm, 1e-9)), 1), MOST_AT_ONCE)
        times: list[float] = []
        while len(times) < LEAST_REPETITIONS or (
            len(times) < MOST_REPETITIONS and elapsed < self.budget_seconds
        ):
            seconds, elapsed = self._once(work, begun, at_once)
            times.append(seconds / at_once)
        return times

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
