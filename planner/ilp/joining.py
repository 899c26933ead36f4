"""Joining: the best plan of ranks whose layers are certain, from their fronts.

With fills that are shares of paces, the step of a plan whose largest end is at most U is least if
every rank has its least pace under U:

    step(U) = sum of (fill_r + share_r (p_r(U) - own_r)) + max_r p_r(U) + U,

with p = rho t. Lower bounds of the p_r (`planner.ilp.fronts`) are straight between the ends where
pieces begin, so that step(U) is convex there; its least is no less than where the tangents at both
ends meet. The least of all is looked into: the gap is narrowed of the rank that may lose the most,
until no end is left that a plan below the limit can have.
"""

from __future__ import annotations

import time
from collections.abc import Callable, Sequence
from dataclasses import dataclass

import numpy as np

from planner.cost.configuration import Floats, Integers
from planner.ilp.decomposition import Box, Weights
from planner.ilp.fronts import APART, Front, Pieces, Point, StuckError, fill_share
from planner.ilp.rank import Rank

_STRENGTH_GROWTH = 4
_STRENGTH_MOST = 4

Take = Callable[[Sequence[Integers]], float | None]
"""Takes layers by rank; returns the limit after it, None if they cannot be had."""


@dataclass(frozen=True, slots=True, kw_only=True)
class _Least:
    """The least bound of all ends: its value, an end where it is reached, and each rank's gap."""

    value: float
    end: float
    paces: Floats
    gaps: Integers


