"""The k best groups are those that solving every group by itself gives."""

from __future__ import annotations

import pytest

from planner.answers.alternatives import best_alternatives
from planner.answers.finalists import fastest_plan
from planner.requests.inquiry import Inquiry, Solution
from planner.requests.resolution import Request
from planner.requests.variation import with_limits
from planner.schema.job import DegreeLimit, Limits
from planner.space.degrees import enumerate_configurations
from tests.tight_requests import FEW_CHOICES, a_tight_request

GROUP_DEGREES = (
    "tensor_parallel_degree",
    "pipeline_parallel_degree",
    "context_parallel_degree",
    "expert_parallel_degree",
)


def group_of(decided) -> tuple[int, ...]:
    return tuple(getattr(decided, name) for name in GROUP_DEGREES)


def every_group(request: Request) -> set[tuple[int, ...]]:
    rows = enumerate_configurations(
        request.model.resolved, request.hardware, request.job.resolved
    ).rows
    return {group_of(row) for row in rows}


def best_of(request: Request, group: tuple[int, ...]) -> float | None:
    fixed = {
        name: DegreeLimit(min=degree, max=degree)
        for name, degree in zip(GROUP_DEGREES, group, strict=True)
    }
    answer = fastest_plan(with_limits(request, **fixed), inquiry=Inquiry.within(30.0))
    return answer.step_seconds if isinstance(answer, Solution) else None


@pytest.mark.parametrize(
    "limits",
    [
        FEW_CHOICES,
        FEW_CHOICES.model_copy(update={"pipeline_parallel_degree": DegreeLimit(min=2, max=4)}),
        FEW_CHOICES.model_copy(update={"micro_batch_size": DegreeLimit(min=2, max=2)}),
    ],
    ids=["free", "pipelined", "micro-batch 2"],
)
def test_the_best_groups_are_those_of_solving_each_alone(limits: Limits):
    request = a_tight_request(limits=limits)
    alone = [best_of(request, group) for group in every_group(request)]
    expected = sorted(step for step in alone if step is not None)
    found, _ = best_alternatives(request, 100, inquiry=Inquiry.within(60.0))
    assert len(expected) >= 3
    assert [plan.step_seconds for plan in found] == pytest.approx(expected, rel=1e-9)


def test_the_plans_are_ranked_proven_and_of_different_groups():
    found, _ = best_alternatives(a_tight_request(), 5, inquiry=Inquiry.within(60.0))
    assert [plan.rank for plan in found] == [1, 2, 3, 4, 5]
    assert all(plan.proven for plan in found)
    assert len({group_of(plan.strategy) for plan in found}) == 5
    assert found[0].slower_ratio == 0.0


def test_the_best_plan_has_neighbours_that_leave_out_one_of_its_choices():
    """Each is as fast as a search with that limit alone, and says in what it differs."""
    request = a_tight_request()
    (best, *_), choices = best_alternatives(request, 8, inquiry=Inquiry.within(60.0))
    own = best.strategy
    same = {
        name: DegreeLimit(min=getattr(own, name), max=getattr(own, name)) for name in GROUP_DEGREES
    }
    larger = DegreeLimit(min=own.micro_batch_size + 1, max=64)
    alone = fastest_plan(
        with_limits(request, **same, micro_batch_size=larger), inquiry=Inquiry.within(30.0)
    )
    (wanted,) = [plan for plan in choices if plan.strategy == alone.strategy]
    assert wanted.step_seconds == pytest.approx(alone.step_seconds)
    size = alone.strategy.micro_batch_size
    assert f"micro-batch size {size} in place of {own.micro_batch_size}" in wanted.differs
    for plan in choices:
        assert group_of(plan.strategy) == group_of(own)
        assert plan.step_seconds >= best.step_seconds
        assert plan.slower_ratio == pytest.approx(plan.step_seconds / best.step_seconds - 1.0)
    assert len({plan.differs for plan in choices}) == len(choices) >= 2


def test_without_time_there_are_none():
    assert best_alternatives(a_tight_request(), 3, inquiry=Inquiry.within(0.0)) == ((), ())


def test_none_are_sought_where_none_are_wanted():
    inquiry = Inquiry.within(30.0)
    assert best_alternatives(a_tight_request(), 0, inquiry=inquiry) == ((), ())
    assert inquiry.search_count == 0
