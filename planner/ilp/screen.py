"""Screen: bounds B1 to B3 of `planner.ilp.bounds` for thousands of configurations at once.

Ranks of a configuration are taken in a few groups, each with the least micro-batches in flight of
its members, so that all configurations have arrays of one shape: [rows, groups]. Every number is a
lower bound as a group's is one of each of its ranks.
"""

from __future__ import annotations

from collections.abc import Sequence
from dataclasses import dataclass, fields

import numpy as np

from planner.cost.configuration import Floats, Integers
from planner.cost.layer_costs import CostTable, LayerCosts
from planner.ilp.assembly import Shape

_MULTIPLIERS = np.array([0.0, *(2.0**e for e in range(-6, 6))])


@dataclass(frozen=True, slots=True, kw_only=True)
class Ranks:
    """What the screen needs to know of configurations; [rows] or [rows, groups].

    `table_rows` is the row of each in the cost tables; `devices` the kind of device of a group.
    `first` and `last` are the groups that hold the embedding and the head. A group without ranks
    has a `size` of 0.
    """

    table_rows: Integers
    degrees: Floats
    repeats: Floats
    forms: Floats  # [rows, forms, 3]: fill weights of forward, input and weight gradient
    exchanges: Floats
    pace_share: Floats
    fill_share: Floats
    size: Floats
    devices: Integers
    in_flight: Floats
    first: Integers
    last: Integers


def picked(ranks: Ranks, members: Integers, table_rows: Integers) -> Ranks:
    """Return the ranks of configurations: `members` [rows] are their places in `ranks`."""
    columns = {
        field.name: getattr(ranks, field.name)[members]
        for field in fields(Ranks)
        if field.name != "table_rows"
    }
    return Ranks(table_rows=table_rows, **columns)


def ranks_of(shapes: Sequence[Shape], *, group_count: int) -> Ranks:
    """Return ranks in groups of one kind of device and near in flight, not placed in tables yet."""
    grouped = [_groups(shape, group_count) for shape in shapes]
    groups = max(*(len(g) for g in grouped), 1)

    def column(values: list[list[float]], kind: type) -> np.ndarray:
        padded = [row + [row[-1]] * (groups - len(row)) for row in values]
        return np.array(padded, dtype=kind)

    size = [[float(len(g)) for g in row] + [0.0] * (groups - len(row)) for row in grouped]
    return Ranks(
        table_rows=np.zeros(len(shapes), dtype=np.int64),
        degrees=np.array([float(shape.degree) for shape in shapes]),
        repeats=np.array([shape.repeat_count for shape in shapes]),
        forms=_padded_forms(shapes),
        exchanges=np.array([float(_exchanges(shape)) for shape in shapes]),
        pace_share=np.array([shape.shares.pace for shape in shapes]),
        fill_share=np.array([shape.shares.fill for shape in shapes]),
        size=np.array(size),
        devices=column(
            [
                [float(s.device_kinds[g[0]]) for g in row]
                for s, row in zip(shapes, grouped, strict=True)
            ],
            int,
        ),
        in_flight=column(
            [
                [float(min(s.in_flight[r] for r in g)) for g in row]
                for s, row in zip(shapes, grouped, strict=True)
            ],
            float,
        ),
        first=_group_with(shapes, grouped, 0),
        last=_group_with(shapes, grouped, -1),
    )


def _padded_forms(shapes: Sequence[Shape]) -> Floats:
    """Return every shape's forms of the fill, the last repeated up to one number of them."""
    most = max(len(shape.weights.forms) for shape in shapes)
    rows = [
        [*shape.weights.forms, *([shape.weights.forms[-1]] * (most - len(shape.weights.forms)))]
        for shape in shapes
    ]
    return np.array(rows)