@dataclass(slots=True, kw_only=True)
class Joining:
    """Ranks with one load each, their fronts, and what they cost beside paces and ends.

    `shares` [ranks] are of p, `fill` is the rest of all fills. `lower` is a bound of every plan
    that was not taken. Where it was stuck it goes on with more `strength`, as long as there is any.
    """

    fronts: list[Front]
    pieces: list[Pieces]
    shares: Floats
    fill: float
    box: Box
    lower: float = -float("inf")
    strength: int = 1

    @staticmethod
    def of(ranks: Sequence[Rank], shares: Sequence[float], box: Box, weights: Weights) -> Joining:
        """Return what is to be joined of ranks with one load each and their fills' shares."""
        repeats = ranks[0].repeats
        caps = box.caps(repeats)
        of_paces = np.array(shares) / repeats
        own = [rank.own.fill for rank in ranks]
        own_paces = repeats * np.array([rank.own.pace for rank in ranks])
        fronts = [
            Front.of(rank, caps, share=_share(float(pace), float(end)))
            for rank, pace, end in zip(ranks, weights.pace + of_paces, weights.end, strict=True)
        ]
        return Joining(
            fronts=fronts,
            pieces=[front.pieces() for front in fronts],
            shares=of_paces,
            fill=float(sum(own) - of_paces @ own_paces),
            box=box,
        )

    def run(self, take: Take, *, limit: float, deadline: float) -> None:
        """Narrow fronts until no plan below the limit is left, or it gets too late.

        One gap is narrowed in any case.

        Raises:
            StuckError: if a packing does not get to the end, or a plan is refused.
        """
        try:
            self._run(take, limit, deadline)
        except StuckError:
            self.strength *= _STRENGTH_GROWTH
            for front in self.fronts:
                front.strength = self.strength
            self.pieces = [front.pieces() for front in self.fronts]
            raise

    @property
    def is_spent(self) -> bool:
        """Return whether it was stuck with the most strength that is given."""
        return self.strength > _STRENGTH_MOST

    def _run(self, take: Take, limit: float, deadline: float) -> None:
        while True:
            least = self._least()
            self.lower = max(self.lower, least.value)
            if least.value >= limit * (1.0 - APART):
                self.lower = float("inf")
                return
            points = [front.point_under(least.end) for front in self.fronts]
            limit = self._offered(points, take, limit)
            if not (least.gaps >= 0).any():
                if least.value < limit * (1.0 - APART):
                    raise StuckError
                continue
            self._narrow(least, points)
            if time.perf_counter() > deadline:
                return

    def _offered(self, points: Sequence[Point | None], take: Take, limit: float) -> float:
        """Return the limit after a plan of points is taken, if there is one below it."""
        known = [point for point in points if point is not None]
        if len(known) < len(points):
            return limit
        paces = np.array([point.pace for point in known])
        step = self.fill + float(self.shares @ paces) + float(paces.max())
        step += max(point.end for point in known)
        if step >= limit:
            return limit
        taken = take([point.counts for point in known])
        if taken is None:
            self.strength = _STRENGTH_MOST
            raise StuckError
        return min(limit, taken)

    def _narrow(self, least: _Least, points: Sequence[Point | None]) -> None:
        """Narrow the gap at the least bound of the rank that may lose the most in it."""
        most = float(least.paces.max())
        lost = []
        for rank, (pace, point) in enumerate(zip(least.paces, points, strict=True)):
            gap = int(least.gaps[rank])
            if gap < 0:
                lost.append(-np.inf)
                continue
            known = self.fronts[rank].gaps[gap].pace_high
            upper = known if point is None else min(point.pace, known)
            lost.append(self.shares[rank] * (upper - pace) + max(upper - most, 0.0))
        rank = int(np.argmax(lost))
        self.fronts[rank].narrow(int(least.gaps[rank]), least.end)
        self.pieces[rank] = self.fronts[rank].pieces()

    def _least(self) -> _Least:
        """Return the least bound of all ends within the limits."""
        low, high = self.box.least_end, self.box.most_end
        every = np.concatenate([own.starts for own in self.pieces])
        first = np.unique(np.append(every[(every > low) & (every < high)], low))
        last = np.append(first[1:], max(high, low))
        at_zero, slope, gaps = self._lines(first)
        value, end = self._bounds(first, last, at_zero, slope)
        best = int(value.argmin())
        paces = at_zero[:, best] + slope[:, best] * end[best]
        return _Least(
            value=float(value[best]), end=float(end[best]), paces=paces, gaps=gaps[:, best]
        )

    def _lines(self, first: Floats) -> tuple[Floats, Floats, Integers]:
        """Return every rank's piece from each end on, [ranks, ends]."""
        places = [np.searchsorted(own.starts, first, side="right") - 1 for own in self.pieces]
        rows = list(zip(self.pieces, places, strict=True))
        return (
            np.stack([own.at_zero[place] for own, place in rows]),
            np.stack([own.slope[place] for own, place in rows]),
            np.stack([own.gap[place] for own, place in rows]),
        )

    def _bounds(
        self, first: Floats, last: Floats, at_zero: Floats, slope: Floats
    ) -> tuple[Floats, Floats]:
        """Return a bound of each interval of ends and where it lies, each [intervals]."""
        left, left_slope = self._tangents(first, at_zero, slope, side=-1.0)
        right, right_slope = self._tangents(last, at_zero, slope, side=1.0)
        falls = np.isfinite(left) & (left_slope < 0.0)
        dips = falls & (right_slope > 0.0)
        width = last - first
        apart = np.where(dips, right - right_slope * width, 0.0) - np.where(dips, left, 0.0)
        gone = np.zeros(len(first))
        np.divide(apart, left_slope - right_slope, out=gone, where=dips)
        gone = np.where(dips, np.clip(gone, 0.0, width), np.where(falls, width, 0.0))
        lowest = np.where(dips, left + left_slope * gone, np.where(falls, right, left))
        return lowest, first + gone

    def _tangents(
        self, ends: Floats, at_zero: Floats, slope: Floats, *, side: float
    ) -> tuple[Floats, Floats]:
        """Return the step at ends of intervals, and its slope into them, each [intervals].

        `side` is -1 at their beginning, where the flattest of the largest paces counts, 1 at their
        end, where it is the steepest.
        """
        with np.errstate(invalid="ignore"):
            paces = at_zero + np.where(slope == 0.0, 0.0, slope * ends)
        floor = self.box.least_pace
        most = np.maximum(paces.max(axis=0), floor)
        is_most = paces >= most * (1.0 - APART)
        steep = np.where(is_most, side * slope, np.inf).min(axis=0)
        steep = np.where(most <= floor * (1.0 + APART), np.minimum(steep, 0.0), steep)
        largest = np.where(np.isfinite(steep), side * steep, 0.0)
        value = self.fill + self.shares @ np.minimum(paces, 1e200) + most + ends
        return np.where(np.isfinite(most), value, np.inf), self.shares @ slope + largest + 1.0


def fill_shares(ranks: Sequence[Rank]) -> tuple[float, ...] | None:
    """Return every rank's fill as a share of its pace, None where it is none."""
    shares = [fill_share(rank) for rank in ranks]
    known = tuple(share for share in shares if share is not None)
    return known if ranks and ranks[0].repeats > 0.0 and len(known) == len(shares) else None


def _share(pace_weight: float, end_weight: float) -> float:
    """Return the pace's share of two weights, a half where both are 0."""
    total = pace_weight + end_weight
    return pace_weight / total if total > 0.0 else 0.5
