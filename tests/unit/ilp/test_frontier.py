"""Keys that rise, and plans of different degrees."""

from __future__ import annotations

import math

import numpy as np

from planner.ilp.frontier import Frontier, Queue, Refinement
from planner.ilp.instance import Assignment

ANY = Assignment(counts=(np.ones((1, 1), dtype=np.int64),), cuts=(0, 1))


def a_frontier(*keys: float, **changes: object) -> Frontier:
    """Configurations of degrees of their own, one plan asked for."""
    fields: dict[str, object] = {"keys": list(keys), "groups": list(range(len(keys)))}
    return Frontier(**{**fields, **changes})  # type: ignore[arg-type]


def test_the_least_key_comes_first() -> None:
    frontier = a_frontier(3.0, 1.0, 2.0)
    assert [frontier.pop() for _ in range(4)] == [(1.0, 1), (2.0, 2), (3.0, 0), None]


def test_what_has_no_plan_never_waits() -> None:
    frontier = a_frontier(math.inf, 1.0)
    assert frontier.open_count == 1


def test_what_waits_at_several_places_is_one_that_is_open() -> None:
    """Screened, and bounded twice: of its three places in the heap one is of now."""
    frontier = a_frontier(1.0, 2.0)
    frontier.screen([0], np.array([1.1]))
    frontier.push(0, 1.2)
    frontier.push(0, 1.3)
    assert frontier.open_count == 2
    frontier.dequeue(0)
    assert frontier.open_count == 1


def test_what_cannot_beat_the_best_is_not_open() -> None:
    frontier = a_frontier(1.0, 2.0, 3.0)
    frontier.offer(0, 2.5, ANY)
    assert frontier.open_count == 2


def test_a_group_is_settled_once_nothing_that_is_left_of_it_beats_its_plan() -> None:
    """Of what waits apart, by its own group alone."""
    frontier = a_frontier(1.0, 1.0, 1.0, 5.0, groups=[0, 0, 1, 2], group_count=3)
    for index, step in ((1, 2.0), (2, 1.5), (3, 6.0)):
        frontier.offer(index, step, ANY)
    assert frontier.settled(1.4) == []
    assert [best.index for best in frontier.settled(2.0)] == [2, 1]
    frontier.push(0, 1.2, Queue.LAST)
    assert [best.index for best in frontier.settled(2.0)] == [2]
    frontier.push(3, 5.0, Queue.GIVEN_UP)
    assert [best.index for best in frontier.settled(9.0)] == [2]


def test_nothing_is_looked_at_that_cannot_beat_the_best() -> None:
    frontier = a_frontier(1.0, 2.0)
    frontier.offer(0, 2.0, ANY)
    assert frontier.pop() == (1.0, 0)
    assert frontier.pop() is None
    assert frontier.lower_bound() == 2.0


def test_a_key_only_rises() -> None:
    frontier = a_frontier(1.0, 5.0)
    frontier.pop()
    frontier.push(0, 3.0)
    frontier.push(0, 2.0)
    assert frontier.pop() == (3.0, 0)


def test_the_lower_bound_is_the_least_key_that_waits() -> None:
    frontier = a_frontier(1.0, 2.0)
    frontier.offer(1, 4.0, ANY)
    assert frontier.lower_bound() == 1.0
    frontier.pop()
    frontier.push(0, 3.0)
    assert frontier.lower_bound() == 2.0


def test_a_key_that_is_left_open_bounds_as_well() -> None:
    """What no known plan of a configuration reaches may still be reached."""
    frontier = a_frontier(1.0, 5.0)
    frontier.offer(1, 4.0, ANY)
    frontier.pop()
    frontier.push(0, 1.0, Queue.GIVEN_UP)
    assert frontier.pop() is None
    assert frontier.lower_bound() == 1.0


def test_several_plans_are_of_different_degrees() -> None:
    """The second of the same degrees is none, though it is faster than the other degrees' best."""
    frontier = a_frontier(1.0, 1.0, 1.0, groups=[0, 0, 1], group_count=2)
    frontier.offer(0, 2.0, ANY)
    frontier.offer(1, 3.0, ANY)
    frontier.offer(2, 4.0, ANY)
    assert [best.index for best in frontier.ranked()] == [0, 2]
    assert frontier.limit_seconds() == 4.0
    assert frontier.limit_of(1) == 2.0


def test_plans_beyond_the_cutoff_do_not_count() -> None:
    frontier = a_frontier(1.0, 3.0, cutoff_seconds=2.0)
    frontier.offer(0, 2.5, ANY)
    assert frontier.ranked() == []
    assert frontier.pop() == (1.0, 0)
    assert frontier.pop() is None


def test_only_what_nobody_has_looked_into_is_screened() -> None:
    frontier = a_frontier(1.0, 2.0, 3.0, 4.0)
    frontier.pop()
    frontier.refinements[0] = Refinement.BOUNDED
    frontier.push(0, 2.5)
    assert frontier.pop_quick(2) == [1, 2]
    assert frontier.open_count == 2
    assert [frontier.pop() for _ in range(3)] == [(2.5, 0), (4.0, 3), None]


def test_what_is_taken_out_of_turn_waits_once() -> None:
    """Whether its key rises meanwhile or not."""
    for key in (2.0, 3.0):
        frontier = a_frontier(1.0, 9.0)
        frontier.pop()
        frontier.refinements[0] = Refinement.SCREENED
        frontier.push(0, 2.0)
        frontier.dequeue(0)
        frontier.push(0, key)
        assert [frontier.pop() for _ in range(3)] == [(key, 0), (9.0, 1), None]


def test_limits_of_many_are_those_of_each() -> None:
    """With two plans wanted, a configuration has to beat the best of its own degrees as well."""
    frontier = a_frontier(1.0, 1.0, 1.0, 1.0, group_count=2, groups=[0, 0, 1, 2])
    frontier.offer(0, 3.0, ANY)
    frontier.offer(2, 5.0, ANY)
    assert frontier.limits_of(range(4)) == [3.0, 3.0, 5.0, 5.0]
    assert frontier.limits_of(range(4)) == [frontier.limit_of(index) for index in range(4)]


def test_what_was_screened_waits_unless_it_cannot_fit() -> None:
    frontier = a_frontier(0.0, 0.0, 0.0)
    assert frontier.screen([0, 2], np.array([3.0, math.inf])) == [0]
    assert frontier.refinements.tolist() == [
        Refinement.SCREENED,
        Refinement.QUICK,
        Refinement.SCREENED,
    ]
    assert [frontier.pop() for _ in range(3)] == [(0.0, 1), (3.0, 0), None]
