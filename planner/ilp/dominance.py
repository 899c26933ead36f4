"""Dominance: what no other equals or beats in every respect."""

from __future__ import annotations

from collections.abc import Callable

import numpy as np

from planner.cost.configuration import Floats, Integers

_BLOCK = 128
_TIMES = 3
_NOISE = 1e-13
_NEIGHBOURS = 4


def unbeaten_of(measures: Floats, *, check: Callable[[], None] | None = None) -> Integers:
    """Return the columns of `measures`, in lexical order, that no earlier one equals or beats.

    Whatever beats a column comes before it, so that a block is compared with those kept so far. The
    first three measures are equal if they differ by rounding. `check` is called now and then, and
    may raise.
    """
    least = measures + _slack(measures, _TIMES)[:, None]
    kept = np.zeros(0, dtype=np.int64)
    for start in range(0, measures.shape[1], _BLOCK):
        if check is not None:
            check()
        block = np.arange(start, min(start + _BLOCK, measures.shape[1]))
        block = block[~_beaten(measures[:, kept], least[:, block])]
        own = _no_worse(measures[:, block], least[:, block])
        earlier = np.arange(len(block))[:, None] < np.arange(len(block))[None, :]
        kept = np.concatenate([kept, block[~(own & earlier).any(axis=0)]])
    return kept


def unbeaten_by_neighbours(measures: Floats, *, eased: int) -> Integers:
    """Return the columns of `measures` that none of a few before them in order equals or beats.

    Those that are equal but for the last measures follow one another. The first `eased` measures
    are equal if they differ by rounding.
    """
    slack = _slack(measures, eased)
    coarse = np.where(slack > 0.0, slack, 1.0)[:, None]
    keys = np.where(slack[:, None] > 0.0, np.round(measures / coarse), measures)
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


def _beaten(kept: Floats, eased: Floats) -> np.ndarray:
    if not kept.shape[1]:
        return np.zeros(eased.shape[1], dtype=bool)
    return np.asarray(_no_worse(kept, eased).any(axis=0))


def _no_worse(measures: Floats, eased: Floats) -> np.ndarray:
    found = measures[0][:, None] <= eased[0][None, :]
    for one, other in zip(measures[1:], eased[1:], strict=True):
        found &= one[:, None] <= other[None, :]
    return np.asarray(found)
