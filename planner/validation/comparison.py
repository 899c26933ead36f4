"""Comparison: one case's prediction beside what was measured, each in the measurement's terms."""

from __future__ import annotations

import math
from collections.abc import Sequence
from dataclasses import dataclass

from planner.cost.intervals import P90_DEVIATIONS, step_interval
from planner.cost.peaks import learnt_peaks, peak_deviation
from planner.hardware import stack_profile
from planner.schema.plan import Prediction, StagePrediction
from planner.units import GIB
from planner.validation.case import Case
from planner.validation.measurement import (
    measured_fit,
    measured_peak_bytes,
    measured_seconds,
)
from planner.validation.mixture import mixed_interval, mixed_prediction
from planner.validation.reasons import SetAside


@dataclass(frozen=True, slots=True, kw_only=True)
class Pair:
    """One predicted and measured quantity; the interval is the prediction's p10 to p90."""

    predicted: float
    measured: float
    p10: float
    p90: float

    @property
    def error_ratio(self) -> float:
        """Return predicted over measured, less 1."""
        return self.predicted / self.measured - 1.0

    @property
    def covered(self) -> bool:
        """Return whether the measurement lies in the interval."""
        return self.p10 <= self.measured <= self.p90


@dataclass(frozen=True, slots=True)
class Fit:
    """The chance of fitting that a run was given, and whether it did fit."""

    probability: float
    fitted: bool

    @property
    def predicted(self) -> bool:
        """Return whether the run was more likely than not to fit."""
        return self.probability >= 0.5


@dataclass(frozen=True, slots=True, kw_only=True)
class Comparison:
    """One row: the pairs that can be compared, and why the others are set aside.

    `prediction` is of all stacks that the run may be of, its breakdown of the first.
    """

    case: Case
    prediction: Prediction
    step: Pair | SetAside
    memory: Pair | SetAside
    fit: Fit | SetAside


def compare(case: Case) -> Comparison:
    """Return the prediction of `case` beside its measurements."""
    cases = (case, *case.others)
    each = [one.price() for one in cases]
    prediction = mixed_prediction(each, unknown=_unknown(cases))
    return Comparison(
        case=case,
        prediction=prediction,
        step=_step(case, prediction),
        memory=memory_pair(cases, each),
        fit=_fit(case, prediction),
    )


def _unknown(cases: Sequence[Case]) -> str:
    """Return in words what is not known of a run that is read as `cases`."""
    differ = {
        "stack": len({one.job.stack for one in cases}) > 1,
        "network": any(one.hardware != cases[0].hardware for one in cases),
    }
    names = [name for name, is_so in differ.items() if is_so]
    return f"the {' and the '.join(names)} of this run {'are' if names[1:] else 'is'} not known"


def _step(case: Case, prediction: Prediction) -> Pair | SetAside:
    seconds = measured_seconds(case)
    if isinstance(seconds, SetAside):
        return seconds
    interval = prediction.step_seconds
    return Pair(predicted=interval.p50, measured=seconds, p10=interval.p10, p90=interval.p90)


def memory_pair(cases: Sequence[Case], predictions: Sequence[Prediction]) -> Pair | SetAside:
    """Return the peak as it was measured, and as each way to read the run predicts it, together."""
    measured = measured_peak_bytes(cases[0].run)
    if isinstance(measured, SetAside):
        return measured
    peaks = []
    for case, prediction in zip(cases, predictions, strict=True):
        known = _known_peaks(case)
        peak = max(_as_measured(stage, case, known) for stage in _scope(case, prediction))
        peaks.append(step_interval(peak, width=P90_DEVIATIONS * known.error_ratio))
    own = mixed_interval(peaks)
    return Pair(predicted=own.p50, measured=measured, p10=own.p10, p90=own.p90)


@dataclass(frozen=True, slots=True, kw_only=True)
class _KnownPeaks:
    """How much more peaks are than predicted without a calibration, and how surely."""

    ratio: float
    error_ratio: float


def _known_peaks(case: Case) -> _KnownPeaks:
    workload, profile, job = case.workload, case.hardware.kinds[0].profile, case.job
    learnt = learnt_peaks(workload, profile, job)
    if learnt is None:
        return _KnownPeaks(ratio=1.0, error_ratio=peak_deviation(workload, profile, job))
    return _KnownPeaks(ratio=math.exp(learnt.log_ratio), error_ratio=learnt.error_ratio)


def _scope(case: Case, prediction: Prediction) -> tuple[StagePrediction, ...]:
    """Return the stages whose ranks were measured; all, unless the row names some."""
    scope = case.run.mem_scope or ""
    stages = prediction.stages
    if scope.startswith("last_global_rank"):
        return stages[-1:]
    if "first/last" in scope:
        return (stages[0], stages[-1])
    return stages[:1] if scope == "rank 0" else stages


def _as_measured(stage: StagePrediction, case: Case, known: _KnownPeaks) -> float:
    """Return a stage's peak as the row's tool counts it.

    `torch_allocated` and `torch_active` count live tensors, with those that libraries allocate as
    their workspace, `torch_reserved` the allocator's slack as well, the driver's tools also the
    context and the libraries. Where the tool is unknown, it is taken for the driver's, which is at
    hand whatever the framework.
    """
    live = stage.memory_bytes.total_bytes() - stage.memory_bytes.runtime
    live += stack_profile(case.job.stack).workspace_gib * GIB
    live *= known.ratio
    if case.run.mem_class in {"device_used", "unknown", None}:
        return stage.peak_memory_bytes
    if case.run.mem_class == "torch_reserved":
        return live * (1.0 + _slack_ratio(case))
    return live


def _slack_ratio(case: Case) -> float:
    own = case.hardware.kinds[0].profile.allocator_slack_ratio
    return stack_profile(case.job.stack).allocator_slack_ratio if own is None else own


def _fit(case: Case, prediction: Prediction) -> Fit | SetAside:
    fitted = measured_fit(case.run)
    if isinstance(fitted, SetAside):
        return fitted
    return Fit(prediction.fits_probability, fitted)
