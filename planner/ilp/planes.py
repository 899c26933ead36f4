"""Planes: the weights with the best bound of a decomposition, by cutting planes.

The bound of `planner.ilp.decomposition` is a concave function of the weights. What the ranks hold
where it was looked at is a plane above all of it, and so is every corner of the limits of V and U.
The largest value below all planes is an upper bound of the bound, and where it lies the next look
is worth most (Kelley 1960, doi:10.1137/0108053); half the way there from the best weights known
keeps the looks from jumping about.
"""

from __future__ import annotations

from collections.abc import Sequence
from dataclasses import dataclass

import numpy as np

from planner.cost.configuration import Booleans
from planner.ilp.decomposition import Bounded, Box, Decomposition, Weights
from planner.ilp.effort import Effort
from planner.ilp.master import Master, is_available
from planner.ilp.rank import Parts

_WEIGHT_MOST = 8.0  # beyond any that is of use: keeps a first top from lying infinitely far
_SHARE = 0.5
_LEFT_LEAST = 0.02


@dataclass(frozen=True, slots=True, kw_only=True)
class WeightSearch:
    """Looks for the weights with the best bound over plans with `allowed` loads in a box."""

    decomposition: Decomposition
    box: Box
    allowed: tuple[Booleans, ...]

    def best(self, bounded: Bounded, *, target: float, rounds: int, effort: Effort) -> Bounded:
        """Return the best bound found in some rounds, or as soon as it reaches `target`.

        It ends too where the planes leave little of the way to the target. Where HiGHS is missing,
        and CBC solves programs, the weights stay as they are.
        """
        decomposition, box, allowed = self.decomposition, self.box, self.allowed
        if not is_available():
            return bounded
        planes = _Planes(decomposition, box, is_apart=all(mask.sum() == 1 for mask in allowed))
        best = latest = bounded
        for _ in range(rounds):
            left = target - best.lower
            if not 0.0 < left < float("inf") or effort.is_over:
                break
            planes.add(latest, decomposition.divided(latest))
            top = planes.top()
            if top is None or top[0] - best.lower <= _LEFT_LEAST * left:
                break
            weights = _between(best.weights, top[1])
            latest = decomposition.bounded(weights, box, allowed)
            effort.spend(latest.units)
            best = latest if latest.lower > best.lower else best
        return best


def _between(one: Weights, other: Weights) -> Weights:
    return Weights(
        pace=_SHARE * other.pace + (1.0 - _SHARE) * one.pace,
        end=_SHARE * other.end + (1.0 - _SHARE) * one.end,
    )


class _Planes:
    """The planes known so far: columns are y, z, what ranks add, and what V and U add.

    Where loads are certain, each rank has planes of its own.
    """

    def __init__(self, decomposition: Decomposition, box: Box, *, is_apart: bool) -> None:
        self._repeats = decomposition.instance.repeat_count
        self._ranks = len(decomposition.ranks)
        self._sums = self._ranks if is_apart else 1
        weights = 2 * self._ranks
        self._width = weights + self._sums + 1
        free = np.full(self._sums + 1, np.inf)
        self._master = Master(
            np.concatenate([np.zeros(weights), np.ones(self._sums + 1)]),
            least=np.concatenate([np.zeros(weights), -free]),
            most=np.concatenate([np.full(weights, _WEIGHT_MOST), free]),
        )
        for pace, end in box.corners():
            row = np.zeros(self._width)
            row[: self._ranks], row[self._ranks : weights], row[-1] = pace, end, 1.0
            self._master.require(row, pace + end)

    def add(self, bounded: Bounded, parts: Sequence[Parts]) -> None:
        """Add the plane of what ranks hold, through the bound where it was looked at."""
        paces = self._repeats * np.array([one.pace for one in parts])
        ends = np.array([one.end for one in parts])
        weights = np.concatenate([bounded.weights.pace, bounded.weights.end])
        if self._sums == 1:
            self._require(np.concatenate([paces, ends]), weights, 0, bounded.lower - bounded.beyond)
            return
        for rank, table in enumerate(bounded.tables):
            slope = np.zeros(2 * self._ranks)
            slope[rank], slope[self._ranks + rank] = paces[rank], ends[rank]
            self._require(slope, weights, rank, float(table[np.isfinite(table)].min()))

    def _require(self, slope: np.ndarray, at: np.ndarray, place: int, value: float) -> None:
        """Say that a sum is at most `value` + slope (weights - at)."""
        row = np.zeros(self._width)
        row[: len(slope)] = -slope
        row[len(slope) + place] = 1.0
        self._master.require(row, value - float(slope @ at))

    def top(self) -> tuple[float, Weights] | None:
        """Return the largest value below all planes, and the weights there."""
        found = self._master.best()
        if found is None:
            return None
        value, columns = found
        ends = columns[self._ranks : 2 * self._ranks]
        return value, Weights(
            pace=np.maximum(columns[: self._ranks], 0.0), end=np.maximum(ends, 0.0)
        )
