"""Holding: what thousands of configurations hold at the least, and whether that may fit.

Arrays are [groups, rows], as in `planner.ilp.screen`.
"""

from __future__ import annotations

from collections.abc import Sequence
from dataclasses import dataclass

import numpy as np

from planner.cost.configuration import Booleans, Floats, Integers
from planner.ilp.columns import Layer, Options
from planner.ilp.grouping import Ranks, of_rows
from planner.ilp.pools import Pools
from planner.ilp.sheet import HeldSheet

_HOST_RATIOS = np.array([4.0**e for e in range(-1, 3)])


@dataclass(frozen=True, slots=True, kw_only=True)
class Holding:
    """What rows hold: the layers by kind, and what is on a rank in any case."""

    sheets: Sequence[HeldSheet]
    ranks: Ranks
    layers: Sequence[Layer]
    own_bytes: Floats  # [groups, rows]
    transient: Floats  # the part of it that is one, [groups, rows]

    @staticmethod
    def of(sheets: Sequence[HeldSheet], ranks: Ranks, refused: Booleans) -> Holding:
        """Return what all rows hold, which refuse the same choices of blocks, [choices, 1]."""
        none = np.zeros((1, 1), dtype=bool)
        free = len(sheets[0].block_counts())
        layers = [
            Layer(held=held, ranks=ranks, refused=refused if place < free else none)
            for place, held in enumerate(zip(*(t.layers for t in sheets), strict=True))
        ]
        transient = _least_transient(ranks, layers)
        own = transient + _exchanged_bytes(sheets, ranks)
        return Holding(
            sheets=sheets, ranks=ranks, layers=layers, own_bytes=own, transient=transient
        )

    def of_rows(self, rows: Integers) -> Holding:
        """Return what some of the rows hold."""
        return Holding(
            sheets=self.sheets,
            ranks=of_rows(self.ranks, rows),
            layers=[layer.of_rows(rows) for layer in self.layers],
            own_bytes=self.own_bytes.take(rows, axis=1),
            transient=self.transient.take(rows, axis=1),
        )

    def fit_on_devices(self) -> Pools:
        """Return device bytes less what the limits allow, in pools."""
        options = [Options.lone(each.memory(), each.refused) for each in self.layers]
        free = np.zeros((1, len(self.ranks.least_blocks)))
        least = [each.least(free) for each in options]
        return Pools.of_ranks(self.ranks, self.sheets[0].block_counts(), least, -self.slack()[None])

    def fit(self) -> Pools:
        """Return device bytes with a price on host bytes, less what the limits allow, in pools."""
        capacity = self._capacity()
        host = self._on_devices([sheet.limits.host_capacity_bytes for sheet in self.sheets])
        scale = capacity.max(axis=0) / np.maximum(host.max(axis=0), 1.0)
        grid = _HOST_RATIOS[:, None] * scale
        options = [Options.of(each.memory(), each.host(), each.refused) for each in self.layers]
        least = [each.least(grid) for each in options]
        limits = capacity + grid[:, None] * host
        return Pools.of_ranks(
            self.ranks, self.sheets[0].block_counts(), least, self.own_bytes - limits
        )

    def slack(self) -> Floats:
        """Return the bytes that are left for layers, [groups, rows]."""
        return self._capacity() - self.own_bytes

    def tolerance(self) -> Floats:
        """Return the bytes that are taken for rounding, [rows]."""
        return np.asarray(1e-9 * self._capacity().max(axis=0))

    def _capacity(self) -> Floats:
        return self._on_devices([sheet.limits.live_capacity_bytes for sheet in self.sheets])

    def _on_devices(self, values: Sequence[float]) -> Floats:
        """Return a number of each kind of device on every group, [groups, rows]."""
        return np.asarray(np.array(values)[self.ranks.devices])


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
