"""One answer of searches of several parts of the space."""

from planner.ilp.problem import Found, NotFound
from planner.requests.parts import search_parts
from planner.schema.job import Limits


def test_the_first_part_with_a_plan_says_that_there_is_one():
    asked = []
    plan = Found.__new__(Found)

    def search(limits, _):
        asked.append(limits.zero_stages)
        return plan

    parts = [Limits(zero_stages=(0,)), Limits(zero_stages=(1,))]
    assert search_parts(parts, search, seconds=1.0, is_any_welcome=True) is plan
    assert asked == [(0,)]


def test_parts_without_a_plan_are_all_proven_or_none_is():
    def search(limits, _):
        proven = limits.zero_stages == (0,)
        return NotFound(configurations_total=2, refused={"r": 1}, shortfalls=(), proven=proven)

    parts = [Limits(zero_stages=(0,)), Limits(zero_stages=(1,))]
    both = search_parts(parts, search, seconds=1.0)
    assert (both.configurations_total, both.refused, both.proven) == (4, {"r": 2}, False)
