"""Alternatives: the best plans that differ in a degree that matters, each with its proof.

Two plans are of one group if their tensor, pipeline, context and expert degrees and their schedule
are the same. The k best groups are found by partition (Lawler 1972): the best plan of a box of
limits is taken out with its whole group, and what remains of the box is split into smaller boxes,
each of which differs from that group in one degree. Every box is solved to its own proven best, so
the next best group is the best of the boxes that are left.
"""

from __future__ import annotations

import heapq
from collections.abc import Iterator
from dataclasses import dataclass, field
from itertools import count

from planner.explain import describe_strategy
from planner.ilp.result import NotFound
from planner.inquiry import Inquiry, Solution
from planner.resolution import Request
from planner.schema.frontier import AlternativePlan
from planner.schema.job import DegreeLimit, Limits
from planner.schema.strategy import PipelineSchedule, Strategy
from planner.variation import with_limits

GROUP_DEGREES = (
    "tensor_parallel_degree",
    "pipeline_parallel_degree",
    "context_parallel_degree",
    "expert_parallel_degree",
)


@dataclass(slots=True, kw_only=True)
class _Boxes:
    """Solved boxes, best first, and whether every box so far is solved with proof."""

    request: Request
    inquiry: Inquiry
    heap: list[tuple[float, int, Limits, Solution]] = field(default_factory=list)
    ticket: Iterator[int] = field(default_factory=count)
    all_proven: bool = True

    def add(self, limits: Limits) -> None:
        answer = self.inquiry.ask(with_limits(self.request, **dict(limits)))
        if isinstance(answer, NotFound):
            self.all_proven = self.all_proven and answer.proven
            return
        self.all_proven = self.all_proven and answer.is_proven
        heapq.heappush(self.heap, (answer.step_seconds, next(self.ticket), limits, answer))


def best_of_other_degrees(
    request: Request, plan_count: int, *, inquiry: Inquiry
) -> tuple[AlternativePlan, ...]:
    """Return the best plan of each of the `plan_count` best groups, best first.

    Raises:
        SolverError: if the solver fails.
        VerificationError: if a plan does not survive its own recomputation.
    """
    found = best_solutions(request, plan_count, inquiry=inquiry)
    return tuple(
        AlternativePlan(
            rank=rank,
            description=describe_strategy(solution.strategy),
            step_seconds=solution.step_seconds,
            slower_ratio=max(solution.step_seconds / found[0][0].step_seconds - 1.0, 0.0),
            peak_memory_bytes=solution.peak_memory_bytes,
            cost_per_million_tokens=solution.prediction.cost_per_million_tokens,
            strategy=solution.strategy,
            proven=proven,
        )
        for rank, (solution, proven) in enumerate(found, start=1)
    )


def best_solutions(
    request: Request, plan_count: int, *, inquiry: Inquiry
) -> tuple[tuple[Solution, bool], ...]:
    """Return the best plan of each of the best groups, and whether its rank is proven.

    Raises:
        SolverError: if the solver fails.
        VerificationError: if a plan does not survive its own recomputation.
    """
    boxes = _Boxes(request=request, inquiry=inquiry)
    found: list[tuple[Solution, bool]] = []
    rest = iter((request.job.resolved.limits,))
    while len(found) < plan_count:
        for limits in rest:
            boxes.add(limits)
        if not boxes.heap:
            break
        _, _, limits, best = heapq.heappop(boxes.heap)
        found.append((best, boxes.all_proven))
        inquiry.tell("other degrees", len(found), plan_count)
        rest = _without(limits, best.strategy)
    return tuple(found)


def _without(limits: Limits, strategy: Strategy) -> Iterator[Limits]:
    """Yield disjoint limits that cover all of `limits` but the strategy's group.

    {t < t*}, {t > t*}, {t = t*, p < p*}, {t = t*, p > p*}, and so on to the schedules but s*.
    """
    for name in GROUP_DEGREES:
        degree = getattr(strategy, name)
        allowed: DegreeLimit = getattr(limits, name)
        if allowed.min < degree:
            yield limits.model_copy(update={name: DegreeLimit(min=allowed.min, max=degree - 1)})
        if degree < allowed.max:
            yield limits.model_copy(update={name: DegreeLimit(min=degree + 1, max=allowed.max)})
        limits = limits.model_copy(update={name: DegreeLimit(min=degree, max=degree)})
    others = _other_schedules(limits, strategy)
    if others:
        yield limits.model_copy(update={"pipeline_schedules": others})


def _other_schedules(limits: Limits, strategy: Strategy) -> tuple[PipelineSchedule, ...]:
    """Return the schedules but the strategy's; none without a pipeline, where all are the same."""
    if strategy.pipeline_parallel_degree == 1:
        return ()
    return tuple(s for s in limits.pipeline_schedules if s is not strategy.pipeline_schedule)
