"""Crowding: raising the keys of screened configurations many at a time.

Once many configurations turn out to be bounded one by one, those that wait near the least key are
bounded together (`planner.ilp.crowd`), which takes a tenth of the time and leaves few of them.
"""

from __future__ import annotations

from itertools import islice

import numpy as np

from planner.ilp.crowd import bounds_below
from planner.ilp.frontier import Stage
from planner.ilp.state import State

_CROWDED_FROM = 8
_AT_ONCE = 64
_LOOKED_AT = 8 * _AT_ONCE
_LOWER = 0.999


def crowd_out(state: State, index: int) -> None:
    """Raise the key of a configuration and of others that wait, if there is a limit to do so by."""
    frontier = state.frontier
    if state.bounded < _CROWDED_FROM or not _is_apt(state, index):
        return
    near = frontier.next_indices(_LOOKED_AT, Stage.SCREENED)
    others = (other for other in near if other != index and _is_apt(state, other))
    some = [index, *islice(others, _AT_ONCE - 1)]
    state.pricing.prepare(some)
    limits = frontier.limits_of(some)
    bounds = bounds_below([state.pricing.instance(each) for each in some], limits)
    for each, limit, bound in zip(some, limits, bounds.tolist(), strict=True):
        state.crowded[each] = limit
        if each == index:
            frontier.keys[each] = max(frontier.keys[each], bound)
        elif bound > frontier.keys[each]:
            frontier.push(each, bound)


def _is_apt(state: State, index: int) -> bool:
    """Return whether a configuration may have a plan below a limit not as low when last looked."""
    limit = state.frontier.limit_of(index)
    known = state.crowded.get(index, np.inf)
    return state.frontier.keys[index] < limit and limit < _LOWER * known and np.isfinite(limit)
