"""Knowledge: what a tuning's trials teach of plans that have not been tried.

Measured steps calibrate the cost model, together with the runs that the job's own calibration has,
and say how far layouts differ here (`planner.tuning.spread`). Trials that fitted, or ran out of
memory, say how far peaks are from those predicted (`planner.tuning.peaks`); a search then has
devices of D exp(-(d - d0)) bytes, with d the room that a plan needs to fit with the chance that the
job asks for, and d0 that without any trial. Devices are never taken for larger than they are.
"""

from __future__ import annotations

import math
from collections.abc import Iterator, Sequence
from dataclasses import dataclass

from planner.calibration.report import learnt_run
from planner.calibration.row import Row
from planner.errors import InputError
from planner.hardware import stack_profile
from planner.ilp.problem import DEGREES
from planner.planning import estimate, estimates
from planner.requests.resolution import Request, resolved_request
from planner.requests.variation import with_cluster, with_group
from planner.schema.job import LearntRun
from planner.schema.measured_run import MeasuredRun
from planner.schema.plan import Estimate
from planner.schema.strategy import Strategy
from planner.schema.tuning import Tuning, TuningTrial
from planner.tuning.choice import Degrees, Measured, Prospect
from planner.tuning.peaks import Peaks, log_room
from planner.tuning.spread import learnt_together
from planner.validation.case import Case

_NAME = "of this tuning"
_NO_CHANCE_ASKED = 0.5


@dataclass(frozen=True, slots=True, kw_only=True)
class Candidate:
    """A plan that has not been tried, with what is predicted of it after all trials."""

    strategy: Strategy
    prospect: Prospect


@dataclass(frozen=True, slots=True, kw_only=True)
class Knowledge:
    """The request with what was learnt of steps, and what was learnt of peaks."""

    request: Request
    peaks: Peaks
    likely: float

    @staticmethod
    def of(tuning: Tuning) -> Knowledge:
        """Return what the trials of `tuning` teach.

        Raises:
            InputError: if model, cluster and job do not go together.
        """
        request = resolved_request(tuning.model, tuning.cluster, tuning.job.resolved)
        limit = request.job.resolved.limits.fits_probability
        return Knowledge(
            request=_calibrated(request, tuning.trials),
            peaks=Peaks.of(_fitted(request, tuning.trials), error_ratio=_error_ratio(request)),
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
            Candidate(strategy=answer.strategy, prospect=self._prospect(answer))
            for answer in answers
        )

    def _prospect(self, priced: Estimate) -> Prospect:
        known = priced.prediction
        room = log_room(known.fits_probability, error_ratio=_error_ratio(self.request))
        return Prospect(
            degrees=degrees_of(priced.strategy),
            step_seconds=known.step_seconds,
            fits_probability=self.peaks.chance(room),
        )

    def within_memory(self) -> Request:
        """Return the request with as much less memory as makes what fits likely to fit."""
        known = log_room(self.likely, error_ratio=_error_ratio(self.request))
        ratio = math.exp(known - self.peaks.least_room(self.likely))
        if ratio >= 1.0:
            return self.request
        cluster = self.request.cluster.resolved
        for kind in self.request.hardware.kinds:
            for name in kind.node_groups:
                memory = ratio * kind.device_memory_bytes
                cluster = with_group(cluster, name, memory_bytes=memory)
        return with_cluster(self.request, cluster)


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


def _error_ratio(request: Request) -> float:
    return stack_profile(request.job.resolved.stack).memory_error_ratio


def _fitted(request: Request, trials: Sequence[TuningTrial]) -> Iterator[tuple[float, bool]]:
    """Yield the room that each trial's prediction left, and whether it fitted."""
    tried = [trial for trial in trials if trial.outcome != "failed"]
    for trial, answer in zip(tried, _priced(request, tried), strict=True):
        if not isinstance(answer, InputError):
            chance = answer.prediction.fits_probability
            room = log_room(chance, error_ratio=_error_ratio(request))
            yield room, trial.outcome == "measured"


def _priced(request: Request, trials: Sequence[TuningTrial]) -> Iterator[Estimate | InputError]:
    strategies = [trial.strategy for trial in trials]
    return estimates(request.model, request.cluster, request.job.resolved, strategies)


def _calibrated(request: Request, trials: Sequence[TuningTrial]) -> Request:
    """Return the request whose job carries what measured trials teach."""
    own = [_learnt(request, trial) for trial in trials if trial.outcome == "measured"]
    if not own:
        return request
    job = request.job.resolved
    earlier = job.calibration.runs if job.calibration is not None else ()
    calibration = learnt_together(own, name=_NAME, earlier=earlier)
    learnt = job.model_copy(update={"calibration": calibration})
    return resolved_request(request.model, request.cluster, learnt)


def _learnt(request: Request, trial: TuningTrial) -> LearntRun:
    """Return a measured trial as a run that is learnt from, priced without any calibration."""
    case = Case(
        run=MeasuredRun(steps_s=trial.step_seconds),
        graph=request.model.resolved,
        cluster=request.cluster.resolved,
        hardware=request.hardware,
        job=request.job.resolved.model_copy(update={"calibration": None}),
        strategy=trial.strategy,
        workload=request.workload,
        assumptions=(),
        breaches=(),
    )
    return learnt_run(Row(case=case, measured_seconds=trial.typical_seconds))
