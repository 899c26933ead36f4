"""Report: what measured runs teach, whether they bear one another out, and the profile of it."""

from __future__ import annotations

import math
from collections.abc import Iterator, Sequence
from dataclasses import dataclass
from typing import TypeVar

import numpy as np

from planner.calibration.peaks import learnt_peaks
from planner.calibration.row import Row, Sorting
from planner.calibration.trust import trusted_deviations
from planner.cost.configuration import Floats
from planner.cost.intervals import P90_DEVIATIONS, own_deviation, shared_deviation
from planner.cost.learnt import Learnt, Points, points_of_runs
from planner.cost.peaks import learnt_of_peaks, points_of_peaks
from planner.cost.price_list import configuration_of
from planner.errors import InputError
from planner.hardware import ClusterHardware, cluster_hardware
from planner.schema.calibration import (
    CalibrationProfile,
    CalibrationReport,
    HeldOutErrors,
    LearntEffect,
)
from planner.schema.job import Job, LearntPeak, LearntRun
from planner.schema.plan import Plan, Prediction
from planner.schema.strategy import Strategy
from planner.version import planner_version
from planner.workload.layer import ModelWorkload
from planner.workload.model import model_workload

CHANCE_DEVIATIONS = 1.0
"""Standard errors by which the mean gain has to exceed 0. Of sets of ten runs that are noise of
20 % around what is predicted 12 % are taken with it, 20 % with half; of noise of 5 %, which narrows
what is left open, 99 %."""

_LOG_ERROR_MOST = 10.0


@dataclass(frozen=True, slots=True, kw_only=True)
class Origin:
    """What a profile says of itself: its name, the day, and the file of runs."""

    name: str
    date: str
    source: str
    source_digest: str


@dataclass(frozen=True, slots=True, kw_only=True)
class Lessons:
    """What runs teach together, errors of each by all others, and whether that is taken."""

    effects: tuple[LearntEffect, ...]
    held_out: HeldOutErrors | None
    accepted: bool
    reason: str


def lessons(runs: Sequence[LearntRun]) -> Lessons:
    """Return what runs teach of steps, as far as each is trusted."""
    if not runs:
        return Lessons(effects=(), held_out=None, accepted=True, reason="peaks alone, and no step")
    learnt = Learnt.of(runs)
    held_out, (accepted, reason) = None, (True, "a single run, at what it says beside others")
    if len(runs) > 1:
        held_out = _held_out(*_errors(runs, learnt))
        accepted, reason = _judged(_gains(runs, learnt))
    return Lessons(
        effects=tuple(_effects(runs, learnt)),
        held_out=held_out,
        accepted=accepted,
        reason=reason,
    )


def calibration_report(sorting: Sorting, origin: Origin) -> CalibrationReport:
    """Return what the runs teach, and whether it is borne out.

    Raises:
        InputError: if they say nothing of steps, and of peaks no more than was known.
    """
    runs = learnt_runs([row for rows in sorting.rows.values() for row in rows])
    found, peaks = lessons(runs), learnt_peaks(sorting.peaked)
    if not (runs or peaks):
        raise InputError(
            "have no measured step, and that they fitted, or did not, was certain before",
            field=origin.source,
            value=f"{sorting.run_count} runs",
            remedy="give runs with a measured step or peak",
        )
    return CalibrationReport(
        run_count=sorting.run_count,
        left_out=dict(sorted(sorting.left_out.items())),
        read_as=dict(sorted(sorting.read_as.items())),
        peaks_left_out=dict(sorted(sorting.peaks_left_out.items())),
        unread=sorting.unread,
        accepted=found.accepted,
        reason=found.reason,
        profile=CalibrationProfile(
            name=origin.name,
            date=origin.date,
            source=origin.source,
            source_digest=origin.source_digest,
            planner_version=planner_version(),
            effects=found.effects,
            held_out=found.held_out,
            runs=runs,
            peak_effects=tuple(_peak_effects(peaks)),
            measured_peaks=peaks,
        ),
    )


def learnt_runs(rows: Sequence[Row]) -> tuple[LearntRun, ...]:
    """Return rows as what can be learnt from them together."""
    return trusted([learnt_run(row) for row in rows])


def trusted(runs: Sequence[LearntRun]) -> tuple[LearntRun, ...]:
    """Return runs, of which those that lie far from what all others say are less trusted."""
    least = np.array([run.own_deviation for run in runs])
    own = trusted_deviations(lambda tried: Learnt.of(_with_own(runs, tried)), least)
    return _with_own(runs, np.minimum(own, _LOG_ERROR_MOST))


def _with_own(runs: Sequence[LearntRun], own: Floats) -> tuple[LearntRun, ...]:
    return tuple(
        run.model_copy(update={"own_deviation": float(value)})
        for run, value in zip(runs, own, strict=True)
    )


def learnt_run(row: Row) -> LearntRun:
    """Return a row with its error, and how far it may be off by itself.

    That is as much more where the steps that it lists differ.
    """
    case, listed = row.case, row.case.run.steps_s or ()
    return learnt_step(
        Priced(
            workload=case.workload,
            hardware=case.hardware,
            job=case.job,
            strategy=case.strategy,
            prediction=case.price(),
        ),
        measured_seconds=row.measured_seconds,
        spread=float(np.std(np.log(listed))) if len(listed) > 1 else 0.0,
    )


