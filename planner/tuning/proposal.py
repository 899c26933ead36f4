"""Proposal: from a tuning as it stands to the plans to try next, or to its end.

Candidates are found by the search under all that was learnt: the best plan of each of the best
groups of degrees, and where that has been tried, the best of the group without its micro-batch,
checkpointing, ZeRO stage or schedule. The search that finds them also proves the bound. Where no
plan is likely to fit any more and none has been measured, the likeliest of all are tried.
"""

from __future__ import annotations

from collections.abc import Iterator
from dataclasses import dataclass, replace
from typing import Literal

from planner.answers.explain import describe_strategy
from planner.errors import InputError
from planner.ilp.problem import Found, Groups
from planner.ilp.search import ProgressCallback
from planner.planning import estimate, request_id
from planner.requests.inquiry import Inquiry
from planner.requests.resolution import Request
from planner.requests.variation import without_its_choices
from planner.schema.job import Objective
from planner.schema.plan import Certificate, Estimate, Explanation, Plan
from planner.schema.strategy import Strategy
from planner.schema.tuning import MeasuredCertificate, Tuning
from planner.tuning.bound import Bound, bound_of
from planner.tuning.choice import cutoff_seconds, ranked
from planner.tuning.knowledge import Candidate, Knowledge, measured_of
from planner.tuning.words import claim
from planner.version import planner_version

GROUP_COUNT = 8
_FIRST_SHARE_RATIO = 0.5
_SECONDS_PER_MINUTE = 60.0

EndedBy = Literal["proven", "exhausted", "runs", "minutes"]


@dataclass(frozen=True, slots=True, kw_only=True)
class Proposal:
    """The plans worth trying, the next one first, and what is proven of all that were not tried."""

    candidates: tuple[Candidate, ...]
    optimistic_seconds: float


def next_of(
    tuning: Tuning, *, on_progress: ProgressCallback | None = None
) -> Proposal | MeasuredCertificate:
    """Return what to try next, or how the tuning ends.

    Raises:
        InputError: if model, cluster and job do not go together, if steps are not what the job is
            to be best at, or if there was no time to find a first plan.
        SolverError: if the solver fails.
    """
    check_objective(tuning)
    knowledge = Knowledge.of(tuning)
    seconds = tuning.job.resolved.limits.solver_seconds
    inquiry = Inquiry.within(seconds, on_progress=on_progress)
    searched = _Search(tuning=tuning, request=knowledge.request, inquiry=inquiry)
    found, bound = searched.groups()
    if found is None and tuning.trials and tuning.best_index is None:
        searched = replace(searched, request=knowledge.with_peaks_as_shipped())
        found, bound = searched.groups()
    ended = _ended_by_budget(tuning)
    measured = measured_of(tuning)
    cutoff = cutoff_seconds(measured)
    if ended is None and cutoff is not None and bound.optimistic_seconds >= cutoff:
        ended = "proven"
    if ended is not None:
        return _certificate(tuning, bound, ended)
    fresh = _untried(tuning, searched.strategies(found, bound))
    candidates = knowledge.candidates(fresh)
    order = ranked([one.prospect for one in candidates], measured=measured, likely=knowledge.likely)
    if not order:
        return _certificate(tuning, bound, "exhausted")
    return Proposal(
        candidates=tuple(candidates[place] for place in order),
        optimistic_seconds=bound.optimistic_seconds,
    )


def plan_of(tuning: Tuning, strategy: Strategy, *, number: int) -> Plan:
    """Return the plan by which trial `number` runs, its step predicted after all trials so far.

    Of memory it goes by what was known when it was proposed. Its own certificate claims what the
    tuning's has proven, nothing before its end.
    """
    known = Knowledge.of(tuning, peaks_of=tuning.trials[: number - 1])
    request, priced = _priced(known.request, strategy)
    if not priced.prediction.fits:  # proposed although nothing was likely to fit any more
        request, priced = _priced(known.with_peaks_as_shipped(), strategy)
    described = f"{describe_strategy(priced.strategy)}: trial {number} of a tuning"
    if tuning.certificate is not None:
        described += f"; {claim(tuning.certificate)}"
    return Plan(
        id=f"{request_id(request)}-trial-{number}",
        model=request.model,
        cluster=request.cluster,
        job=request.job,
        strategy=priced.strategy,
        prediction=priced.prediction,
        certificate=_plan_certificate(priced.prediction.step_seconds.p50, tuning.certificate),
        explanation=Explanation(summary=f"{described}.", assumptions=priced.assumptions),
        warnings=priced.warnings,
        planner_version=planner_version(),
    )


def _priced(request: Request, strategy: Strategy) -> tuple[Request, Estimate]:
    return request, estimate(request.model, request.cluster, request.job.resolved, strategy)


