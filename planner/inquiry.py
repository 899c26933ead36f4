"""Inquiry: several searches for one answer, under one time limit.

Every plan that a search returns is priced again by the cost model alone before it is used.
"""

from __future__ import annotations

import time
from collections.abc import Callable
from dataclasses import dataclass

from planner.cost.step import predict
from planner.errors import VerificationError
from planner.ilp.problem import Problem
from planner.ilp.result import Found, NotFound
from planner.ilp.search import search
from planner.ilp.solver import SolverName
from planner.resolution import Request
from planner.schema.plan import Certificate, Prediction
from planner.schema.strategy import Strategy
from planner.verify import differences_from_prediction

Listener = Callable[[str, int, int], None]


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
    def peak_memory_bytes(self) -> float:
        """Return the bytes on the fullest device."""
        return max(stage.peak_memory_bytes for stage in self.prediction.stages)

    @property
    def is_proven(self) -> bool:
        """Return whether nothing in the request's space is faster."""
        return self.certificate.status == "optimal"


@dataclass(slots=True, kw_only=True)
class Inquiry:
    """Searches that share a deadline (of `time.perf_counter`); `listen` hears how far they are.

    None takes more than `share_ratio` of the time that is left, so that one hard search does not
    leave nothing for the others.
    """

    deadline: float
    share_ratio: float = 0.25
    solver: SolverName | None = None
    listen: Listener | None = None
    search_count: int = 0

    @classmethod
    def within(
        cls, seconds: float, *, solver: SolverName | None = None, listen: Listener | None = None
    ) -> Inquiry:
        """Return an inquiry that has `seconds` from now on."""
        return cls(deadline=time.perf_counter() + seconds, solver=solver, listen=listen)

    @property
    def seconds_left(self) -> float:
        """Return the seconds until the deadline, 0 past it."""
        return max(self.deadline - time.perf_counter(), 0.0)

    @property
    def is_over(self) -> bool:
        """Return whether the time is up."""
        return self.seconds_left <= 0.0

    def tell(self, phase: str, done: int, total: int) -> None:
        """Let the listener know that `done` of `total` parts of the work are finished."""
        if self.listen is not None:
            self.listen(phase, done, total)

    def ask(self, request: Request, *, cutoff_seconds: float | None = None) -> Solution | NotFound:
        """Return the fastest strategy, or `NotFound` where none is at or under the cutoff.

        Raises:
            SolverError: if the solver fails.
            VerificationError: if the strategy does not survive its own recomputation.
        """
        found = self._search(request, cutoff_seconds=cutoff_seconds)
        return found if isinstance(found, NotFound) else solution(request, found)

    def fits(self, request: Request) -> bool:
        """Return whether a strategy was found that fits."""
        return isinstance(self._search(request, stop_at_first=True), Found)

    def _search(
        self,
        request: Request,
        *,
        cutoff_seconds: float | None = None,
        stop_at_first: bool = False,
    ) -> Found | NotFound:
        job = request.job.resolved
        allowed = min(self.seconds_left * self.share_ratio, job.limits.solver_seconds)
        if allowed <= 0.0:
            return NotFound(configurations_total=0, refused={}, shortfalls=(), proven=False)
        limits = job.limits.model_copy(update={"solver_seconds": allowed})
        self.search_count += 1
        result = search(
            Problem(
                graph=request.model.resolved,
                workload=request.workload,
                hardware=request.hardware,
                job=job.model_copy(update={"limits": limits}),
            ),
            solver=self.solver,
            stop_at_first=stop_at_first,
        )
        return result if cutoff_seconds is None else _under(cutoff_seconds, result)


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


def _under(cutoff_seconds: float, result: Found | NotFound) -> Found | NotFound:
    """Return `result` if its step is at or under the cutoff; else that there is none."""
    if isinstance(result, NotFound) or result.step_seconds <= cutoff_seconds:
        return result
    return NotFound(
        configurations_total=result.certificate.configurations_total,
        refused={},
        shortfalls=(),
        proven=result.certificate.lower_bound_seconds > cutoff_seconds,
    )
