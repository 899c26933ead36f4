"""Good plans are looked for among configurations that differ, before those that bounds favour."""

from types import SimpleNamespace

import numpy as np

from planner.ilp.frontier import Frontier, Stage
from planner.ilp.instance import Assignment
from planner.ilp.scouting import scout, scout_first

ANY = Assignment(counts=(), cuts=(0, 1))
DEGREES = [8, 8, 8, 8, 4, 4]
GROUPS = [0, 0, 0, 1, 2, 3]
KEYS = [1.0, 1.1, 1.2, 1.3, 1.4, 1.5]


def a_search(limit: float = 3.0) -> SimpleNamespace:
    """A search that has screened six configurations of four groups, and knows a plan."""
    frontier = Frontier(keys=[0.0] * 7, groups=[*GROUPS, 9])
    indices = list(range(6))
    frontier.pop_quick(7)
    screened = frontier.screen(indices, np.array(KEYS))
    frontier.offer(6, limit, ANY)
    return SimpleNamespace(
        frontier=frontier,
        configurations=SimpleNamespace(pipeline_parallel_degree=np.array([*DEGREES, 1])),
        pricing=SimpleNamespace(memory_bounds=lambda some, **_: np.array([KEYS[i] for i in some])),
        screened=list(screened),
        bounded=0,
        scouting_at=2,
        has_scouted=False,
        seconds_left=60.0,
        looked_at=[],
    )


def look(state: SimpleNamespace, index: int) -> None:
    """Take note of what is looked at, which is then bounded."""
    state.looked_at.append(index)
    state.frontier.stages[index] = Stage.BOUNDED
    state.frontier.push(index, KEYS[index])


def test_the_best_of_each_degree_come_first_then_the_best_left_of_each_group():
    state = a_search()
    scout_first(state, look)
    assert state.looked_at == [0, 4, 1, 3, 5]


def test_it_is_done_before_a_first_long_one_only_if_it_was_not_before():
    state = a_search()
    scout_first(state, look)
    scout_first(state, look)
    assert state.looked_at == [0, 4, 1, 3, 5]


def test_it_is_done_when_some_were_bounded_and_when_four_times_as_many_were():
    state = a_search()
    scout(state, look)
    assert state.looked_at == []
    scout(state, look)
    assert state.looked_at == [0, 4, 1, 3, 5]
    assert state.scouting_at == 8


def test_nothing_is_looked_for_where_the_best_plan_is_near_the_least_key():
    state = a_search(limit=1.003)
    scout_first(state, look)
    assert state.looked_at == []
