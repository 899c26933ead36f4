"""Calibration documents: scalars of devices under stacks, what they rest on, and the report."""

from __future__ import annotations

from typing import Annotated, Literal, Self

from pydantic import Field, model_validator

from planner.schema.document import Count, Document, Name, Part, PositiveCount
from planner.schema.job import Calibration, Stack
from planner.schema.scalars import Factor, Scalars

HeldOutBy = Literal["family", "model", "run", "step"]
Error = Annotated[float, Field(ge=0)]
Digest = Annotated[str, Field(pattern="^[0-9a-f]{64}$")]


class FactorInterval(Part):
    """The 80 % interval of a scalar."""

    p10: Factor
    p90: Factor


class ScalarIntervals(Part):
    """How sure each scalar is; one that no run says anything of has its prior's interval."""

    compute_efficiency_ratio: FactorInterval
    memory_efficiency_ratio: FactorInterval
    communication_efficiency_ratio: FactorInterval
    host_overhead_ratio: FactorInterval
    fp8_efficiency_ratio: FactorInterval
    attention_efficiency_ratio: FactorInterval


class HeldOutErrors(Part):
    """Mean and median of |predicted / measured - 1| of runs left out of the fit, group by group.

    Of a single run that lists its steps the later half is left out.
    """

    by: HeldOutBy
    group_count: PositiveCount
    mean_before_ratio: Error
    mean_after_ratio: Error
    median_before_ratio: Error
    median_after_ratio: Error


class FittedPair(Part):
    """One device under one stack: the scalars, and the runs that they rest on."""

    device: Name
    stack: Stack
    run_count: PositiveCount
    families: dict[str, PositiveCount]
    scalars: Scalars
    intervals: ScalarIntervals
    held_out: HeldOutErrors | None = None


class CalibrationProfile(Document):
    """Scalars that made the error of runs left out fall; what is not here keeps shipped values.

    `source_digest` is the SHA-256 of the file of runs.
    """

    name: Name
    date: Annotated[str, Field(pattern=r"^\d{4}-\d{2}-\d{2}$")]
    source: Name
    source_digest: Digest
    planner_version: Name
    pairs: Annotated[tuple[FittedPair, ...], Field(min_length=1, max_length=256)]

    @model_validator(mode="after")
    def _each_pair_once(self) -> Self:
        names = [(pair.device, pair.stack) for pair in self.pairs]
        if len(set(names)) < len(names):
            raise ValueError("pairs names a device and stack twice")
        return self

    def calibration(self, stack: Stack) -> Calibration | None:
        """Return what a job of `stack` carries; `None` where nothing was fitted for it."""
        devices = {pair.device: pair.scalars for pair in self.pairs if pair.stack is stack}
        if not devices:
            return None
        return Calibration(name=self.name, digest=self.digest(), stack=stack, devices=devices)


class PairVerdict(Part):
    """A pair's fit, and whether it may stand in a profile; else why not."""

    pair: FittedPair
    accepted: bool
    reason: str


class CalibrationReport(Document):
    """The answer of a calibration; `profile` is `null` where no pair was accepted.

    `run_count` = the runs of all pairs + the sum over `left_out`, which is by reason. `read_as` are
    programs that are not known by their names, and the stack that their runs were priced under.
    """

    run_count: Count
    left_out: dict[str, PositiveCount]
    read_as: dict[str, Stack] = Field(default_factory=dict)
    verdicts: tuple[PairVerdict, ...]
    profile: CalibrationProfile | None = None
