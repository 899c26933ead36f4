"""Finalists: plans are simulated before one of them is chosen.

Searches compare closed forms, for which they have bounds. A simulated step may be longer, most of
all under the interleaved schedule. Where that of the fastest plan is, every kind of plan (degrees
and schedule) whose closed form says that it may be faster has its best plan simulated as well, and
the fastest of these is taken. A simpler plan keeps to the tolerance by its simulated step. So it is
with every plan that is shown or compared: of a frontier, of a size, of fixed degrees.
"""

from __future__ import annotations

import time
from collections.abc import Sequence
from dataclasses import dataclass, replace

from planner.answers.objectives import Attained, attained
from planner.cost.arrangement import arranged
from planner.cost.price_list import configuration_of
from planner.cost.step import predict_simulated
from planner.errors import VerificationError
from planner.ilp.problem import DEGREES, Candidate, Found, NotFound
from planner.ilp.settings import RUNNERS_UP
from planner.proof.verify import RELATIVE_TOLERANCE, differences_from_prediction, objective_value
from planner.requests.inquiry import Inquiry, Solution, degrees_of
from planner.requests.resolution import Request
from planner.schema.job import Objective
from planner.schema.plan import Certificate, ClosedForm, Prediction, Simplicity
from planner.schema.strategy import Strategy
from planner.space.complexity import features

FINALISTS = 8
"""Kinds of plans that are simulated at most."""
_KIND = (*DEGREES, "pipeline_schedule", "virtual_pipeline_degree")
_TOO_LONG_RATIO = 0.03
"""How much longer than its simulated step a closed form may be (docs/decisions/0005)."""
_SHARE_RATIO = 0.5


@dataclass(frozen=True, slots=True, kw_only=True)
class Finalist:
    """A plan with its simulated step."""

    strategy: Strategy
    prediction: Prediction

    @property
    def step_seconds(self) -> float:
        """Return the step that is expected."""
        return self.prediction.step_seconds.p50


@dataclass(frozen=True, slots=True, kw_only=True)
class _Race:
    """The fastest plans of their kinds; no plan of another has a closed form below a bound."""

    finalists: tuple[Finalist, ...]
    left_seconds: float

    @property
    def fastest(self) -> Finalist:
        """Return the finalist of the shortest step."""
        return min(self.finalists, key=lambda one: one.step_seconds)


@dataclass(frozen=True, slots=True, kw_only=True)
class Settled:
    """What was chosen among the finalists, whose certificate speaks of simulated steps."""

    request: Request
    found: Found
    prediction: Prediction


def settled(best: Attained, *, inquiry: Inquiry) -> Settled:
    """Return the plan to take, once it and those that may be faster are simulated.

    Raises:
        SolverError: if the solver fails.
        VerificationError: if the search and the cost model disagree.
    """
    started = time.perf_counter()
    request, found = best.request, best.found
    race = _raced(request, found, inquiry, share_ratio=_SHARE_RATIO)
    chosen, simplicity = _chosen(request, found, race, inquiry)
    fastest = min(race.fastest, chosen, key=lambda one: one.step_seconds)
    certificate = _of_steps(request, found.certificate, race, fastest=fastest, chosen=chosen)
    changes = {
        "simplicity": simplicity,
        "solve_seconds": certificate.solve_seconds + time.perf_counter() - started,
    }
    return Settled(
        request=request,
        found=replace(
            found,
            strategy=chosen.strategy,
            step_seconds=chosen.step_seconds,
            certificate=certificate.model_copy(update=changes),
            runners_up=_runners_up(found, race, chosen),
        ),
        prediction=chosen.prediction,
    )


def best_plan(request: Request, *, inquiry: Inquiry) -> Solution | NotFound:
    """Return the plan that is best at the objective of the request's job, or what lacks.

    Its step, and those of its rivals, are simulated. Where the step is the objective, the search
    keeps the inquiry's share of the time.

    Raises:
        SolverError: if the solver fails.
        VerificationError: if the search and the cost model disagree.
    """
    if request.job.resolved.objective is Objective.THROUGHPUT:
        return fastest_plan(request, inquiry=inquiry)
    with inquiry.part_of(inquiry.share_ratio):
        answer = attained(request, inquiry=inquiry)
    if isinstance(answer, NotFound):
        return answer
    return _raced_solution(answer.request, answer.found, inquiry)


