"""Transitions: which loads ranks can have one after another, for dynamic programming over ranks.

A state is what the first ranks hold together: a number of blocks where only that matters, the place
of a cut where ranks follow one another along the chain, layers of every kind otherwise.
"""

from __future__ import annotations

from collections.abc import Sequence
from dataclasses import dataclass

import numpy as np

from planner.cost.configuration import Floats, Integers
from planner.ilp.instance import Instance
from planner.ilp.levels import Windows
from planner.ilp.loads import Load


@dataclass(frozen=True, slots=True, kw_only=True)
class Step:
    """How one rank leads from states to states, each [transitions], sorted by the state reached.

    `load` is the place of what it holds among its loads; `starts` [states reached] are where each
    state's transitions begin.
    """

    before: Integers
    after: Integers
    load: Integers
    starts: Integers


def steps_of(
    instance: Instance, windows: Windows, loads: Sequence[Sequence[Load]]
) -> list[Step] | None:
    """Return the steps of all ranks between states that lie on a whole way, None without any.

    The last rank reaches one state.
    """
    pairs = _pairs(instance, windows, loads)
    alive: set[Load] = {pairs.end}
    kept: list[list[tuple[Load, Load, int]]] = []
    for moves in reversed(pairs.moves):
        own = [move for move in moves if move[1] in alive]
        kept.append(own)
        alive = {move[0] for move in own}
    if pairs.start not in alive:
        return None
    kept.reverse()
    known: dict[Load, int] = {pairs.start: 0}
    steps = []
    for moves in kept:
        ways = sorted(
            (after, known[before], load) for before, after, load in moves if before in known
        )
        names = sorted({way[0] for way in ways})
        reached = {name: place for place, name in enumerate(names)}
        ends = np.array([reached[way[0]] for way in ways], dtype=np.int64)
        steps.append(
            Step(
                before=np.array([way[1] for way in ways], dtype=np.int64),
                after=ends,
                load=np.array([way[2] for way in ways], dtype=np.int64),
                starts=np.searchsorted(ends, np.arange(len(names))),
            )
        )
        known = reached
    return steps


@dataclass(frozen=True, slots=True, kw_only=True)
class _Pairs:
    """Every rank's moves (state before, state after, load) from the start on, and the end."""

    start: Load
    end: Load
    moves: list[list[tuple[Load, Load, int]]]


def _pairs(instance: Instance, windows: Windows, loads: Sequence[Sequence[Load]]) -> _Pairs:
    if windows.cuts is not None:
        return _along_the_chain(instance, windows.cuts, loads)
    totals = tuple(instance.kinds[k].count for k in instance.free_kinds)
    start = (0,) * len(totals)
    states = {start}
    moves: list[list[tuple[Load, Load, int]]] = []
    for own in loads:
        found = []
        for state in states:
            for place, load in enumerate(own):
                after = tuple(a + b for a, b in zip(state, load, strict=True))
                if all(a <= b for a, b in zip(after, totals, strict=True)):
                    found.append((state, after, place))
        moves.append(found)
        states = {after for _, after, _ in found}
    return _Pairs(start=start, end=totals, moves=moves)


def _along_the_chain(instance: Instance, cuts: Integers, loads: Sequence[Sequence[Load]]) -> _Pairs:
    prefix = instance.prefix_counts[:, list(instance.free_kinds)]
    moves: list[list[tuple[Load, Load, int]]] = []
    for rank, own in enumerate(loads):
        places = {load: place for place, load in enumerate(own)}
        found: list[tuple[Load, Load, int]] = []
        for start in range(int(cuts[0, rank]), int(cuts[1, rank]) + 1):
            for end in range(max(start + 1, int(cuts[0, rank + 1])), int(cuts[1, rank + 1]) + 1):
                load = tuple((prefix[end] - prefix[start]).tolist())
                if load in places:
                    found.append(((start,), (end,), places[load]))
        moves.append(found)
    return _Pairs(start=(0,), end=(instance.block_count,), moves=moves)


def least_sums(steps: Sequence[Step], tables: Sequence[Floats]) -> Floats:
    """Return the least sum over ranks of tables [loads, columns], for every column at once."""
    reached = np.zeros((1, tables[0].shape[1]))
    for step, table in zip(steps, tables, strict=True):
        reached = np.minimum.reduceat(reached[step.before] + table[step.load], step.starts, axis=0)
    return np.asarray(reached[0])


def best_loads(steps: Sequence[Step], tables: Sequence[Floats]) -> tuple[int, ...]:
    """Return the place of every rank's load on a way with the least sum; tables are [loads]."""
    return _best(steps, tables, np.add)


def levelled_loads(steps: Sequence[Step], tables: Sequence[Floats]) -> tuple[int, ...]:
    """Return the place of every rank's load on a way with the least maximum."""
    return _best(steps, tables, np.maximum)


def _best(steps: Sequence[Step], tables: Sequence[Floats], joined: np.ufunc) -> tuple[int, ...]:
    trail = []
    reached = np.zeros(1)
    for step, table in zip(steps, tables, strict=True):
        sums = joined(reached[step.before], table[step.load])
        reached = np.minimum.reduceat(sums, step.starts)
        trail.append(sums)
    state, places = 0, []
    for step, sums in zip(reversed(steps), reversed(trail), strict=True):
        own = np.flatnonzero(step.after == state)
        best = int(own[sums[own].argmin()])
        places.append(int(step.load[best]))
        state = int(step.before[best])
    return tuple(reversed(places))


def sums_through(steps: Sequence[Step], tables: Sequence[Floats]) -> tuple[float, list[Floats]]:
    """Return the least sum over ranks of tables [loads], and the least with each load of a rank.

    The latter are by rank [loads]; inf where no way has the load.
    """
    before = [np.zeros(1)]
    for step, table in zip(steps, tables, strict=True):
        sums = before[-1][step.before] + table[step.load]
        before.append(np.minimum.reduceat(sums, step.starts))
    behind = np.zeros(1)
    through: list[Floats] = []
    for step, table, reached in zip(
        reversed(steps), reversed(tables), reversed(before[:-1]), strict=True
    ):
        left = table[step.load] + behind[step.after]
        least = np.full(len(table), np.inf)
        np.minimum.at(least, step.load, reached[step.before] + left)
        through.append(least)
        behind = np.full(len(reached), np.inf)
        np.minimum.at(behind, step.before, left)
    return float(before[-1][0]), through[::-1]
