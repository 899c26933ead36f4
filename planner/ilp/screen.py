"""Screen: bounds B1 to B5 of `planner.ilp.bounds` for thousands of configurations at once.

Ranks of a configuration are taken in a few groups (`planner.ilp.grouping`), each with the least of
its members, so that all configurations have arrays of one shape: [rows, groups]. Every number is a
lower bound as a group's is one of each of its ranks. Levels and sums are those of
`planner.ilp.pools`.
"""

from __future__ import annotations

from collections.abc import Callable, Sequence
from dataclasses import dataclass
from functools import cached_property

import numpy as np

from planner.cost.configuration import Booleans, Floats, Integers
from planner.cost.layer_costs import CostTable, LayerCosts
from planner.ilp.grouping import Ranks
from planner.ilp.pools import Pools

_MULTIPLIERS = np.array([0.0, *(2.0**e for e in range(-6, 6))])
_FILL_MULTIPLIERS = _MULTIPLIERS[::2]  # fills are a small part of most steps
_HOST_RATIOS = np.array([0.0, *(4.0**e for e in range(-1, 3))])
_ROUNDS = 3


def quick_bounds(tables: Sequence[CostTable], ranks: Ranks) -> Floats:
    """Return B1, B2 and B4 without memory for every configuration, [rows].

    The tables' choices come in two halves: with the least paces, and with the least ends.
    """
    totals = _totals(tables)
    both = [_least_by_device(costs, ranks, _plain_omega) for costs in _all_layers(tables, totals)]
    fill = [_least_by_device(costs, ranks, _fill) for costs in _all_layers(tables, totals)]
    exchange = ranks.meets * _least_boundary(tables, ranks)[:, None]
    own = ranks.repeats[:, None] * ranks.pace_share[:, None] * exchange + _step_end(tables, ranks)
    level = _pools(ranks, totals, both, own[:, :, None]).least_level()
    own = ranks.fill_share[:, None] * exchange
    return level + _pools(ranks, totals, fill, own[:, :, None]).least_sum()


def memory_bounds(
    tables: Sequence[CostTable],
    ranks: Ranks,
    *,
    limits: Floats,
    refused: Booleans,
) -> Floats:
    """Return the same with memory priced, inf where the leanest choices do not fit, [rows].

    `limits` [rows] are the steps that plans must be below to matter: a bound above it says that
    there is none below it, and is cut to it unless it holds of all plans. `refused` [rows, choices]
    are choices of blocks that a configuration cannot have.
    """
    chains = _Chains(tables, ranks, refused)
    fitting = chains.fit.rooms(np.zeros(len(limits)))
    fits = chains.fit.has_room(fitting) & (chains.fit.least_level() <= chains.tolerance())
    room = np.where(fits[:, None], fitting, chains.fit.rooms(np.full(len(limits), np.inf)))
    level = chains.both.least_level()
    fill = chains.fill.least_sum(room)
    bounds = fill + level
    for _ in range(_ROUNDS):
        below = np.isfinite(limits) & (bounds < limits) & fits
        if not below.any():
            break
        rooms = np.minimum(room, chains.both.rooms(np.where(below, limits - fill, np.inf)))
        is_left = chains.both.has_room(rooms)
        rooms = np.where(is_left[:, None], rooms, room)
        fill = np.where(below, np.maximum(fill, chains.fill.least_sum(rooms)), fill)
        closer = np.where(is_left, np.minimum(fill + level, limits), limits)
        bounds = np.where(below, np.maximum(bounds, closer), bounds)
    return np.where(fits, bounds, np.inf)


