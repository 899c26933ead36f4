"""Levels: how low the largest stage of a chain can be, whatever the cuts (B4, B5 of bounds).

A layer of run k costs price[r, i] on stage r at grid point i. A stage costs its offset and the sum
of its layers at the dearest grid point: phi_r. Prices are not negative; offsets may be.
"""

from __future__ import annotations

from collections.abc import Sequence
from dataclasses import dataclass

import numpy as np

from planner.cost.configuration import Floats, Integers

_BISECTIONS = 24
_ROUNDING = 1e-12


class RunLevels:
    """Levels of a chain that is one run: phi_r depends only on how many layers stage r holds."""

    def __init__(self, count: int, price: Floats, offset: Floats) -> None:
        """Take `count` layers; price and offset are [stages, prices]."""
        self._count = count
        self._stages = len(offset)
        held = np.arange(1, count - self._stages + 2, dtype=np.float64)
        costs: Floats = offset[:, :, None] + price[:, :, None] * held
        self._costs: Floats = costs.max(axis=1)  # phi_r(1), phi_r(2), ..., [stages, held]

    def least_level(self) -> float:
        """Return the least W with room for all layers, at least one on each stage.

        As many layers fit under W as there are phi_r(n) <= W with n >= 1.
        """
        place = self._count - 1
        enough = float(np.partition(self._costs, place, axis=None)[place])
        return max(enough, float(self._costs[:, 0].max()))

    def least_sum(self) -> float:
        """Return the least sum of phi_r: one layer each, and then the smallest increments."""
        spare = self._count - self._stages
        increments = np.sort(np.diff(self._costs, axis=1), axis=None)[:spare]
        return float(self._costs[:, 0].sum() + increments.sum())

    def reaches(self, limit: float) -> bool:
        """Return whether all layers may be placed with no phi_r above `limit`."""
        return self.least_level() <= limit + _ROUNDING * abs(limit)


class ChainLevels:
    """Levels of a chain of several runs: phi_r depends on which layers stage r holds."""

    def __init__(self, layers: Sequence[tuple[int, Floats]], offset: Floats) -> None:
        """Take runs in chain order as (count, price); prices and offset are [stages, prices]."""
        self._offset = offset
        self._cheapest: Floats = np.min([price for _, price in layers], axis=0)
        steps = [np.repeat(price[:, :, None], count, axis=2) for count, price in layers]
        sums = np.cumsum(np.concatenate(steps, axis=2), axis=2)
        self._prefix: Floats = np.concatenate([np.zeros_like(sums[:, :, :1]), sums], axis=2)

    def least_level(self) -> float:
        """Return a W close under the least with which the greedy of `reaches` places all."""
        low = float((self._offset + self._cheapest).max())
        if self.reaches(low):
            return low
        high = float((self._prefix[:, :, -1] + np.abs(self._offset)).max())
        width = max(abs(low), high / self._prefix.shape[2])
        while low + width < high and not self.reaches(low + width):
            low, width = low + width, 2.0 * width
        high = min(low + width, high)
        for _ in range(_BISECTIONS):
            middle = 0.5 * (low + high)
            if self.reaches(middle):
                high = middle
            else:
                low = middle
        return low

    def least_sum(self) -> float:
        """Return a number below the sum of phi_r: each stage with its cheapest layer alone."""
        return float((self._offset + self._cheapest).max(axis=1).sum())

    def reaches(self, limit: float) -> bool:
        """Return whether stages filled in order, each as far as `limit` lets it, hold all layers.

        A stage that the ones before it leave nothing it can take stays empty here: in a plan with
        earlier cuts it may hold other layers, so that refusing it would not be a bound.
        """
        allowed = self._allowed(limit)
        if (allowed < self._cheapest).any():
            return False
        return bool(self._latest(allowed)[-1] >= self._prefix.shape[2] - 1)

    def cuts(self, limit: float) -> Cuts | None:
        """Return the cuts of all plans with no phi_r above `limit`, None if there are none.

        The latest come from filling stages from the first on, the earliest from the last back.
        """
        allowed = self._allowed(limit)
        if (allowed < self._cheapest).any():
            return None
        cuts = Cuts(
            earliest=np.array(self._earliest(allowed), dtype=np.int64),
            latest=np.array(self._latest(allowed), dtype=np.int64),
        )
        return cuts if cuts.possible() else None

    def spare(self, limit: float, first: Integers, end: Integers) -> Floats:
        """Return what `limit` leaves beside layers first[r] to end[r], [stages, grid]."""
        stages = np.arange(len(first))
        held = self._prefix[stages, :, end] - self._prefix[stages, :, first]
        spare: Floats = self._allowed(limit) - held
        return spare

    def _allowed(self, limit: float) -> Floats:
        rounding = _ROUNDING * (abs(limit) + float(self._prefix[:, :, -1].max()))
        allowed: Floats = limit + rounding - self._offset
        return allowed

    def _latest(self, allowed: Floats) -> list[int]:
        """Return each stage filled as far as it can, one layer left for each that follows."""
        stages, _, length = self._prefix.shape
        placed = [0]
        for stage in range(stages):
            end = length - (stages - 1 - stage)
            held = self._prefix[stage, :, placed[-1] : end]
            within = (held - held[:, :1] <= allowed[stage][:, None]).all(axis=0)
            placed.append(placed[-1] + int(np.count_nonzero(within)) - 1)
        return placed

    def _earliest(self, allowed: Floats) -> list[int]:
        """Return the same from the last stage back, one layer left for each before."""
        stages, _, length = self._prefix.shape
        left = [length - 1]
        for stage in reversed(range(stages)):
            held = self._prefix[stage, :, stage : left[-1] + 1]
            within = (held[:, -1:] - held <= allowed[stage][:, None]).all(axis=0)
            left.append(left[-1] - int(np.count_nonzero(within)) + 1)
        return left[::-1]


@dataclass(frozen=True, slots=True, kw_only=True)
class Cuts:
    """Where each cut of the chain may lie, [stages + 1]: stage r holds layers cut[r] to cut[r + 1].

    `earliest` and `latest` start with 0 and end with the number of layers.
    """

    earliest: Integers
    latest: Integers

    def narrowed(self, other: Cuts) -> Cuts:
        """Return the cuts that both allow."""
        return Cuts(
            earliest=np.maximum(self.earliest, other.earliest),
            latest=np.minimum(self.latest, other.latest),
        )

    def possible(self) -> bool:
        """Return whether any cuts are left."""
        return bool((self.earliest <= self.latest).all())


Levels = RunLevels | ChainLevels


def chain_levels(layers: Sequence[tuple[int, Floats]], offset: Floats) -> Levels:
    """Return the levels of a chain, exact where it is one run."""
    if len(layers) == 1:
        count, price = layers[0]
        return RunLevels(count, price, offset)
    return ChainLevels(layers, offset)
