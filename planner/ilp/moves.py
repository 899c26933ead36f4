"""Moves: how the loads of one rank lead from what the ranks before it hold to what they all hold.

A state is what the first ranks hold together: a number of blocks where only that matters, the place
of a cut where ranks follow one another along the chain, layers of every kind otherwise.
"""

from __future__ import annotations

from collections.abc import Sequence
from dataclasses import dataclass
from typing import Any

import numpy as np
from numpy.typing import NDArray

from planner.cost.configuration import Booleans, Floats, Integers
from planner.ilp.duals import scaled
from planner.ilp.edges import edge_kind_count, edges_at
from planner.ilp.instance import Instance
from planner.ilp.loads import Load
from planner.ilp.patterns import TooManyError
from planner.ilp.segments import load_weights

_CELLS_MOST = 10_000_000
_MARKS_MOST, _MARKS_EACH = 4_000_000, 64  # sorting is quicker where codes are few of many
_ROUNDING = 1e-9


@dataclass(frozen=True, slots=True, kw_only=True)
class Moves:
    """Ways of one rank from states to states, by number, and the place of its load, [moves].

    Of those to one state, ones from a lesser state come first, and then ones with a lesser load.
    """

    before: Integers
    after: Integers
    load: Integers


def different(codes: Integers) -> tuple[Integers, Integers]:
    """Return the different ones of codes that are not negative, in order, and the place of each."""
    most = int(codes.max(initial=0))
    if most >= min(_MARKS_MOST, _MARKS_EACH * len(codes)):
        names, places = np.unique(codes, return_inverse=True)
        return names, places
    marks = np.zeros(most + 1, dtype=bool)
    marks[codes] = True
    return np.flatnonzero(marks), (np.cumsum(marks) - 1)[codes]


def _are_among(states: Integers, some: Integers) -> Booleans:
    """Return which of some states, by number, are among others."""
    marks = np.zeros(int(max(states.max(initial=0), some.max(initial=0))) + 1, dtype=bool)
    marks[some] = True
    return np.asarray(marks[states])


def with_loads(moves: Sequence[Moves], kept: Sequence[Booleans]) -> list[Moves]:
    """Return the moves that a way from the first rank on has with loads that are kept, [loads]."""
    reached = np.zeros(1, dtype=np.int64)
    found = []
    for own, mask in zip(moves, kept, strict=True):
        inside = mask[own.load] & _are_among(own.before, reached)
        reached = own.after[inside]
        found.append(
            Moves(before=own.before[inside], after=own.after[inside], load=own.load[inside])
        )
    return found


