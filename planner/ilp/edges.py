"""Edges: what the cuts at both ends of a rank cost it, where that differs by place.

A cut costs more behind some classes of blocks than behind others (`instance.CutExtras`). A rank
between two cuts then holds an edge of each beside its layers: a layer with one choice, whose kind
says on which side the cut is and what block lies before it. To knapsacks, patterns and bounds an
edge is a layer like any other. A load with its edges ends with two more numbers, the edge where
the rank begins and the one where it ends: 1 + the class of the block before the cut, 0 where the
chain itself begins or ends.
"""

from __future__ import annotations

from collections.abc import Collection, Sequence
from dataclasses import dataclass
from itertools import product

import numpy as np

from planner.cost.configuration import Floats, Integers
from planner.ilp.instance import CutExtras, Instance
from planner.ilp.loads import Load
from planner.ilp.patterns import Columns


def edge_kind_count(instance: Instance) -> int:
    """Return how many kinds of edges there are: none where all cuts cost the same."""
    return 0 if instance.extras is None else 2 * instance.extras.pace.shape[1]


def edges_at(instance: Instance, places: Integers) -> Integers:
    """Return the edges of cuts behind so many blocks, of the shape of `places`."""
    before = instance.block_classes[np.maximum(places, 1) - 1]
    is_cut = (places > 0) & (places < instance.block_count)
    return np.asarray(np.where(is_cut, 1 + before, 0))


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


def held_edges(instance: Instance, load: Load) -> list[int]:
    """Return the edges of a load by kind of edge, 1 where it has one; nothing where none has."""
    classes = edge_kind_count(instance) // 2
    if not classes:
        return []
    return [int(edge == 1 + group) for edge in load[-2:] for group in range(classes)]


def with_edges(instance: Instance, rank: int, columns: Columns) -> Columns:
    """Return the choices of a rank with its edges behind them, one choice for each kind of edge."""
    extras = instance.extras
    if extras is None:
        return columns
    before, behind = _extras_at(extras, rank - 1), _extras_at(extras, rank)
    count = edge_kind_count(instance)
    added = Columns(
        kind=len(instance.kinds) + np.arange(count),
        reduced=np.zeros(count),
        most=np.ones(count, dtype=np.int64),
        pace=np.concatenate([before.pace, behind.pace]),
        fill=np.concatenate([before.fill, behind.fill]),
        end=np.zeros(count),
        memory=np.concatenate([before.second_bytes, behind.first_bytes]),
        transient=np.zeros(count),
        host=np.zeros(count),
    )
    return columns.followed_by(added)


@dataclass(frozen=True, slots=True, kw_only=True)
class _Extras:
    """What one cut adds by the class of the block before it, each [classes]."""

    pace: Floats
    fill: Floats
    first_bytes: Floats
    second_bytes: Floats


def _extras_at(extras: CutExtras, cut: int) -> _Extras:
    """Return what a cut adds, nothing where there is no such cut."""
    cuts, classes = extras.pace.shape
    if not 0 <= cut < cuts:
        nothing = np.zeros(classes)
        return _Extras(pace=nothing, fill=nothing, first_bytes=nothing, second_bytes=nothing)
    return _Extras(
        pace=extras.pace[cut],
        fill=extras.fill[cut],
        first_bytes=extras.first_bytes[cut],
        second_bytes=extras.second_bytes[cut],
    )
