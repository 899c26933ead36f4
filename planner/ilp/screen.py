"""Screen: bounds B1 to B5 of `planner.ilp.bounds` for thousands of configurations at once.

Ranks of a configuration are taken in a few groups (`planner.ilp.grouping`), each with the least of
its members, so that all configurations have arrays of one shape: [groups, rows]. Every number is a
lower bound as a group's is one of each of its ranks. Levels and sums are those of
`planner.ilp.pools`, and below a limit, where ranks are in the order of the chain, those of
`planner.ilp.ordering`.
"""

from __future__ import annotations

from collections.abc import Callable, Iterator, Sequence
from dataclasses import dataclass, field, replace

import numpy as np

from planner.cost.configuration import Booleans, Floats, Integers
from planner.ilp.columns import (
    Column,
    Joined,
    Options,
    PlainLayer,
    layer_fill,
    layer_omega,
    on_groups,
    price_scale,
    unbeaten,
)
from planner.ilp.grouping import Ranks, of_rows, picked
from planner.ilp.holding import Holding
from planner.ilp.ordering import Ordered
from planner.ilp.pools import Pools
from planner.ilp.rooms import Rooms
from planner.ilp.sheet import HeldSheet, Spent, SpentSheet

_MULTIPLIERS = np.array([0.0, *(2.0**e for e in range(-6, 6))])
_FIRST_MULTIPLIERS = _MULTIPLIERS[[0, 4, 7, 10]]  # most rows are far beyond their limits
_FILL_MULTIPLIERS = _MULTIPLIERS[::2]  # fills are a small part of most steps
_ROUNDS = 3

SecondsOf = Callable[[Integers], tuple[Sequence[SpentSheet], Integers]]
"""Says how long things take in some rows: sheets of each kind of device, and the rows' in these."""


def quick_bounds(
    sheets: Sequence[SpentSheet], ranks: Ranks, *, stage_count: int
) -> tuple[Floats, Floats]:
    """Return B1, B2 and B4 without memory, of rho T + U and of the fill, each [rows].

    The sheets' choices are `stage_count` ZeRO stages with the least paces, and then as many with
    the least ends, once for each way to keep the optimiser, which no pace depends on.
    """
    totals = sheets[0].block_counts()
    layers = [
        [PlainLayer.of(costs, stage_count) for costs in each]
        for each in zip(*(sheet.layers for sheet in sheets), strict=True)
    ]
    both = [on_groups([plain.omega(ranks) for plain in each], ranks)[None] for each in layers]
    fill = [on_groups([plain.fill(ranks) for plain in each], ranks)[None] for each in layers]
    exchange = ranks.meets * _least_boundary(sheets, ranks)
    own = ranks.repeats * ranks.pace_share * exchange + _step_end(sheets, ranks)
    level = Pools.of_ranks(ranks, totals, both, own[None]).least_level()
    return level, Pools.of_ranks(
        ranks, totals, fill, (ranks.fill_share * exchange)[None]
    ).least_sum()


def memory_bounds(
    held: Sequence[HeldSheet],
    ranks: Ranks,
    *,
    seconds_of: SecondsOf,
    fills: Floats,
    limits: Floats,
    refused: Booleans,
) -> Floats:
    """Return the same with memory priced, inf where the leanest choices do not fit, [rows].

    The rows of `ranks` are places in the sheets of `held`. What takes how long is asked of
    `seconds_of` for those alone that fit. `fills` [rows] are bounds of the fill that are known.
    `limits` [rows] are the steps that plans must be below to matter: a bound above it says that
    there is none below it, and is cut to it unless it holds of all plans. `refused` [choices, rows]
    are choices of blocks that a configuration cannot have; rows with the same are taken together.
    """
    bounds = np.full(len(limits), np.inf)
    found = []
    for own in _alike(refused):
        whole = Holding.of(held, of_rows(ranks, own), refused[:, own[:1]])
        rows, room = _fitting(whole)
        if len(rows):
            found.append((own[rows], whole.of_rows(rows), room))
    if not found:
        return bounds
    seconds, places = seconds_of(np.concatenate([rows for rows, _, _ in found]))
    for rows, fitting, room in found:
        own, places = places[: len(rows)], places[len(rows) :]
        chains = _Chains(held=fitting, seconds=seconds, ranks=picked(ranks, rows, own))
        bounds[rows] = _bounds_within(chains, room, fills=fills[rows], limits=limits[rows])
    return bounds


