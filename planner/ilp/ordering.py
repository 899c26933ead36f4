"""Ordering: how low the largest rank of many chains can be where cuts decide, at once.

The same as `planner.ilp.levels.ChainLevels`, for rows of configurations whose ranks are in groups.
Where every rank holds one part of the chain, in the order of the ranks, layers of several kinds
cannot be shared out as `planner.ilp.pools` has it:

P5. Filled: at level W every rank, from the first on, takes as many blocks from where the one before
    it ended as keep its phi within W at every grid point. By induction no plan with all phi within
    W has cut the chain behind these places: what a rank holds behind an earlier cut and before a
    place that is no further costs no more, as prices are not negative. Where blocks are left behind
    the last rank there is no such plan, and the largest phi of any is above W.
P6. Windowed: filled from the last rank back, the cuts of such plans lie at or behind those places.
    Between the earliest place of its first cut and the latest of its second is all that a rank can
    hold.

A group's prices and offsets are at most those of its ranks, and with less ranks take no less. Where
ranks hold several parts of the chain nothing is said of a row but what pools say.
"""

from __future__ import annotations

from collections.abc import Sequence
from dataclasses import dataclass, replace
from functools import cached_property

import numpy as np

from planner.cost.configuration import Booleans, Floats, Integers
from planner.ilp.grouping import Groups
from planner.ilp.pools import Pools
from planner.ilp.rooms import Rooms

Runs = Sequence[tuple[int, int]]
"""The chain as (kind, blocks) of its parts of one kind."""

_RUNS_MOST = 64
_STEPS = 6
_REACH = 1.5
_ROUNDING = 1e-9


@dataclass(frozen=True, kw_only=True)
class Ordered:
    """Pools of layers, some of whose rows have their ranks in the order of the chain.

    `order` [places, rows] are the groups of the ranks, as in `planner.ilp.grouping.Ranks`.
    """

    pools: Pools
    runs: Runs
    order: Groups

    def of_rows(self, rows: Integers) -> Ordered:
        """Return some of the rows."""
        return replace(self, pools=self.pools.of_rows(rows), order=self.order.take(rows, axis=-1))

    def raised(self, level: Floats, limits: Floats) -> Floats:
        """Return P5 from a `level` on that is known to be reached, `limits` at the most, [rows]."""
        found = level.copy()
        rows = self._in_order[level[self._in_order] < limits[self._in_order]]
        if not len(rows):
            return found
        lines = self._lines(rows)
        low = level[rows]
        high = np.where(np.isfinite(limits[rows]), limits[rows], _REACH * low)
        is_within = lines.is_within(high)
        low = np.where(is_within, low, np.maximum(low, high))
        left = np.flatnonzero(is_within)
        found[rows] = low
        if len(left):
            found[rows[left]] = lines.of_rows(left).between(low[left], high[left])
        return found

    def rooms(self, limits: Floats) -> Rooms:
        """Return what ranks hold at the most in plans with all phi within `limits` [rows].

        It is P6 and what `Pools.rooms` says; no block where there is no such plan.
        """
        every = Rooms(blocks=self.pools.rooms(limits))
        rows = self._in_order[np.isfinite(limits[self._in_order])]
        if not len(rows):
            return every
        own = self._lines(rows).rooms(limits[rows])
        blocks = np.full(every.blocks.shape, np.inf)
        kinds = np.full((len(self.pools.counts), *blocks.shape), np.inf)
        blocks[:, rows] = own.blocks
        kinds[..., rows] = own.kinds
        return every.within(Rooms(blocks=blocks, kinds=kinds))

    def has_room(self, rooms: Rooms) -> Booleans:
        """Return whether ranks with these rooms hold all blocks, and each what it must, [rows]."""
        return self.pools.has_room(rooms.blocks)

    @cached_property
    def _in_order(self) -> Integers:
        """Return the rows of which more can be said than by pools: those with the most ranks first.

        Where kinds take turns all along the chain, cuts can share them out as they like.
        """
        ranks = (self.order >= 0).sum(axis=0)
        order = np.argsort(-ranks, kind="stable")
        is_apt = len(self.runs) <= _RUNS_MOST and _has_regions(self.runs)
        rows: Integers = order[ranks[order] > 1] if is_apt else order[:0]
        return rows

    def _lines(self, rows: Integers) -> _Lines:
        return _Lines(
            prices=self.pools.prices.take(rows, axis=-1),
            offset=self.pools.offset.take(rows, axis=-1),
            size=self.pools.size.take(rows, axis=-1),
            runs=self.runs,
            order=self.order.take(rows, axis=-1),
        )


def _has_regions(runs: Runs) -> bool:
    """Return whether there is a place in the chain that no kind is on both sides of."""
    kinds = [kind for kind, _ in runs]
    return any(set(kinds[:place]).isdisjoint(kinds[place:]) for place in range(1, len(kinds)))


