"""Calibration documents: runs that were learnt from, what they say, and the report."""

from __future__ import annotations

from typing import Annotated, Self

from pydantic import Field, model_validator

from planner.schema.block import later
from planner.schema.document import Count, Document, Name, Part, PositiveCount, Ratio
from planner.schema.job import LEARNT_RUNS_MOST, Calibration, LearntPeak, LearntRun, Stack
from planner.schema.validation import Tally

Error = Annotated[float, Field(ge=0)]
Digest = Annotated[str, Field(pattern="^[0-9a-f]{64}$")]


class LearntEffect(Part):
    """What was learnt of runs of one device, stack and number format, in the mean over them.

    Their steps, or peaks, are `factor` times what is predicted. `prior_ratio` and `left_ratio` are
    how far what runs share was from it in 4 of 5 cases, before and after; `said_ratio` is the part
    of the variance before that the runs took away.
    """

    runs: Name
    run_count: PositiveCount
    factor: Annotated[float, Field(gt=0)]
    prior_ratio: Error
    left_ratio: Error
    said_ratio: Ratio


class HeldOutErrors(Part):
    """Mean and median of |predicted / measured - 1| of runs: as shipped, and each by all others."""

    mean_before_ratio: Error
    mean_after_ratio: Error
    median_before_ratio: Error
    median_after_ratio: Error


class CalibrationProfile(Document):
    """What runs taught: the runs themselves, with how far off they were, and what that says.

    `source_digest` is the SHA-256 of the file of runs. `held_out` is there for two runs and more.
    `measured_peaks` are of runs whose peak of memory, or whether they fitted, is known, and
    `peak_effects` what they say; `runs` may be none where there are some.
    """

    name: Name
    date: Annotated[str, Field(pattern=r"^\d{4}-\d{2}-\d{2}$")]
    source: Name
    source_digest: Digest
    planner_version: Name
    effects: tuple[LearntEffect, ...]
    held_out: HeldOutErrors | None = None
    runs: Annotated[tuple[LearntRun, ...], Field(max_length=LEARNT_RUNS_MOST)]
    peak_effects: tuple[LearntEffect, ...] = later(())
    measured_peaks: Annotated[tuple[LearntPeak, ...], Field(max_length=LEARNT_RUNS_MOST)] = later(
        ()
    )

    @model_validator(mode="after")
    def _has_learnt(self) -> Self:
        if not (self.runs or self.measured_peaks):
            raise ValueError("runs or measured_peaks must be one or more")
        return self

    def calibration(self) -> Calibration:
        """Return what a job carries."""
        return Calibration(
            name=self.name,
            digest=self.digest(),
            runs=self.runs,
            measured_peaks=self.measured_peaks,
        )


class CalibrationReport(Document):
    """The answer of a calibration: the profile, and whether runs left out bear it out.

    `run_count` = the profile's runs + the sum over `left_out`, which is by reason, of steps.
    `read_as` are programs that are not known by their names, and the stack that their runs were
    priced under. `peaks_left_out` is of peaks of memory, by reason; `unread` is of runs, by keys
    that the format does not have.
    """

    run_count: Count
    left_out: dict[str, PositiveCount]
    read_as: dict[str, Stack] = Field(default_factory=dict)
    peaks_left_out: dict[str, PositiveCount] = later({})
    unread: tuple[Tally, ...] = later(())
    accepted: bool
    reason: str
    profile: CalibrationProfile
