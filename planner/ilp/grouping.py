"""Grouping: the ranks of many configurations in a few groups each, so that all have one shape.

The ranks that hold the embedding and the head are groups of their own. The others are grouped by
their kind of device and, as far as groups last, by their micro-batches in flight. What is said of a
group is a lower bound of each of its ranks.
"""

from __future__ import annotations

from collections.abc import Sequence
from dataclasses import dataclass, fields

import numpy as np
import numpy.typing as npt

from planner.cost.configuration import Floats, Integers
from planner.ilp.assembly import Shape

_IN_ORDER_MOST = 32

Groups = npt.NDArray[np.int8]
"""Groups of ranks by their number, -1 of no rank; there may be many of these, and few groups."""


@dataclass(frozen=True, slots=True, kw_only=True)
class Ranks:
    """What the screen needs to know of configurations; [rows] or [groups, rows].

    `table_rows` is the row of each in the cost tables; `devices` the kind of device of a group.
    `first` and `last` are the groups that hold the embedding and the head. `least_blocks` is what
    every rank holds at the least, `meets` how many exchanges a rank takes part in. A group without
    ranks has a `size` of 0 and repeats another one's numbers. `order` [places, rows] are the groups
    along the pipeline where every rank holds one part of the chain, in their order; behind the last
    rank, and elsewhere, it is -1. There are no places where nobody asks for the order.
    """

    table_rows: Integers
    least_blocks: Floats
    repeats: Floats
    forms: Floats  # [forms, 3, rows]: fill weights of forward, input and weight gradient
    pace_share: Floats
    fill_share: Floats
    size: Floats
    devices: Integers
    in_flight: Floats
    meets: Floats
    first: Integers
    last: Integers
    order: Groups


def picked(ranks: Ranks, members: Integers, table_rows: Integers) -> Ranks:
    """Return the ranks of configurations: `members` [rows] are their places in `ranks`."""
    columns = {
        field.name: getattr(ranks, field.name).take(members, axis=-1)
        for field in fields(Ranks)
        if field.name != "table_rows"
    }
    return Ranks(table_rows=table_rows, **columns)


def of_rows(ranks: Ranks, rows: Integers) -> Ranks:
    """Return some of the rows."""
    return picked(ranks, rows, ranks.table_rows[rows])


def ranks_of(shapes: Sequence[Shape], *, part_count: int, is_ordered: bool) -> Ranks:
    """Return ranks in groups, not placed in tables yet.

    Ranks on one kind of device are in up to `part_count` groups beside those of the embedding and
    the head.
    """
    members = [_groups(shape, part_count) for shape in shapes]
    grouped = [_grouped(*each) for each in zip(shapes, members, strict=True)]
    groups = max(len(own) for own in grouped)
    padded = [own + [(0.0, *own[-1][1:])] * (groups - len(own)) for own in grouped]
    columns = np.ascontiguousarray(np.transpose(np.array(padded), (2, 1, 0)))
    size, devices, in_flight, meets = columns
    is_same = np.array([shape.holders[0] == shape.holders[-1] for shape in shapes])
    return Ranks(
        table_rows=np.zeros(len(shapes), dtype=np.int64),
        least_blocks=np.array([float(len(shape.holders) // shape.degree) for shape in shapes]),
        repeats=np.array([shape.repeat_count for shape in shapes]),
        forms=_padded_forms(shapes),
        pace_share=np.array([shape.shares.pace for shape in shapes]),
        fill_share=np.array([shape.shares.fill for shape in shapes]),
        size=size,
        devices=devices.astype(np.int64),
        in_flight=in_flight,
        meets=meets,
        first=np.zeros(len(shapes), dtype=np.int64),
        last=np.where(is_same, 0, 1),
        order=_order(shapes, members, _IN_ORDER_MOST if is_ordered else 0),
    )


def _order(shapes: Sequence[Shape], members: Sequence[list[list[int]]], most: int) -> Groups:
    """Return the group of every rank where ranks are in the order of the chain, [places, rows].

    It is not said of pipelines with more than `most` ranks.
    """
    order = np.full((most, len(shapes)), -1, dtype=np.int8)
    for row, (shape, groups) in enumerate(zip(shapes, members, strict=True)):
        if shape.degree <= most and shape.holders == tuple(range(shape.degree)):
            for group, ranks in enumerate(groups):
                order[ranks, row] = group
    return order


def _grouped(shape: Shape, members: list[list[int]]) -> list[tuple[float, float, float, float]]:
    """Return size, kind of device, least in flight and fewest exchanges of each group."""
    flight, met = shape.in_flight.tolist(), shape.exchanges.meets
    return [
        (
            float(len(ranks)),
            float(shape.device_kinds[ranks[0]]),
            min(flight[rank] for rank in ranks),
            float(min(met[rank] for rank in ranks)),
        )
        for ranks in members
    ]


def _groups(shape: Shape, part_count: int) -> list[list[int]]:
    """Return the rank of the embedding, that of the head, and the others in parts."""
    flight = shape.in_flight.tolist()
    first, last = shape.holders[0], shape.holders[-1]
    found = [[first]] if first == last else [[first], [last]]
    own: dict[int, list[int]] = {}
    for rank, kind in enumerate(shape.device_kinds):
        if rank not in (first, last):
            own.setdefault(kind, []).append(rank)
    for ranks in own.values():
        ranks.sort(key=flight.__getitem__)
        parts = min(part_count, len({flight[rank] for rank in ranks}))
        ends = [len(ranks) * part // parts for part in range(parts + 1)]
        found.extend(ranks[ends[part] : ends[part + 1]] for part in range(parts))
    return found


def _padded_forms(shapes: Sequence[Shape]) -> Floats:
    """Return every shape's forms of the fill, the last repeated up to one number of them."""
    most = max(len(shape.weights.forms) for shape in shapes)
    rows = [
        [*shape.weights.forms, *([shape.weights.forms[-1]] * (most - len(shape.weights.forms)))]
        for shape in shapes
    ]
    return np.ascontiguousarray(np.transpose(np.array(rows), (1, 2, 0)))
