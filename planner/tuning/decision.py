"""Decision: what a tuning does next, as a whole: the plan of its next trial, or its end."""

from __future__ import annotations

from dataclasses import dataclass

from planner.ilp.search import ProgressCallback
from planner.requests.resolution import resolved_request
from planner.schema.job import Job
from planner.schema.plan import Plan, ResolvedCluster, ResolvedModel
from planner.schema.tuning import MeasuredCertificate, Tuning, TuningBudget
from planner.tuning.knowledge import Candidate
from planner.tuning.proposal import Proposal, check_objective, next_of, plan_of
from planner.version import planner_version


@dataclass(frozen=True, slots=True, kw_only=True)
class NextTrial:
    """The plan to try next, what was known of it before, and what was proven of all others."""

    plan: Plan
    candidate: Candidate
    optimistic_seconds: float


@dataclass(frozen=True, slots=True, kw_only=True)
class Ended:
    """How the tuning ended, and the best plan that was measured, `None` without any."""

    certificate: MeasuredCertificate
    best: Plan | None


Decision = NextTrial | Ended


def new_tuning(
    model: ResolvedModel, cluster: ResolvedCluster, job: Job, budget: TuningBudget
) -> Tuning:
    """Return a tuning without trials.

    Raises:
        InputError: if model, cluster and job do not go together, or if steps are not what the job
            is to be best at.
    """
    request = resolved_request(model, cluster, job)
    tuning = Tuning(
        model=request.model,
        cluster=request.cluster,
        job=request.job,
        budget=budget,
        planner_version=planner_version(),
    )
    check_objective(tuning)
    return tuning


def decide(tuning: Tuning, *, on_progress: ProgressCallback | None = None) -> Decision:
    """Return what to try next, or how the tuning ends.

    Raises:
        InputError: if there was no time to find a first plan.
        SolverError: if the solver fails.
    """
    answer = next_of(tuning, on_progress=on_progress)
    if isinstance(answer, Proposal):
        first = answer.candidates[0]
        plan = plan_of(tuning, first.strategy, number=len(tuning.trials) + 1)
        return NextTrial(plan=plan, candidate=first, optimistic_seconds=answer.optimistic_seconds)
    ended = tuning.model_copy(update={"certificate": answer})
    return Ended(certificate=answer, best=best_plan(ended))


def best_plan(tuning: Tuning) -> Plan | None:
    """Return the plan that was measured to be the fastest, with what is claimed of all others."""
    index = tuning.best_index
    if index is None:
        return None
    return plan_of(tuning, tuning.trials[index].strategy, number=index + 1)
