"""Lines of configurations by their keys."""

from __future__ import annotations

import math

import numpy as np

from planner.ilp.frontier import Line, line_of

HERE, GONE = 0, 1


def a_line(*keys: float) -> Line:
    """All of the configurations wait."""
    return line_of(np.array(keys), np.full(len(keys), HERE, dtype=np.int8), HERE)


def test_the_least_key_is_at_the_head() -> None:
    assert a_line(3.0, 1.0, 2.0).head() == (1.0, 1)


def test_what_has_no_plan_does_not_wait() -> None:
    line = a_line(math.inf, math.inf)
    assert line.head() is None
    assert line.take(2, below=9.0) == []


def test_some_are_taken_in_order_below_one_number_and_up_to_another() -> None:
    line = a_line(3.0, 1.0, 2.0, 2.0, 4.0)
    assert line.take(2, below=4.0) == [1, 2]
    assert line.take(9, below=4.0, up_to=2.0) == [3]
    assert line.take(9, below=4.0) == [0]
    assert line.head() == (4.0, 4)


def test_those_that_went_elsewhere_are_passed_over() -> None:
    line = a_line(1.0, 2.0, 3.0, 4.0)
    line.stages[[0, 2]] = GONE
    assert line.head() == (2.0, 1)
    assert line.take(2, below=9.0) == [1, 3]
    assert line.head() is None


def test_others_join_at_their_places() -> None:
    line = a_line(1.0, 2.0, math.inf, math.inf)
    line.join(np.array([1.5, 2.0]), np.array([3, 2]))
    assert line.take(9, below=9.0) == [0, 3, 1, 2]