def fastest_plan(
    request: Request, *, inquiry: Inquiry, cutoff_seconds: float | None = None
) -> Solution | NotFound:
    """Return the plan of the shortest simulated step, whatever the job's objective is.

    No closed form above the cutoff is looked for; a step may be above it.

    Raises:
        SolverError: if the solver fails.
        VerificationError: if the search and the cost model disagree.
    """
    found = inquiry.search(request, cutoff_seconds=cutoff_seconds)
    return found if isinstance(found, NotFound) else _raced_solution(request, found, inquiry)


def with_simulated_step(answer: Solution) -> Solution:
    """Return a plan that a search found with its simulated step, held against no rivals.

    Raises:
        VerificationError: if the search and the cost model disagree.
    """
    request, certificate = answer.request, answer.certificate
    one = _checked(request, answer.strategy, answer.step_seconds)
    return _solution(
        request, certificate, _Race(finalists=(one,), left_seconds=certificate.lower_bound_seconds)
    )


def _raced_solution(request: Request, found: Found, inquiry: Inquiry) -> Solution:
    race = _raced(request, found, inquiry, share_ratio=inquiry.share_ratio)
    return _solution(request, found.certificate, race)


def _solution(request: Request, certificate: Certificate, race: _Race) -> Solution:
    best = race.fastest
    return Solution(
        request=request,
        strategy=best.strategy,
        prediction=best.prediction,
        certificate=_of_steps(request, certificate, race, fastest=best, chosen=best),
    )


def _raced(request: Request, found: Found, inquiry: Inquiry, *, share_ratio: float) -> _Race:
    """Return the fastest plan, with its rivals where its simulated step leaves room for any."""
    job, bound = request.job.resolved, found.certificate.lower_bound_seconds
    first = _checked(request, found.strategy, found.step_seconds)
    is_longer = first.step_seconds > found.step_seconds * (1.0 + RELATIVE_TOLERANCE)
    is_enough = first.step_seconds * (1.0 - job.limits.accepted_gap_ratio) <= bound
    if not is_longer or is_enough or job.objective is Objective.MEMORY:
        return _Race(finalists=(first,), left_seconds=bound)
    answer = inquiry.search(
        request,
        cutoff_seconds=first.step_seconds * (1.0 + _TOO_LONG_RATIO),
        group_count=FINALISTS,
        grouped_by=_KIND,
        share_ratio=share_ratio,
    )
    rivals: tuple[Finalist, ...] = ()
    if isinstance(answer, Found):
        groups = (each for each in answer.groups if _kind(each.strategy) != _kind(found.strategy))
        rivals = tuple(_checked(request, each.strategy, each.step_seconds) for each in groups)
    return _Race(finalists=(first, *rivals), left_seconds=max(bound, _left(answer)))


def _left(answer: Found | NotFound) -> float:
    return answer.left_seconds if isinstance(answer, Found) else answer.lower_bound_seconds


def _kind(strategy: Strategy) -> tuple[object, ...]:
    configuration = configuration_of(strategy)
    return tuple(getattr(configuration, name) for name in _KIND)


def _checked(request: Request, strategy: Strategy, closed_form_seconds: float) -> Finalist:
    """Return a plan of a search, whose closed form is what the search says.

    Raises:
        VerificationError: if it is not.
    """
    one = _finalist(request, _arranged(request, strategy))
    difference = differences_from_prediction(closed_form_seconds, one.prediction)
    if difference:
        raise VerificationError(f"the search and the cost model disagree: {difference}")
    return one


def _arranged(request: Request, strategy: Strategy) -> Strategy:
    """Return the strategy with ranks' blocks where they wait least, which the search leaves open.

    Where memory is the objective its proof is of the blocks as they are.
    """
    job = request.job.resolved
    if job.objective is Objective.MEMORY:
        return strategy
    return arranged(request.workload, request.hardware, job, strategy)


