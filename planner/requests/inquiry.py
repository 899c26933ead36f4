"""Inquiry: several searches for one answer, under one time limit.

Every plan that a search returns is priced again by the cost model alone before it is used.
"""

from __future__ import annotations

import time
from collections.abc import Callable, Iterable, Iterator, Sequence
from contextlib import contextmanager
from dataclasses import dataclass, field, replace
from typing import Any, NamedTuple, Protocol, TypeVar

from planner.cost.configuration import Configuration
from planner.cost.price_list import configuration_of
from planner.cost.step import predict, predict_simulated
from planner.errors import VerificationError
from planner.ilp.pricing import PricedSpace
from planner.ilp.problem import (
    DEGREES,
    ONE_GROUP,
    Candidate,
    Found,
    Group,
    Groups,
    NotFound,
    Problem,
)
from planner.ilp.search import ProgressCallback, search
from planner.ilp.settings import PROOF_TOLERANCE
from planner.proof.verify import differences_from_prediction, objective_value
from planner.requests.least_states import states_exceed_memory
from planner.requests.parts import search_parts
from planner.requests.resolution import Request
from planner.requests.simplest_plan import Price, simplest
from planner.schema.job import Limits, Objective
from planner.schema.plan import Certificate, Prediction, Simplicity
from planner.schema.strategy import Strategy
from planner.space.complexity import features
from planner.space.frameworks import framework_limits

Listener = Callable[[str, int, int], None]
Part = TypeVar("Part")

_SEARCHED_SHARE_RATIO = 0.97
_GROUPS_SHARE_RATIO = 1.0 / 3.0


@dataclass(frozen=True, slots=True, kw_only=True)
class Solution:
    """The fastest strategy of a request, priced, with its proof."""

    request: Request
    strategy: Strategy
    prediction: Prediction
    certificate: Certificate

    @property
    def step_seconds(self) -> float:
        """Return the step that is expected."""
        return self.prediction.step_seconds.p50

    @property
    def simulated_step_seconds(self) -> float | None:
        """Return the step if it is simulated, `None` where it is the closed form."""
        simulated = self.prediction.simulated
        return None if simulated is None else simulated.step_seconds

    @property
    def value(self) -> float:
        """Return what the strategy has of the objective of the request's job."""
        job, cluster = self.request.job.resolved, self.request.cluster.resolved
        return objective_value(job.objective, self.prediction, cluster)

    @property
    def peak_memory_bytes(self) -> float:
        """Return the bytes on the fullest device."""
        return max(stage.peak_memory_bytes for stage in self.prediction.stages)

    @property
    def is_proven(self) -> bool:
        """Return whether nothing in the request's space is better."""
        return self.certificate.status == "optimal"


class Pool(Protocol):
    """Where parts of an answer can be worked out side by side."""

    def in_order(self, function: Callable[[Any], Any], items: Iterable[Any]) -> Iterator[Any]:
        """Yield `function(item)` of each, in their order, begun a few ahead of who asks."""

    def place_count(self) -> int:
        """Return how many calls run side by side."""


