"""Progress line: one now and then of how a run goes, beside what was planned."""

from __future__ import annotations

import statistics
import time
from collections import deque
from collections.abc import Callable, Mapping
from datetime import timedelta

from executor.errors import LaunchError
from executor.reporting import predicted_tensor_bytes
from executor.step_rows import Measured
from executor.variables import PROGRESS_SECONDS
from planner.schema.plan import Plan
from planner.units import format_bytes

DEFAULT_SECONDS = 30.0
_MEDIAN_STEPS = 20
_TOLD_SHARE = 0.1  # of the time, from which on what lies between steps is told


class ProgressLine:
    """Prints a line after the first step that is no warm-up, and after so many seconds each."""

    def __init__(
        self,
        plan: Plan,
        *,
        planned_peak_bytes: float,
        every_seconds: float,
        write: Callable[[str], None],
        clock: Callable[[], float] = time.monotonic,
    ) -> None:
        self._plan = plan
        self._planned_peak_bytes = planned_peak_bytes
        self._every_seconds = every_seconds
        self._write = write
        self._clock = clock
        self._seconds: deque[float] = deque(maxlen=_MEDIAN_STEPS)
        self._between_seconds: deque[float] = deque(maxlen=_MEDIAN_STEPS)
        self._token_shares: deque[float] = deque(maxlen=_MEDIAN_STEPS)
        self._seen_steps = 0
        self._last_written: float | None = None
        self.last_step: int | None = None

    @staticmethod
    def wanted(plan: Plan, variables: Mapping[str, str], *, rank: int) -> ProgressLine | None:
        """Return the progress that rank 0 prints, `None` elsewhere and where 0 seconds are asked.

        Raises:
            LaunchError: if the seconds are none.
        """
        text = variables.get(PROGRESS_SECONDS) or str(DEFAULT_SECONDS)
        try:
            every = float(text)
        except ValueError:
            raise LaunchError(
                "must be a number of seconds",
                field=PROGRESS_SECONDS,
                value=text,
                remedy="say after how many seconds a line is printed, 0 for none",
            ) from None
        if rank != 0 or every <= 0:
            return None
        planned = predicted_tensor_bytes(plan.prediction.stages[0])  # which rank 0 is of
        return ProgressLine(plan, planned_peak_bytes=planned, every_seconds=every, write=_print)

    def step_begins(self) -> None:
        """Do nothing: a line tells of steps that were measured."""

    def step_ended(self, step: int, measured: Measured) -> None:
        """Print a line where one is due."""
        self._seen_steps += 1
        if self._seen_steps == 1:  # kernels were compiled in it, and communicators built
            return
        self._seconds.append(measured.seconds)
        self._between_seconds.append(measured.between_seconds)
        self._token_shares.append(measured.token_share)
        now = self._clock()
        if self._last_written is None or now - self._last_written >= self._every_seconds:
            self._last_written = now
            self._write(self._line(step, measured))

    def _line(self, step: int, measured: Measured) -> str:
        between = statistics.median(self._between_seconds)
        seconds = statistics.median(self._seconds) + between
        token_share = statistics.fmean(self._token_shares)
        prediction, job = self._plan.prediction, self._plan.job.resolved
        parts = [f"step {step}", f"loss {measured.loss:.4f}"]
        if job.global_batch_size and job.sequence_length:
            tokens = job.global_batch_size * job.sequence_length * token_share
            parts.append(f"{tokens / seconds:,.0f} tokens/s")
        if token_share == 1.0:  # both steps have the model's FLOPs, on devices with the same peak
            utilization = prediction.model_flop_utilization * prediction.step_seconds.p50 / seconds
            parts.append(
                f"MFU {utilization:.1%} ({prediction.model_flop_utilization:.1%} planned)".replace(
                    "%", " %"
                )
            )
        if between > _TOLD_SHARE * seconds:
            parts.append(f"{between / seconds:.0%} of the time between steps".replace("%", " %"))
        if measured.peak_memory_bytes is not None:
            peak, planned = map(
                format_bytes, (measured.peak_memory_bytes, self._planned_peak_bytes)
            )
            parts.append(f"memory {peak} ({planned} planned)")
        if self.last_step is not None and self.last_step > step:
            parts.append(f"{timedelta(seconds=round((self.last_step - step) * seconds))} left")
        return ", ".join(parts)


def _print(line: str) -> None:
    print(line, flush=True)  # noqa: T201 - the progress that a person watches