class _Chains:
    """The chains of rows with a price on memory, in pools: omega, fills, and bytes."""

    def __init__(self, tables: Sequence[CostTable], ranks: Ranks, refused: Booleans) -> None:
        self._tables, self._ranks = tables, ranks
        self._totals = _totals(tables)
        layers = _all_layers(tables, self._totals)
        none = np.zeros((len(refused), 1), dtype=bool)
        free = len(self._totals)
        self._layers = [
            _Layer(costs=costs, ranks=ranks, refused=refused if place < free else none)
            for place, costs in enumerate(layers)
        ]
        self._exchange = ranks.meets * _least_boundary(tables, ranks)[:, None]

    @cached_property
    def both(self) -> Pools:
        """Return omega with memory priced."""
        repeats = self._ranks.repeats[:, None]
        own = repeats * self._ranks.pace_share[:, None] * self._exchange
        own = own + _step_end(self._tables, self._ranks)
        return self._priced([layer.omega() for layer in self._layers], own, _MULTIPLIERS)

    @cached_property
    def fill(self) -> Pools:
        """Return fills with memory priced."""
        own = self._ranks.fill_share[:, None] * self._exchange
        return self._priced([layer.fill() for layer in self._layers], own, _FILL_MULTIPLIERS)

    @cached_property
    def fit(self) -> Pools:
        """Return device bytes with a price on host bytes, less what the limits allow."""
        capacity, host = self._capacity, self._host_capacity
        scale = capacity.max(axis=1) / np.maximum(host.max(axis=1), 1.0)
        grid = scale[:, None] * _HOST_RATIOS
        least = [
            _least_priced(layer.memory, layer.host, grid, layer.refused) for layer in self._layers
        ]
        limits = capacity[:, :, None] + grid[:, None, :] * host[:, :, None]
        return _pools(self._ranks, self._totals, least, self._own_bytes[:, :, None] - limits)

    def tolerance(self) -> Floats:
        """Return the bytes that are taken for rounding, [rows]."""
        return np.asarray(1e-9 * self._capacity.max(axis=1))

    def _priced(self, costs: Sequence[Floats], own: Floats, multipliers: Floats) -> Pools:
        layers = self._layers
        scale = _price_scale(costs[: len(self._totals)], layers, self._totals)
        grid = scale[:, None] * multipliers
        least = [
            _least_priced(cost, layer.memory, grid, layer.refused)
            for cost, layer in zip(costs, layers, strict=True)
        ]
        slack = self._capacity - self._own_bytes
        offset = own[:, :, None] - grid[:, None, :] * slack[:, :, None]
        return _pools(self._ranks, self._totals, least, offset)

    @cached_property
    def _capacity(self) -> Floats:
        limits = [table.limits.live_capacity_bytes for table in self._tables]
        return np.asarray(np.array(limits)[self._ranks.devices])

    @cached_property
    def _host_capacity(self) -> Floats:
        limits = [table.limits.host_capacity_bytes for table in self._tables]
        return np.asarray(np.array(limits)[self._ranks.devices])

    @cached_property
    def _own_bytes(self) -> Floats:
        """Return bytes of a rank whatever it holds: exchanged, and its least transient.

        A rank holds a block, so that its transient is at least the least of any block, and at least
        the least of a layer that is pinned to it.
        """
        ranks, rows = self._ranks, np.arange(len(self._ranks.first))
        free = [layer.transient for layer in self._layers[: len(self._totals)]]
        least = np.min(free, axis=0)
        for group, layer in zip((ranks.first, ranks.last), self._layers[-2:], strict=True):
            own = np.maximum(least[rows, group], layer.transient[rows, group])
            least[rows, group] = own
        each = np.array([table.fixed.boundary_bytes.min(axis=1) for table in self._tables])
        held = ranks.meets * ranks.in_flight * each[ranks.devices, ranks.table_rows[:, None]]
        return np.asarray(least + held)


@dataclass(frozen=True, kw_only=True)
class _Layer:
    """One kind of layer on every group: [rows, groups, choices]; `refused` is [rows, choices]."""

    costs: Sequence[LayerCosts]
    ranks: Ranks
    refused: Booleans

    def omega(self) -> Floats:
        """Return repeats x pace + end."""
        pace = self._on_groups([cost.micro_batch_seconds.total() for cost in self.costs])
        end = self._on_groups([cost.step_end_seconds.total() for cost in self.costs])
        omega: Floats = self.ranks.repeats[:, None, None] * pace + end
        return omega

    def fill(self) -> Floats:
        """Return seconds of fill and drain."""
        each = np.stack([_fill(cost, self.ranks) for cost in self.costs])
        rows = np.arange(each.shape[1])[:, None]
        fill: Floats = each[self.ranks.devices, rows]
        return fill

    @cached_property
    def memory(self) -> Floats:
        """Return device bytes with the activations in flight."""
        static = self._on_groups([cost.bytes.static() for cost in self.costs])
        kept = self._on_groups([cost.bytes.activations for cost in self.costs])
        return np.asarray(static + self.ranks.in_flight[:, :, None] * kept)

    @cached_property
    def host(self) -> Floats:
        """Return host bytes with the activations in flight."""
        static = self._on_groups([cost.bytes.host for cost in self.costs])
        kept = self._on_groups([cost.bytes.host_activations for cost in self.costs])
        return np.asarray(static + self.ranks.in_flight[:, :, None] * kept)

    @cached_property
    def transient(self) -> Floats:
        """Return the least transient of any choice, [rows, groups]."""
        each = np.stack([cost.bytes.transient.min(axis=1) for cost in self.costs])
        return np.asarray(each[self.ranks.devices, self.ranks.table_rows[:, None]])

    def _on_groups(self, values: Sequence[Floats]) -> Floats:
        groups: Floats = np.stack(values)[self.ranks.devices, self.ranks.table_rows[:, None]]
        return groups


