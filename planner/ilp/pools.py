"""Pools: how low the largest rank of many chains can be, and the sum of their ranks, at once.

The same as `planner.ilp.levels.PoolLevels`, for rows of configurations whose ranks are in groups.
A layer of kind k costs price[k, i, g, row] on a rank of group g at grid point i. A rank costs its
offset and the sum of its layers at the dearest grid point: phi_g. Every rank holds `least` blocks
or more. Rows are the last axis of all arrays, so that what is done for each is done in one sweep.

P1. Alone: each rank's phi with its least blocks at the cheapest kind's price.
P2. Counted: at level W a rank holds n_g(W) blocks at most, if all were of the cheapest kind; the
    least W at which that is room for all blocks, a whole number on each rank. Below that W, it is
    no less than the least phi_g(n_g(W) + 1): from one such number to the next it is reached.
    The same holds of the blocks of one kind at their own price, if the others cost nothing.
P3. Pooled: a mean with weights y_g that make a layer cost the same on any rank,
    W >= sum_g y_g offset_g + sum_k L_k min_g (y_g price[k, g]) at any one grid point of each group.
P4. Sum: by duality, for any alpha, beta >= 0 and rent >= 0 with
    alpha_k + beta_g <= price[k, g] + rent_g, the sum of phi is at least
    sum_g offset_g + sum_k L_k alpha_k + sum_g (least beta_g - most_g rent_g).
P7. Placed: at any one grid point of each group the sum of phi is at least that of the offsets and
    of every kind's blocks where they are cheapest, no more in a group than have room there.
"""

from __future__ import annotations

from collections.abc import Sequence
from dataclasses import dataclass
from functools import cached_property

import numpy as np

from planner.cost.configuration import Booleans, Floats, Integers
from planner.ilp.grouping import Ranks
from planner.ilp.rooms import Rooms

_RISES_MOST = 24
_ROUNDING = 1e-9
_TINY = 1e-300