def numbered(
    before: Integers, after: Integers, load: Integers, count: int
) -> tuple[Moves, Integers]:
    """Return the different moves to states given by a name, and the names in order of their number.

    `count` is the number of loads of the rank.
    """
    names, numbers = different(after)
    width = len(names) * count
    key = np.sort(before * width + numbers * count + load)
    key = key[np.diff(key, prepend=-1) > 0]  # np.unique hashes, which is slower
    moves = Moves(before=key // width, after=key % width // count, load=key % count)
    return moves, names


def moves_by_sums(
    instance: Instance,
    loads: Sequence[Sequence[Load]],
    *,
    most: float = float("inf"),
) -> list[Moves]:
    """Return every rank's moves where ranks share the layers of every kind as they like.

    A state is kept if the ranks behind can hold what it leaves, kind by kind, in all, by the least
    omega and by the least bytes.

    Raises:
        TooManyError: if there are more than `most` in all, or too many to be looked at.
    """
    free = list(instance.free_kinds)
    totals = np.array([instance.kinds[k].count for k in free])
    weights = load_weights(instance)
    held = [np.array(own, dtype=np.int64).reshape(len(own), len(free)) for own in loads]
    ones = np.ones(len(totals))
    measures = np.column_stack([np.eye(len(totals)), ones, least_costs(instance)])
    counted = [own @ measures for own in held]
    fewest, largest = held_behind(counted)
    states = np.zeros(1, dtype=np.int64)
    found: list[Moves] = []
    for rank, own in enumerate(counted):
        if own.size * len(states) > _CELLS_MOST:
            raise TooManyError
        left = (totals - states[:, None] // weights % (instance.block_count + 1)) @ measures
        room = _ROUNDING * np.abs(totals @ measures)
        inside = np.ones((len(left), len(own)), dtype=bool)
        for column, least, most_left in zip(
            range(measures.shape[1]), fewest[rank] - room, largest[rank] + room, strict=True
        ):
            behind = left[:, None, column] - own[None, :, column]
            inside &= (behind >= least) & (behind <= most_left)
        start, load = np.nonzero(inside)
        states, after = different(states[start] + (held[rank] @ weights)[load])
        found.append(Moves(before=start, after=after, load=load))
        if sum(len(one.load) for one in found) > most:
            raise TooManyError
    return ended(found, np.flatnonzero(states == totals @ weights))


def least_costs(instance: Instance) -> Floats:
    """Return the least omega and the least bytes of each free kind, [free kinds, 2].

    What ranks hold at the most is near the limit by these.
    """
    kinds = [instance.kinds[k] for k in instance.free_kinds]
    omega = [float(scaled(kind, instance.repeat_count).min()) for kind in kinds]
    held = [float(kind.memory.min()) for kind in kinds]
    return np.column_stack([omega, held])


def held_behind(
    counted: Sequence[NDArray[Any]],
) -> tuple[list[NDArray[Any]], list[NDArray[Any]]]:
    """Return the least and the most that the ranks behind each one hold, by rank [columns]."""
    least = most = np.zeros(counted[0].shape[1], dtype=counted[0].dtype)
    found = []
    for own in reversed(counted):
        found.append((least, most))
        if len(own):
            least, most = least + own.min(axis=0), most + own.max(axis=0)
    lower, upper = zip(*reversed(found), strict=True)
    return list(lower), list(upper)


def moves_along_the_chain(
    instance: Instance, cuts: Integers, loads: Sequence[Sequence[Load]]
) -> list[Moves]:
    """Return every rank's moves between the places of its cuts, `cuts` [2, stages + 1].

    Where cuts differ by place loads have their edges.
    """
    weights, first, last = _chain_codes(instance)
    prefix = (
        instance.prefix_counts[:, list(instance.free_kinds)] @ weights[: len(instance.free_kinds)]
    )
    states = np.zeros(1, dtype=np.int64)
    found = []
    for rank, own in enumerate(loads):
        ends = np.arange(int(cuts[0, rank + 1]), int(cuts[1, rank + 1]) + 1)
        codes = np.array(own, dtype=np.int64).reshape(len(own), len(weights)) @ weights
        order = np.argsort(codes, kind="stable")
        held = (prefix + last)[ends][None, :] - (prefix - first)[states][:, None]
        place = np.minimum(np.searchsorted(codes[order], held), max(len(own) - 1, 0))
        inside = ends[None, :] > states[:, None]
        if len(own):
            inside &= codes[order][place] == held
        start, end = np.nonzero(inside if len(own) else np.zeros_like(inside))
        load = order[place[start, end]] if len(own) else np.zeros(0, dtype=np.int64)
        moves, states = numbered(start, ends[end], load, max(len(own), 1))
        found.append(moves)
    return ended(found, np.flatnonzero(states == instance.block_count))


def _chain_codes(instance: Instance) -> tuple[Integers, Integers, Integers]:
    """Return the weights of a load's numbers, and what edges add where a rank begins and ends."""
    places = np.arange(instance.block_count + 1)
    if instance.extras is None:
        return load_weights(instance), np.zeros_like(places), np.zeros_like(places)
    base = instance.block_count + edge_kind_count(instance) + 1
    weights: Integers = base ** np.arange(len(instance.free_kinds) + 2, dtype=np.int64)
    edges = edges_at(instance, places)
    return weights, weights[-2] * edges, weights[-1] * edges


def ended(moves: list[Moves], last: Integers) -> list[Moves]:
    """Return the moves with the last rank's to one of its states only, which becomes state 0."""
    inside = _are_among(moves[-1].after, last)
    final = moves[-1]
    moves[-1] = Moves(
        before=final.before[inside],
        after=np.zeros(int(inside.sum()), dtype=np.int64),
        load=final.load[inside],
    )
    return moves
