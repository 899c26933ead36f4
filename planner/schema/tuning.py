"""Tuning: plans that were tried on the user's own machines, what came of each, and the end."""

from __future__ import annotations

import statistics
from enum import StrEnum
from typing import Annotated, Literal

from pydantic import Field

from planner.schema.document import Count, Document, Part, PositiveCount, Ratio
from planner.schema.plan import Amount, Interval, ResolvedCluster, ResolvedJob, ResolvedModel
from planner.schema.strategy import Strategy

TRIALS_MOST = 100

StepSeconds = Annotated[float, Field(gt=0)]
Text = Annotated[str, Field(max_length=20_000)]


class PeakKind(StrEnum):
    """What a measured peak counts: live tensors alone, or all that the allocator held for them."""

    TENSORS = "tensors"
    RESERVED = "reserved"


class TuningBudget(Part):
    """How many trials there may be, how long all of them may take, and the timed steps of each."""

    runs: Annotated[PositiveCount, Field(le=TRIALS_MOST)] = 10
    minutes: Annotated[float, Field(gt=0, le=1e6)] | None = None
    steps: Annotated[PositiveCount, Field(le=100_000)] = 5


class TuningTrial(Part):
    """One plan that was tried, and what came of it.

    `predicted`, `predicted_peak_bytes` and `fits_probability` are what was known before it ran,
    with all that earlier trials had taught, and `optimistic_seconds` what was proven then: of no
    plan that was not tried was the chance of a step below it more than one in ten. Peaks are of
    the fullest rank, the predicted one of live tensors, the measured one of what
    `peak_memory_kind` says. `step_seconds` are the steps after
    warm-up, of the slowest rank each, where it was measured; `reason` says why it was not, in one
    line, and `log` is the file (a service's path where its agents ran it, as run `run_id`) with all
    that it printed. `run_seconds` is how long it took from its start to its end.
    """

    strategy: Strategy
    description: Text
    predicted: Interval
    predicted_peak_bytes: Amount | None = None
    fits_probability: Ratio
    optimistic_seconds: Amount | None = None
    outcome: Literal["measured", "out_of_memory", "failed"]
    step_seconds: tuple[StepSeconds, ...] = ()
    peak_memory_bytes: Amount | None = None
    peak_memory_kind: PeakKind = PeakKind.TENSORS
    reason: Text | None = None
    log: Text | None = None
    run_seconds: Amount = 0.0
    run_id: Text | None = None

    @property
    def typical_seconds(self) -> float:
        """Return the median step."""
        return statistics.median(self.step_seconds)


class MeasuredCertificate(Part):
    """What a tuning ended with, and what is known of all plans that it did not try.

    `best_trial` counts from 1, and `step_seconds` is its median step; both are `null` where no
    trial was measured. None of `configurations_total` configurations has a plan with the chance of
    fitting that the job asks for whose step is predicted, with all that was measured, to be below
    `lower_bound_seconds` (p50); of each such plan that was not tried, the chance of a step below
    `optimistic_seconds` is at most one in ten. `faster_ratio` is by how much that is shorter than
    the measured step, 0 where it is not.

    `ended_by`: `proven`, no plan is likely enough to be faster, by three or more measured ones;
    `exhausted`, none that could be was found, although it is not proven that there is none; `runs`
    and `minutes`, the budget was spent.
    """

    ended_by: Literal["proven", "exhausted", "runs", "minutes"]
    best_trial: PositiveCount | None
    step_seconds: StepSeconds | None
    run_count: Count
    out_of_memory_count: Count
    failed_count: Count
    configurations_total: Count
    lower_bound_seconds: Amount
    optimistic_seconds: Amount
    faster_ratio: Ratio | None


class Tuning(Document):
    """All of a tuning, so that it goes on from its file: what was asked, and every trial.

    `script` is the training script with its arguments, empty for the reference model; `template` is
    the command of another framework's job instead, whose lines are read by the patterns where these
    were given. `device` is the kind of devices that trials run on, `null` for the plan's. Without a
    `certificate` it has not come to its end.
    """

    model: ResolvedModel
    cluster: ResolvedCluster
    job: ResolvedJob
    script: Annotated[tuple[Text, ...], Field(max_length=1000)] = ()
    template: Text | None = None
    step_pattern: Text | None = None
    peak_pattern: Text | None = None
    device: Literal["cpu", "cuda"] | None = None
    budget: TuningBudget
    trials: Annotated[tuple[TuningTrial, ...], Field(max_length=TRIALS_MOST)] = ()
    certificate: MeasuredCertificate | None = None
    planner_version: str

    @property
    def best_index(self) -> int | None:
        """Return the place of the trial with the least median step, `None` without any."""
        measured = [index for index, trial in enumerate(self.trials) if trial.step_seconds]
        return min(measured, key=lambda i: self.trials[i].typical_seconds, default=None)

    @property
    def best_seconds(self) -> float | None:
        """Return the least median step, `None` where no trial was measured."""
        index = self.best_index
        return None if index is None else self.trials[index].typical_seconds

    @property
    def spent_seconds(self) -> float:
        """Return how long all trials took."""
        return sum(trial.run_seconds for trial in self.trials)