def _plan_certificate(seconds: float, measured: MeasuredCertificate | None) -> Certificate:
    """Return a plan's certificate, in predicted seconds, without searches of its own.

    It is optimal where nothing else can be faster than this plan is predicted, even so.
    """
    lower = 0.0 if measured is None else min(measured.lower_bound_seconds, seconds)
    total = 0 if measured is None else measured.configurations_total
    return Certificate(
        status="optimal" if lower >= seconds else "feasible",
        lower_bound_seconds=lower,
        gap_ratio=1.0 - lower / seconds,
        configurations_total=total,
        configurations_pruned=0,
        milp_count=0,
        solver="none",
        solve_seconds=0.0,
    )


def check_objective(tuning: Tuning) -> None:
    """Refuse a job that is to be best at something else than its step.

    Raises:
        InputError: if it is.
    """
    objective = tuning.job.resolved.objective
    if objective is not Objective.THROUGHPUT:
        raise InputError(
            "is not what a tuning measures, which is the step",
            field="job.objective",
            value=objective.value,
            remedy="leave it out, or tune for throughput",
        )


def _ended_by_budget(tuning: Tuning) -> EndedBy | None:
    if len(tuning.trials) >= tuning.budget.runs:
        return "runs"
    minutes = tuning.budget.minutes
    if minutes is not None and tuning.spent_seconds >= minutes * _SECONDS_PER_MINUTE:
        return "minutes"
    return None


@dataclass(frozen=True, slots=True, kw_only=True)
class _Search:
    """The search for candidates of one proposal: `request` is what was learnt, of steps and peaks.

    All of it keeps the time that the job allows.
    """

    tuning: Tuning
    request: Request
    inquiry: Inquiry

    def groups(self) -> tuple[Found | None, Bound]:
        """Return the best plans of the best groups, `None` without any, and what is proven of all.

        Raises:
            InputError: if the time was over before a first plan was found.
        """
        found = self.inquiry.search(
            self.request, groups=Groups(count=GROUP_COUNT), share_ratio=_FIRST_SHARE_RATIO
        )
        if isinstance(found, Found):
            return found, bound_of(self.request, found, group_count=GROUP_COUNT)
        if not self.tuning.trials and not found.proven:
            raise _out_of_time(self.tuning)
        seconds = (self.tuning.best_seconds or 0.0) if found.proven else 0.0
        return None, Bound(
            lower_seconds=seconds,
            optimistic_seconds=seconds,
            widest_ratio=1.0,
            configurations_total=found.configurations_total,
        )

    def strategies(self, found: Found | None, bound: Bound) -> Iterator[Strategy]:
        """Yield the best of each group, and of groups whose best was tried the best of the rest.

        What cannot be likely enough to beat the best measured step is not looked for, once it is
        known how far layouts differ.
        """
        if found is None:
            return
        tried = {trial.strategy for trial in self.tuning.trials}
        most = cutoff_seconds(measured_of(self.tuning))
        cutoff = None if most is None else most * bound.widest_ratio
        for group in found.groups:
            yield group.strategy
        for strategy in (group.strategy for group in found.groups if group.strategy in tried):
            for boxed in without_its_choices(self.request, strategy):
                answer = self.inquiry.search(boxed, cutoff_seconds=cutoff)
                if isinstance(answer, Found):
                    yield answer.strategy


def _out_of_time(tuning: Tuning) -> InputError:
    return InputError(
        "ran out before any plan was found",
        field="job.limits.solver_seconds",
        value=tuning.job.resolved.limits.solver_seconds,
        remedy="allow more seconds, or narrow the degrees",
    )


def _untried(tuning: Tuning, strategies: Iterator[Strategy]) -> tuple[Strategy, ...]:
    """Return each strategy once, those that were tried left out."""
    tried = {trial.strategy for trial in tuning.trials}
    return tuple(one for one in dict.fromkeys(strategies) if one not in tried)


def _certificate(tuning: Tuning, bound: Bound, ended_by: EndedBy) -> MeasuredCertificate:
    best, index = tuning.best_seconds, tuning.best_index
    outcomes = [trial.outcome for trial in tuning.trials]
    ratio = None if best is None else max(1.0 - bound.optimistic_seconds / best, 0.0)
    return MeasuredCertificate(
        ended_by=ended_by,
        best_trial=None if index is None else index + 1,
        step_seconds=best,
        run_count=len(tuning.trials),
        out_of_memory_count=outcomes.count("out_of_memory"),
        failed_count=outcomes.count("failed"),
        configurations_total=bound.configurations_total,
        lower_bound_seconds=bound.lower_seconds,
        optimistic_seconds=bound.optimistic_seconds,
        faster_ratio=ratio,
    )
