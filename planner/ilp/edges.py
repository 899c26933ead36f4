"""Edges: what the cuts at the ends of a rank's parts cost it, where that differs by place.

A cut costs more behind some classes of blocks than behind others (`instance.CutExtras`). A part of
the chain between two cuts then has an edge of each beside its layers: a layer with one choice,
whose kind is what the edge adds. To knapsacks, patterns and bounds an edge is a layer like any
other. A load with its edges ends with two more numbers for each part of the rank, the edge where it
begins and the one where it ends: 1 + the class of the block before the cut, 0 where the chain
itself begins or ends.
"""

from __future__ import annotations

from collections.abc import Collection, Sequence
from itertools import pairwise, product

import numpy as np

from planner.cost.configuration import Integers
from planner.ilp.instance import CutExtras, Instance, load_of_cuts
from planner.ilp.loads import Load
from planner.ilp.patterns import Columns


def edge_kind_count(instance: Instance) -> int:
    """Return how many kinds of edges a rank has at most: none where all cuts cost the same."""
    if instance.extras is None:
        return 0
    return 2 * int(instance.extras.pace.shape[1]) * instance.least_blocks


def edges_at(instance: Instance, places: Integers) -> Integers:
    """Return the edges of cuts behind so many blocks, of the shape of `places`."""
    before = instance.block_classes[np.maximum(places, 1) - 1]
    is_cut = (places > 0) & (places < instance.block_count)
    return np.asarray(np.where(is_cut, 1 + before, 0))


def loads_at_cuts(instance: Instance, cuts: Sequence[int]) -> list[Load]:
    """Return what every rank holds between cuts, with its edges where cuts cost differently."""
    loads = load_of_cuts(instance, tuple(cuts))
    if instance.extras is None:
        return [tuple(load) for load in loads]
    edges = edges_at(instance, np.array(cuts)).tolist()
    holders = instance.holders
    apart = [True, *(a != b for a, b in pairwise(holders)), True]
    sides = [edge if is_apart else 0 for edge, is_apart in zip(edges, apart, strict=True)]
    for part, rank in enumerate(holders):
        loads[rank] += sides[part : part + 2]
    return [tuple(load) for load in loads]


def loads_with_edges(
    instance: Instance, cuts: Integers, loads: Sequence[Collection[Load]], *, most: int
) -> list[list[Load]] | None:
    """Return those of every rank's loads that lie between its cuts, with their edges.

    `cuts` [2, stages + 1] are the earliest and latest. None where there are more than `most`.
    """
    prefix = instance.prefix_counts[:, list(instance.free_kinds)]
    edges = edges_at(instance, np.arange(instance.block_count + 1)).tolist()
    found: list[list[Load]] = []
    total = 0
    for rank, own in enumerate(loads):
        known, listed = set(own), dict[Load, None]()
        starts, ends = (range(cuts[0, side], cuts[1, side] + 1) for side in (rank, rank + 1))
        for start, end in product(starts, ends):
            load = tuple((prefix[end] - prefix[start]).tolist())
            if start < end and load in known:
                listed[*load, edges[start], edges[end]] = None
        total += len(listed)
        if total > most:
            return None
        found.append(list(listed))
    return found


def held_edges(instance: Instance, rank: int, loads: Sequence[Load]) -> list[list[int]]:
    """Return how many edges of each kind loads have; nothing where cuts cost the same.

    Loads without edges have none: their ranks are priced as if cuts added nothing.
    """
    if instance.extras is None:
        return [[] for _ in loads]
    added, kinds = _kinds_of_edges(instance, rank)
    found = []
    for load in loads:
        held = [0] * len(added)
        edges = load[len(instance.free_kinds) :] or (0,) * len(kinds)
        for side, edge in zip(kinds, edges, strict=True):
            if edge and side[edge - 1] >= 0:
                held[side[edge - 1]] += 1
        found.append(held)
    return found


def with_edges(instance: Instance, rank: int, columns: Columns) -> Columns:
    """Return the choices of a rank with its edges behind them, one choice for each kind of edge."""
    if instance.extras is None:
        return columns
    added, kinds = _kinds_of_edges(instance, rank)
    pace, fill, held = np.array(added).reshape(len(added), 3).T
    nothing = np.zeros(len(added))
    more = Columns(
        kind=len(instance.kinds) + np.arange(len(added)),
        reduced=nothing,
        most=np.full(len(added), len(kinds), dtype=np.int64),
        pace=pace,
        fill=fill,
        end=nothing,
        memory=held,
        transient=nothing,
        host=nothing,
    )
    return columns.followed_by(more)


_Added = tuple[float, float, float]


def _kinds_of_edges(instance: Instance, rank: int) -> tuple[list[_Added], list[list[int]]]:
    """Return pace, fill and bytes of each kind of edge of a rank, and which kind an edge is.

    The latter by the ends of the rank's parts and the class before the cut, -1 of what adds
    nothing.
    """
    assert instance.extras is not None  # noqa: S101 - no edges otherwise
    known: dict[_Added, int] = {}
    kinds: list[list[int]] = []
    for stage in np.flatnonzero(np.array(instance.holders) == rank).tolist():
        for cut, is_end in ((stage - 1, False), (stage, True)):
            ends = _extras_at(instance.extras, cut, is_end=is_end)
            kinds.append([known.setdefault(one, len(known)) if any(one) else -1 for one in ends])
    return list(known), kinds


def _extras_at(extras: CutExtras, cut: int, *, is_end: bool) -> list[_Added]:
    """Return what one cut adds by the class of the block before it, nothing where there is none."""
    cuts, classes = extras.pace.shape
    if not 0 <= cut < cuts:
        return [(0.0, 0.0, 0.0)] * classes
    held = extras.first_bytes if is_end else extras.second_bytes
    columns = (extras.pace[cut], extras.fill[cut], held[cut])
    return list(zip(*(column.tolist() for column in columns), strict=True))
