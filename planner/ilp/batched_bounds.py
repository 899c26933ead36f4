"""Batched bounds: lower bounds of thousands of configurations at once.

They are bounds B1 to B5 and B7 of `planner.ilp.lagrangian_bound`. Ranks of a configuration are
taken in a few groups (`planner.ilp.batched_chains`), each with the least of its members, so that
all configurations have arrays of one shape: [groups, rows]. Every number is a lower bound as a
group's is one of each of its ranks. Memory is priced at every second of MEMORY_PRICES where a
closer bound follows or hardly pays.
"""

from __future__ import annotations

from collections.abc import Callable, Sequence
from dataclasses import dataclass, replace

import numpy as np

from planner.cost.configuration import Floats, Integers
from planner.ilp.batched_chains import (
    Column,
    Layer,
    Options,
    Plain,
    Pools,
    Ranks,
    layer_fill,
    layer_omega,
    least_fill,
    least_repeated_pace,
    of_rows,
    on_groups,
    picked,
    price_scale,
)
from planner.ilp.cost_arrays import HeldSheet, Spent, SpentSheet
from planner.ilp.settings import MEMORY_PRICES, ROUNDING, TINY


@dataclass(frozen=True, slots=True, kw_only=True)
class RankBytes:
    """What rows hold: the layers by kind, and what is on a rank in any case."""

    sheets: Sequence[HeldSheet]
    ranks: Ranks
    layers: Sequence[Layer]
    own_bytes: Floats  # [groups, rows]

    @staticmethod
    def of(sheets: Sequence[HeldSheet], ranks: Ranks) -> RankBytes:
        """Return what rows hold, whose places in the sheets are those of `ranks`."""
        layers = _layers(sheets, ranks)
        own = _least_transient(ranks, layers) + _exchanged_bytes(sheets, ranks)
        return RankBytes(sheets=sheets, ranks=ranks, layers=layers, own_bytes=own)

    def of_rows(self, rows: Integers) -> RankBytes:
        """Return what some of the rows hold."""
        ranks = of_rows(self.ranks, rows)
        return RankBytes(
            sheets=self.sheets,
            ranks=ranks,
            layers=_layers(self.sheets, ranks),
            own_bytes=self.own_bytes.take(rows, axis=1),
        )

    def fit(self) -> Pools:
        """Return device bytes with a price on host bytes, less what the limits allow, in pools."""
        capacity = self._capacity()
        host = self._on_devices([sheet.limits.host_capacity_bytes for sheet in self.sheets])
        scale = capacity.max(axis=0) / np.maximum(host.max(axis=0), 1.0)
        grid = MEMORY_PRICES[::2, None] * scale
        least = [Options.of(each.memory(), each.host()).least(grid) for each in self.layers]
        limits = capacity + grid[:, None] * host
        return Pools.of_ranks(
            self.ranks, self.sheets[0].block_counts(), least, self.own_bytes - limits
        )

    def slack(self) -> Floats:
        """Return the bytes that are left for layers, [groups, rows]."""
        return self._capacity() - self.own_bytes

    def tolerance(self) -> Floats:
        """Return the bytes that are taken for rounding, [rows]."""
        return np.asarray(ROUNDING * self._capacity().max(axis=0))

    def _capacity(self) -> Floats:
        return self._on_devices([sheet.limits.live_capacity_bytes for sheet in self.sheets])

    def _on_devices(self, values: Sequence[float]) -> Floats:
        """Return a number of each kind of device on every group, [groups, rows]."""
        return np.asarray(np.array(values)[self.ranks.devices])


def _layers(sheets: Sequence[HeldSheet], ranks: Ranks) -> list[Layer]:
    """Return every layer on each kind of device."""
    each = zip(*(sheet.layers for sheet in sheets), strict=True)
    return [Layer(held=held, ranks=ranks) for held in each]