@dataclass(slots=True, kw_only=True)
class Inquiry:
    """Searches that share a deadline (of `time.perf_counter`); `listen` hears how far they are.

    With a `pool`, parts of an answer that do not need one another are worked out there.

    `on_progress` hears how far the search of the moment is. None takes more than `share_ratio` of
    the time that is left, so that one hard search does not leave nothing for the others.
    """

    deadline: float
    share_ratio: float
    listen: Listener | None = None
    on_progress: ProgressCallback | None = None
    pool: Pool | None = None
    search_count: int = 0
    _asked: Request | None = field(default=None, init=False)
    _spaces: dict[Limits, PricedSpace] = field(default_factory=dict, init=False)

    @classmethod
    def within(
        cls,
        seconds: float,
        *,
        share_ratio: float = 0.25,
        listen: Listener | None = None,
        on_progress: ProgressCallback | None = None,
        pool: Pool | None = None,
    ) -> Inquiry:
        """Return an inquiry that has `seconds` from now on."""
        return cls(
            deadline=time.perf_counter() + seconds,
            share_ratio=share_ratio,
            listen=listen,
            on_progress=on_progress,
            pool=pool,
        )

    @property
    def seconds_left(self) -> float:
        """Return the seconds until the deadline, 0 past it."""
        return max(self.deadline - time.perf_counter(), 0.0)

    @property
    def is_over(self) -> bool:
        """Return whether the time is up."""
        return self.seconds_left <= 0.0

    @contextmanager
    def part_of(self, share_ratio: float) -> Iterator[None]:
        """Have what is asked inside end within that share of the time that is left.

        A lone search may take all of it.
        """
        kept = self.deadline, self.share_ratio
        self.deadline = time.perf_counter() + self.seconds_left * min(share_ratio, 1.0)
        self.share_ratio = 1.0
        try:
            yield
        finally:
            self.deadline, self.share_ratio = kept

    @contextmanager
    def leaving(self, share_ratio: float) -> Iterator[None]:
        """Have what is asked inside leave that share of the time to what comes after it."""
        kept = self.deadline
        self.deadline = time.perf_counter() + self.seconds_left * (1.0 - share_ratio)
        try:
            yield
        finally:
            self.deadline = kept

    def each(
        self, function: Callable[..., Part], parts: Sequence[tuple[Any, ...]]
    ) -> Iterator[Part]:
        """Yield `function(*part, inquiry=...)` of each part, with a fair share of the time left.

        They come in their order. In a pool, where they run side by side, `function` is a module's.
        """
        if self.pool is None:
            for place, part in enumerate(parts):
                with self.part_of(1.0 / (len(parts) - place)):
                    found = function(*part, inquiry=self)
                yield found
            return
        places, done = max(self.pool.place_count(), 1), 0

        def questions() -> Iterator[_Question]:
            for part in parts:
                seconds = self.seconds_left * min(places / (len(parts) - done), 1.0)
                yield _Question(function, part, seconds, 1.0)

        for found in self._answers(self.pool, questions()):
            done += 1
            yield found

    def in_turn(
        self, function: Callable[..., Part], parts: Iterable[tuple[Any, ...]]
    ) -> Iterator[Part]:
        """Yield `function(*part, inquiry=...)` of each part, for as long as somebody asks.

        Each search has the inquiry's own share of the time left. A pool begins a few parts ahead.
        """
        if self.pool is None:
            for part in parts:
                yield function(*part, inquiry=self)
            return
        questions = (
            _Question(function, part, self.seconds_left, self.share_ratio) for part in parts
        )
        yield from self._answers(self.pool, questions)

    def elsewhere(self, function: Callable[..., Part], *part: Any) -> Part:
        """Return `function(*part, inquiry=...)`, worked out in the pool where there is one."""
        return next(self.in_turn(function, [part]))

    def _answers(self, pool: Pool, questions: Iterable[_Question]) -> Iterator[Any]:
        """Yield the answers of a pool in their order; a search counts once its answer is taken."""
        for found, search_count in pool.in_order(_answered, questions):
            self.search_count += search_count
            yield found

    def tell(self, phase: str, done: int, total: int) -> None:
        """Let the listener know that `done` of `total` parts of the work are finished."""
        if self.listen is not None:
            self.listen(phase, done, total)

    def ask(self, request: Request, *, cutoff_seconds: float | None = None) -> Solution | NotFound:
        """Return the fastest strategy, or `NotFound` where none is at or under the cutoff.

        The fastest is asked for whatever the job's objective: answers compare steps.

        Raises:
            SolverError: if the solver fails.
            VerificationError: if the strategy does not survive its own recomputation.
        """
        found = self.search(request, cutoff_seconds=cutoff_seconds)
        return found if isinstance(found, NotFound) else solution(request, found)

    def best_groups(self, request: Request, group_count: int) -> tuple[Solution, ...]:
        """Return the fastest strategies of different degrees, best first, as many as there are.

        A group is proven if all that is left is slower.
        It answers many questions at once and may take a third of the time that is left.

        Raises:
            SolverError: if the solver fails.
            VerificationError: if a strategy does not survive its own recomputation.
        """
        share = max(self.share_ratio, _GROUPS_SHARE_RATIO)
        found = self.search(request, groups=Groups(count=group_count), share_ratio=share)
        if isinstance(found, NotFound):
            return ()
        return tuple(
            solution(
                request,
                replace(
                    found,
                    strategy=group.strategy,
                    step_seconds=group.step_seconds,
                    certificate=_of_group(found, group.step_seconds),
                ),
            )
            for group in found.groups
        )

    def fits(self, request: Request) -> bool:
        """Return whether a strategy was found that fits."""
        if states_exceed_memory(request):
            return False
        return isinstance(self.search(request, is_any_welcome=True), Found)

    def search(
        self,
        request: Request,
        *,
        cutoff_seconds: float | None = None,
        is_any_welcome: bool = False,
        groups: Groups = ONE_GROUP,
        share_ratio: float | None = None,
    ) -> Found | NotFound:
        """Return what `planner.ilp.search` says of the fastest plan, within the time left.

        It ends a little before, as its last step goes on to its end, and what it found is checked.
        `share_ratio` is of the time that is left; the inquiry's own holds where it is not given.

        Raises:
            SolverError: if the solver fails.
        """
        job = request.job.resolved
        share = self.share_ratio if share_ratio is None else share_ratio
        most = min(self.seconds_left * share, job.limits.solver_seconds)
        allowed_seconds = _SEARCHED_SHARE_RATIO * most
        if allowed_seconds <= 0.0:
            return NotFound(configurations_total=0, refused={}, shortfalls=(), proven=False)
        self.search_count += 1
        return search_parts(
            framework_limits(job, request.model.resolved),
            lambda limits, cutoff: search(
                self._problem(request, limits),
                on_progress=self.on_progress,
                is_any_welcome=is_any_welcome,
                cutoff_seconds=cutoff,
                groups=groups,
            ),
            seconds=allowed_seconds,
            cutoff_seconds=cutoff_seconds,
            group_count=groups.count,
            is_any_welcome=is_any_welcome,
        )

    def simplest(
        self,
        request: Request,
        found: Found,
        *,
        most_seconds: float = float("inf"),
        price: Price = predict,
    ) -> Found:
        """Return the simplest plan within the job's tolerance of the fastest that was found.

        Its certificate says how much faster that is. No plan beyond `most_seconds` is taken, by
        what they are priced at.
        """
        job = request.job.resolved
        ratio = job.limits.simplicity_ratio
        if ratio <= 0.0:
            return found
        limit = min(found.step_seconds * (1.0 + ratio), most_seconds)
        simple = simplest(
            [
                self._problem(request, limits)
                for limits in framework_limits(job, request.model.resolved)
            ],
            fastest=Group(strategy=found.strategy, step_seconds=found.step_seconds),
            limit_seconds=limit,
            seconds=self.seconds_left,
            price=price,
        )
        fastest = simple if simple.step_seconds < found.step_seconds else found
        simplicity = Simplicity(
            status="optimal" if simple.is_proven else "feasible",
            tolerance_ratio=min(ratio, limit / found.step_seconds - 1.0),
            techniques=features(simple.strategy),
            least_technique_count=simple.complexity_bound,
            fastest=fastest.strategy,
            fastest_step_seconds=fastest.step_seconds,
            fastest_techniques=features(fastest.strategy),
        )
        certificate = found.certificate.model_copy(update={"simplicity": simplicity})
        return replace(
            found,
            strategy=simple.strategy,
            step_seconds=simple.step_seconds,
            certificate=certificate,
            runners_up=_otherdegrees_of(found, simple.strategy),
        )

    def _problem(self, request: Request, limits: Limits) -> Problem:
        """Return the search for the fastest plan of the request within some limits.

        Searches of the same request one after another share what they list and price.
        """
        job = request.job.resolved
        problem = Problem(
            graph=request.model.resolved,
            workload=request.workload,
            hardware=request.hardware,
            job=job.model_copy(update={"limits": limits, "objective": Objective.THROUGHPUT}),
        )
        if self._asked is not request:
            self._asked, self._spaces = request, {}
        whole = limits.model_copy(update={"solver_seconds": job.limits.solver_seconds})
        if whole not in self._spaces:
            own = problem.job.model_copy(update={"limits": whole})
            self._spaces[whole] = PricedSpace(replace(problem, job=own))
        return replace(problem, space=self._spaces[whole])

    def simplified(self, answer: Solution, *, most_seconds: float = float("inf")) -> Solution:
        """Return the simplest plan within the job's tolerance of a request's fastest, simulated.

        Raises:
            SolverError: if the solver fails.
        """
        fastest = Found(
            strategy=answer.strategy,
            step_seconds=answer.step_seconds,
            certificate=answer.certificate,
            runners_up=(),
        )
        request = answer.request
        found = self.simplest(request, fastest, most_seconds=most_seconds, price=predict_simulated)
        if found is fastest:
            return answer
        prediction = predict_simulated(
            request.workload, request.hardware, request.job.resolved, found.strategy
        )
        return Solution(
            request=request,
            strategy=found.strategy,
            prediction=prediction,
            certificate=found.certificate,
        )


