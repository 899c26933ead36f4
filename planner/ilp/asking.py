"""Asking: whether a space has any plan, however slow.

How long a step takes does not matter then, and is not priced but for what may fit. Parts of the
space are screened for memory one after another, and what may fit is looked into at once, though not
for long: another may have a plan that is found sooner.
"""

from __future__ import annotations

from collections.abc import Callable

from planner.ilp.state import State

_FIRST_PART = 256
_PART_GROWTH = 2
_PART_MOST = 2048
_FIRST_SECONDS = 0.1

Look = Callable[[State, int, float], bool]
"""Looks into a configuration for some seconds; returns whether it came to an end."""


def look_for_any(state: State, look: Look) -> None:
    """Screen all configurations and `look` into those that may fit, until there is a plan.

    It ends as well when the time is over. What is not settled waits in the frontier.
    """
    frontier = state.frontier
    start, size, unsettled = 0, _FIRST_PART, []
    while start < len(state.configurations):
        if state.seconds_left <= 0.0:
            return
        part = range(start, min(start + size, len(state.configurations)))
        bounds = state.pricing.memory_bounds(part, with_fills=False)
        screened = frontier.screen(part, bounds)
        for index in sorted(screened, key=lambda i: (frontier.keys[i], i)):
            if frontier.best or state.seconds_left <= 0.0:
                return
            frontier.take(index)
            if not look(state, index, _FIRST_SECONDS):
                unsettled.append(index)
        start, size = part.stop, min(size * _PART_GROWTH, _PART_MOST)
    for index in unsettled:
        if not frontier.best and state.seconds_left > 0.0:
            frontier.take(index)
            look(state, index, state.seconds_left)
