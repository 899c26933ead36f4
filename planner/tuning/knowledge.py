"""Knowledge: what a tuning's trials teach of plans that have not been tried.

Measured steps calibrate the cost model, together with the runs that the job's own calibration has,
and say how far layouts differ here (`planner.tuning.spread`). Measured peaks, and runs out of
memory, calibrate peaks and how surely they are known (`planner.tuning.peaks`). Both are in the
job's calibration, by which searches and predictions go.
"""

from __future__ import annotations

import math
from collections.abc import Mapping, Sequence
from dataclasses import dataclass
from types import MappingProxyType

from planner.calibration.peaks import PeakTrial, peak_trial
from planner.calibration.report import learnt_run
from planner.calibration.row import Row
from planner.cost.peaks import peak_deviation
from planner.ilp.problem import DEGREES
from planner.planning import estimate
from planner.requests.resolution import Request, resolved_request
from planner.schema.job import Calibration, Job
from planner.schema.measured_run import MeasuredRun, MemoryClass
from planner.schema.plan import Prediction
from planner.schema.strategy import Strategy
from planner.schema.tuning import PeakKind, Tuning, TuningTrial
from planner.tuning.choice import Degrees, Measured, Prospect
from planner.tuning.peaks import learnt_peaks
from planner.tuning.spread import learnt_together
from planner.units import GIB
from planner.validation.case import Case

_NAME = "of this tuning"
_NO_CHANCE_ASKED = 0.5
_MEMORY_CLASSES: Mapping[PeakKind, MemoryClass] = MappingProxyType(
    {PeakKind.TENSORS: "torch_allocated", PeakKind.RESERVED: "torch_reserved"}
)


@dataclass(frozen=True, slots=True, kw_only=True)
class Candidate:
    """A plan that has not been tried, with what is predicted of it after all trials.

    `peak_bytes` is of the tensors of its fullest stage, which is what trials measure.
    """

    strategy: Strategy
    prospect: Prospect
    peak_bytes: float


@dataclass(frozen=True, slots=True, kw_only=True)
class Knowledge:
    """The request whose job carries what trials teach, and the chance of fitting it asks for."""

    request: Request
    likely: float

    @staticmethod
    def of(tuning: Tuning, *, peaks_of: Sequence[TuningTrial] | None = None) -> Knowledge:
        """Return what the trials of `tuning` teach, of memory those of `peaks_of` alone.

        Raises:
            InputError: if model, cluster and job do not go together.
        """
        request = resolved_request(tuning.model, tuning.cluster, tuning.job.resolved)
        limit = request.job.resolved.limits.fits_probability
        return Knowledge(
            request=_calibrated(
                request, tuning.trials, tuning.trials if peaks_of is None else peaks_of
            ),
            likely=_NO_CHANCE_ASKED if limit is None else limit,
        )

    def candidates(self, strategies: Sequence[Strategy]) -> tuple[Candidate, ...]:
        """Return strategies as candidates with their simulated steps, as trials are learnt from."""
        request = self.request
        answers = (
            estimate(request.model, request.cluster, request.job.resolved, strategy)
            for strategy in strategies
        )
        return tuple(
            Candidate(
                strategy=answer.strategy,
                prospect=prospect_of(answer.strategy, answer.prediction),
                peak_bytes=self._peak_bytes(answer.prediction),
            )
            for answer in answers
        )

    def _peak_bytes(self, prediction: Prediction) -> float:
        """Return the most that tensors of a stage take, as trials have it."""
        calibration = self.request.job.resolved.calibration
        learnt = None if calibration is None else calibration.peaks
        stages = prediction.stages
        tensors = max(stage.peak_memory_bytes - stage.memory_bytes.runtime for stage in stages)
        return tensors * (1.0 if learnt is None else math.exp(learnt.log_ratio))

    def with_peaks_as_shipped(self) -> Request:
        """Return the request without what trials say of memory, which other runs may yet do."""
        calibration = self.request.job.resolved.calibration
        if calibration is None or calibration.peaks is None:
            return self.request
        rest = calibration.runs or calibration.measured_peaks
        shipped = calibration.model_copy(update={"peaks": None}) if rest else None
        return _with_calibration(self.request, shipped)


def prospect_of(strategy: Strategy, prediction: Prediction) -> Prospect:
    """Return what is predicted of a plan as something that may be tried."""
    return Prospect(
        degrees=degrees_of(strategy),
        step_seconds=prediction.step_seconds,
        fits_probability=prediction.fits_probability,
    )


def degrees_of(strategy: Strategy) -> Degrees:
    """Return the degrees that layouts are told apart by."""
    return tuple(getattr(strategy, name) for name in DEGREES)


def measured_of(tuning: Tuning) -> tuple[Measured, ...]:
    """Return the trials that were measured."""
    return tuple(
        Measured(degrees=degrees_of(trial.strategy), step_seconds=trial.typical_seconds)
        for trial in tuning.trials
        if trial.outcome == "measured"
    )


def learnt_of(
    job: Job, *, timed: Sequence[Row], peaked: Sequence[PeakTrial], error_ratio: float
) -> Calibration | None:
    """Return what trials of a job teach beside what it had learnt before, `None` for nothing.

    `error_ratio` is the deviation of a peak of which nothing is learnt.
    """
    known = job.calibration
    if timed:
        earlier, before = ((), ()) if known is None else (known.runs, known.measured_peaks)
        known = learnt_together(list(map(learnt_run, timed)), name=_NAME, earlier=earlier)
        known = known.model_copy(update={"measured_peaks": before})
    peaks = learnt_peaks(peaked, error_ratio=error_ratio, chance=job.limits.fits_probability)
    if peaks is None:
        return known
    return (
        Calibration(name=_NAME, peaks=peaks)
        if known is None
        else known.model_copy(update={"peaks": peaks})
    )


def _calibrated(
    request: Request, timed: Sequence[TuningTrial], peaked: Sequence[TuningTrial]
) -> Request:
    """Return the request whose job carries what trials teach of steps, and of peaks."""
    rows = [
        Row(case=_case(request, trial), measured_seconds=trial.typical_seconds)
        for trial in timed
        if trial.outcome == "measured"
    ]
    seen = [
        peak_trial(_case(request, trial), fitted=trial.outcome == "measured")
        for trial in peaked
        if trial.outcome != "failed"
    ]
    job = request.job.resolved
    error = max(
        peak_deviation(request.workload, kind.profile, job) for kind in request.hardware.kinds
    )
    learnt = learnt_of(job, timed=rows, peaked=seen, error_ratio=error)
    return _with_calibration(request, learnt)


def _with_calibration(request: Request, calibration: Calibration | None) -> Request:
    job = request.job.resolved
    if calibration == job.calibration:
        return request
    learnt = job.model_copy(update={"calibration": calibration})
    return resolved_request(request.model, request.cluster, learnt)


def _case(request: Request, trial: TuningTrial) -> Case:
    """Return a trial as a run that is learnt from, to be priced without any calibration."""
    peak = trial.peak_memory_bytes
    return Case(
        run=MeasuredRun(
            steps_s=trial.step_seconds,
            peak_mem_gib=peak / GIB if peak else None,
            mem_class=_MEMORY_CLASSES[trial.peak_memory_kind] if peak else None,
        ),
        graph=request.model.resolved,
        cluster=request.cluster.resolved,
        hardware=request.hardware,
        job=request.job.resolved.model_copy(update={"calibration": None}),
        strategy=trial.strategy,
        workload=request.workload,
        assumptions=(),
        breaches=(),
    )