class _Question(NamedTuple):
    """One part of an answer: what works it out, of what, and in what time."""

    function: Callable[..., Any]
    part: tuple[Any, ...]
    seconds: float
    share_ratio: float


def _answered(question: _Question) -> tuple[Any, int]:
    """Return one part of an answer, and of how many searches it is."""
    function, part, seconds, share_ratio = question
    inquiry = Inquiry.within(seconds, share_ratio=share_ratio)
    return function(*part, inquiry=inquiry), inquiry.search_count


def _otherdegrees_of(found: Found, chosen: Strategy) -> tuple[Candidate, ...]:
    """Return the runners-up of a plan that is not the fastest, which is one of them."""
    fastest = Candidate(
        configuration=configuration_of(found.strategy),
        step_seconds=found.step_seconds,
        is_lower_bound=False,
    )
    own = degrees_of(configuration_of(chosen))
    others = (fastest, *found.runners_up)
    return tuple(each for each in others if degrees_of(each.configuration) != own)


def degrees_of(configuration: Configuration) -> tuple[int, ...]:
    """Return the degrees that runners-up differ in."""
    return tuple(getattr(configuration, name) for name in DEGREES[:3])


def _of_group(found: Found, step_seconds: float) -> Certificate:
    """Return the proof that no strategy outside the better groups beats `step_seconds`."""
    bound = min(found.left_seconds, step_seconds)
    gap = 1.0 - bound / step_seconds
    is_proven = gap <= PROOF_TOLERANCE
    return found.certificate.model_copy(
        update={
            "status": "optimal" if is_proven else "feasible",
            "lower_bound_seconds": step_seconds if is_proven else bound,
            "gap_ratio": 0.0 if is_proven else gap,
        }
    )


def solution(request: Request, found: Found) -> Solution:
    """Return what a search found, priced again by the cost model alone.

    Raises:
        VerificationError: if search and cost model disagree.
    """
    prediction = predict(request.workload, request.hardware, request.job.resolved, found.strategy)
    difference = differences_from_prediction(found.step_seconds, prediction)
    if difference:
        raise VerificationError(f"the search and the cost model disagree: {difference}")
    return Solution(
        request=request,
        strategy=found.strategy,
        prediction=prediction,
        certificate=found.certificate,
    )
