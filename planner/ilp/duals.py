"""Duals: what layers cost with a price on the memory that they take (B3 of bounds).

For a price lambda >= 0, a rank that keeps its memory limit has
sum cost >= sum (cost + lambda mem) - lambda (cap - fixed - least transient). A chain is priced at
several lambda at once; every number that follows holds at each of them.

The best lambda for a number of equal layers is a slope of the lower hull of their choices in the
plane of memory and cost, since the bound is concave and linear between these. Each rank therefore
has the hull slopes of its own layers as its grid.
"""

from __future__ import annotations

from collections.abc import Sequence
from dataclasses import dataclass
from functools import lru_cache
from typing import Literal

import numpy as np

from planner.cost.configuration import Floats
from planner.ilp.instance import Instance, Kind

_SLOPES_MOST = 12
_KEPT = 6  # three measures of a configuration, and of the one before it

Measure = Literal["fill", "pace", "both"]
"""What a rank costs: its fill, its pace, or omega, the paces of all micro-batches and the end."""


@dataclass(frozen=True, slots=True, kw_only=True, eq=False)
class PricedChain:
    """Prices of every layer and choice, by kind [stages, grid, choices]. It equals itself alone.

    `offset` [stages, grid] is what a rank costs before it holds a block: its own cost, less what
    the price of its memory is worth, and the least of the layers that are pinned to it.
    """

    instance: Instance
    prices: tuple[Floats, ...]
    offset: Floats

    def least_prices(self) -> Floats:
        """Return the least price of every free kind, [free kinds, stages, grid]."""
        return np.stack([self.prices[k].min(axis=2) for k in self.instance.free_kinds])


def cost_chain(instance: Instance, measure: Measure, base: Floats) -> PricedChain:
    """Return what layers cost with memory priced; `base` [stages] is a rank's own cost."""
    grid, prices = _priced(instance.kinds, measure, instance.repeat_count)
    slack = instance.capacity_bytes - instance.stage_bytes - least_transient(instance)
    return _chain(instance, prices, base[:, None] - grid * slack[:, None])


@lru_cache(maxsize=_KEPT)
def _priced(
    kinds: tuple[Kind, ...], measure: Measure, repeat_count: float
) -> tuple[Floats, tuple[Floats, ...]]:
    """Return every rank's lambda [stages, grid], and prices by kind [stages, grid, choices].

    Both are those of the layers alone: instances of one configuration with other windows for the
    cuts share them.
    """
    costs = [_cost(kind, measure, repeat_count) for kind in kinds]
    grid = _price_grid(kinds, costs)
    prices = tuple(
        cost[:, None, :] + grid[:, :, None] * kind.memory[:, None, :]
        for kind, cost in zip(kinds, costs, strict=True)
    )
    return grid, prices


def _cost(kind: Kind, measure: Measure, repeat_count: float) -> Floats:
    """Return what a layer costs under every choice, [stages, choices]."""
    if measure == "both":
        return scaled(kind, repeat_count)
    return kind.fill if measure == "fill" else kind.pace


def memory_chain(instance: Instance, host_ratios: Floats) -> PricedChain:
    """Return device bytes + ratio x host bytes of every layer over what a rank's limits allow.

    `host_ratios` is [ratios]. No rank of a plan that fits exceeds 0.
    """
    prices = tuple(
        kind.memory[:, None, :] + host_ratios[None, :, None] * kind.host[:, None, :]
        for kind in instance.kinds
    )
    limits = (
        instance.capacity_bytes[:, None]
        + host_ratios[None, :] * instance.host_capacity_bytes[:, None]
    )
    base = instance.stage_bytes + least_transient(instance)
    return _chain(instance, prices, base[:, None] - limits)


def least_transient(instance: Instance) -> Floats:
    """Return the least transient bytes of each rank, [stages].

    Every rank holds a block, and its transient is at least the least of any block; ranks with
    the embedding or the head have those transients too.
    """
    free = [instance.kinds[k].transient.min(axis=1) for k in instance.free_kinds]
    least: Floats = np.min(free, axis=0)
    for kind in instance.kinds:
        if kind.pinned_stage is not None:
            own = float(kind.transient[kind.pinned_stage].min())
            least[kind.pinned_stage] = max(least[kind.pinned_stage], own)
    return least


def _price_grid(kinds: Sequence[Kind], costs: Sequence[Floats]) -> Floats:
    """Return 0 and the hull slopes of the blocks that each rank may hold, [stages, grid].

    A pinned layer's slopes are left out: it is one of many, and any price gives a bound.
    """
    free = [k for k, kind in enumerate(kinds) if kind.pinned_stage is None]
    slopes = [np.zeros((len(kinds[0].memory), 1))]
    slopes += [hull_slopes(costs[k], kinds[k].memory) for k in free]
    return np.concatenate(slopes, axis=1)


def hull_slopes(cost: Floats, memory: Floats) -> Floats:
    """Return the slopes of the lower hull of (memory, cost) [ranks, choices], [ranks, slopes].

    From the cheapest choice on, the next corner is the one with the least loss of cost for each
    byte saved. Where a rank has fewer corners than others, its last slope is repeated.
    """
    ranks = np.arange(len(cost))
    order = np.lexsort((memory, cost), axis=1)
    corner = order[:, 0]
    slopes: list[Floats] = []
    last = np.zeros(len(cost))
    for _ in range(_SLOPES_MOST):
        saved = memory[ranks, corner][:, None] - memory
        lost = cost - cost[ranks, corner][:, None]
        slope = np.full_like(cost, np.inf)
        np.divide(lost, saved, out=slope, where=saved > 0.0)
        least = slope.min(axis=1)
        found = np.isfinite(least)
        if not found.any():
            break
        last = np.where(found, least, last)
        slopes.append(last)
        reached = np.where(slope <= least[:, None], memory, np.inf).argmin(axis=1)
        corner = np.where(found, reached, corner)
    return np.stack(slopes, axis=1) if slopes else np.zeros((len(cost), 1))


def _chain(instance: Instance, prices: tuple[Floats, ...], offset: Floats) -> PricedChain:
    for kind, price in zip(instance.kinds, prices, strict=True):
        if kind.pinned_stage is not None:
            offset[kind.pinned_stage] += price[kind.pinned_stage].min(axis=1)
    return PricedChain(instance=instance, prices=prices, offset=offset)


def scaled(kind: Kind, repeat_count: float) -> Floats:
    """Return omega = repeats x pace + end of every choice, [stages, choices]."""
    return repeat_count * kind.pace + kind.end
