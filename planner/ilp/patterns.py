"""Patterns: every way to fill a rank that a plan below the cutoff may have.

Weak duality (`planner.ilp.multipliers`) gives each layer under each choice a reduced cost d >= 0
such that a plan's step is at least a bound plus the sum of its reduced costs, plus what memory it
leaves free at the price of memory. A rank's pattern whose own sum exceeds what the cutoff leaves is
in no plan below it, and few are left once the bound is close: they are enumerated. The technique
is known from vehicle routing (Baldacci, Christofides and Mingozzi 2008,
doi:10.1007/s10107-007-0178-5).
"""

from __future__ import annotations

import time
from collections.abc import Sequence
from dataclasses import dataclass, fields, replace

import numpy as np

from planner.cost.configuration import Floats, Integers
from planner.ilp.dominance import unbeaten_of
from planner.ilp.instance import Instance

_PAIRS_MOST = 2_000_000
_ROUNDING = 1e-9


class TooManyError(Exception):
    """More patterns than are worth looking at, or than the time allows."""


def check_deadline(deadline: float) -> None:
    """Raise TooManyError past a deadline (of `perf_counter`)."""
    if time.perf_counter() > deadline:
        raise TooManyError


@dataclass(frozen=True, slots=True, kw_only=True)
class Columns:
    """All choices of all kinds on one rank side by side, each [columns]; `kind` says whose.

    `reduced` is d; `most` the layers that a choice may have.
    """

    kind: Integers
    reduced: Floats
    most: Integers
    pace: Floats
    fill: Floats
    end: Floats
    memory: Floats
    transient: Floats
    host: Floats

    def taken(self, places: Integers) -> Columns:
        """Return some of the columns."""
        return Columns(**{field.name: getattr(self, field.name)[places] for field in fields(self)})

    def followed_by(self, others: Columns) -> Columns:
        """Return these columns with others behind them."""
        return Columns(
            **{
                field.name: np.concatenate([getattr(self, field.name), getattr(others, field.name)])
                for field in fields(self)
            }
        )


@dataclass(frozen=True, slots=True, kw_only=True)
class Ceilings:
    """What a rank may reach at most; `memory_price` is of a byte left free, `gap` of a pattern.

    `both` bounds repeats x pace + end; `own_pace`, `own_end` are the rank's without any layer.
    """

    gap: float
    memory_price: float
    capacity: float
    host: float
    pace: float
    end: float
    both: float
    repeats: float
    own_pace: float
    own_end: float


@dataclass(frozen=True, slots=True, kw_only=True)
class Patterns:
    """Patterns of one rank, each [patterns]; `load` is their place among the rank's loads.

    `excess` is what a plan costs beyond the bound at least for having the pattern; `counts`
    [patterns, columns] are its layers.
    """

    load: Integers
    excess: Floats
    pace: Floats
    fill: Floats
    end: Floats
    counts: Integers

    def taken(self, rows: Integers) -> Patterns:
        """Return some of the patterns."""
        return Patterns(**{field.name: getattr(self, field.name)[rows] for field in fields(self)})

    def at(self, load: int) -> Patterns:
        """Return the patterns as those of the load at a place."""
        return replace(self, load=np.full(len(self.load), load))


def rank_columns(
    instance: Instance, rank: int, *, reduced: Sequence[Floats], most: Sequence[Integers]
) -> Columns:
    """Return the choices of a rank; `reduced` and `most` are by kind [stages, choices]."""
    kinds = instance.kinds

    def side_by_side(values: Sequence[Floats | Integers]) -> np.ndarray:
        return np.concatenate([value[rank] for value in values])

    return Columns(
        kind=np.repeat(np.arange(len(kinds)), [len(kind.choice) for kind in kinds]),
        reduced=side_by_side(reduced),
        most=side_by_side(most),
        pace=side_by_side([kind.pace for kind in kinds]),
        fill=side_by_side([kind.fill for kind in kinds]),
        end=side_by_side([kind.end for kind in kinds]),
        memory=side_by_side([kind.memory for kind in kinds]),
        transient=side_by_side([kind.transient for kind in kinds]),
        host=side_by_side([kind.host for kind in kinds]),
    )


def patterns_of(
    columns: Columns,
    held: Sequence[Sequence[int]],
    ceilings: Ceilings,
    *,
    most: int,
    deadline: float = float("inf"),
) -> Patterns:
    """Return the patterns within the ceilings of each of `held` [loads][kinds], undominated.

    Raises:
        TooManyError: if there are more than `most` to look at, or it gets too late.
    """
    kinds = sorted({k for load in held for k, number in enumerate(load) if number})
    room = {k: max(load[k] for load in held) for k in kinds}
    parts = {k: _mixes(columns, k, room[k], ceilings, most=most) for k in kinds}
    found = []
    for place, load in enumerate(held):
        check_deadline(deadline)
        found.append(_combined(columns, parts, load, ceilings, most=most).at(place))
    return Patterns(
        **{
            field.name: np.concatenate([getattr(part, field.name) for part in found])
            for field in fields(Patterns)
        }
    )


@dataclass(frozen=True, slots=True, kw_only=True)
class _Mixes:
    """Layers of one kind under other choices than its `base`: [mixes] and [mixes, columns]."""

    base: int
    number: Integers
    reduced: Floats
    counts: Integers


