"""Crowd ways: how loads make up the chain, for many instances with the same loads at once.

A state is an instance with what its first ranks hold together: a place along the chain where cuts
decide or only the number of blocks matters, layers of every kind otherwise.
"""

from __future__ import annotations

from collections.abc import Sequence
from dataclasses import dataclass, field
from functools import lru_cache

import numpy as np

from planner.cost.configuration import Booleans, Floats, Integers
from planner.ilp.instance import Instance
from planner.ilp.levels import everything
from planner.ilp.loads import loads_of

_LOADS_MOST = 2500
_SUMMED_MOST = 2500  # of all ranks where sums are states: more cost as much as they save
_MOVES_MOST = 3_000_000
_KEPT = 8


@dataclass(frozen=True, slots=True, kw_only=True)
class Layout:
    """What ranks may hold: `loads` [loads, kinds] in all, `allowed` [ranks, loads] on each.

    Where places along the chain are states, `between` [blocks + 1, blocks + 1] is the load from one
    to another, -1 where there is none.
    """

    loads: Integers
    allowed: Booleans
    counts: Integers
    between: Integers | None


@dataclass(frozen=True, slots=True, kw_only=True)
class _States:
    """States by the row of their instance, each [states]."""

    row: Integers
    state: Integers


@dataclass(frozen=True, slots=True, kw_only=True)
class _Step:
    """Moves of one rank, sorted by the state reached; `cell` are places in tables, raveled."""

    before: Integers
    after: Integers
    cell: Integers
    starts: Integers


@dataclass(frozen=True, slots=True, kw_only=True)
class Ways:
    """The moves of all ranks on whole ways; `ended` are the rows that have one."""

    rows: int
    steps: tuple[_Step, ...]
    ended: Integers

    def least_maximum(self, table: Floats) -> Floats:
        """Return the least maximum of a table [rows, ranks, loads], [rows], inf without a way."""
        flat, reached = table.ravel(), np.full(len(self.ended), -np.inf)
        for step in self.steps:
            most = np.maximum(reached[step.before], flat[step.cell])
            reached = np.minimum.reduceat(most, step.starts)
        return self._by_row(reached)

    def sums_through(self, table: Floats) -> tuple[Floats, Floats]:
        """Return the least sum [rows], and the least with each load [rows, ranks, loads]."""
        flat, before = table.ravel(), [np.zeros(len(self.ended))]
        for step in self.steps:
            sums = before[-1][step.before] + flat[step.cell]
            before.append(np.minimum.reduceat(sums, step.starts))
        through, behind = np.full(flat.shape, np.inf), np.zeros(len(self.ended))
        for step, reached in zip(reversed(self.steps), reversed(before[:-1]), strict=True):
            left = flat[step.cell] + behind[step.after]
            np.minimum.at(through, step.cell, reached[step.before] + left)
            behind = np.full(len(reached), np.inf)
            np.minimum.at(behind, step.before, left)
        return self._by_row(before[-1]), through.reshape(table.shape)

    def _by_row(self, values: Floats) -> Floats:
        found = np.full(self.rows, np.inf)
        found[self.ended] = values
        return found


@dataclass(frozen=True, slots=True)
class Likeness:
    """What instances share whose ranks may have the same loads; `instance` is any of them."""

    holders: tuple[int, ...]
    chain: tuple[tuple[int, int], ...]
    free_kinds: tuple[int, ...]
    instance: Instance = field(compare=False)

    @staticmethod
    def of(instance: Instance) -> Likeness:
        """Return what an instance shares with others."""
        return Likeness(instance.holders, instance.chain, instance.free_kinds, instance)


@lru_cache(maxsize=_KEPT)
def layout_of(likeness: Likeness) -> Layout | None:
    """Return what ranks of such instances may hold, None where that is too much."""
    instance = likeness.instance
    by_rank = loads_of(instance, everything(instance), most=_LOADS_MOST * instance.stage_count)
    if by_rank is None:
        return None
    every = sorted(set().union(*by_rank))
    if len(every) > _LOADS_MOST:
        return None
    number = {load: place for place, load in enumerate(every)}
    allowed = np.zeros((len(by_rank), len(every)), dtype=bool)
    for rank, own in enumerate(by_rank):
        allowed[rank, [number[load] for load in own]] = True
    between = _between(instance, number)
    if between is None and allowed.sum() > _SUMMED_MOST:
        return None
    return Layout(
        loads=np.array(every, dtype=np.int64),
        allowed=allowed,
        counts=np.array([instance.kinds[k].count for k in instance.free_kinds]),
        between=between,
    )


