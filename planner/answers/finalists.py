"""Finalists: plans are simulated before one of them is chosen.

Searches compare closed forms, for which they have bounds. A simulated step may be longer, most of
all under the interleaved schedule. Where that of the fastest plan is, the best plan of every other
schedule is simulated as well; where the bound leaves room for a faster one, so is that of every
kind (degrees and schedule) whose closed form says that it may be. The fastest of these is taken. A
simpler plan keeps to the tolerance by its simulated step. So it is with every plan that is shown or
compared: of a frontier, of a size, of fixed degrees.
"""

from __future__ import annotations

import time
from collections.abc import Sequence
from dataclasses import dataclass, field, replace

from planner.answers.objectives import Attained, attained
from planner.cost.arrangement import arranged
from planner.cost.price_list import configuration_of
from planner.cost.step import predict_simulated
from planner.errors import VerificationError
from planner.ilp.problem import DEGREES, Candidate, Enough, Found, Group, Groups, NotFound
from planner.ilp.settings import RUNNERS_UP
from planner.proof.verify import RELATIVE_TOLERANCE, differences_from_prediction, objective_value
from planner.requests.inquiry import Inquiry, Solution, degrees_of
from planner.requests.resolution import Request
from planner.schema.job import Objective
from planner.schema.plan import Certificate, ClosedForm, Prediction, Simplicity
from planner.schema.strategy import PipelineSchedule, Strategy
from planner.space.complexity import features

FINALISTS = 32
"""Kinds of plans that are simulated at most."""
_SCHEDULE = "pipeline_schedule"
_KIND = (*DEGREES, _SCHEDULE, "virtual_pipeline_degree")
_TOO_LONG_RATIO = 0.03
"""How much longer than its simulated step a closed form may be (docs/decisions/0005)."""
_SHARE_RATIO = 0.8
"""How much of the time left plans of other kinds get: the rest is for the simplest plan."""
_SCHEDULES_SHARE_RATIO = 0.25
"""How much of that other schedules get; not measured over cases (docs/planning-speed.md)."""


@dataclass(frozen=True, slots=True, kw_only=True)
class Finalist:
    """A plan with its simulated step."""

    strategy: Strategy
    prediction: Prediction

    @property
    def step_seconds(self) -> float:
        """Return the step that is expected."""
        return self.prediction.step_seconds.p50


@dataclass(slots=True, kw_only=True)
class _Race:
    """The fastest plans of their kinds; no plan of another has a closed form below a bound.

    Blocks are not moved any more once the time of the `inquiry` is over.
    """

    request: Request
    left_seconds: float
    inquiry: Inquiry | None = None
    finalists: list[Finalist] = field(default_factory=list)
    seen: set[Strategy] = field(default_factory=set)

    @property
    def fastest(self) -> Finalist:
        """Return the finalist of the shortest step."""
        return min(self.finalists, key=lambda one: one.step_seconds)

    @property
    def cutoff_seconds(self) -> float:
        """Return the closed form from which on no plan is likely to be faster than all of these."""
        return self.fastest.step_seconds * (1.0 + _TOO_LONG_RATIO)

    @property
    def enough_seconds(self) -> float:
        """Return the closed form from which on none needs to be known."""
        accepted = self.request.job.resolved.limits.accepted_gap_ratio
        return self.fastest.step_seconds * (1.0 - accepted)

    def enough_after(self, group: Group) -> Enough:
        """Simulate a plan; return from which closed form on none needs to be known from then on."""
        self.enter(group)
        return Enough(self.enough_seconds)

    def all_after(self, group: Group) -> Enough:
        """Simulate a plan, after which all others need to be known still."""
        self.enter(group)
        return Enough(float("inf"))

    def enter(self, group: Group) -> None:
        """Simulate the best plan of a kind, the even one if there is one, and the better arranged.

        Where memory is the objective the proof is of the blocks as they are.

        Raises:
            VerificationError: if the search and the cost model disagree.
        """
        if group.strategy in self.seen:
            return
        self.seen.add(group.strategy)
        entered = [_checked(self.request, group.strategy, group.step_seconds)]
        if self.request.job.resolved.objective is not Objective.MEMORY:
            even = [] if group.even is None else [_finalist(self.request, group.even)]
            entered += [one for one in even if one.prediction.fits]
            best = min(entered, key=lambda one: one.step_seconds)
            enough = group.step_seconds
            other = _arranged(self.request, best, self.inquiry, enough_seconds=enough)
            entered += [] if other is best else [other]
        self.finalists += entered

    def enter_all(self, answer: Found | NotFound, inquiry: Inquiry) -> None:
        """Simulate what a search found, as long as there is time."""
        for group in answer.groups if isinstance(answer, Found) else ():
            if not inquiry.is_over:
                self.enter(group)


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
    race = _Race(request=request, left_seconds=certificate.lower_bound_seconds)
    race.enter(Group(strategy=answer.strategy, step_seconds=answer.step_seconds))
    return _solution(request, certificate, race)


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
    """Return the fastest plan, with its rivals where the bound leaves room for any.

    They are simulated one after another, in the order of their closed forms, until these reach the
    shortest simulated step; then what else was found on the way. The kind of a plan that is proven
    to be the fastest is not searched again.
    """
    job, bound = request.job.resolved, found.certificate.lower_bound_seconds
    race = _Race(request=request, left_seconds=bound, inquiry=inquiry)
    own = Group(strategy=found.strategy, step_seconds=found.step_seconds)
    race.enter(next((each for each in found.groups if each.strategy == found.strategy), own))
    if race.enough_seconds <= bound or job.objective is Objective.MEMORY:
        return race
    if race.fastest.step_seconds > found.step_seconds * (1.0 + RELATIVE_TOLERANCE):
        share = _SCHEDULES_SHARE_RATIO * share_ratio
        _race_schedules(race, race.fastest, inquiry, share_ratio=share)
    is_known = bound >= found.step_seconds * (1.0 - RELATIVE_TOLERANCE)
    known = _kind(found.strategy) if is_known else None
    answer = _race_kinds(race, inquiry, known, share_ratio=share_ratio)
    race.left_seconds = max(bound, _left(answer))
    return race


