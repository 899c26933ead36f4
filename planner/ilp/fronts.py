"""Fronts: the least pace of a rank under every end, for layers that are certain.

Where the fill of a layer is the same share of its pace under every choice, two ways to hold the
layers of a rank differ to good or ill in two numbers alone: rho t and u. Those that no other way
beats in both are the rank's front. Some of its points are known, and beside each of them lies a gap
that may hold more. A packing at weights along the gap's diagonal, below both of its sides, finds
the next point or says that there is none; where that takes too much effort, the gap is split. Until
then a line bounds what is in the gap: the relaxed packing at these weights. Only the gaps are
closed that matter to a plan.

Source: Ulungu and Teghem 1995, The two phases method, Foundations of Computing and Decision
Sciences 20(2), 149-165.
"""

from __future__ import annotations

from bisect import insort
from collections.abc import Sequence
from dataclasses import dataclass, field, replace
from typing import NamedTuple

import numpy as np

from planner.cost.configuration import Floats, Integers
from planner.ilp.priced_rank import PricedRank
from planner.ilp.rank import Caps, Rank
from planner.ilp.roster import Roster

APART = 1e-11
"""The least difference of two paces or ends, as a share of them, that counts as one."""

_EFFORTS = (2000, 3000)
_LINES = 3
_PROVEN = 1e-12
_THIN = 1e-6
_HALVINGS_MOST = 4
_IS_END, _IS_POINT, _IS_PIECE = range(3)
_MARGIN = 0.05
_LARGE = 0.8


_At = tuple[float, float]
"""A pace and an end: rho t and u, in seconds."""


class StuckError(Exception):
    """A gap is not closed, and was split often enough."""


@dataclass(frozen=True, slots=True, kw_only=True)
class Point:
    """A way to hold the layers: rho t and u in seconds, layers by column."""

    pace: float
    end: float
    counts: Integers


@dataclass(frozen=True, slots=True, kw_only=True, eq=False)
class Gap:
    """Where points may lie: their rho t and u from the low sides up to, but not at, the high ones.

    `pace_weight` rho t + `end_weight` u of each is at least `least`. Where no point with less end
    is known, none is at its high side of pace: `is_last`. It `is_large` if it is most of another
    in which a point was found.
    """

    pace_low: float
    pace_high: float
    end_low: float
    end_high: float
    pace_weight: float
    end_weight: float
    least: float
    priced: PricedRank
    is_last: bool
    effort: int = 0
    halvings: int = 0
    is_large: bool = False

    def crossing(self, pace: float) -> float:
        """Return the end above which the line is below a pace, within the gap."""
        left = self.least - self.pace_weight * pace
        crossing = left / self.end_weight if self.end_weight > 0.0 else np.copysign(np.inf, left)
        return float(min(max(crossing, self.end_low), self.end_high))

    def is_amid(self, end: float) -> bool:
        """Return whether an end is well within the gap."""
        margin = _MARGIN * (self.end_high - self.end_low)
        return self.end_low + margin < end < self.end_high - margin

    def corner(self) -> float:
        """Return the weighted sum that is above all points."""
        corner = self.pace_weight * self.pace_high + self.end_weight * self.end_high
        return corner * (1.0 - APART)

    def above(self, least: float) -> Gap:
        """Return the gap where the weighted sum of all points is known to be no less."""
        left = least - self.end_weight * self.end_high
        pace = left / self.pace_weight if self.pace_weight > 0.0 else self.pace_low
        return replace(self, pace_low=max(self.pace_low, pace), least=max(self.least, least))

    def pieces(self, place: int) -> list[_Piece]:
        """Return the bound in the gap at a place: where its high side holds, its line, its low."""
        first, second = self.crossing(self.pace_high), self.crossing(self.pace_low)
        known = _Piece(self.end_low, self.pace_high, 0.0, -1)
        if self.is_last:
            known = _Piece(self.end_low, np.inf, 0.0, place)
        line = _Piece(first, 0.0, 0.0, place)
        if self.pace_weight > 0.0:
            slope = -self.end_weight / self.pace_weight
            line = _Piece(first, self.least / self.pace_weight, slope, place)
        low = _Piece(second, self.pace_low, 0.0, place)
        pairs = zip((known, line, low), (first, second, self.end_high), strict=True)
        return [piece for piece, end in pairs if piece.start < end]

    def last_piece(self, place: int) -> _Piece:
        """Return a level bound of all paces in the gap at a place, from its end on."""
        lowest = self.pieces(place)[-1].at(self.end_high)
        return _Piece(self.end_high, lowest, 0.0, place)


class _Piece(NamedTuple):
    """From an end on, the bound `at_zero` + `slope` times the end; whose gap it is, or -1."""

    start: float
    at_zero: float
    slope: float
    gap: int

    def at(self, end: float) -> float:
        """Return the bound at an end."""
        return self.at_zero + self.slope * end if self.slope else self.at_zero

    def below(self, most: _Piece) -> list[_Piece]:
        """Return the piece where it is below a level one, and that one where it is not."""
        level = most._replace(start=self.start)
        if self.at(self.start) <= most.at_zero:
            return [self]
        if not self.slope:
            return [level]
        return [level, self._replace(start=(most.at_zero - self.at_zero) / self.slope)]