def _finalist(request: Request, strategy: Strategy) -> Finalist:
    job = request.job.resolved
    prediction = predict_simulated(request.workload, request.hardware, job, strategy)
    return Finalist(strategy=strategy, prediction=prediction)


def _chosen(
    request: Request, found: Found, race: _Race, inquiry: Inquiry
) -> tuple[Finalist, Simplicity | None]:
    """Return the simplest plan within the job's tolerance of the fastest finalist.

    The leanest plan stays as it is, as any other takes more memory.
    """
    fastest = race.fastest
    if request.job.resolved.objective is Objective.MEMORY:
        return fastest, None
    known = replace(found, strategy=fastest.strategy, step_seconds=fastest.step_seconds)
    answer = inquiry.simplest(request, known, price=predict_simulated)
    said = answer.certificate.simplicity
    if said is None:
        return fastest, None
    simple = _simple(request, answer.strategy)
    best = min(fastest, simple, key=lambda one: one.step_seconds)
    changes = {
        "techniques": features(simple.strategy),
        "fastest": best.strategy,
        "fastest_step_seconds": best.step_seconds,
        "fastest_techniques": features(best.strategy),
    }
    return simple, said.model_copy(update=changes)


def _simple(request: Request, strategy: Strategy) -> Finalist:
    """Return a simple plan with its blocks where ranks wait least, unless it is less simple so."""
    other = _arranged(request, strategy)
    return _finalist(request, other if features(other) == features(strategy) else strategy)


def _of_steps(
    request: Request,
    certificate: Certificate,
    race: _Race,
    *,
    fastest: Finalist,
    chosen: Finalist,
) -> Certificate:
    """Return the proof, of closed forms, in the steps and values of the plans that were taken."""
    objective = certificate.objective
    bound = min(race.left_seconds, fastest.step_seconds)
    value = objective_value(objective, chosen.prediction, request.cluster.resolved)
    best = value
    if objective is not Objective.DEVICES:
        best *= fastest.step_seconds / chosen.step_seconds
    least = min(certificate.objective_lower_bound or 0.0, best)
    if objective is Objective.THROUGHPUT:
        least = bound
    gap = max(1.0 - bound / fastest.step_seconds, 1.0 - least / best if best else 0.0)
    is_proven = gap <= RELATIVE_TOLERANCE
    changes = {
        "status": "optimal" if is_proven else "feasible",
        "gap_ratio": 0.0 if is_proven else gap,
        "lower_bound_seconds": fastest.step_seconds if is_proven else bound,
        "objective_value": value,
        "objective_lower_bound": best if is_proven else least,
        "closed_form": _closed_form(certificate, race, fastest),
    }
    return certificate.model_copy(update=changes)


def _closed_form(certificate: Certificate, race: _Race, fastest: Finalist) -> ClosedForm:
    """Return what was proven of closed forms, and how many plans have other steps than these."""
    is_simulated = fastest.prediction.simulated is not None
    return ClosedForm(
        step_seconds=fastest.prediction.closed_form_seconds,
        lower_bound_seconds=certificate.lower_bound_seconds,
        simulated_count=len(race.finalists) if is_simulated else 0,
    )


def _runners_up(found: Found, race: _Race, chosen: Finalist) -> tuple[Candidate, ...]:
    """Return the best of other degrees, by their simulated steps where these are known."""
    known = {degrees_of(each.configuration): each for each in found.runners_up}
    for one in sorted(race.finalists, key=lambda one: -one.step_seconds):
        configuration = configuration_of(one.strategy)
        known[degrees_of(configuration)] = Candidate(
            configuration=configuration, step_seconds=one.step_seconds, is_lower_bound=False
        )
    known.pop(degrees_of(configuration_of(chosen.strategy)), None)
    ranked: Sequence[Candidate] = sorted(known.values(), key=lambda each: each.step_seconds)
    return tuple(ranked[:RUNNERS_UP])