def _race_kinds(
    race: _Race,
    inquiry: Inquiry,
    known: tuple[object, ...] | None,
    *,
    share_ratio: float,
) -> Found | NotFound:
    """Simulate the best plan of each kind by its closed form; return what the search says."""
    answer = inquiry.search(
        race.request,
        cutoff_seconds=race.cutoff_seconds,
        groups=Groups(
            count=FINALISTS - (known is not None),
            by=_KIND,
            settle=race.enough_after,
            enough_seconds=race.enough_seconds,
            known=known,
        ),
        share_ratio=share_ratio,
    )
    race.enter_all(answer, inquiry)
    return answer


def _race_schedules(
    race: _Race,
    first: Finalist,
    inquiry: Inquiry,
    *,
    share_ratio: float,
) -> None:
    """Simulate the best plan of each schedule but the first plan's, below the latter's step.

    Forms of some schedules are too short, and of others too long: more kinds of one may come before
    all of another than can be simulated.
    """
    answer = inquiry.search(
        race.request,
        cutoff_seconds=first.step_seconds * (1.0 + _TOO_LONG_RATIO),
        groups=Groups(
            count=len(PipelineSchedule),
            by=(_SCHEDULE,),
            settle=race.all_after,
            known=(first.strategy.pipeline_schedule,),
        ),
        share_ratio=share_ratio,
    )
    race.enter_all(answer, inquiry)


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
    one = _finalist(request, strategy)
    difference = differences_from_prediction(closed_form_seconds, one.prediction)
    if difference:
        raise VerificationError(f"the search and the cost model disagree: {difference}")
    return one


def _arranged(
    request: Request,
    one: Finalist,
    inquiry: Inquiry | None,
    *,
    enough_seconds: float | None = None,
) -> Finalist:
    """Return a plan with ranks' blocks where they wait least, which the search leaves open."""

    def is_over() -> bool:
        return inquiry is not None and inquiry.is_over

    if is_over():
        return one
    other = arranged(
        request.workload,
        request.hardware,
        request.job.resolved,
        one.strategy,
        enough_seconds=enough_seconds,
        is_over=is_over,
    )
    return one if other is one.strategy else _finalist(request, other)


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
    simple = _simple(request, answer.strategy, inquiry)
    best = min(fastest, simple, key=lambda one: one.step_seconds)
    changes = {
        "techniques": features(simple.strategy),
        "fastest": best.strategy,
        "fastest_step_seconds": best.step_seconds,
        "fastest_techniques": features(best.strategy),
    }
    return simple, said.model_copy(update=changes)


def _simple(request: Request, strategy: Strategy, inquiry: Inquiry) -> Finalist:
    """Return a simple plan with its blocks where ranks wait least, unless it is less simple so."""
    one = _finalist(request, strategy)
    other = _arranged(request, one, inquiry)
    return other if features(other.strategy) == features(strategy) else one


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
    own = fastest.prediction.closed_form_seconds
    least = min([own, *(one.prediction.closed_form_seconds for one in race.finalists)])
    bound = certificate.lower_bound_seconds
    return ClosedForm(
        step_seconds=own,
        least_seconds=bound if least * (1.0 - RELATIVE_TOLERANCE) <= bound else least,
        lower_bound_seconds=bound,
        simulated_count=len({_kind(one.strategy) for one in race.finalists}) if is_simulated else 0,
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
