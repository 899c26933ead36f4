"""Levels: how low the largest rank of a chain can be, whatever the cuts (B4, B5 of bounds).

A layer of kind k costs price[k, r, i] on rank r at grid point i. A rank costs its offset and the
sum of its layers at the dearest grid point: phi_r. Prices are not negative; offsets may be. Three
views of a chain, from exact to general:

- `RunLevels`: one kind of layer, so that phi_r depends on how many layers a rank holds.
- `ChainLevels`: several kinds, ranks in the order of the chain, so that cuts decide.
- `PoolLevels`: anything; layers are shared out by weight, without regard to where they stand.
"""

from __future__ import annotations

from dataclasses import dataclass
from functools import lru_cache
from typing import Protocol

import numpy as np

from planner.cost.configuration import Floats, Integers
from planner.ilp.duals import PricedChain
from planner.ilp.instance import Instance

_ROUNDING = 1e-12
_KEPT = 8


@dataclass(frozen=True, slots=True, kw_only=True)
class Windows:
    """What ranks of any plan hold.

    `least` and `most` [stages] count blocks; `sure` and `room` [stages, kinds] are the blocks of
    each kind that a rank has in any case, and those that it can have. `cuts` are the earliest and
    the latest place of every cut, [2, stages + 1], where ranks follow one another along the chain.
    """

    least: Integers
    most: Integers
    sure: Integers
    room: Integers
    cuts: Integers | None = None


class Levels(Protocol):
    """What a chain of prices says of every plan."""

    def least_level(self) -> float:
        """Return a W that the largest phi_r of any plan reaches."""

    def least_sum(self, windows: Windows | None = None) -> float:
        """Return a number that the sum of phi_r of any plan (within the windows) reaches."""

    def windows(self, limit: float) -> Windows | None:
        """Return what ranks hold in plans with no phi_r above `limit`, None if there are none."""


@lru_cache(maxsize=_KEPT)
def levels_of(chain: PricedChain) -> Levels:
    """Return the most exact view of a chain; those asked for last are kept."""
    instance = chain.instance
    if len(instance.free_kinds) == 1:
        return RunLevels(chain)
    if instance.is_in_order:
        return ChainLevels(chain)
    return PoolLevels(chain)


class RunLevels:
    """Levels of a chain of one kind: the counts alone decide."""

    def __init__(self, chain: PricedChain) -> None:
        """Tabulate phi_r(n) for every n that a rank can hold."""
        self._instance = chain.instance
        self._least = chain.instance.least_blocks
        stages, blocks = chain.instance.stage_count, chain.instance.block_count
        self._spare = blocks - stages * self._least
        held = np.arange(self._least, self._least + self._spare + 1, dtype=np.float64)
        price = chain.least_prices()[0]
        costs: Floats = chain.offset[:, 0, None] + price[:, 0, None] * held
        for i in range(1, price.shape[1]):
            costs = np.maximum(costs, chain.offset[:, i, None] + price[:, i, None] * held)
        self._costs = costs  # phi_r of the least number on, [stages, spare + 1]

    def least_level(self) -> float:
        """Return the least W with room for all layers.

        Beyond what every rank has to hold, one more layer fits for each phi_r(n) <= W.
        """
        least = float(self._costs[:, 0].max())
        if self._spare == 0:
            return least
        further = self._costs[:, 1:].ravel()
        return max(least, float(np.partition(further, self._spare - 1)[self._spare - 1]))

    def least_sum(self, windows: Windows | None = None) -> float:
        """Return the least sum of phi_r: what all must hold, and then the smallest increments."""
        increments = np.diff(self._costs, axis=1)
        base, spare = self._costs[:, 0], self._spare
        if windows is not None:
            place = np.arange(increments.shape[1])[None, :] + self._least
            inside = (place >= windows.least[:, None]) & (place < windows.most[:, None])
            increments = np.where(inside, increments, np.inf)
            stages = np.arange(len(base))
            base = self._costs[stages, windows.least - self._least]
            spare = self._instance.block_count - int(windows.least.sum())
        further = increments.ravel()
        if spare < len(further):
            further = np.partition(further, spare)[:spare]
        return float(base.sum() + further.sum())

    def windows(self, limit: float) -> Windows | None:
        """Return how many layers each rank may hold if the others take all that they can."""
        allowed = limit + _ROUNDING * (abs(limit) + float(np.abs(self._costs).max()))
        fitting = np.count_nonzero(self._costs <= allowed, axis=1)
        if (fitting == 0).any():
            return None
        most = self._least + fitting - 1
        blocks = self._instance.block_count
        least = np.maximum(self._least, blocks - (int(most.sum()) - most))
        if int(most.sum()) < blocks:
            return None
        return _counted(self._instance, least, most)