def _least_transient(ranks: Ranks, layers: Sequence[Layer]) -> Floats:
    """Return the least transient of a rank, [groups, rows].

    A rank holds a block, so that its transient is at least the least of any block, and at least
    the least of a layer that is pinned to it.
    """
    rows = np.arange(len(ranks.first))
    least: Floats = np.min([layer.transient() for layer in layers[:-2]], axis=0)
    for group, layer in zip((ranks.first, ranks.last), layers[-2:], strict=True):
        own = np.maximum(least[group, rows], layer.transient()[group, rows])
        least[group, rows] = own
    return least


def _exchanged_bytes(sheets: Sequence[HeldSheet], ranks: Ranks) -> Floats:
    """Return bytes that a rank holds for its neighbours whatever it holds, [groups, rows]."""
    rows = np.arange(len(ranks.first))
    sent = np.array([sheet.fixed.sent_bytes.min(axis=1) for sheet in sheets])
    buffers = np.array([sheet.fixed.buffer_bytes.min(axis=1) for sheet in sheets])
    places = (ranks.devices, ranks.table_rows)
    sends = ranks.meets // 2  # at the least: a rank in the middle receives as often as it sends
    once_more = np.where(ranks.first == ranks.last, 0.0, ranks.meets[ranks.first, rows] % 2)
    sends[ranks.first, rows] += once_more
    return np.asarray(sends * ranks.in_flight * sent[places] + ranks.meets * buffers[places])


SecondsOf = Callable[[Integers], tuple[Sequence[SpentSheet], Integers]]
"""Says how long things take in some rows: sheets of each kind of device, and the rows' in these."""


def quick_bounds(sheets: Sequence[SpentSheet], ranks: Ranks) -> tuple[Floats, Floats]:
    """Return B1, B2 and B4 without memory, of rho T and of the fill, each [rows].

    Layers may take longer than the sheets say, and the end of a step is left out.
    """
    totals = sheets[0].block_counts()
    layers = list(zip(*(sheet.layers for sheet in sheets), strict=True))
    paces, fills = (
        [on_groups([least(own, ranks) for own in each], ranks)[None] for each in layers]
        for least in (least_repeated_pace, least_fill)
    )
    exchange = ranks.meets * _least_boundary(sheets, ranks)
    paced = (ranks.repeats * ranks.pace_share * exchange)[None]
    filled = (ranks.fill_share * exchange)[None]
    level = Pools.of_ranks(ranks, totals, paces, paced).least_level()
    return level, Pools.of_ranks(ranks, totals, fills, filled).least_sum()


def memory_bounds(
    held: Sequence[HeldSheet],
    ranks: Ranks,
    *,
    seconds_of: SecondsOf,
    fills: Floats,
    limits: Floats,
) -> Floats:
    """Return the same with memory priced, inf where the leanest choices do not fit, [rows].

    The rows of `ranks` are places in the sheets of `held`. What takes how long is asked of
    `seconds_of` for those alone that fit. `fills` [rows] are bounds of the fill that are known.
    `limits` [rows] are the steps that plans must be below to matter: what is above is not bounded
    closer.
    """
    bounds = np.full(len(limits), np.inf)
    whole = RankBytes.of(held, ranks)
    rows = _fitting(whole)
    if len(rows):
        seconds, places = seconds_of(rows)
        chains = _Chains(
            held=whole.of_rows(rows), seconds=seconds, ranks=picked(ranks, rows, places)
        )
        bounds[rows] = _bounds_within(chains, fills=fills[rows], limits=limits[rows])
    return bounds


def _bounds_within(chains: _Chains, *, fills: Floats, limits: Floats) -> Floats:
    """Return bounds of rows that may fit: B4 at few prices; B4 and B5 at all; and B7 at few.

    Each is of the rows that the one before leaves below their limits.
    """
    bounds: Floats = chains.both(multipliers=MEMORY_PRICES[::2]).least_level() + fills
    rows = np.flatnonzero(bounds < limits)
    if len(rows):
        close = chains.of_rows(rows)
        filling = np.maximum(close.fill().least_sum(), fills[rows])
        bounds[rows] = close.both().least_level() + filling
    rows = np.flatnonzero(bounds < limits)
    if len(rows):
        shared = chains.of_rows(rows).shares().least_sum()
        bounds[rows] = np.maximum(bounds[rows], shared)
    return bounds


