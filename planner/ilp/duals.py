"""Duals: what layers cost with a price on the memory that they take (B3 of bounds).

For a price lambda >= 0, a stage that keeps its memory limit has
sum cost >= sum (cost + lambda mem) - lambda (cap - fixed - least transient). A chain is priced on a
grid of lambda at once; every number that follows holds at each grid point.
"""

from __future__ import annotations

from dataclasses import dataclass

import numpy as np

from planner.cost.configuration import Floats
from planner.ilp.instance import Instance

_MULTIPLIERS = np.array([0.0, *(2.0**e for e in range(-6, 8))])


@dataclass(frozen=True, slots=True, kw_only=True)
class PricedChain:
    """Prices of every layer and choice, by run [stages, grid, choices].

    `offset` [stages, grid] is what a stage costs before it holds a block: its own cost, less what
    the price of its memory is worth, and the least of the layers that are pinned to it.
    """

    instance: Instance
    prices: tuple[Floats, ...]
    offset: Floats

    def layers(self) -> list[tuple[int, Floats]]:
        """Return count and least price [stages, grid] of each run of blocks."""
        runs = self.instance.runs
        return [(runs[k].count, self.prices[k].min(axis=2)) for k in self.instance.block_runs]


def cost_chain(instance: Instance, costs: list[Floats], base: Floats) -> PricedChain:
    """Return costs [choices] by run with memory priced; `base` [stages] is each stage's own."""
    grid = price_grid(instance, costs)
    slack = instance.capacity_bytes - instance.stage_bytes - least_transient(instance)
    prices = []
    for run, cost in zip(instance.runs, costs, strict=True):
        memory = np.stack([run.memory(flight) for flight in instance.in_flight])
        prices.append(cost + grid[None, :, None] * memory[:, None, :])
    return _chain(instance, prices, base[:, None] - grid[None, :] * slack[:, None])


def memory_chain(instance: Instance, host_ratios: Floats, *, spare: Floats) -> PricedChain:
    """Return device bytes + ratio x host bytes of every layer, over `spare`, both [ratios]."""
    prices = []
    for run in instance.runs:
        memory = np.stack([run.memory(flight) for flight in instance.in_flight])
        prices.append(memory[:, None, :] + host_ratios[None, :, None] * run.host)
    base = instance.stage_bytes + least_transient(instance)
    return _chain(instance, prices, base[:, None] + spare[None, :])


def least_transient(instance: Instance) -> Floats:
    """Return the least transient bytes of each stage, [stages].

    Every stage holds a block, and its transient is at least the least of any block; stages with
    the embedding or the head have those transients too.
    """
    block = min(float(run.transient.min()) for run in instance.runs if run.pinned_stage is None)
    least = np.full(instance.stage_count, block)
    for run in instance.runs:
        if run.pinned_stage is not None:
            own = float(run.transient.min())
            least[run.pinned_stage] = max(least[run.pinned_stage], own)
    return least


def price_grid(instance: Instance, costs: list[Floats]) -> Floats:
    """Return the grid of lambda: multiples of the chain's cost range over its memory range."""
    cost_range = memory_range = 0.0
    flight = max(instance.in_flight)
    for run, cost in zip(instance.runs, costs, strict=True):
        memory = run.memory(flight)
        cost_range += run.count * float(cost.max() - cost.min())
        memory_range += run.count * float(memory.max() - memory.min())
    scale = cost_range / memory_range if memory_range > 0.0 else 0.0
    return scale * _MULTIPLIERS if scale > 0.0 else np.zeros(1)


def _chain(instance: Instance, prices: list[Floats], offset: Floats) -> PricedChain:
    for run, price in zip(instance.runs, prices, strict=True):
        if run.pinned_stage is not None:
            offset[run.pinned_stage] += price[run.pinned_stage].min(axis=1)
    return PricedChain(instance=instance, prices=tuple(prices), offset=offset)