@dataclass(frozen=True, slots=True, kw_only=True)
class Pieces:
    """A lower bound of the least rho t under every end, each [pieces].

    From an end of `starts` on it is `at_zero` + `slope` times the end; `gap` is the place of the
    gap that it is a bound of, -1 where it is exact.
    """

    starts: Floats
    at_zero: Floats
    slope: Floats
    gap: Integers


@dataclass(slots=True, kw_only=True)
class Front:
    """What is known of a rank's front: points by their ends, and gaps by theirs.

    `rank` has one load; it is alone in the `roster`, and several times in another one, for as many
    lines at once. Packings have `strength` times the effort that is tried first.
    """

    rank: Rank
    roster: Roster
    several: Roster
    points: list[Point] = field(default_factory=list)
    gaps: list[Gap] = field(default_factory=list)
    strength: int = 1

    @staticmethod
    def of(rank: Rank, caps: Caps, *, share: float) -> Front:
        """Return the front below caps as one gap; a pace's `share` may suit its line."""
        several = Roster(ranks=(rank,) * _LINES)
        front = Front(rank=rank, roster=Roster(ranks=(rank,)), several=several)
        least_pace = front._least(1.0, 0.0, caps)
        least_end = front._least(0.0, 1.0, caps)
        low = max(least_pace, 0.0), max(least_end, 0.0)
        most = rank.repeats * caps.pace, caps.end
        beyond = 3.0 * APART * sum(most)  # what is at the caps is within
        high = most[0] + beyond, most[1] + beyond
        gap = front._gap(low, high, share=share, is_last=True)
        front._add(low, high, within=gap, is_last=True)
        return front

    def _least(self, pace_weight: float, end_weight: float, caps: Caps) -> float:
        """Return the least weighted sum of a pace and an end below caps."""
        (priced,) = self.roster.priced(pace_weight, end_weight, caps, fill_weight=0.0)
        return float(priced.least()[0])

    def point_under(self, end: float) -> Point | None:
        """Return the known point with the least pace whose end is no larger."""
        under = [point for point in self.points if point.end <= end]
        return min(under, key=lambda point: (point.pace, point.end), default=None)

    def pieces(self) -> Pieces:
        """Return the bound of the least rho t under every end."""
        never = _Piece(-np.inf, np.inf, 0.0, -1)
        gaps = list(enumerate(self.gaps))
        events = [(gap.end_high, _IS_END, gap.last_piece(place)) for place, gap in gaps]
        events += [(one.end, _IS_POINT, _Piece(one.end, one.pace, 0.0, -1)) for one in self.points]
        for place, gap in gaps:
            events += [(piece.start, _IS_PIECE, piece) for piece in gap.pieces(place)]
        events.sort(key=lambda event: event[:2])
        found, most, within = [never], never, never
        for end, order, piece in events:
            if order == _IS_PIECE:
                within = piece
            else:
                within = never if order == _IS_END else within
                most = piece if piece.at_zero < most.at_zero else most
            while found[-1].start > end:
                found.pop()
            found += within._replace(start=end).below(most)
        return Pieces(
            starts=np.array([piece.start for piece in found]),
            at_zero=np.array([piece.at_zero for piece in found]),
            slope=np.array([piece.slope for piece in found]),
            gap=np.array([piece.gap for piece in found], dtype=np.int64),
        )

    def narrow(self, place: int, end: float) -> None:
        """Look for a point in a gap, and close what is known to hold none.

        A large gap on both sides of `end` is split there: points would be found one beside another.

        Raises:
            StuckError: if packings do not get to the end.
        """
        gap = self.gaps.pop(place)
        if gap.is_large and gap.is_amid(end):
            self._split(gap, end)
            return
        upper = gap.corner()
        effort = self.strength * _EFFORTS[gap.effort]
        packing = gap.priced.packing(0, upper=upper, effort=effort)
        is_proven = packing.lower >= min(packing.cost, upper) * (1.0 - _PROVEN)
        if not is_proven and gap.effort + 1 < len(_EFFORTS):
            self._try_harder(gap)
            return
        if packing.counts is None:
            if not is_proven:
                self._halve(gap)
            return
        self._divide(gap.above(packing.lower), packing.counts, is_proven=is_proven)

    def _try_harder(self, gap: Gap) -> None:
        """Look for the least pace alone next time: with one limit less, packings take less."""
        low, high = (gap.pace_low, gap.end_low), (gap.pace_high, gap.end_high)
        plain = self._gap(low, high, share=1.0, is_last=gap.is_last)
        if plain.least < plain.corner():
            effort, halvings = gap.effort + 1, gap.halvings
            self._put(replace(plain, effort=effort, halvings=halvings, is_large=gap.is_large))

    def _divide(self, gap: Gap, counts: Integers, *, is_proven: bool) -> None:
        """Put a point into a gap, and back what is left beside it."""
        parts = self.rank.parts(counts.astype(np.float64))
        pace, end = self.rank.repeats * parts.pace, parts.end
        point = Point(pace=pace, end=end, counts=counts)
        if end < gap.end_low:
            self._add((gap.pace_low, gap.end_low), (pace, gap.end_high), within=gap, is_last=False)
            self._meet(point)
            return
        insort(self.points, point, key=lambda one: one.end)
        low = pace if is_proven else gap.pace_low
        most = _LARGE * (gap.end_high - gap.end_low)
        below, above = end - gap.end_low > most, gap.end_high - end > most
        high = (gap.pace_high, end)
        self._add((low, gap.end_low), high, within=gap, is_last=gap.is_last, is_large=below)
        high = (pace, gap.end_high)
        self._add((gap.pace_low, end), high, within=gap, is_last=False, is_large=above)

    def _meet(self, point: Point) -> None:
        """Put a point into the gap that it lies in, if it is a new one."""
        around = [gap for gap in self.gaps if gap.end_low <= point.end < gap.end_high]
        for gap in around:
            if point.pace < gap.pace_high:
                self.gaps.remove(gap)
                self._divide(gap, point.counts, is_proven=False)

    def _halve(self, gap: Gap) -> None:
        """Split a gap in the middle of its ends.

        Raises:
            StuckError: if it is of one that was split too often; it stays for a stronger look.
        """
        if gap.halvings >= _HALVINGS_MOST:
            self._put(replace(gap, effort=0, halvings=0))
            raise StuckError
        middle = 0.5 * (gap.end_low + gap.end_high)
        self._split(replace(gap, halvings=gap.halvings + 1), middle)

    def _split(self, gap: Gap, end: float) -> None:
        """Split a gap in which nothing is known at an end."""
        low, high = (gap.pace_low, gap.end_low), (gap.pace_high, gap.end_high)
        self._add(low, (high[0], end), within=gap, is_last=gap.is_last)
        self._add((low[0], end), high, within=gap, is_last=gap.is_last)

    def _add(
        self, low: _At, high: _At, *, within: Gap, is_last: bool, is_large: bool = False
    ) -> None:
        """Add a gap within another between sides of pace and end, if points can lie there.

        Of the line along its diagonal, of one with the other's weights and of one between, the one
        is taken that leaves the least to its far corner.
        """
        wide, tall = high[0] * (1.0 - APART) - low[0], high[1] * (1.0 - APART) - low[1]
        if wide <= 0.0 or tall <= 0.0:
            return
        thin = _THIN * (high[0] + high[1])
        along = max(tall, thin) / (max(tall, thin) + max(wide, thin))
        known = within.pace_weight
        shares = [along, known, 0.5 * (along + known)]
        closest = min(
            self._gaps(low, high, shares=shares, is_last=is_last),
            key=lambda gap: gap.corner() - gap.least,
        )
        if closest.least < closest.corner():
            self._put(replace(closest, is_large=is_large, halvings=within.halvings))

    def _gaps(self, low: _At, high: _At, *, shares: Sequence[float], is_last: bool) -> list[Gap]:
        """Return gaps with lines at shares of the weights, as many as are priced at once."""
        if max(shares) == 1.0:
            return [self._gap(low, high, share=share, is_last=is_last) for share in shares]
        weights = np.array(shares)
        every = self.several.priced(weights, 1.0 - weights, self._caps(high), fill_weight=0.0)
        return [
            self._with_line(low, high, share, priced, is_last=is_last)
            for share, priced in zip(shares, every, strict=True)
        ]

    def _gap(self, low: _At, high: _At, *, share: float, is_last: bool) -> Gap:
        """Return a gap with the line at a pace's share of the weights.

        With the pace alone, it is not limited: that would say no more.
        """
        caps = self._caps(high)
        caps = replace(caps, pace=np.inf) if share == 1.0 else caps
        (priced,) = self.roster.priced(share, 1.0 - share, caps, fill_weight=0.0)
        return self._with_line(low, high, share, priced, is_last=is_last)

    def _caps(self, high: _At) -> Caps:
        """Return what points below the high sides are within."""
        pace = high[0] * (1.0 - APART) / self.rank.repeats
        return Caps(pace=pace, end=high[1] * (1.0 - APART))

    @staticmethod
    def _with_line(low: _At, high: _At, share: float, priced: PricedRank, *, is_last: bool) -> Gap:
        return Gap(
            pace_low=low[0],
            pace_high=high[0],
            end_low=low[1],
            end_high=high[1],
            pace_weight=share,
            end_weight=1.0 - share,
            least=float(priced.least()[0]),
            priced=priced,
            is_last=is_last,
        )

    def _put(self, gap: Gap) -> None:
        insort(self.gaps, gap, key=lambda one: one.end_low)


def fill_share(rank: Rank) -> float | None:
    """Return the fill of a layer as a share of its pace, None where choices differ in it."""
    pace, fill = rank.columns.pace, rank.columns.fill
    if not len(pace) or not pace.max() > 0.0:
        return None
    share = float(fill[pace.argmax()] / pace.max())
    is_even = np.abs(fill - share * pace) <= _PROVEN * share * pace.max()
    return share if is_even.all() else None
