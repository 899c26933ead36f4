"""Scouting: good plans early, from configurations that the order of bounds would come to late.

The least key is refined next, and keys of long pipelines lie furthest below their plans: that
layers are whole and that transients differ is seen late. How much work that is depends on the best
plan known. Some configurations are therefore looked into out of turn, as soon as a search turns
out to be a long one, and now and then after.
"""

from __future__ import annotations

from collections.abc import Callable, Iterable

from planner.ilp.frontier import Stage
from planner.ilp.state import State

_AGAIN_AFTER = 4
_NEAR = 1.005
_LEAST_LOOKED_AT = 18


def scout(state: State, look: Callable[[State, int], None]) -> None:
    """Look into screened configurations before those that wait ahead of them, where it is time to.

    It is when some have been bounded one by one, and then whenever they are four times as many, as
    long as the best plan is not near the least key: the best of each pipeline degree, and the least
    key of each of a few combinations of degrees.
    """
    state.bounded += 1
    if state.bounded >= state.scouting_at:
        state.scouting_at = _AGAIN_AFTER * state.bounded
        _scout(state, look)


def scout_first(state: State, look: Callable[[State, int], None]) -> None:
    """Do so before the first configuration that takes long, if it was not done before."""
    if not state.has_scouted:
        _scout(state, look)
        if state.has_scouted:
            state.scouting_at *= _AGAIN_AFTER


def _scout(state: State, look: Callable[[State, int], None]) -> None:
    if state.frontier.next_key() * _NEAR > state.frontier.limit_seconds():
        return
    state.has_scouted = True
    _look(state, _best_of_each_degree(state), look)
    _screen_again(state)
    _look(state, _best_of_each_group(state), look)


def dive(state: State, screened: Iterable[int], look: Callable[[State, int], None]) -> int | None:
    """Look into the least of what was just screened, if that is less than all dived to before.

    The order of bounds would come to it when nothing below it is left to screen, and all that is
    screened until then would be so without a limit. Return what was looked into, if anything was.
    """
    keys = state.frontier.keys
    least = min(screened, key=lambda i: (keys[i], i), default=None)
    if least is not None and keys[least] < state.dived_to:
        state.dived_to = keys[least]
        _look(state, [least], look)
        return least
    return None


def _look(state: State, indices: Iterable[int], look: Callable[[State, int], None]) -> None:
    """Look into configurations out of turn, as long as they matter."""
    for index in indices:
        if state.seconds_left > 0.0 and _matters(state, index):
            state.frontier.take(index)
            look(state, index)


def _waiting(state: State) -> list[int]:
    """Return the screened configurations that matter, the least key first.

    The others never will again: keys rise, and limits fall.
    """
    frontier, keys = state.frontier, state.frontier.keys
    waiting = [i for i in state.screened if frontier.stages[i] == Stage.SCREENED]
    limits = frontier.limits_of(waiting)
    left = [i for i, limit in zip(waiting, limits, strict=True) if keys[i] < limit]
    state.screened = sorted(left, key=lambda i: (keys[i], i))
    return state.screened


def _best_of_each_degree(state: State) -> Iterable[int]:
    """Return the screened configuration with the least key of each pipeline degree."""
    degrees = state.configurations.pipeline_parallel_degree
    least: dict[int, int] = {}
    for index in _waiting(state):
        least.setdefault(int(degrees[index]), index)
    return least.values()


def _best_of_each_group(state: State) -> Iterable[int]:
    """Return the screened configurations with the least key of their degrees, a few at the most."""
    least: dict[int, int] = {}
    for index in _waiting(state):
        least.setdefault(state.frontier.groups[index], index)
        if len(least) == _LEAST_LOOKED_AT:
            break
    return least.values()


def _screen_again(state: State) -> None:
    """Raise the keys of those that were screened before the limit was what it is."""
    frontier, waiting = state.frontier, _waiting(state)
    if not waiting or state.seconds_left <= 0.0:
        return
    bounds = state.pricing.memory_bounds(waiting, limit_seconds=frontier.limits_of(waiting))
    for index, bound in zip(waiting, bounds.tolist(), strict=True):
        if bound > frontier.keys[index]:
            frontier.push(index, bound)


def _matters(state: State, index: int) -> bool:
    """Return whether a configuration waits, screened, and may have a better plan."""
    frontier = state.frontier
    is_screened = frontier.stages[index] == Stage.SCREENED
    return is_screened and frontier.keys[index] < frontier.limit_of(index)