def _alike(refused: Booleans) -> Iterator[Integers]:
    """Yield the rows that refuse the same choices."""
    left = np.arange(refused.shape[1])
    while len(left):
        same = (refused[:, left] == refused[:, left[:1]]).all(axis=0)
        yield left[same]
        left = left[~same]


def _bounds_within(chains: _Chains, room: Floats, *, fills: Floats, limits: Floats) -> Floats:
    """Return bounds of rows that may fit, whose ranks hold `room` [groups, rows] at most."""
    bounds: Floats = chains.both(multipliers=_FIRST_MULTIPLIERS).least_level() + fills
    rows = np.flatnonzero(bounds < limits)
    if len(rows):
        room, chains = room[:, rows], chains.of_rows(rows)
        both = chains.ordered(chains.both())
        level = both.pools.least_level()
        rooms = Rooms(blocks=room)
        found, rooms = _closer(both, chains.fill(), level, rooms, limits=limits[rows])
        bounds[rows] = np.maximum(found, level + fills[rows])
        _share_transients(bounds, chains, rooms, rows=rows, limits=limits)
    return bounds


def _share_transients(
    bounds: Floats, chains: _Chains, rooms: Rooms, *, rows: Integers, limits: Floats
) -> None:
    """Raise the bounds of `rows` that are below their limits, now that `rooms` are known there."""
    left = np.flatnonzero((bounds[rows] < limits[rows]) & np.isfinite(limits[rows]))
    if not len(left):
        return
    own, rooms, rows = chains.of_rows(left), rooms.of_rows(left), rows[left]
    both, fill = own.ordered(own.both(rooms.blocks)), own.fill(rooms.blocks)
    level = both.pools.least_level()
    found, rooms = _closer(both, fill, level, rooms, limits=limits[rows])
    bounds[rows] = np.maximum(bounds[rows], np.minimum(found, limits[rows]))
    left = np.flatnonzero(bounds[rows] < limits[rows])
    if len(left):
        own, rooms, rows = own.of_rows(left), rooms.of_rows(left), rows[left]
        share = both.pools.of_rows(left).weights(rooms.blocks)
        found = own.whole(rooms.blocks, share).least_sum(rooms)
        bounds[rows] = np.maximum(bounds[rows], np.minimum(found, limits[rows]))


def _fitting(held: Holding) -> tuple[Integers, Floats]:
    """Return rows in which the leanest choices may fit, and what ranks may hold, [groups, rows].

    Device memory alone refuses most of the others; then host memory has a price.
    """
    rows, room = _with_room(held, held.fit_on_devices())
    if not len(rows):
        return rows, room
    own, less = _with_room(left := held.of_rows(rows), left.fit())
    return rows[own], np.minimum(room[:, own], less)


def _with_room(held: Holding, fit: Pools) -> tuple[Integers, Floats]:
    """Return the rows of pools of bytes that may fit, and what ranks hold at most there."""
    room = fit.rooms(np.zeros(len(fit.least)))
    rows = np.flatnonzero(fit.has_room(room) & (fit.least_level() <= held.tolerance()))
    return rows, room[:, rows]


def _closer(
    both: Ordered, fill: Pools, level: Floats, room: Rooms, *, limits: Floats
) -> tuple[Floats, Rooms]:
    """Return bounds of the step with the fill's memory priced, closer below the limits, [rows].

    What is left for omega beside the fill gives ranks less room, and less room a larger fill. What
    ranks hold at most in plans below the limits comes with them. `level` [rows] is one that is
    known to be reached; the order of the ranks may raise it.
    """
    filling = fill.least_sum(room)
    level = both.raised(level, limits - filling)
    bounds, rooms = filling + level, room
    for _ in range(_ROUNDS):
        below = np.isfinite(limits) & (bounds < limits)
        if not below.any():
            break
        rooms = room.within(both.rooms(np.where(below, limits - filling, np.inf)))
        is_left = both.has_room(rooms)
        rooms = rooms.or_blocks(room, is_left)
        filling = np.where(below, np.maximum(filling, fill.least_sum(rooms)), filling)
        closer = np.where(is_left, np.minimum(filling + level, limits), limits)
        bounds = np.where(below, np.maximum(bounds, closer), bounds)
    return bounds, rooms


