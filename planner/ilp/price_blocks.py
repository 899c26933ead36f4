"""Price blocks: sheets of prices that were asked for together, as many as memory is given to.

What was used longest ago is let go of, and priced again when it is asked for.
"""

from __future__ import annotations

from collections import OrderedDict
from collections.abc import Callable
from dataclasses import dataclass

import numpy as np

from planner.cost.configuration import Integers
from planner.ilp.sheet import HeldSheet, Sheet, SpentSheet

_PRICES_KEPT = 1536  # 18 kB each for two kinds of blocks
_GATHERED_MOST = 512

Sheets = tuple[Sheet, ...]
"""Sheets of the same prices, one of each kind of device."""


@dataclass(frozen=True, slots=True, kw_only=True)
class ScreenedPrices:
    """What a screen has priced: some seconds, and the bytes, in whose `rows` theirs are."""

    spent: tuple[SpentSheet, ...]
    held: tuple[HeldSheet, ...]
    rows: Integers

    def sheets(self) -> Sheets:
        """Return the sheets of the rows."""
        return tuple(
            Sheet(spent=spent, held=held.of_rows(self.rows))
            for spent, held in zip(self.spent, self.held, strict=True)
        )


class PriceBlocks:
    """Blocks of prices; `price` prices some of them on every kind of device."""

    def __init__(self, price: Callable[[Integers], Sheets], *, device_kind_count: int) -> None:
        self._price = price
        self._device_kind_count = device_kind_count
        self._kept: OrderedDict[int, Sheets | ScreenedPrices] = OrderedDict()
        self._members: list[Integers] = []
        self._place: dict[int, tuple[int, int]] = {}

    def is_at_hand(self, price: int) -> bool:
        """Return whether a price is still in memory."""
        return price in self._place and self._place[price][0] in self._kept

    def add(self, prices: Integers) -> int:
        """Return a new block of prices, which are not priced yet."""
        block = len(self._members)
        self._members.append(prices)
        self._place.update({int(price): (block, row) for row, price in enumerate(prices)})
        return block

    def keep(self, block: int, sheets: Sheets | ScreenedPrices) -> None:
        """Keep a block's sheets, and let go of those that were used longest ago."""
        self._kept[block] = sheets
        while self._count() > _PRICES_KEPT and len(self._kept) > 1:
            self._kept.popitem(last=False)

    def sheets(self, block: int) -> Sheets:
        """Return a block's sheets, priced again if they were let go of."""
        if block not in self._kept:
            self.keep(block, self._price(self._members[block]))
        self._kept.move_to_end(block)
        kept = self._kept[block]
        if isinstance(kept, ScreenedPrices):
            kept = self._kept[block] = kept.sheets()
        return kept

    def row(self, price: int) -> tuple[Sheets, int]:
        """Return the sheets of a block with a price, and its place in these."""
        if not self.is_at_hand(price):
            self.add(np.array([price]))
        block, row = self._place[price]
        return self.sheets(block), row

    def gathered(self, prices: Integers) -> tuple[Sheets, Integers] | None:
        """Return sheets of prices with the row of each, None unless all are in memory and few."""
        if len(prices) > _GATHERED_MOST or not all(map(self.is_at_hand, prices.tolist())):
            return None
        places = np.array([self._place[price] for price in prices.tolist()])
        order = np.lexsort((places[:, 1], places[:, 0]))
        blocks, starts = np.unique(places[order, 0], return_index=True)
        rows = np.split(places[order, 1], starts[1:])
        kept = [self.sheets(block) for block in blocks.tolist()]
        sheets = tuple(
            Sheet.together(list(zip(each, rows, strict=True))) for each in zip(*kept, strict=True)
        )
        return sheets, np.argsort(order)

    def _count(self) -> int:
        return sum(len(self._members[block]) for block in self._kept) * self._device_kind_count
