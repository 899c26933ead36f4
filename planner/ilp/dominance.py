"""Dominance: what no other equals or beats in every respect."""

from __future__ import annotations

from collections.abc import Callable

import numpy as np
import numpy.typing as npt

from planner.cost.configuration import Booleans, Floats, Integers

Words = npt.NDArray[np.uint64]

_FEW = 128
_BLOCK = 1024
_BITS = 64
_TIMES = 3
_NOISE = 1e-13
_NEIGHBOURS = 4
_SORTED_BY = 3  # more would take longer than what it leaves out


def unbeaten_of(measures: Floats, *, check: Callable[[], None] | None = None) -> Integers:
    """Return the columns of `measures`, in lexical order, that no earlier one equals or beats.

    Whatever beats a column comes before it, so that a block is compared with those kept so far;
    one that is not kept beats nothing. The first three measures are equal if they differ by
    rounding. `check` is called now and then, and may raise.
    """
    least = measures + _slack(measures, _TIMES)[:, None]
    if check is not None:
        check()
    if measures.shape[1] <= _FEW:
        return _first_ones(_no_worse(measures, least))
    kept: list[Integers] = []
    for start in range(0, measures.shape[1], _BLOCK):
        block = np.arange(start, min(start + _BLOCK, measures.shape[1]))
        for earlier in kept:
            if check is not None:
                check()
            block = block[~_beats(measures[1:, earlier], least[1:, block]).any(axis=1)]
        own = _beats(measures[1:, block], least[1:, block])
        kept.append(block[_first_of_bits(own)])
    return np.concatenate(kept)


def unbeaten_by_neighbours(measures: Floats, *, eased: int) -> Integers:
    """Return the columns of `measures` that none of a few before them in order equals or beats.

    Those that are equal in the first measures follow one another. The first `eased` measures are
    equal if they differ by rounding.
    """
    slack = _slack(measures, eased)
    coarse = np.where(slack > 0.0, slack, 1.0)[:_SORTED_BY, None]
    first = measures[:_SORTED_BY]
    keys = np.where(slack[:_SORTED_BY, None] > 0.0, np.round(first / coarse), first)
    order = np.lexsort(keys[::-1])
    ordered = measures[:, order]
    eased_ones = ordered + slack[:, None]
    beaten = np.zeros(len(order), dtype=bool)
    for apart in range(1, min(_NEIGHBOURS, len(order) - 1) + 1):
        beaten[apart:] |= (ordered[:, :-apart] <= eased_ones[:, apart:]).all(axis=0)
    return np.sort(order[~beaten])


def _slack(measures: Floats, eased: int) -> Floats:
    """Return what rounding may make of the first measures, [measures]."""
    scale = np.abs(measures).max(axis=1, initial=0.0)
    return np.where(np.arange(len(measures)) < eased, _NOISE * scale, 0.0)


def _first_ones(no_worse: Booleans) -> Integers:
    """Return the columns that no earlier one of those returned is no worse than, [columns]."""
    count = len(no_worse)
    beaten_by = no_worse & (np.arange(count)[:, None] < np.arange(count)[None, :])
    kept = np.asarray(~beaten_by.any(axis=0))
    open_ones = ~kept & ~beaten_by[kept].any(axis=0)
    for column in np.flatnonzero(open_ones).tolist():
        kept[column] = not (beaten_by[:, column] & kept).any()
    return np.flatnonzero(kept)


def _first_of_bits(no_worse: Words) -> Integers:
    """Return the same of sets as bits, [columns, words]."""
    count = len(no_worse)
    earlier = np.concatenate([np.zeros_like(no_worse[:1]), _prefixes(np.arange(count))[1:count]])
    beaten_by = no_worse & earlier
    kept = ~beaten_by.any(axis=1)
    open_ones = ~kept & ~(beaten_by & _bits(kept)).any(axis=1)
    for column in np.flatnonzero(open_ones).tolist():
        kept[column] = not (beaten_by[column] & _bits(kept)).any()
    return np.flatnonzero(kept)


def _beats(measures: Floats, eased: Floats) -> Words:
    """Return which of `measures` are no more than each of `eased` in every row, as bits.

    Shape [columns of `eased`, words].
    """
    found = _within(measures[0], eased[0])
    for own, most in zip(measures[1:], eased[1:], strict=True):
        np.bitwise_and(found, _within(own, most), out=found)
    return found


def _within(own: Floats, most: Floats) -> Words:
    """Return which of `own` are no more than each of `most`, as bits, [most, words].

    They come first in order, so that they are a prefix of it.
    """
    order = np.argsort(own, kind="stable")
    reached = np.searchsorted(own[order], most, side="right")
    found: Words = _prefixes(order).take(reached, axis=0)
    return found


def _prefixes(order: Integers) -> Words:
    """Return the sets of the first none, one, two and so on of columns in order, as bits.

    Shape [columns + 1, words].
    """
    sets = np.zeros((len(order) + 1, -(-len(order) // _BITS)), dtype=np.uint64)
    places = np.arange(1, len(order) + 1)
    sets[places, order // _BITS] = np.left_shift(np.uint64(1), (order % _BITS).astype(np.uint64))
    return np.bitwise_or.accumulate(sets, axis=0, out=sets)


def _bits(chosen: Booleans) -> Words:
    """Return a set as bits, [words]."""
    padded = np.zeros(-(-len(chosen) // _BITS) * _BITS, dtype=bool)
    padded[: len(chosen)] = chosen
    return np.packbits(padded, bitorder="little").view(np.uint64)


def _no_worse(measures: Floats, eased: Floats) -> np.ndarray:
    found = measures[0][:, None] <= eased[0][None, :]
    for one, other in zip(measures[1:], eased[1:], strict=True):
        found &= one[:, None] <= other[None, :]
    return np.asarray(found)