@dataclass(frozen=True, kw_only=True)
class _Lines:
    """Rows in the order of the chain, those with the most ranks first."""

    prices: Floats
    offset: Floats
    size: Floats
    runs: Runs
    order: Groups

    def of_rows(self, rows: Integers) -> _Lines:
        return replace(
            self,
            prices=self.prices.take(rows, axis=-1),
            offset=self.offset.take(rows, axis=-1),
            size=self.size.take(rows, axis=-1),
            order=self.order.take(rows, axis=-1),
        )

    def is_within(self, limits: Floats) -> Booleans:
        """Return whether all blocks have a place with every phi within `limits` (P5), [rows]."""
        is_enough: Booleans = self._ends(limits, self.order, self.runs)[-1] >= self._blocks
        return is_enough

    def between(self, low: Floats, high: Floats) -> Floats:
        """Return a level no plan is within, `low` or above, near the least above it, [rows]."""
        for _ in range(_STEPS):
            middle = 0.5 * (low + high)
            is_within = self.is_within(middle)
            low, high = np.where(is_within, low, middle), np.where(is_within, middle, high)
        return low

    def rooms(self, limits: Floats) -> Rooms:
        """Return P6 of each group; blocks are -1 where no plan is within `limits`."""
        latest = self._ends(limits, self.order, self.runs)
        behind = self._ends(limits, self._reversed, self.runs[::-1])
        places = np.arange(len(latest))[:, None]
        mirrored = np.take_along_axis(behind, np.maximum(self._ranks - places, 0), axis=0)
        is_within = (latest[-1] >= self._blocks) & (behind[-1] >= self._blocks)
        rooms = self._between(np.maximum(self._blocks - mirrored, 0.0), np.maximum(latest, 0.0))
        return Rooms(blocks=np.where(is_within, rooms.blocks, -1.0), kinds=rooms.kinds)

    def _between(self, earliest: Floats, latest: Floats) -> Rooms:
        """Return what groups hold between places of cuts, each [ranks + 1, rows]."""
        blocks, rows = np.zeros(self.size.shape), np.arange(self.size.shape[1])
        kinds = np.zeros((len(self.prices), *blocks.shape))
        for place, groups in enumerate(self.order):
            used = rows[groups >= 0]
            at, start, end = (groups[used], used), earliest[place, used], latest[place + 1, used]
            blocks[at] = np.maximum(blocks[at], end - start)
            border = 0
            for kind, count in self.runs:
                own = np.minimum(end, border + count) - np.maximum(start, border)
                kinds[kind][at] += np.maximum(own, 0.0)
                border += count
        return Rooms(blocks=blocks, kinds=kinds)

    @property
    def _blocks(self) -> float:
        return float(sum(count for _, count in self.runs))

    @cached_property
    def _ranks(self) -> Integers:
        """Return how many ranks there are, [rows]."""
        ranks: Integers = (self.order >= 0).sum(axis=0)
        return ranks

    @cached_property
    def _reversed(self) -> Groups:
        """Return the groups of the ranks from the last one back."""
        places = self._ranks - 1 - np.arange(len(self.order))[:, None]
        groups = np.take_along_axis(self.order, np.maximum(places, 0), axis=0)
        return np.where(places >= 0, groups, -1)

    def _ends(self, limits: Floats, order: Groups, runs: Runs) -> Floats:
        """Return how far ranks take the chain, each from the one before on, [ranks + 1, rows].

        It is -inf from the first one on that costs too much by itself.
        """
        ends = np.zeros((len(order) + 1, len(limits)))
        for place, groups in enumerate(order):
            count = int(np.count_nonzero(groups >= 0))
            ends[place + 1] = ends[place]
            if count:
                taken = self._taken(groups[:count], ends[place, :count], limits[:count], runs)
                behind = self._ranks[:count] - 1 - place  # each of these holds a block
                end = ends[place, :count] + taken
                ends[place + 1, :count] = np.minimum(end, self._blocks - behind)
        return ends

    def _by_place(self, values: Floats) -> Floats:
        """Return values [grid, groups, rows] with one place for each group and row."""
        return values.reshape(len(values), -1)

    def _taken(self, groups: Groups, at: Floats, limits: Floats, runs: Runs) -> Floats:
        """Return how many blocks behind `at` a rank of each row's group takes, [rows]."""
        places = groups.astype(np.int64) * self.size.shape[1] + np.arange(len(groups))
        offset = self._by_place(self.offset).take(places, axis=1)
        spare = limits - offset + _ROUNDING * (np.abs(limits) + np.abs(offset))
        is_over = (spare < 0.0).any(axis=0)
        taken, start = np.zeros_like(spare), 0
        is_open = np.ones(spare.shape, dtype=bool)
        for kind, count in runs:
            left = start + count - np.minimum(np.maximum(at, start), start + count)
            start += count
            if not left.any():
                continue
            price = self._by_place(self.prices[kind]).take(places, axis=1)
            most = np.broadcast_to(left, spare.shape).copy()
            np.divide(spare, price, out=most, where=price > 0.0)
            np.minimum(np.maximum(most, 0.0, out=most), left, out=most)
            taken += np.where(is_open, most, 0.0)
            is_open &= most >= left
            if not is_open.all(axis=0).any():
                break
            np.subtract(spare, most * price, out=spare, where=is_open)
        whole = np.floor(taken.min(axis=0) * (1.0 + _ROUNDING))
        return np.where(is_over, -np.inf, whole)
