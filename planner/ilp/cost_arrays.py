"""Cost arrays: cost tables of many configurations, as the search needs them.

A sheet has of a cost table what the search needs, layers by what they cost and not by cause. Arrays
are [choices, prices], so that what is asked of a choice lies next to one another. `PriceBlocks`
keeps sheets of prices that were asked for together, as many as memory is given to.
"""

from __future__ import annotations

from collections import OrderedDict
from collections.abc import Callable
from dataclasses import dataclass
from typing import NamedTuple

import numpy as np

from planner.cost.configuration import Floats, Integers
from planner.cost.layer_costs import (
    BytesTable,
    CostTable,
    LayerBytes,
    LayerSeconds,
    MemoryLimits,
    SecondsTable,
    StageFixed,
)
from planner.ilp.settings import PRICES_KEPT

Runs = tuple[tuple[int, int], ...]
"""The chain as (kind, blocks) of its parts of one kind."""


class Spent(NamedTuple):
    """Seconds of a layer, each [choices, prices]: of a micro-batch, and once a step.

    Those forward and those of the weights' gradients are parts of the pace.
    """

    pace: Floats
    forward: Floats
    weight_gradient: Floats
    end: Floats

    @staticmethod
    def of(costs: LayerSeconds) -> Spent:
        """Return the sums over all causes."""
        seconds = costs.micro_batch_seconds
        pace = np.ascontiguousarray(seconds.total().T)
        return Spent(
            pace=pace,
            forward=pace * seconds.forward_share.T,
            weight_gradient=pace * seconds.weight_gradient_share.T,
            end=np.ascontiguousarray(costs.step_end_seconds.total().T),
        )


class Held(NamedTuple):
    """Bytes of a layer, each [choices, prices], on the device and on the host.

    They are held whatever is in flight, for each micro-batch that is, or while the layer runs.
    """

    static: Floats
    activations: Floats
    transient: Floats
    host: Floats
    host_activations: Floats

    @staticmethod
    def of(held: LayerBytes) -> Held:
        """Return the sums over all causes."""
        columns = (held.static(), held.activations, held.transient, held.host)
        values = np.empty((5, *held.activations.T.shape))
        for row, column in zip(values, (*columns, held.host_activations), strict=True):
            row[:] = column.T
        return Held(*values)


@dataclass(frozen=True, slots=True, kw_only=True)
class _Chain:
    """The chain of a sheet's kinds of blocks, behind which are the embedding and the head."""

    chain: Runs
    fixed: StageFixed

    def block_counts(self) -> Integers:
        """Return the blocks of each kind, [kinds]."""
        kinds, counts = np.array(self.chain).T
        return np.bincount(kinds, counts).astype(np.int64)


@dataclass(frozen=True, slots=True, kw_only=True)
class SpentSheet(_Chain):
    """How long things take: every kind of block, the embedding and the head, and boundaries."""

    layers: tuple[Spent, ...]

    @staticmethod
    def of(table: SecondsTable) -> SpentSheet:
        """Return the seconds of a table."""
        layers = tuple(Spent.of(layer) for layer in table.layers())
        return SpentSheet(layers=layers, chain=table.chain, fixed=table.fixed)


@dataclass(frozen=True, slots=True, kw_only=True)
class HeldSheet(_Chain):
    """What is held by the same, and where it has to fit."""

    layers: tuple[Held, ...]
    limits: MemoryLimits

    @staticmethod
    def of(table: BytesTable) -> HeldSheet:
        """Return the bytes of a table."""
        layers = tuple(Held.of(layer) for layer in table.layers())
        return HeldSheet(layers=layers, chain=table.chain, fixed=table.fixed, limits=table.limits)


@dataclass(frozen=True, slots=True, kw_only=True)
class Sheet:
    """Both, of the same choices and prices."""

    spent: SpentSheet
    held: HeldSheet

    @staticmethod
    def of(table: CostTable) -> Sheet:
        """Return the sheet of a table."""
        return Sheet(spent=SpentSheet.of(table), held=HeldSheet.of(table.held()))


Sheets = tuple[Sheet, ...]
"""Sheets of the same prices, one of each kind of device."""


class PriceBlocks:
    """Blocks of prices; `price` prices some of them on every kind of device."""

    def __init__(self, price: Callable[[Integers], Sheets], *, device_kind_count: int) -> None:
        self._price = price
        self._device_kind_count = device_kind_count
        self._kept: OrderedDict[int, tuple[int, Sheets]] = OrderedDict()
        self._place: dict[int, tuple[int, int]] = {}
        self._added = 0

    def is_at_hand(self, price: int) -> bool:
        """Return whether a price is still in memory."""
        return price in self._place and self._place[price][0] in self._kept

    def add(self, prices: Integers) -> None:
        """Price a block, and let go of those used longest ago where they are too many."""
        self._added += 1
        self._kept[self._added] = len(prices), self._price(prices)
        self._place |= {int(price): (self._added, row) for row, price in enumerate(prices)}
        while self._count() > PRICES_KEPT and len(self._kept) > 1:
            self._kept.popitem(last=False)

    def row(self, price: int) -> tuple[Sheets, int]:
        """Return the sheets of a block with a price, and its place in these."""
        if not self.is_at_hand(price):
            self.add(np.array([price]))
        block, row = self._place[price]
        self._kept.move_to_end(block)
        return self._kept[block][1], row

    def _count(self) -> int:
        return sum(count for count, _ in self._kept.values()) * self._device_kind_count
