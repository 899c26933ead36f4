"""Alternatives: the best plans that differ in a degree that matters, each with its proof.

Two plans are of one group if their tensor, pipeline, context and expert degrees are the same. One
search keeps the best plan of every group and prunes against the last that is wanted, so that all of
them are proven at once. It compares closed forms; the plans are ranked by their simulated steps.
"""

from __future__ import annotations

from planner.answers.explain import describe_strategy
from planner.answers.finalists import with_simulated_step
from planner.requests.inquiry import Inquiry
from planner.requests.resolution import Request
from planner.schema.frontier import AlternativePlan


def best_of_other_degrees(
    request: Request, plan_count: int, *, inquiry: Inquiry
) -> tuple[AlternativePlan, ...]:
    """Return the best plan of each of the `plan_count` best groups, best first.

    Raises:
        SolverError: if the solver fails.
        VerificationError: if a plan does not survive its own recomputation.
    """
    if plan_count < 1:
        return ()
    inquiry.tell("other degrees", 0, plan_count)
    groups = inquiry.best_groups(request, plan_count)
    found = sorted(map(with_simulated_step, groups), key=lambda one: one.step_seconds)
    return tuple(
        AlternativePlan(
            rank=rank,
            description=describe_strategy(one.strategy),
            step_seconds=one.step_seconds,
            simulated_step_seconds=one.simulated_step_seconds,
            slower_ratio=max(one.step_seconds / found[0].step_seconds - 1.0, 0.0),
            peak_memory_bytes=one.peak_memory_bytes,
            cost_per_million_tokens=one.prediction.cost_per_million_tokens,
            strategy=one.strategy,
            proven=one.is_proven,
        )
        for rank, one in enumerate(found, start=1)
    )