@dataclass(frozen=True, slots=True, kw_only=True)
class Priced:
    """A strategy with its prediction, and what it was priced for: devices of one kind."""

    workload: ModelWorkload
    hardware: ClusterHardware
    job: Job
    strategy: Strategy
    prediction: Prediction


def learnt_plan(plan: Plan, *, measured_seconds: float) -> LearntRun | None:
    """Return a plan with the error of its step, `None` where it says nothing of one device alone.

    That is where its devices are of several kinds, or another calibration is in its prediction.
    """
    hardware, job = cluster_hardware(plan.cluster.resolved), plan.job.resolved
    if len(hardware.kinds) > 1 or job.calibration is not None:
        return None
    priced = Priced(
        workload=model_workload(plan.model.resolved),
        hardware=hardware,
        job=job,
        strategy=plan.strategy,
        prediction=plan.prediction,
    )
    return learnt_step(priced, measured_seconds=measured_seconds)


def learnt_step(priced: Priced, *, measured_seconds: float, spread: float = 0.0) -> LearntRun:
    """Return how far the predicted step is off; `spread` is the deviation of the measured ones."""
    kind, where = priced.hardware.kinds[0], configuration_of(priced.strategy)
    seconds, job = priced.prediction.step_seconds.p50, priced.job
    own = own_deviation(kind, job)
    error = math.log(measured_seconds / seconds)
    return LearntRun(
        device=kind.device,
        stack=job.stack,
        precision=job.precision,
        device_count=priced.hardware.device_count,
        tensor_parallel_degree=where.tensor_parallel_degree,
        pipeline_parallel_degree=where.pipeline_parallel_degree,
        micro_batch_size=where.micro_batch_size,
        sequence_length=job.sequence_length or 1,
        parameter_count=priced.workload.parameter_count,
        log_error=min(max(error, -_LOG_ERROR_MOST), _LOG_ERROR_MOST),
        shared_deviation=shared_deviation(priced.workload, kind, job),
        own_deviation=math.hypot(own, spread),
    )


def _effects(runs: Sequence[LearntRun], learnt: Learnt) -> Iterator[LearntEffect]:
    """Yield what is learnt of each device, stack and number format, in the mean over its runs."""
    for name, own in _alike(runs):
        yield _effect(name, points_of_runs(own), learnt, deviation=own[0].shared_deviation)


def _peak_effects(peaks: Sequence[LearntPeak]) -> Iterator[LearntEffect]:
    """Yield the same of peaks."""
    learnt = learnt_of_peaks(tuple(peaks)) if peaks else None
    for name, own in _alike(peaks):
        if learnt is not None:
            yield _effect(name, points_of_peaks(own), learnt, deviation=own[0].shared_deviation)


_Kept = TypeVar("_Kept", LearntRun, LearntPeak)


def _alike(runs: Sequence[_Kept]) -> Iterator[tuple[str, list[_Kept]]]:
    """Yield runs by device, stack and number format, with a name of these."""
    names = [f"{run.device} {run.stack} {run.precision}" for run in runs]
    for name in sorted(set(names)):
        yield name, [run for run, each in zip(runs, names, strict=True) if each == name]


def _effect(name: str, points: Points, learnt: Learnt, *, deviation: float) -> LearntEffect:
    prior = deviation**2
    left = max(float(np.diag(learnt.covariance(points, deviation=deviation)).mean()), 0.0)
    return LearntEffect(
        runs=name,
        run_count=len(points.sizes),
        factor=math.exp(float(learnt.log_factors(points, deviation=deviation).mean())),
        prior_ratio=math.expm1(P90_DEVIATIONS * math.sqrt(prior)),
        left_ratio=math.expm1(P90_DEVIATIONS * math.sqrt(left)),
        said_ratio=1.0 - left / prior if prior > 0.0 else 0.0,
    )


def _errors(runs: Sequence[LearntRun], learnt: Learnt) -> tuple[Floats, Floats]:
    """Return |predicted / measured - 1| of each run, as shipped and by all others, [runs]."""
    before = np.array([run.log_error for run in runs])
    after, _ = learnt.left_out()
    return np.abs(np.expm1(-before)), np.abs(np.expm1(-after))


def _gains(runs: Sequence[LearntRun], learnt: Learnt) -> Floats:
    """Return how much likelier each run is by what all others say than before, [runs].

    In logarithms of densities, which a narrower interval raises as well as a nearer prediction.
    """
    off, variances = learnt.left_out()
    before = np.array([run.log_error for run in runs])
    prior = np.array([run.shared_deviation**2 + run.own_deviation**2 for run in runs])
    spread = np.log(prior) - np.log(variances)
    return np.asarray(0.5 * (spread + before**2 / prior - off**2 / variances))


def _judged(gains: Floats) -> tuple[bool, str]:
    """Return whether runs are likelier for what others say, by more than chance has it."""
    chance = float(gains.std(ddof=1)) / math.sqrt(len(gains))
    if gains.mean() > CHANCE_DEVIATIONS * chance:
        return True, "knowing the other runs predicts a run better"
    if gains.mean() <= 0.0:
        return False, "knowing the other runs does not predict a run better"
    return False, "knowing the other runs predicts a run better, but by no more than chance"


def _held_out(before: Floats, after: Floats) -> HeldOutErrors:
    return HeldOutErrors(
        mean_before_ratio=float(before.mean()),
        mean_after_ratio=float(after.mean()),
        median_before_ratio=float(np.median(before)),
        median_after_ratio=float(np.median(after)),
    )
