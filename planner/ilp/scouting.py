"""Scouting: good plans early, from configurations that the order of bounds would come to late.

The least key is refined next, and keys of long pipelines lie furthest below their plans: that
layers are whole and that transients differ is seen late. How much work that is depends on the best
plan known. Of each pipeline degree the configuration with the least key is therefore looked into
out of turn, as soon as a search turns out to be a long one, and now and then after.
"""

from __future__ import annotations

from collections.abc import Callable

from planner.ilp.frontier import Stage
from planner.ilp.state import State

_AGAIN_AFTER = 4
_NEAR = 1.005


def scout(state: State, look: Callable[[State, int], None]) -> None:
    """Look into the best screened configuration of each pipeline degree, where it is time to.

    It is when some have been bounded one by one, and then whenever they are four times as many,
    as long as the best plan is not near the least key.
    """
    state.bounded += 1
    if state.bounded < state.scouting_at:
        return
    state.scouting_at = _AGAIN_AFTER * state.bounded
    for index in _promising(state):
        if state.seconds_left > 0.0:
            state.frontier.take(index)
            look(state, index)


def _promising(state: State) -> list[int]:
    """Return the screened configuration with the least key of each degree, below the limit."""
    frontier = state.frontier
    limit = frontier.limit_seconds()
    if frontier.next_key() * _NEAR > limit:
        return []
    waiting = [
        (frontier.keys[index], index)
        for index in state.screened
        if frontier.stages[index] is Stage.SCREENED and frontier.keys[index] < limit
    ]
    degrees = state.configurations.pipeline_parallel_degree
    least: dict[int, int] = {}
    for _, index in sorted(waiting):
        least.setdefault(int(degrees[index]), index)
    return list(least.values())
