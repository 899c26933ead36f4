"""Step profile: what a few steps of a rank are made of, beside what was predicted.

    folder/rank-0.json.gz         the trace, for chrome://tracing or Perfetto
    folder/rank-0.summary.json    its seconds by category

Collectives count where no computation hides them. On a GPU kernels are what is looked at, on a
processor operators; what neither computes nor waits is the host's.
"""

from __future__ import annotations

from collections.abc import Iterable, Mapping, Sequence
from dataclasses import dataclass
from pathlib import Path
from typing import Any

import torch
from torch.profiler import ProfilerActivity, profile

from executor.step_rows import Measured
from executor.variables import PROFILE_FOLDER
from planner.schema.document import Count, Part
from planner.schema.run import Amount

# Kernels are compiled and communicators built in the first; the second has warm caches.
WARM_UP_STEPS = 2
PROFILED_STEPS = 3
_KINDS = {  # as gloo's and NCCL's events name them, without their underscores
    "allreduce": "all_reduce",
    "allgather": "all_gather",
    "reducescatter": "reduce_scatter",
    "alltoall": "all_to_all",
    "broadcast": "broadcast",
    "sendrecv": "send and receive",
    "send": "send and receive",
    "recv": "send and receive",
}
_OPTIMIZER = "Optimizer.step#"
Interval = tuple[float, float]


class ProfileSummary(Part):
    """Seconds of a rank's mean step by category; they sum to the step.

    `between_seconds` came before each, in which the script did something else.
    """

    rank: Count
    first_step: Count
    step_count: Count
    step_seconds: Amount
    compute_seconds: Amount
    optimizer_seconds: Amount
    exposed_seconds: dict[str, Amount]
    host_seconds: Amount
    between_seconds: Amount = 0.0

    @property
    def own_seconds(self) -> float:
        """Return the time of a step, and before it, in which this rank waited for no other."""
        waited = sum(self.exposed_seconds.values())
        return self.step_seconds + self.between_seconds - waited


@dataclass(frozen=True, slots=True, kw_only=True)
class Span:
    """An event of a trace, in seconds from its beginning."""

    name: str
    start: float
    end: float


class StepProfile:
    """Records a few steps of this rank, once."""

    def __init__(self, folder: Path, *, rank: int) -> None:
        self._folder = folder
        self._rank = rank
        self._begun = 0
        self._seconds: list[float] = []
        self._between_seconds: list[float] = []
        self._profile: Any = None

    @staticmethod
    def wanted(variables: Mapping[str, str], *, rank: int) -> StepProfile | None:
        """Return a profile for the folder that the environment names, `None` if it names none."""
        folder = variables.get(PROFILE_FOLDER)
        return StepProfile(Path(folder), rank=rank) if folder else None

    def step_begins(self) -> None:
        """Begin to record where the warm-up is over."""
        self._begun += 1
        if self._begun == WARM_UP_STEPS + 1:
            activities = [ProfilerActivity.CPU]
            if torch.cuda.is_available():
                activities.append(ProfilerActivity.CUDA)
            self._profile = profile(activities=activities, acc_events=True)
            self._profile.start()

    def step_ended(self, step: int, measured: Measured) -> None:
        """Count a recorded step; after the last write what was recorded."""
        if self._profile is None:
            return
        self._seconds.append(measured.seconds)
        self._between_seconds.append(measured.between_seconds)
        if len(self._seconds) < PROFILED_STEPS:
            return
        recorded, self._profile = self._profile, None
        recorded.stop()
        self._folder.mkdir(parents=True, exist_ok=True)
        recorded.export_chrome_trace(str(self._folder / f"rank-{self._rank}.json.gz"))
        summary = summarised(
            recorded.events(),
            rank=self._rank,
            first_step=step - PROFILED_STEPS + 1,
            step_seconds=self._seconds,
            between_seconds=self._between_seconds,
        )
        path = self._folder / f"rank-{self._rank}.summary.json"
        path.write_text(summary.model_dump_json(), encoding="utf-8")


