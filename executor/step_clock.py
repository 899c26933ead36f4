"""Step clock: seconds of the steps that another framework runs, beside the plan's."""

from __future__ import annotations

import statistics
import time

import torch

from executor.reporting import WARM_UP_STEPS, interval_words
from planner.schema.plan import Plan
from planner.units import format_seconds


class StepClock:
    """Times steps from their begin to when the device has done them."""

    def __init__(self) -> None:
        self.seconds: list[float] = []
        self._begun = 0.0

    def begin(self) -> None:
        """Note that a step begins."""
        self._begun = time.perf_counter()

    def end(self) -> None:
        """Wait for the device, and note that the step has ended."""
        if torch.cuda.is_available():
            torch.cuda.synchronize()
        self.seconds.append(time.perf_counter() - self._begun)

    def line(self, plan: Plan) -> str:
        """Return the median step beside the planned one, without warm-up steps if it can."""
        timed = self.seconds[WARM_UP_STEPS:] or self.seconds
        predicted = plan.prediction.step_seconds
        planned = f"predicted {format_seconds(predicted.p50)}{interval_words(predicted)}"
        if not timed:
            return f"no step was run, {planned}"
        measured = format_seconds(statistics.median(timed))
        return f"step: measured {measured} (median of {len(timed)}), {planned}"