def _mixes(
    columns: Columns, kind: int, room: int, ceilings: Ceilings, *, most: int
) -> _Mixes | None:
    """Return all mixes of at most `room` layers that one rank may have, None if not even one."""
    gap = ceilings.gap
    own = np.flatnonzero((columns.kind == kind) & (columns.most > 0))
    own = own[(columns.reduced[own] <= gap) & _fits(columns, own, ceilings)]
    if not len(own):
        return None
    own = own[np.argsort(columns.reduced[own], kind="stable")]
    base, others = int(own[0]), own[1:]
    number = np.zeros(1, dtype=np.int64)
    reduced = np.zeros(1)
    counts = np.zeros((1, len(columns.kind)), dtype=np.int64)
    for column in others.tolist():
        cost = float(columns.reduced[column] - columns.reduced[base])
        limit = min(int(columns.most[column]), room)
        if cost > 0.0:
            limit = min(limit, int(gap / cost * (1.0 + _ROUNDING)))
        if limit < 1:
            continue
        times = np.arange(1, limit + 1)
        added = reduced[:, None] + cost * times[None, :]
        total = number[:, None] + times[None, :]
        rows, which = np.nonzero((added <= gap) & (total <= room))
        if len(rows) + len(number) > most:
            raise TooManyError
        more = counts[rows]
        more[:, column] = times[which]
        number = np.concatenate([number, total[rows, which]])
        reduced = np.concatenate([reduced, added[rows, which]])
        counts = np.concatenate([counts, more])
        kept = _unbeaten(columns, number, counts)
        number, reduced, counts = number[kept], reduced[kept], counts[kept]
    return _Mixes(base=base, number=number, reduced=reduced, counts=counts)


def _fits(columns: Columns, own: Integers, ceilings: Ceilings) -> np.ndarray:
    """Return which columns one layer can have."""
    pace, end = ceilings.own_pace + columns.pace[own], ceilings.own_end + columns.end[own]
    return np.asarray(
        (columns.memory[own] + columns.transient[own] <= ceilings.capacity)
        & (columns.host[own] <= ceilings.host)
        & (pace <= ceilings.pace)
        & (end <= ceilings.end)
        & (ceilings.repeats * pace + end <= ceilings.both)
    )


def _unbeaten(columns: Columns, number: Integers, counts: Integers) -> Integers:
    """Return the mixes that no other of as many layers equals or beats in every respect.

    Of equal ones the first is kept.
    """
    whole = counts.astype(np.float64)
    transient = np.where(counts > 0, columns.transient[None, :], 0.0).max(axis=1)
    parts = (columns.fill, columns.pace, columns.end, columns.memory, columns.host)
    measures = np.stack([*(whole @ part for part in parts), transient])
    order = np.lexsort((*measures[::-1], number))
    ends = np.flatnonzero(np.diff(number[order], append=-1)) + 1
    kept: list[Integers] = []
    start = 0
    for end in ends.tolist():
        group = order[start:end]
        start = end
        kept.append(group[unbeaten_of(measures[:, group])])
    return np.sort(np.concatenate(kept))


def _combined(
    columns: Columns,
    parts: dict[int, _Mixes | None],
    load: Sequence[int],
    ceilings: Ceilings,
    *,
    most: int,
) -> Patterns:
    """Return the undominated patterns of one load: a mix of every kind, filled up with bases."""
    counts: Integers = np.zeros((1, len(columns.kind)), dtype=np.int64)
    reduced: Floats = np.zeros(1)
    for k, mixes in parts.items():
        if not load[k]:
            continue
        if mixes is None:
            return _priced(columns, counts[:0], reduced[:0], ceilings)
        rows = np.flatnonzero(mixes.number <= load[k])
        bases = load[k] - mixes.number[rows]
        own = mixes.counts[rows]
        own[:, mixes.base] = bases
        cost = mixes.reduced[rows] + load[k] * columns.reduced[mixes.base]
        if len(reduced) * len(cost) > _PAIRS_MOST:
            raise TooManyError
        total = reduced[:, None] + cost[None, :]
        first, second = np.nonzero(total <= ceilings.gap)
        if len(first) > 4 * most:
            raise TooManyError
        counts = counts[first] + own[second]
        reduced = total[first, second]
        counts, reduced = _within(columns, counts, reduced, ceilings)
    return undominated_patterns(_priced(columns, counts, reduced, ceilings))


def _within(
    columns: Columns, counts: Integers, reduced: Floats, ceilings: Ceilings
) -> tuple[Integers, Floats]:
    """Return what keeps the limits so far: more layers only add."""
    whole = counts.astype(np.float64)
    transient = np.where(counts > 0, columns.transient[None, :], 0.0).max(axis=1)
    memory = whole @ columns.memory + transient
    pace = ceilings.own_pace + whole @ columns.pace
    end = ceilings.own_end + whole @ columns.end
    both = ceilings.repeats * pace + end
    kept = (
        (memory <= ceilings.capacity)
        & (whole @ columns.host <= ceilings.host)
        & (pace <= ceilings.pace)
        & (end <= ceilings.end)
        & (both <= ceilings.both)
    )
    return counts[kept], reduced[kept]


def _priced(columns: Columns, counts: Integers, reduced: Floats, ceilings: Ceilings) -> Patterns:
    whole = counts.astype(np.float64)
    transient = np.where(counts > 0, columns.transient[None, :], 0.0).max(axis=1, initial=0.0)
    free = ceilings.capacity - whole @ columns.memory - transient
    excess = reduced + ceilings.memory_price * free
    found = Patterns(
        load=np.zeros(len(counts), dtype=np.int64),
        excess=excess,
        pace=ceilings.own_pace + whole @ columns.pace,
        fill=whole @ columns.fill,
        end=ceilings.own_end + whole @ columns.end,
        counts=counts,
    )
    return found.taken(np.flatnonzero(excess <= ceilings.gap))


def undominated_patterns(patterns: Patterns) -> Patterns:
    """Return the patterns that no other of the same load equals or beats in fill, pace and end."""
    measures = np.stack([patterns.fill, patterns.pace, patterns.end])
    order = np.lexsort(measures[::-1])
    return patterns.taken(order[unbeaten_of(measures[:, order])])
