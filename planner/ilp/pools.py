"""Pools: how low the largest rank of many chains can be, and the sum of their ranks, at once.

The same as `planner.ilp.levels.PoolLevels`, for rows of configurations whose ranks are in groups.
A layer of kind k costs price[k, row, g, i] on a rank of group g at grid point i. A rank costs its
offset and the sum of its layers at the dearest grid point: phi_g. Every rank holds `least` blocks
or more.

P1. Alone: each rank's phi with its least blocks at the cheapest kind's price.
P2. Counted: at level W a rank holds n_g(W) blocks at most, if all were of the cheapest kind; the
    least W at which that is room for all blocks, a whole number on each rank.
P3. Pooled: a mean with weights y_g that make a layer cost the same on any rank,
    W >= sum_g y_g offset_g + sum_k L_k min_g (y_g price[k, g]) at any one grid point of each group.
P4. Sum: by duality, for any alpha, beta >= 0 and rent >= 0 with
    alpha_k + beta_g <= price[k, g] + rent_g, the sum of phi is at least
    sum_g offset_g + sum_k L_k alpha_k + sum_g (least beta_g - most_g rent_g).
"""

from __future__ import annotations

from dataclasses import dataclass
from functools import cached_property

import numpy as np

from planner.cost.configuration import Booleans, Floats, Integers

_HALVINGS = 14
_ROUNDING = 1e-9
_TINY = 1e-300


