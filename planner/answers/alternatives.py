"""Alternatives: the best plans that differ in a degree that matters, or in one choice of the best.

Two plans are of one group if their tensor, pipeline, context and expert degrees are the same. One
search keeps the best plan of every group and prunes against the last that is wanted, so that all of
them are proven at once. Of the best one's group each further search leaves out one thing that the
best chose: its micro-batch, checkpointing, ZeRO stages, schedule, offload. Searches compare closed
forms; plans are ranked by their simulated steps.
"""

from __future__ import annotations

from collections.abc import Iterable, Iterator, Sequence

from planner.answers.comparison import strategy_differences
from planner.answers.explain import describe_strategy
from planner.answers.finalists import with_simulated_step
from planner.ilp.problem import Found
from planner.requests.inquiry import Inquiry, Solution, solution
from planner.requests.resolution import Request
from planner.requests.variation import without_its_choices
from planner.schema.frontier import AlternativePlan
from planner.schema.strategy import Strategy

Alternatives = tuple[AlternativePlan, ...]


def best_alternatives(
    request: Request, plan_count: int, *, inquiry: Inquiry
) -> tuple[Alternatives, Alternatives]:
    """Return up to `plan_count` plans of other degrees, the best first, and of its other choices.

    Where one of these is the fastest by its simulated step it is the best.

    Raises:
        SolverError: if the solver fails.
        VerificationError: if a plan does not survive its own recomputation.
    """
    groups = _best_groups(request, plan_count, inquiry)
    if not groups:
        return (), ()
    alike = _by_step([groups[0], *_other_choices(request, groups[0].strategy, inquiry)])
    best = alike[0]
    degrees = _alternatives([best, *groups[1:]], beside=best)
    choices = _alternatives(alike[1 : plan_count + 1], beside=best)
    return tuple(degrees), tuple(choices)


def _best_groups(request: Request, plan_count: int, inquiry: Inquiry) -> list[Solution]:
    if plan_count < 1:
        return []
    inquiry.tell("other degrees", 0, plan_count)
    return inquiry.elsewhere(_groups, request, plan_count)


def _groups(request: Request, plan_count: int, *, inquiry: Inquiry) -> list[Solution]:
    return _by_step(map(with_simulated_step, inquiry.best_groups(request, plan_count)))


def _other_choices(request: Request, best: Strategy, inquiry: Inquiry) -> Iterable[Solution]:
    """Return the best plans of the degrees of `best` that each leave out one of its choices."""
    requests = [(asked,) for asked in without_its_choices(request, best)]
    found: dict[Strategy, Solution] = {}
    for place, one in enumerate(inquiry.in_turn(_fastest, requests), start=1):
        inquiry.tell("other choices", place, len(requests))
        if one is not None:
            found.setdefault(one.strategy, one)
    return found.values()


def _fastest(request: Request, *, inquiry: Inquiry) -> Solution | None:
    answer = inquiry.search(request)
    return with_simulated_step(solution(request, answer)) if isinstance(answer, Found) else None


def _by_step(found: Iterable[Solution]) -> list[Solution]:
    return sorted(found, key=lambda one: one.step_seconds)


def _alternatives(found: Sequence[Solution], *, beside: Solution) -> Iterator[AlternativePlan]:
    for rank, one in enumerate(found, start=1):
        yield AlternativePlan(
            rank=rank,
            description=describe_strategy(one.strategy),
            step_seconds=one.step_seconds,
            simulated_step_seconds=one.simulated_step_seconds,
            slower_ratio=max(one.step_seconds / beside.step_seconds - 1.0, 0.0),
            peak_memory_bytes=one.peak_memory_bytes,
            cost_per_million_tokens=one.prediction.cost_per_million_tokens,
            strategy=one.strategy,
            proven=one.is_proven,
            differs=strategy_differences(one.strategy, beside.strategy),
        )
