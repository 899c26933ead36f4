"""Searches of one space leave to the next what they have proven and found."""

from __future__ import annotations

from dataclasses import replace

import pytest

from planner.ilp.pricing import PricedSpace
from planner.ilp.problem import Found, Groups, Problem
from planner.ilp.search import search
from tests.small_jobs import small_problem

SCHEDULES = Groups(count=5, by=("pipeline_schedule",))


def shared(seed: int) -> Problem:
    """A job whose searches share their space."""
    problem = small_problem(seed)
    return replace(problem, space=PricedSpace(problem))


def found(problem: Problem, groups: Groups) -> Found:
    """The proven best of groups."""
    answer = search(problem, groups=groups)
    assert isinstance(answer, Found)
    return answer


def test_a_second_search_has_nothing_left_to_branch_on() -> None:
    problem = shared(28)
    first, again = found(problem, Groups()), found(problem, Groups())
    assert first.certificate.configurations_branched > 0
    assert again.certificate.configurations_branched == 0
    assert again.certificate.status == "optimal"
    assert again.strategy == first.strategy


@pytest.mark.parametrize("seed", [28, 66, 70])
def test_groups_are_the_same_whatever_was_searched_before(seed: int) -> None:
    fresh = found(small_problem(seed), SCHEDULES)
    problem = shared(seed)
    found(problem, Groups())
    after = found(problem, SCHEDULES)
    assert after.left_seconds == pytest.approx(fresh.left_seconds, rel=1e-9)
    assert [group.step_seconds for group in after.groups] == pytest.approx(
        [group.step_seconds for group in fresh.groups], rel=1e-9
    )


def test_a_group_that_is_known_is_left_out_once_and_not_for_good() -> None:
    problem = shared(28)
    schedule = found(problem, Groups()).strategy.pipeline_schedule
    others = search(problem, groups=replace(SCHEDULES, known=(schedule,)))
    named = (
        [g.strategy.pipeline_schedule for g in others.groups] if isinstance(others, Found) else []
    )
    assert schedule not in named
    assert found(problem, Groups()).strategy.pipeline_schedule is schedule