class PoolLevels:
    """Levels of any chain: ranks share the layers of every kind as they like."""

    def __init__(self, chain: PricedChain) -> None:
        """Choose for every rank the grid point that is dearest for an even share."""
        self._instance = chain.instance
        instance = chain.instance
        self._totals = np.array([instance.kinds[k].count for k in instance.free_kinds], dtype=float)
        prices = chain.least_prices()  # [kinds, stages, grid]
        shares = self._totals / instance.stage_count
        dearest = (chain.offset + np.tensordot(shares, prices, axes=1)).argmax(axis=1)
        stages = np.arange(instance.stage_count)
        self._offset: Floats = chain.offset[stages, dearest]
        self._price: Floats = prices[:, stages, dearest]
        self._alone: Floats = (chain.offset + instance.least_blocks * prices.min(axis=0)).max(
            axis=1
        )

    def least_level(self) -> float:
        """Return a weighted mean of phi_r with weights that make layers cost the same anywhere.

        W >= sum_r y_r phi_r >= sum_r y_r offset_r + sum_k L_k min_r (y_r price[k, r]) for weights y
        that sum to 1.
        """
        mean = self._totals @ self._price
        if (mean <= 0.0).any():
            return float(self._alone.max())
        weights = (1.0 / mean) / (1.0 / mean).sum()
        pooled = float(weights @ self._offset)
        pooled += float(self._totals @ (weights * self._price).min(axis=1))
        return max(pooled, float(self._alone.max()))

    def least_sum(self, windows: Windows | None = None) -> float:
        """Return the sum of offsets with every layer at its cheapest rank.

        Within windows a rank has room for some layers only, and the room has a price mu_r: what
        the last rank costs that is needed, when the cheapest are filled first, beyond its own.
        """
        pooled = float(self._offset.sum() + self._totals @ self._price.min(axis=1))
        if windows is not None:
            mean = self._totals @ self._price / self._totals.sum()
            order = np.argsort(mean, kind="stable")
            filled = np.cumsum(windows.most[order])
            last = int(np.searchsorted(filled, self._instance.block_count))
            marginal = float(mean[order[min(last, len(order) - 1)]])
            rent = np.maximum(marginal - mean, 0.0)
            priced = float(self._totals @ (self._price + rent).min(axis=1))
            priced += float(self._offset.sum() - rent @ windows.most)
            pooled = max(pooled, priced)
        return max(pooled, float(self._alone.sum()))

    def windows(self, limit: float) -> Windows | None:
        """Return how many layers fit on each rank at the price of the cheapest kind."""
        instance = self._instance
        allowed = limit + _ROUNDING * (abs(limit) + float(np.abs(self._offset).max()))
        if (self._alone > allowed).any() or self.least_level() > allowed:
            return None
        price = self._price.min(axis=0)
        room = np.full(instance.stage_count, np.inf)
        np.divide(allowed - self._offset, price, out=room, where=price > 0.0)
        ceiling = instance.block_count - instance.least_blocks * (instance.stage_count - 1)
        most = np.minimum(np.floor(room * (1.0 + 1e-9)), ceiling).astype(np.int64)
        least = np.maximum(instance.least_blocks, instance.block_count - (int(most.sum()) - most))
        if (most < instance.least_blocks).any() or int(most.sum()) < instance.block_count:
            return None
        return _counted(instance, least, most)


