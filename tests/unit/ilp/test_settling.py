"""A search that was told up to which step all needs to be known ends once it is."""

from __future__ import annotations

import time
from types import SimpleNamespace
from typing import cast

import pytest

from planner.ilp import search
from planner.ilp.frontier import Frontier, Queue, State
from planner.ilp.pricing import PricedSpace
from planner.ilp.problem import Enough, Group, Groups, Problem
from planner.schema.strategy import Strategy
from tests.unit.ilp.test_frontier import ANY, a_frontier

STRATEGY = cast("Strategy", None)


def a_state(frontier: Frontier, *, enough: float, leaves_programs: bool = False) -> State:
    """Every plan that is told of is enough from `enough` on; of the job its time alone counts."""
    limits = SimpleNamespace(solver_seconds=3600.0, accepted_gap_ratio=0.0)
    problem = SimpleNamespace(job=SimpleNamespace(limits=limits))
    return State(
        problem=cast("Problem", problem),
        space=cast("PricedSpace", None),
        frontier=frontier,
        started=time.perf_counter(),
        groups=Groups(settle=lambda _group: Enough(enough, leaves_programs)),
    )


@pytest.mark.parametrize(("waiting", "is_enough"), [(4.48, False), (4.53, True)])
def test_what_waits_for_a_program_has_to_be_known_as_well(
    monkeypatch: pytest.MonkeyPatch, waiting: float, is_enough: bool
) -> None:
    """A plan of 4.7 s is told of when the next in turn is of 4.8 s; from 4.52 s on is enough."""
    told = Group(strategy=STRATEGY, step_seconds=4.7)
    monkeypatch.setattr(search, "group_of", lambda *_: told)
    frontier = a_frontier(4.8, waiting, 4.7, groups=[0, 1, 2])
    frontier.push(1, 0.0, Queue.LAST)
    frontier.offer(2, 4.7, ANY)
    frontier.dequeue(0)
    frontier.dequeue(2)
    assert search._report_settled(a_state(frontier, enough=4.52), 0, 4.8) is is_enough


@pytest.mark.parametrize(
    ("enough", "leaves_programs", "is_enough"),
    [(4.52, True, True), (4.52, False, False), (4.3, False, True)],
)
def test_programs_are_left_to_the_search_for_other_kinds_if_there_will_be_one(
    monkeypatch: pytest.MonkeyPatch, enough: float, leaves_programs: bool, is_enough: bool
) -> None:
    """A program is next, of 4.4 s at least, and a plan of 4.7 s is known."""
    told = Group(strategy=STRATEGY, step_seconds=4.7)
    monkeypatch.setattr(search, "group_of", lambda *_: told)
    frontier = a_frontier(4.4, 4.7, groups=[0, 1])
    frontier.offer(1, 4.7, ANY)
    frontier.dequeue(0)
    frontier.dequeue(1)
    state = a_state(frontier, enough=enough, leaves_programs=leaves_programs)
    state.declined[0] = 4.7
    assert search._report_settled(state, 0, 4.4) is is_enough
