"""Stage loads: how many layers of each kind a rank may hold.

Segments: what the parts of a chain that a rank holds can be made of, coded as loads.

A load is coded by its layers of each free kind as digits, so that codes add up as loads do. Many
configurations have the same chain and the same ranks: their codes are listed once.

Loads: what ranks may hold of each free kind, and how low the largest of them can be.

Places: where the cuts of a chain may lie, and what they add at the least there.
"""

from __future__ import annotations

from collections.abc import Mapping, Sequence
from dataclasses import replace
from functools import lru_cache
from itertools import pairwise

import numpy as np

from planner.cost.configuration import Integers
from planner.ilp.instance import Instance
from planner.ilp.lagrangian_bound import Windows
from planner.ilp.settings import (
    LOAD_STATES,
    SEGMENT_CODES,
    SEGMENTS_KEPT,
    WALK_CELLS,
)

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


@lru_cache(maxsize=SEGMENTS_KEPT)
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
        if len(codes) * len(segments) > SEGMENT_CODES:
            return None
        is_short = sizes[:, None] + lengths[None, :] <= most - left
        codes = _different((codes[:, None] + segments[None, :])[is_short], base**kinds)
        sizes = (codes[:, None] // _weights(base, kinds) % base).sum(axis=1)
    return codes


def _different(codes: Integers, count: int) -> Integers:
    """Return the different ones of codes below `count`, in order."""
    if count > WALK_CELLS:
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


Load = tuple[int, ...]


def loads_of(instance: Instance, windows: Windows, *, most: int) -> list[list[Load]] | None:
    """Return the loads that each rank may have, None where there are more than `most` in all."""
    every = held_of(instance, windows, most=most)
    return None if every is None else [as_loads(own) for own in every]


def held_of(instance: Instance, windows: Windows, *, most: int) -> list[Integers] | None:
    """Return the same as arrays by rank, [loads, free kinds]: there may be many."""
    if windows.cuts is not None:
        return _by_cuts(instance, windows.cuts, most)
    return _by_counts(instance, windows, most)


def as_loads(held: Integers) -> list[Load]:
    """Return loads [loads, free kinds] one by one."""
    return list(map(tuple, held.tolist()))


def has_few_sums(instance: Instance) -> bool:
    """Return whether what ranks hold together can be looked at sum by sum."""
    if instance.is_in_order or instance.is_uniform:
        return True
    counts = [instance.kinds[k].count + 1 for k in instance.free_kinds]
    return int(np.prod(counts)) <= LOAD_STATES


def _by_cuts(instance: Instance, cuts: Integers, most: int) -> list[Integers] | None:
    """Return the loads between all places of neighbouring cuts."""
    prefix, weights = instance.prefix_counts[:, list(instance.free_kinds)], load_weights(instance)
    places = [np.arange(int(first), int(last) + 1) for first, last in cuts.T]
    found: list[Integers] = []
    total = 0
    for starts, ends in pairwise(places):
        held = (prefix[ends] - prefix[starts][:, None])[ends > starts[:, None]]
        first = np.unique(held @ weights, return_index=True)[1]
        total += len(first)
        if total > most:
            return None
        found.append(held[np.sort(first)])
    return found


def _by_counts(instance: Instance, windows: Windows, most: int) -> list[Integers] | None:
    """Return the loads within the windows of the kinds and of their sum that cuts can leave."""
    free = list(instance.free_kinds)
    found: list[Integers] = []
    total = 0
    for rank in range(instance.stage_count):
        held = _held_within(instance, windows, rank, most)
        if held is None:
            return None
        blocks = held.sum(axis=1)
        inside = (held >= windows.sure[rank, free]) & (held <= windows.room[rank, free])
        enough = (blocks >= windows.least[rank]) & (blocks <= windows.most[rank])
        own = held[inside.all(axis=1) & enough]
        total += len(own)
        if total > most:
            return None
        found.append(own)
    return found


def _held_within(instance: Instance, windows: Windows, rank: int, most: int) -> Integers | None:
    """Return a rank's loads [loads, free kinds]: those of its parts of the chain, if they are few.

    Where they are many, hardly any that the windows leave is not among them.
    """
    codes = codes_of_rank(instance, rank, int(windows.most[rank]))
    if codes is not None:
        held: Integers = codes[:, None] // load_weights(instance) % (instance.block_count + 1)
        return held
    free = list(instance.free_kinds)
    room = np.minimum(windows.room[rank], _virtual_room(instance, rank))
    ranges = [np.arange(int(windows.sure[rank, k]), int(room[k]) + 1) for k in free]
    if np.prod([float(len(part)) for part in ranges]) > 100.0 * most:
        return None
    grid = np.stack([side.ravel() for side in np.meshgrid(*ranges, indexing="ij")], axis=1)
    within: Integers = grid[grid.sum(axis=1) <= windows.most[rank]]
    return within


def _virtual_room(instance: Instance, rank: int) -> Integers:
    """Return the layers of each kind that the virtual stages of a rank can reach, [kinds].

    Virtual stage j has j others before it, which take a block each, and as many behind it.
    """
    prefix, parts = instance.prefix_counts, len(instance.holders)
    room = np.zeros(prefix.shape[1], dtype=np.int64)
    for j, holder in enumerate(instance.holders):
        if holder == rank:
            room += prefix[instance.block_count - (parts - 1 - j)] - prefix[j]
    return room


def with_pinned(instance: Instance, rank: int, load: Load) -> list[int]:
    """Return the layers of every kind on a rank, the pinned ones with the load."""
    held = [int(kind.pinned_stage == rank) for kind in instance.kinds]
    for k, number in zip(instance.free_kinds, load, strict=True):
        held[k] = number
    return held


def least_level(
    instance: Instance, tables: Sequence[Mapping[Load, float]]
) -> tuple[float, tuple[Load, ...]]:
    """Return the least W under which ranks can hold all layers, and loads that do; inf if none.

    Dynamic programming over the ranks: the state is what they hold together, coded as a load. Where
    ranks follow one another along the chain, only sums that some cut leaves are states.
    """
    free = len(instance.free_kinds)
    weights = load_weights(instance)
    totals = np.array([instance.kinds[k].count for k in instance.free_kinds], dtype=np.int64)
    sums = _cut_sums(instance)
    states, levels = np.zeros((1, free), dtype=np.int64), np.full(1, -np.inf)
    trail: list[tuple[Integers, Integers]] = []
    for rank, table in enumerate(tables):
        held = np.array(list(table), dtype=np.int64).reshape(len(table), free)
        values = np.fromiter(table.values(), dtype=np.float64, count=len(table))
        ends = totals @ weights if rank == len(tables) - 1 else sums
        start, load = _within(states, held, totals, ends=ends, weights=weights)
        worst = np.maximum(levels[start], values[load])
        after = states[start] + held[load]
        codes = after @ weights
        order = np.lexsort((worst, codes))
        first = order[np.flatnonzero(np.diff(codes[order], prepend=-1))]
        trail.append((start[first], load[first]))
        states, levels = after[first], worst[first]
    if not len(states):
        return float("inf"), ()
    return float(levels[0]), _loads_along(trail, tables)


def _within(
    states: Integers,
    held: Integers,
    totals: Integers,
    *,
    ends: Integers | None,
    weights: Integers,
) -> tuple[Integers, Integers]:
    """Return which states can be followed by which loads: to one of the `ends`, if these are given.

    Ends are codes by the `weights`, and states and loads are [.., free kinds].
    """
    inside = np.ones((len(states), len(held)), dtype=bool)
    for k, total in enumerate(totals.tolist()):
        inside &= states[:, k, None] + held[None, :, k] <= total
    if ends is not None:
        inside &= np.isin((states @ weights)[:, None] + (held @ weights)[None, :], ends)
    start, load = np.nonzero(inside)
    return start, load


def _cut_sums(instance: Instance) -> Integers | None:
    """Return what the blocks before any cut come to, None where ranks are not in order."""
    if not instance.is_in_order or instance.is_uniform:
        return None
    prefix = instance.prefix_counts[:, list(instance.free_kinds)]
    return np.asarray(prefix @ load_weights(instance))


def _loads_along(
    trail: Sequence[tuple[Integers, Integers]], tables: Sequence[Mapping[Load, float]]
) -> tuple[Load, ...]:
    """Return the loads on the way to the one last state."""
    loads: list[Load] = []
    state = 0
    for (start, load), table in zip(reversed(trail), reversed(tables), strict=True):
        loads.append(list(table)[int(load[state])])
        state = int(start[state])
    return tuple(reversed(loads))


def everywhere(instance: Instance) -> Integers:
    """Return the windows of all cuts: a block on every virtual stage, [2, virtual stages + 1]."""
    count = len(instance.holders)
    first = np.arange(count + 1)
    last = instance.block_count - first[::-1]
    first[-1], last[0] = instance.block_count, 0
    return np.stack([first, last])


def places_of(instance: Instance) -> Integers:
    """Return the windows of the cuts of an instance, [2, virtual stages + 1]."""
    return everywhere(instance) if instance.places is None else instance.places


def placed(instance: Instance, places: Integers) -> Instance:
    """Return the instance with its cuts within the windows, each at its least extras there."""
    pace, fill = instance.stage_pace.copy(), instance.stage_fill.copy()
    held = instance.stage_bytes.copy()
    for cut, least in enumerate(_least(instance, places)):
        for rank, added in zip(instance.holders[cut : cut + 2], least[2:], strict=True):
            pace[rank] += least[0]
            fill[rank] += least[1]
            held[rank] += added
    return replace(
        instance,
        stage_pace=pace,
        stage_fill=fill,
        stage_bytes=held,
        extras=None,
        classes=None,
        places=places,
    )


def at_cuts(instance: Instance, cuts: Sequence[int]) -> Instance:
    """Return the instance with what cuts at these places add as costs of the ranks themselves."""
    if instance.extras is None:
        return instance
    return replace(placed(instance, np.array([cuts, cuts])), places=None)


def _least(instance: Instance, places: Integers) -> list[list[float]]:
    """Return what every cut adds at the least: pace, fill, bytes before and behind it."""
    assert instance.extras is not None  # noqa: S101 - nothing to place otherwise
    extras, classes = instance.extras, instance.block_classes
    earliest, latest = places[:, 1:-1]
    cuts = np.arange(len(earliest))
    open_cuts = np.flatnonzero(earliest < latest).tolist()
    found = []
    for part in (extras.pace, extras.fill, extras.first_bytes, extras.second_bytes):
        least = part[cuts, classes[earliest - 1]]
        for cut in open_cuts:
            least[cut] = part[cut, classes[earliest[cut] - 1 : latest[cut]]].min()
        found.append(least.tolist())
    return [list(own) for own in zip(*found, strict=True)]