class ChainLevels:
    """Levels of a chain of several kinds whose ranks follow one another along it."""

    def __init__(self, chain: PricedChain) -> None:
        """Sum the prices along the chain."""
        self._instance = chain.instance
        self._pool = PoolLevels(chain)
        self._offset = chain.offset
        prices = chain.least_prices()
        self._cheapest: Floats = prices.min(axis=0)
        place = {kind: i for i, kind in enumerate(chain.instance.free_kinds)}
        order = [place[int(kind)] for kind in chain.instance.block_kinds]
        along = np.moveaxis(prices[order], 0, 2)  # [stages, grid, blocks]
        self._prefix: Floats = np.concatenate(
            [np.zeros_like(along[:, :, :1]), np.cumsum(along, axis=2)], axis=2
        )

    def least_level(self) -> float:
        """Return the pool's level: the order of the chain is left to `windows`."""
        return self._pool.least_level()

    def least_sum(self, windows: Windows | None = None) -> float:
        """Return the pool's sum."""
        return self._pool.least_sum(windows)

    def windows(self, limit: float) -> Windows | None:
        """Return the cuts of all plans with no phi_r above `limit`.

        Filling ranks from the first on, each as far as it can, any plan's cuts lie at or before
        these (exchange argument); from the last one back, at or behind.
        """
        allowed = self._allowed(limit)
        if (allowed < self._cheapest).any():
            return None
        earliest, latest = self._earliest(allowed), self._latest(allowed)
        if (earliest > latest).any() or latest[-1] < self._prefix.shape[2] - 1:
            return None
        return chain_windows(self._instance, np.stack([earliest, latest]))

    def _allowed(self, limit: float) -> Floats:
        rounding = _ROUNDING * (abs(limit) + float(self._prefix[:, :, -1].max()))
        allowed: Floats = limit + rounding - self._offset
        return allowed

    def _latest(self, allowed: Floats) -> Integers:
        """Return each rank filled as far as it can, one layer left for each that follows.

        A rank that the ones before it leave nothing it can take stays empty here: in a plan with
        earlier cuts it may hold other layers, so that refusing it would not be a bound.
        """
        stages, _, length = self._prefix.shape
        placed = [0]
        for stage in range(stages):
            end = length - (stages - 1 - stage)
            held = self._prefix[stage, :, placed[-1] : end]
            within = (held - held[:, :1] <= allowed[stage][:, None]).all(axis=0)
            placed.append(placed[-1] + int(np.count_nonzero(within)) - 1)
        return np.array(placed, dtype=np.int64)

    def _earliest(self, allowed: Floats) -> Integers:
        """Return the same from the last rank back, one layer left for each before."""
        stages, _, length = self._prefix.shape
        left = [length - 1]
        for stage in reversed(range(stages)):
            held = self._prefix[stage, :, stage : left[-1] + 1]
            within = (held[:, -1:] - held <= allowed[stage][:, None]).all(axis=0)
            left.append(left[-1] - int(np.count_nonzero(within)) + 1)
        return np.array(left[::-1], dtype=np.int64)


def everything(instance: Instance) -> Windows:
    """Return the windows of all plans."""
    stages = instance.stage_count
    least = np.full(stages, instance.least_blocks, dtype=np.int64)
    most = np.full(stages, instance.block_count - instance.least_blocks * (stages - 1))
    if instance.is_in_order and not instance.is_uniform:
        first = np.arange(stages + 1)
        last = instance.block_count - first[::-1]
        first[-1], last[0] = instance.block_count, 0
        return chain_windows(instance, np.stack([first, last]))
    return _counted(instance, least, most)


def both(one: Windows, other: Windows, instance: Instance) -> Windows | None:
    """Return what two windows leave, None where that is nothing."""
    if one.cuts is not None and other.cuts is not None:
        cuts = np.stack(
            [np.maximum(one.cuts[0], other.cuts[0]), np.minimum(one.cuts[1], other.cuts[1])]
        )
        return chain_windows(instance, cuts) if (cuts[0] <= cuts[1]).all() else None
    least, most = np.maximum(one.least, other.least), np.minimum(one.most, other.most)
    least = np.maximum(least, instance.block_count - (int(most.sum()) - most))
    most = np.minimum(most, instance.block_count - (int(least.sum()) - least))
    if (least > most).any() or int(most.sum()) < instance.block_count:
        return None
    return _counted(instance, least, most)


def chain_windows(instance: Instance, cuts: Integers) -> Windows:
    """Return the windows that the earliest and latest cuts leave."""
    prefix = instance.prefix_counts
    earliest, latest = cuts
    start, end = latest[:-1], np.maximum(earliest[1:], latest[:-1])
    return Windows(
        least=np.maximum(earliest[1:] - latest[:-1], instance.least_blocks),
        most=latest[1:] - earliest[:-1],
        sure=prefix[end] - prefix[start],
        room=prefix[latest[1:]] - prefix[earliest[:-1]],
        cuts=cuts,
    )


def _counted(instance: Instance, least: Integers, most: Integers) -> Windows:
    """Return windows that count blocks; with one kind they say how many of it."""
    totals = np.array([kind.count for kind in instance.kinds])
    room = np.minimum(totals[None, :], most[:, None])
    sure = np.zeros_like(room)
    if len(instance.free_kinds) == 1:
        sure[:, instance.free_kinds[0]] = least
    return Windows(least=least, most=most, sure=sure, room=room)
