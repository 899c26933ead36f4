"""What waits comes out by its bound, and in the order it came where bounds are equal."""

from __future__ import annotations

import pytest

from planner.ilp.branch_and_bound import Waiting


def test_the_least_bound_is_first_and_the_oldest_of_equals() -> None:
    waiting: Waiting[str] = Waiting()
    for item, lower in (("late", 2.0), ("first", 1.0), ("second", 1.0), ("least", 0.5)):
        waiting.push(item, lower)
    assert waiting.least() == 0.5
    assert [waiting.pop() for _ in range(4)] == [
        (0.5, "least"),
        (1.0, "first"),
        (1.0, "second"),
        (2.0, "late"),
    ]


def test_items_are_never_compared() -> None:
    waiting: Waiting[object] = Waiting()
    one, other = object(), object()
    waiting.push(one, 1.0)
    waiting.push(other, 1.0)
    assert waiting.pop() == (1.0, one)


def test_nothing_waits_under_inf_and_what_came_is_still_counted() -> None:
    waiting: Waiting[str] = Waiting()
    assert not waiting
    assert waiting.least() == float("inf")
    waiting.push("gone", 1.0)
    waiting.clear()
    assert (len(waiting), waiting.count) == (0, 1)
    with pytest.raises(IndexError):
        waiting.pop()