def summarised(
    events: Sequence[Any],
    *,
    rank: int,
    first_step: int,
    step_seconds: Sequence[float],
    between_seconds: Sequence[float],
) -> ProfileSummary:
    """Return the mean step of recorded `events` (torch's `FunctionEvent`s) by category."""
    on_device = [event for event in events if event.device_type.name != "CPU"]
    looked_at = on_device or list(events)
    collectives = [event for event in looked_at if _kind(event.name) is not None]
    computing = [
        event
        for event in looked_at
        if _computes(event, is_on_device=bool(on_device)) and not _is_in(event, collectives)
    ]
    optimizing = [event for event in looked_at if event.name.startswith(_OPTIMIZER)]
    count, total = len(step_seconds), sum(step_seconds)
    parts = by_category(
        computing=_spans(computing), collectives=_spans(collectives), optimizing=_spans(optimizing)
    )
    exposed = {kind: seconds / count for kind, seconds in parts.exposed.items()}
    known = parts.compute + parts.optimizer + sum(parts.exposed.values())
    return ProfileSummary(
        rank=rank,
        first_step=first_step,
        step_count=count,
        step_seconds=total / count,
        compute_seconds=parts.compute / count,
        optimizer_seconds=parts.optimizer / count,
        exposed_seconds=exposed,
        host_seconds=max(0.0, total - known) / count,
        between_seconds=sum(between_seconds) / count,
    )


@dataclass(frozen=True, slots=True, kw_only=True)
class Categories:
    """Seconds that computing, optimizing and exposed collectives take; none counts twice."""

    compute: float
    optimizer: float
    exposed: dict[str, float]


def by_category(
    *, computing: Sequence[Span], collectives: Sequence[Span], optimizing: Sequence[Span]
) -> Categories:
    """Return the seconds of each category: what computes hides collectives."""
    updating = _union((span.start, span.end) for span in optimizing)
    busy = _union((span.start, span.end) for span in computing)
    covered = _union([*busy, *updating])
    exposed: dict[str, float] = {}
    for kind in sorted({kind for span in collectives if (kind := _kind(span.name)) is not None}):
        waiting = _union((span.start, span.end) for span in collectives if _kind(span.name) == kind)
        exposed[kind] = _length(_union([*covered, *waiting])) - _length(covered)
        covered = _union([*covered, *waiting])
    return Categories(
        compute=_length(_union([*busy, *updating])) - _length(updating),
        optimizer=_length(updating),
        exposed=exposed,
    )


def _kind(name: str) -> str | None:
    """Return which collective an event is, `None` if it is none."""
    lowered = name.lower()
    if not lowered.startswith(("gloo:", "nccl")):
        return None
    plain = lowered.replace("_", "")
    return next((kind for word, kind in _KINDS.items() if word in plain), "other")


def _computes(event: Any, *, is_on_device: bool) -> bool:
    if is_on_device:
        return not event.is_user_annotation and _kind(event.name) is None
    return bool(event.name.startswith("aten::"))


def _is_in(event: Any, collectives: Sequence[Any]) -> bool:
    """Return whether an operator is one of a collective's thread, as gloo copies what it gets."""
    return any(
        collective.thread == event.thread
        and collective.time_range.start <= event.time_range.start
        and event.time_range.end <= collective.time_range.end
        for collective in collectives
    )


def _spans(events: Iterable[Any]) -> list[Span]:
    return [
        Span(name=event.name, start=event.time_range.start / 1e6, end=event.time_range.end / 1e6)
        for event in events
    ]


def _union(intervals: Iterable[Interval]) -> list[Interval]:
    """Return the intervals that cover what any of `intervals` does, apart and in order."""
    joined: list[Interval] = []
    for start, end in sorted(intervals):
        if joined and start <= joined[-1][1]:
            joined[-1] = joined[-1][0], max(joined[-1][1], end)
        else:
            joined.append((start, end))
    return joined


def _length(intervals: Iterable[Interval]) -> float:
    return sum(end - start for start, end in intervals)