def _between(instance: Instance, number: dict[tuple[int, ...], int]) -> Integers | None:
    """Return the load between every two places, None where places do not say enough."""
    if not (instance.is_in_order or len(instance.free_kinds) == 1):
        return None
    blocks = instance.block_count
    prefix = instance.prefix_counts[:, list(instance.free_kinds)].tolist()
    between = np.full((blocks + 1, blocks + 1), -1, dtype=np.int64)
    for start in range(blocks):
        for end in range(start + 1, blocks + 1):
            load = tuple(b - a for a, b in zip(prefix[start], prefix[end], strict=True))
            between[start, end] = number.get(load, -1)
    return between


def ways_of(layout: Layout, mask: Booleans) -> Ways | None:
    """Return all ways with loads of `mask` [rows, ranks, loads]; None where they are too many."""
    rows, ranks, count = mask.shape
    states = _States(row=np.arange(rows), state=np.zeros(rows, dtype=np.int64))
    joined = _by_sums if layout.between is None else _along
    moves = []
    for rank in range(ranks):
        found = joined(layout, mask, rank, states)
        if found is None:
            return None
        before, load, after = found
        cell = (states.row[before] * ranks + rank) * count + load
        states, reached = _numbered(states.row[before], after)
        moves.append((before, reached, cell))
    weights = 1 if layout.between is not None else _weights(layout)
    alive = np.flatnonzero(states.state == (layout.counts * weights).sum())
    return _whole(rows, moves, alive, states.row[alive])


def _along(
    layout: Layout, mask: Booleans, rank: int, states: _States
) -> tuple[Integers, Integers, Integers] | None:
    """Return the moves of a rank along the chain: the states' places, loads and places reached."""
    assert layout.between is not None  # noqa: S101 - see `ways_of`
    if len(states.row) * layout.between.shape[1] > _MOVES_MOST:
        return None
    load = layout.between[states.state]
    inside = (load >= 0) & mask[states.row[:, None], rank, load]
    before, after = np.nonzero(inside)
    return before, load[before, after], after


def _by_sums(
    layout: Layout, mask: Booleans, rank: int, states: _States
) -> tuple[Integers, Integers, Integers] | None:
    """Return the moves of a rank between sums, those whose rest the ranks behind it can hold."""
    own_row, own_load = np.nonzero(mask[:, rank])
    first = np.searchsorted(own_row, np.arange(len(mask) + 1))
    number = np.diff(first)[states.row]
    if number.sum() > _MOVES_MOST:
        return None
    before = np.repeat(np.arange(len(number)), number)
    within = np.arange(len(before)) - np.repeat(np.cumsum(number) - number, number)
    row, weights = states.row[before], _weights(layout)
    load = own_load[first[row] + within]
    after = states.state[before] + (layout.loads @ weights)[load]
    left = layout.counts - after[:, None] // weights % (layout.counts.sum() + 1)
    least, most = _behind(layout, mask, rank)
    inside = ((left >= least[row]) & (left <= most[row])).all(axis=1)
    return before[inside], load[inside], after[inside]


def _behind(layout: Layout, mask: Booleans, rank: int) -> tuple[Integers, Integers]:
    """Return the least and the most of each kind on all ranks behind one, [rows, kinds]."""
    least = np.zeros((len(mask), len(layout.counts)), dtype=np.int64)
    most = least.copy()
    for kind, total in enumerate(layout.counts.tolist()):
        held = layout.loads[:, kind]
        behind = mask[:, rank + 1 :]
        least[:, kind] = np.where(behind, held, total).min(axis=2, initial=total).sum(axis=1)
        most[:, kind] = np.where(behind, held, 0).max(axis=2, initial=0).sum(axis=1)
    return least, most


def _weights(layout: Layout) -> Integers:
    """Return numbers that make a sum of loads one number."""
    return np.asarray((layout.counts.sum() + 1) ** np.arange(len(layout.counts)))


def _numbered(row: Integers, state: Integers) -> tuple[_States, Integers]:
    """Return the different states by row, and which each one is."""
    width = int(state.max(initial=0)) + 1
    names, places = np.unique(row * width + state, return_inverse=True)
    return _States(row=names // width, state=names % width), places


def _whole(
    rows: int,
    moves: Sequence[tuple[Integers, Integers, Integers]],
    alive: Integers,
    ended: Integers,
) -> Ways:
    """Return the ways of moves that lead to the last states `alive`, of the rows `ended`."""
    steps = []
    for before, after, cell in reversed(moves):
        place = np.full(int(max(after.max(initial=0), alive.max(initial=0))) + 1, -1)
        place[alive] = np.arange(len(alive))
        kept = np.flatnonzero(place[after] >= 0)
        reached = place[after[kept]]
        order = np.argsort(reached, kind="stable")
        alive, first = np.unique(before[kept], return_inverse=True)
        steps.append(
            _Step(
                before=first[order],
                after=reached[order],
                cell=cell[kept][order],
                starts=np.flatnonzero(np.diff(reached[order], prepend=-1)),
            )
        )
    return Ways(rows=rows, steps=tuple(reversed(steps)), ended=ended)