def _totals(tables: Sequence[CostTable]) -> Integers:
    """Return the blocks of each kind in the chain, [kinds]."""
    totals = np.zeros(len(tables[0].blocks), dtype=np.int64)
    for kind, count in tables[0].chain:
        totals[kind] += count
    return totals


def _all_layers(tables: Sequence[CostTable], totals: Integers) -> list[list[LayerCosts]]:
    """Return each kind of block, the embedding and the head, on every kind of device."""
    free = [[table.blocks[kind] for table in tables] for kind in range(len(totals))]
    return [*free, [table.embedding for table in tables], [table.head for table in tables]]


def _pools(ranks: Ranks, totals: Integers, least: Sequence[Floats], own: Floats) -> Pools:
    """Return pools of layers at their least prices [rows, groups, grid]; the last two are pinned.

    `own` [rows, groups, grid] is what ranks cost by themselves.
    """
    offset = np.broadcast_to(own, least[0].shape).copy()
    rows = np.arange(len(offset))
    for group, price in zip((ranks.first, ranks.last), least[-2:], strict=True):
        offset[rows, group] += price[rows, group]
    return Pools(
        prices=np.stack(least[:-2]),
        offset=offset,
        counts=totals,
        size=ranks.size,
        least=ranks.least_blocks,
    )


def _least_priced(cost: Floats, memory: Floats, grid: Floats, refused: Booleans) -> Floats:
    """Return the least cost + lambda x memory of a layer's choices, [rows, groups, grid].

    `cost` and `memory` are [rows, groups, choices], `grid` [rows, grid].
    """
    allowed = np.where(refused, np.inf, 0.0)[:, None, :]
    cost = cost + allowed if refused.any() else cost
    columns = [(cost + grid[:, i, None, None] * memory).min(axis=2) for i in range(grid.shape[1])]
    return np.stack(columns, axis=2)


def _price_scale(costs: Sequence[Floats], layers: Sequence[_Layer], totals: Integers) -> Floats:
    """Return the blocks' cost range over their memory range, [rows]: a price of memory."""
    cost, memory = (
        sum(count * np.ptp(v, axis=(1, 2)) for count, v in zip(totals, values, strict=True))
        for values in (costs, [layer.memory for layer in layers[: len(totals)]])
    )
    scale: Floats = np.divide(cost, memory, out=np.zeros_like(cost), where=memory > 0.0)
    return scale


def _least_by_device(
    costs: Sequence[LayerCosts], ranks: Ranks, of: Callable[[LayerCosts, Ranks], Floats]
) -> Floats:
    """Return the least of a layer's choices on every group, [rows, groups, 1]."""
    each = np.stack([of(cost, ranks).min(axis=1) for cost in costs], axis=1)
    least: Floats = np.take_along_axis(each, ranks.devices, axis=1)[:, :, None]
    return least


def _plain_omega(costs: LayerCosts, ranks: Ranks) -> Floats:
    """Return repeats x pace + end with the first half's pace and the second's end."""
    pace = costs.micro_batch_seconds.total()[ranks.table_rows]
    end = costs.step_end_seconds.total()[ranks.table_rows]
    half = pace.shape[1] // 2
    omega: Floats = ranks.repeats[:, None] * pace[:, :half] + end[:, half:]
    return omega


def _fill(costs: LayerCosts, ranks: Ranks) -> Floats:
    """Return seconds of fill and drain of every choice, [rows, choices]."""
    seconds = costs.micro_batch_seconds
    total = seconds.total()[ranks.table_rows]
    forward = total * seconds.forward_share[ranks.table_rows]
    weight = total * seconds.weight_gradient_share[ranks.table_rows]
    parts = (forward, total - forward - weight, weight)
    fill = np.zeros_like(total)
    for form in range(ranks.forms.shape[1]):
        weighted = sum(ranks.forms[:, form, i, None] * part for i, part in enumerate(parts))
        fill = np.maximum(fill, weighted)
    return fill


def _least_boundary(tables: Sequence[CostTable], ranks: Ranks) -> Floats:
    """Return seconds of the cheapest boundary anywhere, [rows]."""
    each = [table.fixed.boundary_seconds.min(axis=(1, 2)) for table in tables]
    least: Floats = np.min(each, axis=0)[ranks.table_rows]
    return least


def _step_end(tables: Sequence[CostTable], ranks: Ranks) -> Floats:
    """Return what a rank of each group pays once a step, [rows, groups]."""
    end = np.array([table.fixed.step_end_seconds for table in tables])
    own: Floats = end[ranks.devices, ranks.table_rows[:, None]]
    return own
