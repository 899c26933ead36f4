"""Reading: what follows the places of a chain, for places that are interchangeable.

Two places are of one class if the same kinds of layers follow them, and cuts there cost the same.
A chain of period P after o odd blocks has about o + P classes.
"""

from __future__ import annotations

from dataclasses import dataclass

import numpy as np

from planner.cost.configuration import Booleans, Integers
from planner.ilp.instance import Instance
from planner.ilp.segments import load_weights


@dataclass(frozen=True, slots=True, kw_only=True)
class Reading:
    """A chain read in one direction: `codes` and `after` are [classes, lengths from 0 on].

    `codes` are loads as `planner.ilp.loads.load_weights` has them. The first `odd` places are
    classes of their own, those behind them take turns. `edges` [classes] are 1 + the class of the
    block before a cut there, as `planner.ilp.edges` has it.
    """

    codes: Integers
    after: Integers
    odd: int
    edges: Integers

    def classes_within(self, earliest: int, latest: int) -> Booleans:
        """Return which classes places between two, in the direction of reading, have, [classes]."""
        places = np.arange(max(earliest, 0), latest + 1)
        found = np.zeros(len(self.codes), dtype=bool)
        found[_wrapped(places, self.odd, len(self.codes))] = True
        return found


def reading_of(instance: Instance, longest: int, *, is_backwards: bool = False) -> Reading:
    """Return what follows each class of places for every length up to the longest."""
    kinds, groups = instance.block_kinds, instance.block_classes
    if is_backwards:
        kinds, groups = kinds[::-1], groups[::-1]
    is_edged = instance.extras is not None
    odd, period = _period(kinds * (int(groups.max()) + 1) + groups if is_edged else kinds)
    odd += int(is_edged and not is_backwards and period < len(kinds))
    count = odd + period
    weights = np.zeros(len(instance.kinds), dtype=np.int64)
    weights[list(instance.free_kinds)] = load_weights(instance)
    places = np.arange(count)[:, None] + np.arange(longest + 1)[None, :]
    read = np.minimum(_wrapped(places, odd, count), len(kinds) - 1)
    codes = np.cumsum(weights[kinds[read[:, :-1]]], axis=1)
    before = groups[read[:, 0]] if is_backwards else groups[np.maximum(np.arange(count), 1) - 1]
    return Reading(
        codes=np.concatenate([np.zeros_like(codes[:, :1]), codes], axis=1),
        after=_wrapped(places, odd, count),
        odd=odd,
        edges=1 + before,
    )


def _wrapped(places: Integers, odd: int, count: int) -> Integers:
    """Return the classes of places: the first `odd` of `count` are their own."""
    turns = odd + (places - odd) % max(count - odd, 1)
    return np.asarray(np.where(places < count, places, turns))


def _period(kinds: Integers) -> tuple[int, int]:
    """Return how many blocks are odd and the period of the others, with the least sum of both."""
    best = (0, len(kinds))
    for period in range(1, len(kinds)):
        if period >= sum(best):
            break
        differs = np.flatnonzero(kinds[period:] != kinds[:-period])
        first = int(differs[-1]) + 1 if len(differs) else 0
        if first + period < sum(best):
            best = (first, period)
    return best
