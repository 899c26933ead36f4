"""Stage loads: how many layers of each kind a rank may hold.

A load is coded by its layers of each free kind as digits, so that codes add up as loads do.
"""

from __future__ import annotations

from collections.abc import Sequence
from functools import lru_cache
from itertools import accumulate, pairwise
from operator import mul

import numpy as np

from planner.cost.configuration import Booleans, Integers
from planner.ilp.instance import Instance
from planner.ilp.lagrangian_bound import Windows
from planner.ilp.problem import TooManyError
from planner.ilp.settings import FEW_KEPT, WALK_CELLS


def load_weights(instance: Instance, *, edges: int = 0) -> Integers:
    """Return prod_{i<k} (L_i + 1) by free kind k: the sum of n_k times these codes a load.

    With `edges`, loads end with two more numbers that are at most so many.

    Raises:
        TooManyError: if codes may be too large for whole numbers of 64 bits.
    """
    most = [instance.kinds[k].count for k in instance.free_kinds]
    if edges:
        most += [edges, edges]
    *weights, count = accumulate((n + 1 for n in most), mul, initial=1)
    if count > np.iinfo(np.int64).max:
        raise TooManyError
    return np.array(weights, dtype=np.int64)


Load = tuple[int, ...]


def held_of(instance: Instance, windows: Windows, *, most: int) -> list[Integers] | None:
    """Return the loads that each rank may have, [loads, free kinds], None for more than `most`."""
    try:
        if windows.cuts is not None:
            return _by_cuts(instance, windows.cuts, most)
        return _by_counts(instance, windows, most)
    except TooManyError:
        return None


def as_loads(held: Integers) -> list[Load]:
    """Return loads [loads, free kinds] one by one."""
    return list(map(tuple, held.tolist()))


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
    total, number = 0, len(instance.holders) // instance.stage_count
    parts = _codes_of_parts(_layer_codes(instance), int(windows.most.max()), number)[-1]
    for rank in range(instance.stage_count):
        held = _held_within(instance, windows, rank, most)
        if held is None:
            return None
        blocks = held.sum(axis=1)
        inside = (held >= windows.sure[rank, free]) & (held <= windows.room[rank, free])
        enough = (blocks >= windows.least[rank]) & (blocks <= windows.most[rank])
        own = held[inside.all(axis=1) & enough]
        own = own[_are_of(own @ load_weights(instance), parts)]
        total += len(own)
        if total > most:
            return None
        found.append(own)
    return found


def _held_within(instance: Instance, windows: Windows, rank: int, most: int) -> Integers | None:
    """Return loads [loads, free kinds] within a rank's windows, None if they are far too many."""
    free = list(instance.free_kinds)
    room = np.minimum(windows.room[rank], _virtual_room(instance, rank))
    ranges = [np.arange(int(windows.sure[rank, k]), int(room[k]) + 1) for k in free]
    if np.prod([float(len(part)) for part in ranges]) > 100.0 * most:
        return None
    grid = np.stack([side.ravel() for side in np.meshgrid(*ranges, indexing="ij")], axis=1)
    return np.asarray(grid[grid.sum(axis=1) <= windows.most[rank]])


def segments_of(instance: Instance) -> list[tuple[int, int]]:
    """Return the shortest parts of the chain that share no kind of blocks, from and to a place."""
    kinds = instance.block_kinds.tolist()
    last = {kind: place + 1 for place, kind in enumerate(kinds)}
    starts, end = list[int](), 0
    for place, kind in enumerate(kinds):
        if place == end:
            starts.append(place)
        end = max(end, last[kind])
    return list(pairwise([*starts, len(kinds)]))


def parts_of_loads(
    instance: Instance, segments: Sequence[tuple[int, int]], loads: Sequence[Load]
) -> list[Booleans]:
    """Return which loads may hold so many parts of a segment, by segment [parts, loads].

    There is one number of parts more than a rank has.
    """
    layers = _layer_codes(instance)
    weights, most = load_weights(instance), len(instance.holders) // instance.stage_count + 1
    held = np.array(loads, dtype=np.int64).reshape(len(loads), -1)[:, : len(weights)]
    found = []
    for start, end in segments:
        own = np.isin(weights, layers[start:end])
        codes, longest = held @ (weights * own), int(held[:, own].sum(axis=1).max(initial=0))
        parts = _codes_of_parts(layers[start:end], longest, most)
        found.append(np.stack([_are_of(codes, each) for each in parts]))
    return found


def _layer_codes(instance: Instance) -> tuple[int, ...]:
    """Return the code of each block of the chain."""
    weights = np.zeros(len(instance.kinds), dtype=np.int64)
    weights[list(instance.free_kinds)] = load_weights(instance)
    return tuple(weights[instance.block_kinds].tolist())


def _are_of(codes: Integers, some: Integers | None) -> Booleans:
    """Return which codes are among some, all of those that hold a layer if these are too many."""
    return np.asarray(codes > 0 if some is None else np.isin(codes, some))


@lru_cache(maxsize=FEW_KEPT)
def _codes_of_parts(layers: tuple[int, ...], longest: int, most: int) -> list[Integers | None]:
    """Return the codes of what 0 to `most` parts of a chain hold together, by their number.

    All hold `longest` blocks at the most; `layers` are the codes of its blocks. Parts may overlap:
    a code of more layers than there are may be that of others too, and counts the fewest blocks.
    None where there are too many.
    """
    sums = np.cumsum((0, *layers))
    places = np.arange(len(sums))
    length = places[None, :] - places[:, None]
    inside = (length > 0) & (length <= longest)
    part, first = np.unique((sums[None, :] - sums[:, None])[inside], return_index=True)
    blocks = length[inside][first]
    found: list[Integers | None] = [np.zeros(1, dtype=np.int64)]
    held = np.zeros(1, dtype=np.int64)
    for _ in range(most):
        before = found[-1]
        if before is None or len(before) * len(part) > WALK_CELLS:
            found.append(None)
            continue
        fits = held[:, None] + blocks[None, :] <= longest
        longer = (held[:, None] + blocks[None, :])[fits]
        order = np.argsort(longer, kind="stable")
        sums = (before[:, None] + part[None, :])[fits][order]
        together, first = np.unique(sums, return_index=True)
        held = longer[order][first]
        found.append(together)
    return found


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