@dataclass(frozen=True, kw_only=True)
class Pools:
    """Prices [kinds, rows, groups, grid] and offsets [rows, groups, grid] of many chains.

    `counts` [kinds] are the layers of each kind, `size` [rows, groups] the ranks of each group and
    `least` [rows] the blocks that each rank holds in any case.
    """

    prices: Floats
    offset: Floats
    counts: Integers
    size: Floats
    least: Floats

    def least_level(self) -> Floats:
        """Return a level that the largest phi of any plan reaches (P1 to P3), [rows]."""
        counted = self._counted_level()
        shares = [np.zeros_like(self.size), self._even(), self._within(self.rooms(counted))]
        level: Floats = np.max([counted, *(self._pooled_level(s) for s in shares)], axis=0)
        return level

    def least_sum(self, most: Floats | None = None) -> Floats:
        """Return a number that the sum of phi of any plan reaches (P4), [rows].

        `most` [rows, groups] are the blocks that a rank of each group can hold.
        """
        alone = np.where(self.size > 0.0, self.size * self._alone(), 0.0).sum(axis=1)
        shares = [np.zeros_like(self.size), self._even()]
        if most is not None:
            shares.append(self._cheapest_first(most))
        found: Floats = np.max([alone, *(self._priced_sum(s, most) for s in shares)], axis=0)
        return found

    def rooms(self, limit: Floats) -> Floats:
        """Return the most blocks on a rank of each group with phi within `limit`, [rows, groups].

        -1 where not even an empty rank is within it.
        """
        price = self._cheapest
        spare = limit[:, None, None] - self.offset
        spare += _ROUNDING * (np.abs(limit)[:, None, None] + np.abs(self.offset))
        room = np.where(spare >= 0.0, np.inf, -1.0)
        np.divide(spare, price, out=room, where=(price > 0.0) & (spare >= 0.0))
        rooms: Floats = np.floor(room.min(axis=2) * (1.0 + _ROUNDING))
        return np.minimum(rooms, self._ceiling())

    def has_room(self, rooms: Floats) -> Booleans:
        """Return whether ranks with these rooms hold all blocks, and each what it must, [rows]."""
        enough = (self.size * np.maximum(rooms, 0.0)).sum(axis=1) >= self.counts.sum()
        each = np.where(self.size > 0.0, rooms >= self.least[:, None], True).all(axis=1)
        found: Booleans = enough & each
        return found

    @cached_property
    def _cheapest(self) -> Floats:
        """Return the least price of any kind, [rows, groups, grid]."""
        least: Floats = self.prices.min(axis=0)
        return least

    @cached_property
    def _mean(self) -> Floats:
        """Return the price of a block on average, [rows, groups, grid]."""
        return self._summed(self.prices) / float(self.counts.sum())

    def _summed(self, prices: Floats) -> Floats:
        """Return the price of all blocks together, without the first axis."""
        total = self.counts[0] * prices[0]
        for count, price in zip(self.counts[1:], prices[1:], strict=True):
            total = total + count * price
        return np.asarray(total)

    def _ceiling(self) -> Floats:
        """Return the blocks that the others leave to a rank, [rows, 1]."""
        others = self.least * (self.size.sum(axis=1) - 1.0)
        ceiling: Floats = (self.counts.sum() - others)[:, None]
        return ceiling

    def _even(self) -> Floats:
        """Return an even share of all blocks, [rows, groups]."""
        ranks = self.size.sum(axis=1)[:, None]
        even: Floats = np.broadcast_to(self.counts.sum() / ranks, self.size.shape)
        return even

    def _within(self, rooms: Floats) -> Floats:
        """Return shares in proportion to rooms, [rows, groups]."""
        held = np.maximum(rooms, 0.0)
        total = np.maximum((self.size * held).sum(axis=1), _TINY)
        shares: Floats = held * (self.counts.sum() / total)[:, None]
        return shares

    def _alone(self) -> Floats:
        """Return P1 of each group, [rows, groups]."""
        price = self._cheapest
        alone: Floats = (self.offset + self.least[:, None, None] * price).max(axis=2)
        return alone

    def _counted_level(self) -> Floats:
        """Return P2, from below, [rows].

        With blocks spread evenly there is room at the higher end, so that halving starts well.
        """
        price = self._cheapest
        used = self.size > 0.0
        low = np.where(used, self._alone(), -np.inf).max(axis=1)
        most = np.ceil(self._even())[:, :, None]
        high = np.where(used, (self.offset + most * price).max(axis=2), -np.inf).max(axis=1)
        high = np.maximum(high, low)
        for _ in range(_HALVINGS):
            middle = 0.5 * (low + high)
            enough = self.has_room(self.rooms(middle))
            low, high = np.where(enough, low, middle), np.where(enough, middle, high)
        found: Floats = low
        return found

    def _at(self, blocks: Floats) -> tuple[Floats, Floats]:
        """Return offsets [rows, groups] and prices [kinds, rows, groups] at one grid point.

        It is the dearest for `blocks` [rows, groups] of all kinds alike.
        """
        dearest = (self.offset + blocks[:, :, None] * self._mean).argmax(axis=2)[:, :, None]
        offset = np.take_along_axis(self.offset, dearest, axis=2)[:, :, 0]
        prices = np.take_along_axis(self.prices, dearest[None], axis=3)[:, :, :, 0]
        return offset, prices

    def _pooled_level(self, blocks: Floats) -> Floats:
        """Return P3 at the grid points that are dearest for `blocks`, [rows]."""
        offset, prices = self._at(blocks)
        used = self.size > 0.0
        mean = self._summed(prices)
        inverse = np.where(used, 1.0 / np.maximum(mean, _TINY), 0.0)
        weight = inverse / (self.size * inverse).sum(axis=1, keepdims=True)
        level: Floats = (self.size * weight * offset).sum(axis=1)
        for count, price in zip(self.counts, prices, strict=True):
            level = level + count * np.where(used, weight * price, np.inf).min(axis=1)
        return level

    def _priced_sum(self, blocks: Floats, most: Floats | None) -> Floats:
        """Return P4 at the grid points that are dearest for `blocks`, [rows]."""
        offset, prices = self._at(blocks)
        used = self.size > 0.0
        rent = np.zeros_like(offset)
        if most is not None:
            rent = self._rents(self._summed(prices) / float(self.counts.sum()), most)
        dear = np.where(used, prices + rent, np.inf)
        alpha = dear.min(axis=2)  # [kinds, rows]
        beta = np.where(used, (dear - alpha[:, :, None]).min(axis=0), 0.0)
        own = offset + self.least[:, None] * beta
        if most is not None:
            own = own - rent * most
        total: Floats = self.counts @ alpha + np.where(used, self.size * own, 0.0).sum(axis=1)
        return total

    def _rents(self, mean: Floats, most: Floats) -> Floats:
        """Return what a place on a rank is worth beside the last that is needed, [rows, groups].

        Beyond what every rank holds, the cheapest are filled first; `mean` is what a block costs.
        """
        used = self.size > 0.0
        cost = np.where(used, mean, np.inf)
        order = np.argsort(cost, axis=1, kind="stable")
        further = np.where(used, self.size * np.maximum(most - self.least[:, None], 0.0), 0.0)
        filled = np.cumsum(np.take_along_axis(further, order, axis=1), axis=1)
        spare = (self.counts.sum() - self.least * self.size.sum(axis=1))[:, None]
        ranks_used = used.sum(axis=1)
        last = np.minimum((filled < spare).sum(axis=1), ranks_used - 1)
        group = np.take_along_axis(order, last[:, None], axis=1)
        marginal = np.take_along_axis(cost, group, axis=1)
        rents: Floats = np.where(used, np.maximum(marginal - mean, 0.0), 0.0)
        return rents

    def _cheapest_first(self, most: Floats) -> Floats:
        """Return blocks where the cheapest ranks hold all they can, [rows, groups]."""
        _, prices = self._at(self._even())
        used = self.size > 0.0
        mean = np.where(used, self._summed(prices), np.inf)
        order = np.argsort(mean, axis=1, kind="stable")
        size = np.take_along_axis(self.size, order, axis=1)
        room = np.take_along_axis(np.maximum(most - self.least[:, None], 0.0), order, axis=1)
        spare = (self.counts.sum() - self.least * self.size.sum(axis=1))[:, None]
        before = np.cumsum(size * room, axis=1) - size * room
        taken = np.clip((spare - before) / np.maximum(size, 1.0), 0.0, room)
        held = np.empty_like(taken)
        np.put_along_axis(held, order, taken, axis=1)
        blocks: Floats = held + self.least[:, None]
        return blocks
