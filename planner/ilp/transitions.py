"""Transitions: which loads ranks can have one after another, for dynamic programming over ranks.

Of all moves (`planner.ilp.moves`, `planner.ilp.chunks`) those are kept that lie on a whole way.
"""

from __future__ import annotations

from collections.abc import Sequence
from dataclasses import dataclass

import numpy as np

from planner.cost.configuration import Floats, Integers
from planner.ilp.chunks import moves_by_chunks
from planner.ilp.instance import Instance
from planner.ilp.levels import Windows
from planner.ilp.loads import Load
from planner.ilp.moves import Moves, different, moves_along_the_chain, moves_by_sums

_FEW_STATES = 1 << 16
_CELLS_AT_ONCE = 1 << 18


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
    instance: Instance,
    windows: Windows,
    loads: Sequence[Sequence[Load]],
    *,
    sums_most: int,
) -> list[Step] | None:
    """Return the steps of all ranks between states that lie on a whole way, None without any.

    The last rank reaches one state. Where the order of the chain has to be left aside, there may be
    `sums_most` moves between sums of loads.

    Raises:
        TooManyError: if there are too many.
    """
    return steps_along(_moves(instance, windows, loads, sums_most=sums_most))


def steps_along(moves: Sequence[Moves]) -> list[Step] | None:
    """Return the steps of all ranks from their moves, those on a whole way alone; None without."""
    kept: list[Moves] = []
    alive = np.zeros(1, dtype=np.int64)
    for own in reversed(moves):
        place = np.full(int(max(own.after.max(initial=0), alive.max(initial=0))) + 1, -1)
        place[alive] = np.arange(len(alive))
        after = place[own.after]
        inside = after >= 0
        alive, before = different(own.before[inside])
        if not len(before):
            return None
        kept.append(Moves(before=before, after=after[inside], load=own.load[inside]))
    return [_step(own) for own in reversed(kept)]


def _moves(
    instance: Instance,
    windows: Windows,
    loads: Sequence[Sequence[Load]],
    *,
    sums_most: int,
) -> list[Moves]:
    """Return every rank's moves, in the order of the chain where that can be kept."""
    if windows.cuts is not None:
        return moves_along_the_chain(instance, windows.cuts, loads)
    if instance.is_uniform or instance.places is not None:
        return moves_by_sums(instance, loads)
    by_chunks = moves_by_chunks(instance, windows, loads)
    if by_chunks is not None:
        return by_chunks
    return moves_by_sums(instance, loads, most=sums_most)


def _step(moves: Moves) -> Step:
    """Return moves by the state that they lead to, and in their order otherwise."""
    few = moves.after.max(initial=0) < _FEW_STATES
    key = moves.after.astype(np.uint16) if few else moves.after  # few are sorted digit by digit
    order = np.argsort(key, kind="stable")
    after = moves.after[order]
    return Step(
        before=moves.before[order],
        after=after,
        load=moves.load[order],
        starts=np.flatnonzero(np.diff(after, prepend=-1)),
    )


def least_sums(steps: Sequence[Step], tables: Sequence[Floats]) -> Floats:
    """Return the least sum over ranks of tables [loads, columns], for every column.

    So many columns at once that arrays of [transitions, columns] stay in the processor's cache.
    """
    columns, longest = tables[0].shape[1], max(len(step.load) for step in steps)
    width = max(_CELLS_AT_ONCE // longest, 1)
    parts = [
        _least_sums(steps, [table[:, first : first + width] for table in tables])
        for first in range(0, max(columns, 1), width)
    ]
    return np.concatenate(parts)


def _least_sums(steps: Sequence[Step], tables: Sequence[Floats]) -> Floats:
    reached = np.zeros((1, tables[0].shape[1]))
    for step, table in zip(steps, tables, strict=True):
        reached = np.minimum.reduceat(reached[step.before] + table[step.load], step.starts, axis=0)
    return np.asarray(reached[0])


def least_maximum(steps: Sequence[Step], tables: Sequence[Floats]) -> float:
    """Return the least maximum over ranks of tables [loads], inf where no way has finite ones."""
    reached = np.full(1, -np.inf)
    for step, table in zip(steps, tables, strict=True):
        most = np.maximum(reached[step.before], table[step.load])
        reached = np.minimum.reduceat(most, step.starts)
    return float(reached[0])


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