def _groups(shape: Shape, group_count: int) -> list[list[int]]:
    """Return the ranks of each kind of device, in parts by their micro-batches in flight."""
    devices = sorted(set(shape.device_kinds))
    parts = max(group_count // len(devices), 1)
    found: list[list[int]] = []
    for device in devices:
        own = sorted(
            (r for r in range(shape.degree) if shape.device_kinds[r] == device),
            key=lambda r: shape.in_flight[r],
        )
        found.extend(part.tolist() for part in np.array_split(np.array(own), parts) if len(part))
    return found


def _group_with(
    shapes: Sequence[Shape], grouped: Sequence[Sequence[Sequence[int]]], place: int
) -> Integers:
    """Return the group that holds the first (0) or the last (-1) virtual stage."""
    return np.array(
        [
            next(i for i, group in enumerate(row) if shape.holders[place] in group)
            for shape, row in zip(shapes, grouped, strict=True)
        ]
    )


def _exchanges(shape: Shape) -> int:
    """Return how often all ranks together pay for a boundary."""
    return 2 * sum(a != b for a, b in zip(shape.holders, shape.holders[1:], strict=False))


@dataclass(frozen=True, slots=True, kw_only=True)
class _Layer:
    """One kind of layer on every group: [rows, groups, choices]."""

    count: int
    omega: Floats
    static: Floats
    activation: Floats


def quick_bounds(tables: Sequence[CostTable], ranks: Ranks) -> Floats:
    """Return B1 and B2 without memory for every configuration, [rows].

    The tables' choices come in two halves: with the least paces, and with the least ends.
    """
    fill = _fill_sum(tables, ranks)
    no_price = np.zeros((len(ranks.degrees), 1))
    free, pinned = _layers(tables, ranks, with_memory=False)
    offsets = _offsets(tables, ranks, no_price)
    level = _level(ranks, free, pinned, grid=no_price, offsets=offsets)
    return fill + level


def memory_bounds(tables: Sequence[CostTable], ranks: Ranks) -> Floats:
    """Return the same with memory priced (B3), inf where the leanest choices do not fit, [rows]."""
    free, pinned = _layers(tables, ranks, with_memory=True)
    grid = _grid(free)
    level = _level(ranks, free, pinned, grid=grid, offsets=_offsets(tables, ranks, grid))
    return np.where(_may_fit(tables, ranks, free, pinned), _fill_sum(tables, ranks) + level, np.inf)


def _layers(
    tables: Sequence[CostTable], ranks: Ranks, *, with_memory: bool
) -> tuple[list[_Layer], list[tuple[Integers, _Layer]]]:
    """Return the free kinds, and the pinned ones with the group that holds each."""
    totals = np.zeros(len(tables[0].blocks), dtype=np.int64)
    for kind, count in tables[0].chain:
        totals[kind] += count
    free = [
        _layer([table.blocks[kind] for table in tables], ranks, int(count), with_memory)
        for kind, count in enumerate(totals)
    ]
    pinned = [
        (ranks.first, _layer([table.embedding for table in tables], ranks, 1, with_memory)),
        (ranks.last, _layer([table.head for table in tables], ranks, 1, with_memory)),
    ]
    return free, pinned


def _layer(costs: Sequence[LayerCosts], ranks: Ranks, count: int, with_memory: bool) -> _Layer:
    rows = ranks.table_rows[:, None]

    def column(values: Sequence[Floats]) -> Floats:
        picked: Floats = np.stack(values)[ranks.devices, rows]
        return picked

    pace = column([cost.micro_batch_seconds.total() for cost in costs])
    end = column([cost.step_end_seconds.total() for cost in costs])
    repeats = ranks.repeats[:, None, None]
    if not with_memory:
        half, none = pace.shape[2] // 2, np.zeros(1)
        least = repeats * pace[:, :, :half] + end[:, :, half:]
        return _Layer(count=count, omega=least, static=none, activation=none)
    omega = repeats * pace + end
    return _Layer(
        count=count,
        omega=omega,
        static=column([cost.bytes.static() for cost in costs]),
        activation=column([cost.bytes.activations for cost in costs]),
    )


def _fill_sum(tables: Sequence[CostTable], ranks: Ranks) -> Floats:
    """Return the sum of fills with every layer at its cheapest choice and device, [rows]."""
    total = np.zeros(len(ranks.degrees))
    totals = np.zeros(len(tables[0].blocks), dtype=np.int64)
    for kind, count in tables[0].chain:
        totals[kind] += count
    layers = [
        ([t.blocks[kind] for t in tables], count) for kind, count in enumerate(totals.tolist())
    ]
    layers += [([t.embedding for t in tables], 1), ([t.head for t in tables], 1)]
    for costs, count in layers:
        fills = [_fill(cost, ranks) for cost in costs]
        total += count * np.min(fills, axis=0)
    boundary = _least_boundary(tables, ranks)
    return np.asarray(total + ranks.exchanges * ranks.fill_share * boundary)


def _fill(costs: LayerCosts, ranks: Ranks) -> Floats:
    seconds = costs.micro_batch_seconds
    total = seconds.total()[ranks.table_rows]
    forward = total * seconds.forward_share[ranks.table_rows]
    weight = total * seconds.weight_gradient_share[ranks.table_rows]
    parts = (forward, total - forward - weight, weight)
    fill = np.zeros_like(total)
    for form in range(ranks.forms.shape[1]):
        weighted = sum(ranks.forms[:, form, i, None] * part for i, part in enumerate(parts))
        fill = np.maximum(fill, weighted)
    least: Floats = fill.min(axis=1)
    return least


def _least_boundary(tables: Sequence[CostTable], ranks: Ranks) -> Floats:
    """Return seconds of the cheapest boundary anywhere, [rows]."""
    each = [table.fixed.boundary_seconds.min(axis=(1, 2)) for table in tables]
    least: Floats = np.min(each, axis=0)[ranks.table_rows]
    return least


def _offsets(tables: Sequence[CostTable], ranks: Ranks, grid: Floats) -> Floats:
    """Return what a rank of each group costs by itself less its memory's worth, with grid last.

    In a pipeline every rank exchanges with one neighbour at least.
    """
    end = np.array([table.fixed.step_end_seconds for table in tables])
    own = end[ranks.devices, ranks.table_rows[:, None]]
    each = (
        ranks.repeats
        * ranks.pace_share
        * _least_boundary(tables, ranks)
        * np.where(ranks.degrees > 1.0, 1.0, 0.0)
    )
    own = own + each[:, None]
    slack = _slack(tables, ranks)
    priced: Floats = own[:, :, None] - grid[:, None, :] * slack[:, :, None]
    return priced


def _slack(tables: Sequence[CostTable], ranks: Ranks) -> Floats:
    """Return the bytes left for layers on a rank of each group, [rows, groups]."""
    capacity = np.array([table.limits.live_capacity_bytes for table in tables])[ranks.devices]
    transients = [
        np.min([blocks.bytes.transient.min(axis=1) for blocks in table.blocks], axis=0)
        for table in tables
    ]
    least: Floats = np.stack(transients)[ranks.devices, ranks.table_rows[:, None]]
    return capacity - least


def _level(
    ranks: Ranks,
    free: Sequence[_Layer],
    pinned: Sequence[tuple[Integers, _Layer]],
    *,
    grid: Floats,
    offsets: Floats,
) -> Floats:
    """Return a weighted mean of what ranks cost at their dearest price of memory, [rows].

    Weights y make a layer cost the same on any rank: W >= sum_r y_r phi_r.
    """
    prices = [_priced(layer, ranks, grid) for layer in free]  # each [rows, groups, grid]
    share = [layer.count / ranks.degrees[:, None, None] for layer in free]
    alone = offsets + np.sum([s * p for s, p in zip(share, prices, strict=True)], axis=0)
    dearest = alone.argmax(axis=2)[:, :, None]
    offset = np.take_along_axis(offsets, dearest, axis=2)[:, :, 0]
    chosen = [np.take_along_axis(price, dearest, axis=2)[:, :, 0] for price in prices]
    mean = np.sum([layer.count * c for layer, c in zip(free, chosen, strict=True)], axis=0)
    inverse = np.where(ranks.size > 0.0, 1.0 / np.maximum(mean, 1e-300), 0.0)
    weight = inverse / (ranks.size * inverse).sum(axis=1, keepdims=True)
    level: Floats = (ranks.size * weight * offset).sum(axis=1)
    empty = ranks.size == 0.0
    for layer, price in zip(free, chosen, strict=True):
        level += layer.count * np.where(empty, np.inf, weight * price).min(axis=1)
    for groups, layer in pinned:
        row = np.arange(len(groups))
        price = _priced(layer, ranks, grid)
        own = np.take_along_axis(price, dearest, axis=2)[:, :, 0]
        level += (weight * own)[row, groups]
    return level


def _priced(layer: _Layer, ranks: Ranks, grid: Floats) -> Floats:
    """Return the least omega + lambda x memory of a layer's choices, [rows, groups, grid]."""
    if not grid.any():
        return np.asarray(layer.omega.min(axis=2, keepdims=True))
    memory = layer.static + ranks.in_flight[:, :, None] * layer.activation
    columns = [
        (layer.omega + grid[:, i, None, None] * memory).min(axis=2) for i in range(grid.shape[1])
    ]
    return np.stack(columns, axis=2)


def _grid(free: Sequence[_Layer]) -> Floats:
    """Return lambda: multiples of the blocks' cost range over their memory range, [rows, grid]."""
    cost = sum(layer.count * np.ptp(layer.omega, axis=(1, 2)) for layer in free)
    memory = sum(
        layer.count * np.ptp(layer.static + layer.activation, axis=(1, 2)) for layer in free
    )
    scale = np.divide(cost, memory, out=np.zeros_like(cost), where=memory > 0.0)
    grid: Floats = scale[:, None] * _MULTIPLIERS[None, :]
    return grid


def _may_fit(
    tables: Sequence[CostTable],
    ranks: Ranks,
    free: Sequence[_Layer],
    pinned: Sequence[tuple[Integers, _Layer]],
) -> Floats:
    """Return whether all ranks' memory together may hold the leanest choices, [rows].

    With y = 1 / (bytes of a mean block on the group), the same argument as for seconds.
    """
    least = [
        (layer.static + ranks.in_flight[:, :, None] * layer.activation).min(axis=2)
        for layer in free
    ]
    mean = np.sum([layer.count * m for layer, m in zip(free, least, strict=True)], axis=0)
    weight = np.where(ranks.size > 0.0, 1.0 / np.maximum(mean, 1e-300), 0.0)
    needed = np.zeros(len(weight))
    for layer, held in zip(free, least, strict=True):
        needed += layer.count * np.where(ranks.size > 0.0, weight * held, np.inf).min(axis=1)
    for groups, layer in pinned:
        held = (layer.static + ranks.in_flight[:, :, None] * layer.activation).min(axis=2)
        needed += (weight * held)[np.arange(len(groups)), groups]
    room = (ranks.size * weight * _slack(tables, ranks)).sum(axis=1)
    fitting: Floats = needed <= room * (1.0 + 1e-9)
    return fitting
