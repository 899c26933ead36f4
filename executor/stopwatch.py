"""Stopwatch: seconds of a piece of work on all ranks at once, within a budget of time."""

from __future__ import annotations

import statistics
import time
from collections.abc import Callable
from dataclasses import dataclass

import torch
from torch import distributed

LEAST_REPETITIONS, MOST_REPETITIONS = 3, 25
Work = Callable[[], object]


@dataclass(frozen=True, slots=True, kw_only=True)
class Stopwatch:
    """Times work on this rank's device together with all other ranks.

    Repetitions stop when `budget_seconds` are spent, which all ranks decide together.
    """

    device: torch.device
    budget_seconds: float

    def seconds(self, work: Work) -> float:
        """Return the median over repetitions of the slowest rank's time; a collective call."""
        begun = time.perf_counter()
        self._once(work, begun)
        times: list[float] = []
        elapsed = 0.0
        while len(times) < LEAST_REPETITIONS or (
            len(times) < MOST_REPETITIONS and elapsed < self.budget_seconds
        ):
            seconds, elapsed = self._once(work, begun)
            times.append(seconds)
        return statistics.median(times)

    def _once(self, work: Work, begun: float) -> tuple[float, float]:
        """Return the slowest rank's seconds of `work`, and since `begun`: alike on all ranks."""
        distributed.barrier()
        self._finish()
        start = time.perf_counter()
        work()
        self._finish()
        end = time.perf_counter()
        slowest = torch.tensor([end - start, end - begun], device=self.device)
        distributed.all_reduce(slowest, op=distributed.ReduceOp.MAX)
        seconds, elapsed = slowest.tolist()
        return seconds, elapsed

    def _finish(self) -> None:
        if self.device.type == "cuda":
            torch.cuda.synchronize(self.device)