@dataclass(frozen=True, slots=True, kw_only=True)
class _Chains:
    """The chains of rows with a price on memory, in pools: omega and fills.

    The rows of `ranks` are places in the sheets of `seconds`.
    """

    held: Holding
    seconds: Sequence[SpentSheet]
    ranks: Ranks
    kept: dict[tuple[str, int, bool], Integers] = field(default_factory=dict)

    def of_rows(self, rows: Integers) -> _Chains:
        """Return the chains of some of the rows, with the choices that matter in all of them."""
        own = of_rows(self.ranks, rows)
        return replace(self, held=self.held.of_rows(rows), ranks=own)

    def both(self, rooms: Floats | None = None, *, multipliers: Floats = _MULTIPLIERS) -> Pools:
        """Return omega with memory priced; where ranks hold `rooms` at most, transients as well."""
        own = self.ranks.repeats * self.ranks.pace_share * self._exchange()
        own = own + _step_end(self.seconds, self.ranks)
        costs = [layer_omega(layer, self.ranks) for layer in self._layers()]
        return self._priced("omega", costs, own, multipliers=multipliers, rooms=rooms)

    def fill(self, rooms: Floats | None = None) -> Pools:
        """Return fills with memory priced; where ranks hold `rooms` at most, transients as well."""
        own = self.ranks.fill_share * self._exchange()
        costs = [layer_fill(layer, self.ranks) for layer in self._layers()]
        return self._priced("fill", costs, own, multipliers=_FILL_MULTIPLIERS, rooms=rooms)

    def ordered(self, pools: Pools) -> Ordered:
        """Return pools with what is known of the order in which ranks hold the chain."""
        return Ordered(pools=pools, runs=self.seconds[0].chain, order=self.ranks.order)

    def whole(self, rooms: Floats, share: Floats) -> Pools:
        """Return fills with a share of omega, [groups, rows], where ranks hold `rooms` at most."""
        exchange = self._exchange()
        end = _step_end(self.seconds, self.ranks)
        both = self.ranks.repeats * self.ranks.pace_share * exchange + end
        costs = [
            Joined(
                fill=layer_fill(layer, self.ranks),
                omega=layer_omega(layer, self.ranks),
                share=share,
            )
            for layer in self._layers()
        ]
        own = self.ranks.fill_share * exchange + share * both
        return self._priced("whole", costs, own, multipliers=_MULTIPLIERS, rooms=rooms)

    def _layers(self) -> list[tuple[Spent, ...]]:
        """Return every layer on each kind of device."""
        return list(zip(*(sheet.layers for sheet in self.seconds), strict=True))

    def _priced(
        self,
        name: str,
        costs: Sequence[Column],
        own: Floats,
        *,
        multipliers: Floats,
        rooms: Floats | None,
    ) -> Pools:
        totals = self.seconds[0].block_counts()
        options = [
            self._options((name, place, rooms is None), cost, self._memory(place, rooms))
            for place, cost in enumerate(costs)
        ]
        grid = multipliers[:, None] * price_scale(options[: len(totals)], totals)
        least = [each.least(grid) for each in options]
        return Pools.of_ranks(self.ranks, totals, least, own - grid[:, None] * self.held.slack())

    def _options(self, key: tuple[str, int, bool], cost: Column, memory: Column) -> Options:
        """Return the choices of a layer that matter: those that did in the first rows asked for."""
        refused = self.held.layers[key[1]].refused
        if key not in self.kept:
            self.kept[key] = unbeaten(cost, memory, refused)
        return Options.of(cost, memory, refused, kept=self.kept[key])

    def _memory(self, place: int, rooms: Floats | None) -> Column:
        """Return a layer's bytes, with a share of its transient if it is a block."""
        layer, is_block = self.held.layers[place], place < len(self.seconds[0].block_counts())
        if rooms is None or not is_block:
            return layer.memory()
        return layer.shared(self.held.transient, rooms)

    def _exchange(self) -> Floats:
        return np.asarray(self.ranks.meets * _least_boundary(self.seconds, self.ranks))


def _least_boundary(sheets: Sequence[SpentSheet], ranks: Ranks) -> Floats:
    """Return seconds of the cheapest boundary anywhere, [rows]."""
    each = [sheet.fixed.boundary_seconds.min(axis=(1, 2)) for sheet in sheets]
    least: Floats = np.min(each, axis=0)[ranks.table_rows]
    return least


def _step_end(sheets: Sequence[SpentSheet], ranks: Ranks) -> Floats:
    """Return what a rank of each group pays once a step, [groups, rows]."""
    end = np.array([sheet.fixed.step_end_seconds for sheet in sheets])
    own: Floats = end[ranks.devices, ranks.table_rows]
    return own