@dataclass(frozen=True, kw_only=True)
class Pools:
    """Prices [kinds, grid, groups, rows] and offsets [grid, groups, rows] of many chains.

    `counts` [kinds] are the layers of each kind, `size` [groups, rows] the ranks of each group and
    `least` [rows] the blocks that each rank holds in any case.
    """

    prices: Floats
    offset: Floats
    counts: Integers
    size: Floats
    least: Floats

    @staticmethod
    def of_ranks(ranks: Ranks, counts: Integers, priced: Sequence[Floats], own: Floats) -> Pools:
        """Return the pools of layers at their least prices [grid, groups, rows].

        The last two are pinned. `own` [grid, groups, rows] is what ranks cost by themselves.
        """
        shape = (len(own), *ranks.size.shape)
        offset = np.broadcast_to(own, shape).copy()
        rows = np.arange(shape[-1])
        every = [np.broadcast_to(price, shape) for price in priced]
        for group, price in zip((ranks.first, ranks.last), every[-2:], strict=True):
            offset[:, group, rows] += price[:, group, rows]
        return Pools(
            prices=np.stack(every[:-2]),
            offset=offset,
            counts=counts,
            size=ranks.size,
            least=ranks.least_blocks,
        )

    def of_rows(self, rows: Integers) -> Pools:
        """Return the pools of some rows."""
        return Pools(
            prices=self.prices.take(rows, axis=-1),
            offset=self.offset.take(rows, axis=-1),
            counts=self.counts,
            size=self.size.take(rows, axis=-1),
            least=self.least[rows],
        )

    def least_level(self) -> Floats:
        """Return a level that the largest phi of any plan reaches (P1 to P3), [rows]."""
        pooled = self._pooled_level(self._even())
        if not self._is_flat:
            pooled = np.maximum(pooled, self._pooled_level(np.zeros_like(self.size)))
        alone = np.where(self._used, self._alone(), -np.inf).max(axis=0)
        counted = self._counted_level(np.maximum(pooled, alone))
        if self._is_flat:
            return counted
        within = self._pooled_level(self._within(self.rooms(counted)))
        return np.asarray(np.maximum(counted, within))

    def least_sum(self, rooms: Rooms | None = None) -> Floats:
        """Return a number that the sum of phi of plans within `rooms` reaches (P4, P7), [rows]."""
        most = None if rooms is None else rooms.blocks
        found = np.where(self._used, self.size * self._alone(), 0.0).sum(axis=0)
        shares = [self._even()]
        if not self._is_flat:
            shares.append(np.zeros_like(self.size))
        if most is not None:
            shares.append(self._cheapest_first(most))
        for share in shares:
            found = np.maximum(found, self._priced_sum(share, most))
        if rooms is not None and rooms.kinds is not None:
            rows = np.flatnonzero(np.isfinite(rooms.kinds).all(axis=(0, 1)))
            kinds = rooms.kinds.take(rows, axis=-1)
            placed = self.of_rows(rows)._placed_sum(kinds)  # noqa: SLF001
            found[rows] = np.maximum(found[rows], placed)
        return np.asarray(found)

    def weights(self, rooms: Floats) -> Floats:
        """Return P3's weights where ranks hold shares of all blocks by their rooms, [groups, rows].

        Over all ranks they add up to 1.
        """
        return self._weights(self._at(self._within(rooms))[1])

    def rooms(self, limit: Floats) -> Floats:
        """Return the most blocks on a rank of each group with phi within `limit`, [groups, rows].

        -1 where not even an empty rank is within it.
        """
        price = self._cheapest
        spare = limit - self.offset
        spare += _ROUNDING * (np.abs(limit) + np.abs(self.offset))
        room = np.where(spare >= 0.0, np.inf, -1.0)
        np.divide(spare, price, out=room, where=(price > 0.0) & (spare >= 0.0))
        rooms: Floats = np.floor(room.min(axis=0) * (1.0 + _ROUNDING))
        return np.minimum(rooms, self._ceiling)

    def has_room(self, rooms: Floats) -> Booleans:
        """Return whether ranks with these rooms hold all blocks, and each what it must, [rows]."""
        enough = (self.size * np.maximum(rooms, 0.0)).sum(axis=0) >= self.counts.sum()
        each = ((rooms >= self.least) | ~self._used).all(axis=0)
        found: Booleans = enough & each
        return found

    @property
    def _is_flat(self) -> bool:
        """Return whether there is one grid point, at which shares decide nothing."""
        return len(self.offset) == 1

    @cached_property
    def _used(self) -> Booleans:
        """Return which groups have ranks, [groups, rows]."""
        used: Booleans = self.size > 0.0
        return used

    @cached_property
    def _cheapest(self) -> Floats:
        """Return the least price of any kind, [grid, groups, rows]."""
        least: Floats = self.prices.min(axis=0) if len(self.prices) > 1 else self.prices[0]
        return least

    @cached_property
    def _mean(self) -> Floats:
        """Return the price of a block on average, [grid, groups, rows]."""
        return self._summed(self.prices) / float(self.counts.sum())

    def _summed(self, prices: Floats) -> Floats:
        """Return the price of all blocks together, without the first axis."""
        total = self.counts[0] * prices[0]
        for count, price in zip(self.counts[1:], prices[1:], strict=True):
            total = total + count * price
        return np.asarray(total)

    @cached_property
    def _ranks(self) -> Floats:
        """Return the ranks of all groups, [rows]."""
        ranks: Floats = self.size.sum(axis=0)
        return ranks

    @cached_property
    def _ceiling(self) -> Floats:
        """Return the blocks that the others leave to a rank, [rows]."""
        ceiling: Floats = self.counts.sum() - self.least * (self._ranks - 1.0)
        return ceiling

    def _even(self) -> Floats:
        """Return an even share of all blocks, [groups, rows]."""
        even: Floats = np.broadcast_to(self.counts.sum() / self._ranks, self.size.shape)
        return even

    def _within(self, rooms: Floats) -> Floats:
        """Return shares in proportion to rooms, [groups, rows]."""
        held = np.maximum(rooms, 0.0)
        total = np.maximum((self.size * held).sum(axis=0), _TINY)
        shares: Floats = held * (self.counts.sum() / total)
        return shares

    def _alone(self) -> Floats:
        """Return P1 of each group, [groups, rows]."""
        alone: Floats = (self.offset + self.least * self._cheapest).max(axis=0)
        return alone

    def _counted_level(self, level: Floats) -> Floats:
        """Return P2 or a level below it, but no less than a `level` known to be reached, [rows]."""
        found = self._risen(level)
        if len(self.prices) > 1:
            for kind in range(len(self.prices)):
                found = self._of_kind(kind)._risen(found)  # noqa: SLF001
        return found

    def _of_kind(self, kind: int) -> Pools:
        """Return the pools of the blocks of one kind alone, of which a rank may hold none."""
        return Pools(
            prices=self.prices[kind : kind + 1],
            offset=self.offset,
            counts=self.counts[kind : kind + 1],
            size=self.size,
            least=np.zeros_like(self.least),
        )

    def _risen(self, level: Floats) -> Floats:
        """Return the level at which there is room for all blocks, from one that is reached on."""
        found = level.copy()
        rows, left = np.arange(len(level)), self
        for _ in range(_RISES_MOST):
            rooms = left.rooms(found[rows])
            open_rows = np.flatnonzero(~left.has_room(rooms))
            if not len(open_rows):
                break
            if len(open_rows) < len(rows):
                rows, left, rooms = rows[open_rows], left.of_rows(open_rows), rooms[:, open_rows]
            found[rows] = np.maximum(found[rows], left._next_level(rooms))  # noqa: SLF001
        return found

    def _next_level(self, rooms: Floats) -> Floats:
        """Return the least phi of a rank with one block more than its room, [rows]."""
        fuller = (self.offset + (rooms + 1.0) * self._cheapest).max(axis=0)
        can_grow = self._used & (rooms < self._ceiling)
        least: Floats = np.where(can_grow, fuller, np.inf).min(axis=0)
        return np.where(np.isfinite(least), least, -np.inf)

    def _at(self, blocks: Floats) -> tuple[Floats, Floats]:
        """Return offsets [groups, rows] and prices [kinds, groups, rows] at one grid point.

        It is the dearest for `blocks` [groups, rows] of all kinds alike.
        """
        if self._is_flat:
            return self.offset[0], self.prices[:, 0]
        dearest = (self.offset + blocks * self._mean).argmax(axis=0)[None]
        offset = np.take_along_axis(self.offset, dearest, axis=0)[0]
        prices = np.take_along_axis(self.prices, dearest[None], axis=1)[:, 0]
        return offset, prices

    def _pooled_level(self, blocks: Floats) -> Floats:
        """Return P3 at the grid points that are dearest for `blocks`, [rows]."""
        offset, prices = self._at(blocks)
        weight = self._weights(prices)
        level: Floats = (self.size * weight * offset).sum(axis=0)
        for count, price in zip(self.counts, prices, strict=True):
            level = level + count * np.where(self._used, weight * price, np.inf).min(axis=0)
        return level

    def _weights(self, prices: Floats) -> Floats:
        """Return weights at which all blocks cost the same on any rank, [groups, rows]."""
        inverse = np.where(self._used, 1.0 / np.maximum(self._summed(prices), _TINY), 0.0)
        weights: Floats = inverse / (self.size * inverse).sum(axis=0)
        return weights

    def _priced_sum(self, blocks: Floats, most: Floats | None) -> Floats:
        """Return P4 at the grid points that are dearest for `blocks`, [rows]."""
        offset, prices = self._at(blocks)
        rent = np.zeros_like(offset)
        if most is not None:
            rent = self._rents(self._summed(prices) / float(self.counts.sum()), most)
        dear = np.where(self._used, prices + rent, np.inf)
        alpha = dear.min(axis=1)  # [kinds, rows]
        beta = np.where(self._used, (dear - alpha[:, None]).min(axis=0), 0.0)
        own = offset + self.least * beta
        if most is not None:
            own = own - rent * most
        total: Floats = self.counts @ alpha + np.where(self._used, self.size * own, 0.0).sum(axis=0)
        return total

    def _placed_sum(self, kinds: Floats) -> Floats:
        """Return P7 where groups hold `kinds` [kinds, groups, rows] at the most, [rows].

        The grid points are the dearest where groups hold shares of each kind by its room.
        """
        totals = self.counts[:, None, None]
        shares = kinds * (totals / np.maximum(kinds.sum(axis=1, keepdims=True), _TINY))
        held = shares / np.maximum(self.size, 1.0)
        dearest = (self.offset + np.einsum("kgr,kigr->igr", held, self.prices)).argmax(axis=0)[None]
        offset = np.take_along_axis(self.offset, dearest, axis=0)[0]
        prices = np.take_along_axis(self.prices, dearest[None], axis=1)[:, 0]
        order = np.argsort(prices, axis=1, kind="stable")
        room = np.take_along_axis(kinds, order, axis=1)
        before = np.cumsum(room, axis=1) - room
        placed = np.clip(totals - before, 0.0, room)
        cost = (placed * np.take_along_axis(prices, order, axis=1)).sum(axis=(0, 1))
        total: Floats = cost + (self.size * offset).sum(axis=0)
        return total

    def _rents(self, mean: Floats, most: Floats) -> Floats:
        """Return what a place on a rank is worth beside the last that is needed, [groups, rows].

        Beyond what every rank holds, the cheapest are filled first; `mean` is what a block costs.
        """
        cost = np.where(self._used, mean, np.inf)
        order = np.argsort(cost, axis=0, kind="stable")
        further = np.where(self._used, self.size * np.maximum(most - self.least, 0.0), 0.0)
        filled = np.cumsum(np.take_along_axis(further, order, axis=0), axis=0)
        last = np.minimum((filled < self._spare).sum(axis=0), self._used.sum(axis=0) - 1)
        group = np.take_along_axis(order, last[None], axis=0)
        marginal = np.take_along_axis(cost, group, axis=0)
        rents: Floats = np.where(self._used, np.maximum(marginal - mean, 0.0), 0.0)
        return rents

    @cached_property
    def _spare(self) -> Floats:
        """Return the blocks beyond what every rank holds, [rows]."""
        spare: Floats = self.counts.sum() - self.least * self._ranks
        return spare

    def _cheapest_first(self, most: Floats) -> Floats:
        """Return blocks where the cheapest ranks hold all they can, [groups, rows]."""
        _, prices = self._at(self._even())
        mean = np.where(self._used, self._summed(prices), np.inf)
        order = np.argsort(mean, axis=0, kind="stable")
        size = np.take_along_axis(self.size, order, axis=0)
        room = np.take_along_axis(np.maximum(most - self.least, 0.0), order, axis=0)
        before = np.cumsum(size * room, axis=0) - size * room
        taken = np.clip((self._spare - before) / np.maximum(size, 1.0), 0.0, room)
        held = np.empty_like(taken)
        np.put_along_axis(held, order, taken, axis=0)
        blocks: Floats = held + self.least
        return blocks
