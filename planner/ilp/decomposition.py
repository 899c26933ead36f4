"""Decomposition: a bound of one configuration from its ranks, each solved by itself.

A plan's step is S + V + U with V >= rho t_r and U >= u_r of every rank. At weights y, z >= 0 of
these rows (Lagrange multipliers)

    step >= min over loads of sum_r C_r(load)  +  min over (V, U) of (1 - sum y) V + (1 - sum z) U,

where C_r is the least of phi + rho y_r t + z_r u of rank r (`planner.ilp.rank`) and (V, U) lies
within the limits that are known of every plan below the cutoff. The first minimum keeps what is
hard about ranks, whole layers and the largest transient, and shares out the layers exactly
by dynamic programming (`planner.ilp.transitions`): it is no less than the relaxed program's.
`planner.ilp.planes` looks for the weights with the best bound.
Source: Geoffrion 1974, Lagrangean relaxation for integer programming, doi:10.1007/BFb0120690.
"""

from __future__ import annotations

from collections.abc import Sequence
from dataclasses import dataclass, replace
from functools import cached_property

import numpy as np

from planner.cost.configuration import Booleans, Floats
from planner.ilp.instance import Instance
from planner.ilp.priced_rank import PricedRank
from planner.ilp.rank import Caps, Parts, Rank
from planner.ilp.roster import Roster
from planner.ilp.transitions import Step, best_loads, sums_through

_UNITS_A_RANK, _UNITS_A_CELL = 60.0, 0.01


@dataclass(frozen=True, slots=True, kw_only=True)
class Weights:
    """y and z by rank, each [stages]."""

    pace: Floats
    end: Floats


@dataclass(frozen=True, slots=True, kw_only=True)
class Box:
    """What V and U of a plan lie between; `least_both` and `most_both` are of their sum."""

    least_pace: float
    most_pace: float
    least_end: float
    most_end: float
    least_both: float
    most_both: float

    def least(self, pace_price: float, end_price: float) -> tuple[float, float]:
        """Return the V and U with the least pace_price V + end_price U."""
        return min(self.corners(), key=lambda at: pace_price * at[0] + end_price * at[1])

    def corners(self) -> list[tuple[float, float]]:
        """Return the corners of what V and U lie in."""
        corners = [
            corner
            for pace in (self.least_pace, self.most_pace)
            for corner in (
                (pace, max(self.least_end, self.least_both - pace)),
                (pace, min(self.most_end, self.most_both - pace)),
            )
        ]
        corners += [
            corner
            for end in (self.least_end, self.most_end)
            for corner in (
                (max(self.least_pace, self.least_both - end), end),
                (min(self.most_pace, self.most_both - end), end),
            )
        ]
        return [corner for corner in corners if self._holds(*corner)]

    def caps(self, repeat_count: float) -> Caps:
        """Return what no rank may exceed."""
        pace = self.most_pace / repeat_count if repeat_count > 0.0 else float("inf")
        return Caps(pace=pace, end=self.most_end, both=self.most_both)

    def halves(self, *, by_end: bool) -> tuple[Box, Box]:
        """Return the parts of the box on both sides of the middle of U, or of V."""
        if by_end:
            middle = 0.5 * (self.least_end + self.most_end)
            return replace(self, most_end=middle), replace(self, least_end=middle)
        middle = 0.5 * (self.least_pace + self.most_pace)
        return replace(self, most_pace=middle), replace(self, least_pace=middle)

    def least_sum(self) -> float:
        """Return the least V + U."""
        return max(self.least_both, self.least_pace + self.least_end)

    def is_empty(self) -> bool:
        """Return whether nothing lies within the limits."""
        return (
            self.least_pace > self.most_pace
            or self.least_end > self.most_end
            or max(self.least_both, self.least_pace + self.least_end)
            > min(self.most_both, self.most_pace + self.most_end)
        )

    def _holds(self, pace: float, end: float) -> bool:
        room = 1e-9 * max(abs(self.most_both), 1e-300)
        return (
            self.least_pace - room <= pace <= self.most_pace + room
            and self.least_end - room <= end <= self.most_end + room
            and self.least_both - room <= pace + end <= self.most_both + room
        )


