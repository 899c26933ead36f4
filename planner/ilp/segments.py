"""Segments: what the parts of a chain that a rank holds can be made of, coded as loads.

A load is coded by its layers of each free kind as digits, so that codes add up as loads do. Many
configurations have the same chain and the same ranks: their codes are listed once.
"""

from __future__ import annotations

from collections.abc import Sequence
from functools import lru_cache

import numpy as np

from planner.cost.configuration import Integers
from planner.ilp.instance import Instance

_CODES_MOST = 300_000
_MARKS_MOST = 1_000_000
_KEPT = 256

Parts = tuple[tuple[int, int], ...]
"""The virtual stages of a rank that follow one another: the first of each part, and how many."""


def load_weights(instance: Instance) -> Integers:
    """Return (blocks + 1)^k by free kind k: the sum of n_k times these codes a load."""
    return _weights(instance.block_count + 1, len(instance.free_kinds))


def codes_of_rank(instance: Instance, rank: int, most: int) -> Integers | None:
    """Return the loads of at most `most` blocks that a rank's parts of the chain can have.

    None where they are too many to be listed. Loads are coded by `load_weights`. Virtual stages
    that follow one another on a rank hold one part of the chain together; the first of all begins
    with it, and the last ends with it.
    """
    free, stages = instance.free_kinds, len(instance.holders)
    of = _parts_of_rank(instance.holders, rank), min(most, instance.block_count)
    if instance.places is None:
        return _known_codes(instance.chain, free, stages, of)
    prefix = instance.prefix_counts[:, list(free)] @ load_weights(instance)
    return _codes(prefix, len(free), instance.places, of)


@lru_cache(maxsize=_KEPT)
def _known_codes(
    chain: tuple[tuple[int, int], ...], free: tuple[int, ...], stages: int, of: tuple[Parts, int]
) -> Integers | None:
    """Return the codes of a rank whose virtual stages may begin and end at any place."""
    kinds = np.repeat([kind for kind, _ in chain], [count for _, count in chain])
    weights = _weights(len(kinds) + 1, len(free))
    own = weights[np.searchsorted(free, kinds)]
    earliest = np.arange(stages + 1)
    places = np.stack([earliest, len(kinds) - stages + earliest])
    places[0, -1], places[1, 0] = len(kinds), 0
    return _codes(np.concatenate([[0], np.cumsum(own)]), len(free), places, of)


def _weights(base: int, count: int) -> Integers:
    weights: Integers = base ** np.arange(count, dtype=np.int64)
    return weights


def _codes(
    prefix: Integers, kinds: int, places: Integers, of: tuple[Parts, int]
) -> Integers | None:
    """Return the codes of a rank's parts, of so many blocks at the most, in order.

    `prefix` [blocks + 1] are codes of what the chain's first blocks are, `places` [2, virtual
    stages + 1] the earliest and latest cuts.
    """
    parts, most = of
    left, base = sum(count for _, count in parts), len(prefix)
    codes, sizes = np.zeros(1, dtype=np.int64), np.zeros(1, dtype=np.int64)
    for first, count in parts:
        left -= count
        if not len(sizes):
            return codes
        longest = most - left - int(sizes.min())
        segments, lengths = _segments(prefix, places, (first, count), longest)
        if len(codes) * len(segments) > _CODES_MOST:
            return None
        is_short = sizes[:, None] + lengths[None, :] <= most - left
        codes = _different((codes[:, None] + segments[None, :])[is_short], base**kinds)
        sizes = (codes[:, None] // _weights(base, kinds) % base).sum(axis=1)
    return codes


def _different(codes: Integers, count: int) -> Integers:
    """Return the different ones of codes below `count`, in order."""
    if count > _MARKS_MOST:
        return np.unique(codes)
    marks = np.zeros(count, dtype=bool)
    marks[codes] = True
    return np.flatnonzero(marks)


def _parts_of_rank(holders: Sequence[int], rank: int) -> Parts:
    """Return the parts of a rank."""
    parts: list[tuple[int, int]] = []
    for j, holder in enumerate(holders):
        if holder != rank:
            continue
        if parts and sum(parts[-1]) == j:
            parts[-1] = (parts[-1][0], parts[-1][1] + 1)
        else:
            parts.append((j, 1))
    return tuple(parts)


def _segments(
    prefix: Integers, places: Integers, part: tuple[int, int], longest: int
) -> tuple[Integers, Integers]:
    """Return the codes of what a part of virtual stages can hold, and their sizes.

    As many blocks as there are virtual stages lie before them at the least, and behind them.
    """
    (earliest, latest), (first, count) = places, part
    starts = np.arange(earliest[first], latest[first] + 1)
    lengths = np.arange(count, min(longest, int(latest[first + count] - earliest[first])) + 1)
    start, length = (side.ravel() for side in np.meshgrid(starts, lengths, indexing="ij"))
    end = start + length
    inside = (end >= earliest[first + count]) & (end <= latest[first + count])
    start, end, length = start[inside], end[inside], length[inside]
    codes, lone = np.unique(prefix[end] - prefix[start], return_index=True)
    return codes, length[lone]