def _fitting(held: RankBytes) -> Integers:
    """Return rows in which the leanest choices may fit."""
    fit = held.fit()
    has_room = fit.has_room(fit.rooms(np.zeros(len(fit.least))))
    return np.flatnonzero(has_room & (fit.least_level() <= held.tolerance()))


@dataclass(frozen=True, slots=True, kw_only=True)
class _Chains:
    """The chains of rows with a price on memory, in pools: omega and fills.

    The rows of `ranks` are places in the sheets of `seconds`.
    """

    held: RankBytes
    seconds: Sequence[SpentSheet]
    ranks: Ranks

    def of_rows(self, rows: Integers) -> _Chains:
        """Return the chains of some of the rows."""
        own = of_rows(self.ranks, rows)
        return replace(self, held=self.held.of_rows(rows), ranks=own)

    def both(self, *, multipliers: Floats = MEMORY_PRICES) -> Pools:
        """Return omega with memory priced."""
        own = self._own_omega()
        costs = [layer_omega(layer, self.ranks) for layer in self._layers()]
        return self._priced(costs, own, multipliers=multipliers)

    def fill(self) -> Pools:
        """Return fills with memory priced."""
        own = self.ranks.fill_share * self._exchange()
        costs = [layer_fill(layer, self.ranks) for layer in self._layers()]
        return self._priced(costs, own, multipliers=MEMORY_PRICES[::2])

    def shares(self) -> Pools:
        """Return fills and omega by the weights of B7, with memory priced."""
        ranks, layers = self.ranks, self._layers()
        fills = [layer_fill(layer, ranks).values for layer in layers]
        omegas = [
            layer_omega(layer, ranks).of(np.arange(len(fill)))
            for layer, fill in zip(layers, fills, strict=True)
        ]
        totals = self.seconds[0].block_counts()
        every = sum(n * own.min(axis=0) for n, own in zip(totals, omegas, strict=False))
        weights = 1.0 / np.maximum(every, TINY)
        weights = weights / (ranks.size * weights).sum(axis=0)
        own = ranks.fill_share * self._exchange() + weights * self._own_omega()
        costs = [
            Plain(values=fill + weights * omega) for fill, omega in zip(fills, omegas, strict=True)
        ]
        return self._priced(costs, own, multipliers=MEMORY_PRICES[::2])

    def _own_omega(self) -> Floats:
        exchange = self.ranks.repeats * self.ranks.pace_share * self._exchange()
        return np.asarray(exchange + _step_end(self.seconds, self.ranks))

    def _layers(self) -> list[tuple[Spent, ...]]:
        """Return every layer on each kind of device."""
        return list(zip(*(sheet.layers for sheet in self.seconds), strict=True))

    def _priced(self, costs: Sequence[Column], own: Floats, *, multipliers: Floats) -> Pools:
        totals = self.seconds[0].block_counts()
        options = [
            Options.of(cost, layer.memory())
            for cost, layer in zip(costs, self.held.layers, strict=True)
        ]
        grid = multipliers[:, None] * price_scale(options[: len(totals)], totals)
        least = [each.least(grid) for each in options]
        return Pools.of_ranks(self.ranks, totals, least, own - grid[:, None] * self.held.slack())

    def _exchange(self) -> Floats:
        return np.asarray(self.ranks.meets * _least_boundary(self.seconds, self.ranks))


def _least_boundary(sheets: Sequence[SpentSheet], ranks: Ranks) -> Floats:
    """Return seconds of the cheapest boundary anywhere, [rows]."""
    each = [sheet.fixed.boundary_seconds.min(axis=(1, 2)) for sheet in sheets]
    return np.asarray(np.min(each, axis=0)[ranks.table_rows])


def _step_end(sheets: Sequence[SpentSheet], ranks: Ranks) -> Floats:
    """Return what a rank of each group pays once a step, [groups, rows]."""
    end = np.array([sheet.fixed.step_end_seconds for sheet in sheets])
    return np.asarray(end[ranks.devices, ranks.table_rows])