@dataclass(frozen=True, slots=True, kw_only=True)
class Bounded:
    """The bound at some weights: of any plan, and of the plans with a load of a rank.

    `tables` and `through` are by rank [loads]; `beyond` is what (V, U) add.
    """

    weights: Weights
    ranks: tuple[PricedRank, ...]
    tables: tuple[Floats, ...]
    through: tuple[Floats, ...]
    beyond: float
    lower: float

    @property
    def units(self) -> float:
        """Return the work of the bound, as `planner.ilp.effort` counts it."""
        cells = sum(rank.bounds.size * len(rank.grid) for rank in self.ranks)
        return _UNITS_A_RANK * len(self.ranks) + _UNITS_A_CELL * cells


@dataclass(frozen=True, kw_only=True, eq=False)
class Decomposition:
    """The ranks of an instance, and how they share the layers."""

    instance: Instance
    ranks: tuple[Rank, ...]
    steps: tuple[Step, ...]

    @cached_property
    def roster(self) -> Roster:
        """Return the ranks side by side."""
        return Roster(ranks=self.ranks)

    def bounded(self, weights: Weights, box: Box, allowed: Sequence[Booleans]) -> Bounded:
        """Return the bound at the weights over plans with `allowed` loads, by rank [loads]."""
        caps = box.caps(self.instance.repeat_count)
        ranks = self.roster.priced(weights.pace, weights.end, caps)
        tables = tuple(
            np.where(mask, rank.least(), np.inf) for rank, mask in zip(ranks, allowed, strict=True)
        )
        prices = 1.0 - float(weights.pace.sum()), 1.0 - float(weights.end.sum())
        pace, end = box.least(*prices)
        empty = Bounded(
            weights=weights,
            ranks=ranks,
            tables=tables,
            through=(),
            beyond=prices[0] * pace + prices[1] * end,
            lower=0.0,
        )
        return self.summed(empty, tables)

    def summed(self, bounded: Bounded, tables: Sequence[Floats]) -> Bounded:
        """Return the bound with other lower bounds of the ranks' loads."""
        least, through = sums_through(self.steps, tables)
        return replace(
            bounded,
            tables=tuple(tables),
            through=tuple(through),
            lower=least + bounded.beyond,
        )

    def best(self, bounded: Bounded) -> tuple[int, ...]:
        """Return the place of every rank's load in the sharing that sets the bound."""
        return best_loads(self.steps, bounded.tables)

    def divided(self, bounded: Bounded) -> list[Parts]:
        """Return the parts of the ranks that set the bound, where layers may be divided."""
        path = self.best(bounded)
        return [rank.divided(load) for rank, load in zip(bounded.ranks, path, strict=True)]

    def moved(
        self, weights: Weights, parts: Sequence[Parts], box: Box, *, reach: float
    ) -> Weights | None:
        """Return the weights a step up the slope that `parts` make, None at the top."""
        prices = 1.0 - float(weights.pace.sum()), 1.0 - float(weights.end.sum())
        pace, end = box.least(*prices)
        up_pace = self.instance.repeat_count * np.array([one.pace for one in parts]) - pace
        up_end = np.array([one.end for one in parts]) - end
        up_pace = np.where((weights.pace <= 0.0) & (up_pace < 0.0), 0.0, up_pace)
        up_end = np.where((weights.end <= 0.0) & (up_end < 0.0), 0.0, up_end)
        square = float(up_pace @ up_pace + up_end @ up_end)
        if square <= 0.0:
            return None
        return Weights(
            pace=np.maximum(weights.pace + reach / square * up_pace, 0.0),
            end=np.maximum(weights.end + reach / square * up_end, 0.0),
        )


def step_of(parts: Sequence[Parts], repeat_count: float) -> float:
    """Return S + rho T + U of ranks."""
    return (
        sum(one.fill for one in parts)
        + repeat_count * max(one.pace for one in parts)
        + max(one.end for one in parts)
    )
