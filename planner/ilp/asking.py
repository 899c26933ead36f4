"""Asking: whether a space has any plan, however slow.

It is asked as well where half of a search for the fastest is over and no plan is known yet.

How long a step takes does not matter then, and is not priced but for what may fit. Parts of the
space are screened for memory one after another, and what may fit is looked into at once, though not
for long: another may have a plan that is found sooner.
"""

from __future__ import annotations

import math
from collections.abc import Callable, Iterable

import numpy as np

from planner.ilp.effort import Effort
from planner.ilp.frontier import Stage
from planner.ilp.state import State

_FIRST_PART = 256
_PART_GROWTH = 2
_PART_MOST = 2048
_FIRST_UNITS = 100_000.0

Look = Callable[[State, int, Effort], bool]
"""Looks into a configuration with some effort; returns whether it came to an end."""


def look_for_any(state: State, look: Look) -> None:
    """Screen all configurations and `look` into those that may fit, until there is a plan.

    What was screened before comes first. It ends as well when the time is over. What is not settled
    waits in the frontier.
    """
    frontier, unsettled = state.frontier, list[int]()
    unseen = np.flatnonzero(frontier.stages < Stage.SCREENED).tolist()
    known = np.flatnonzero(frontier.stages == Stage.SCREENED).tolist()
    _look_at(state, [i for i in known if math.isfinite(frontier.keys[i])], look, unsettled)
    start, size = 0, _FIRST_PART
    while start < len(unseen) and not _is_over(state):
        part = unseen[start : start + size]
        bounds = state.pricing.memory_bounds(part, with_fills=False)
        _look_at(state, frontier.screen(part, bounds), look, unsettled)
        start, size = start + size, min(size * _PART_GROWTH, _PART_MOST)
    for index in unsettled:
        if not _is_over(state):
            frontier.take(index)
            look(state, index, state.effort(float("inf")))


def _look_at(state: State, indices: Iterable[int], look: Look, unsettled: list[int]) -> None:
    """Look into screened configurations with little effort each; add those that take more."""
    frontier = state.frontier
    for index in sorted(indices, key=lambda i: (frontier.keys[i], i)):
        if _is_over(state):
            return
        frontier.take(index)
        if not look(state, index, state.effort(_FIRST_UNITS)):
            unsettled.append(index)


def _is_over(state: State) -> bool:
    """Return whether there is a plan, or no time is left."""
    return bool(state.frontier.best) or state.seconds_left <= 0.0
