"""Nearby: the patterns of ranks that plans below a limit may have, given a bound of each.

A rank's pattern is a way to hold a load. What it costs beyond the least of its load, at the
weights of a decomposition, is beyond the bound of every plan that has it. Under each largest
transient the price of memory is another, and so are the patterns near the least.
"""

from __future__ import annotations

from dataclasses import dataclass, replace

import numpy as np

from planner.cost.configuration import Floats
from planner.ilp.decomposition import Bounded, Box, Decomposition
from planner.ilp.effort import Effort
from planner.ilp.listing import patterns_of_load
from planner.ilp.patterns import Ceilings, Columns, Patterns, TooManyError
from planner.ilp.priced_rank import PricedRank
from planner.ilp.transient_bounds import Reduced

_EASING = 1e-9
_NEVER = 1e200


@dataclass(frozen=True, slots=True, kw_only=True)
class _Within:
    """The limits of V and U, how many patterns a rank may have, and the effort."""

    box: Box
    most: int
    effort: Effort


def patterns_below(
    decomposition: Decomposition,
    bounded: Bounded,
    box: Box,
    *,
    limit: float,
    most: int,
    effort: Effort,
) -> list[Patterns] | None:
    """Return each rank's patterns in plans of at most `limit`, None if there are no such plans.

    A rank's least pattern raises the bound of the plans that have its load, which leaves less for
    the ranks that follow.

    Raises:
        TooManyError: if there are too many to look at.
    """
    eased = limit * (1.0 + _EASING)
    within = _Within(box=box, most=most, effort=effort)
    found: list[Patterns] = []
    for place in range(len(bounded.ranks)):
        slack = eased - (bounded.through[place] + bounded.beyond)
        one, costs = _near(bounded.ranks[place], bounded.tables[place], slack, within)
        found.append(one)
        least = np.full(len(slack), np.inf)
        np.minimum.at(least, one.load, costs)
        tables = list(bounded.tables)
        tables[place] = np.maximum(tables[place], least)
        bounded = decomposition.summed(bounded, tables)
        if not bounded.lower <= eased:
            return None
    return [_within(one, bounded, place, eased) for place, one in enumerate(found)]


def _within(patterns: Patterns, bounded: Bounded, place: int, limit: float) -> Patterns:
    """Return the patterns that the other ranks' least leave room for."""
    table, through = bounded.tables[place], bounded.through[place]
    known = np.isfinite(table) & np.isfinite(through)
    rest = np.where(known, through, np.inf) - np.where(known, table, 0.0) + bounded.beyond
    costs = _costs(bounded.ranks[place], patterns)
    return patterns.taken(np.flatnonzero(costs + rest[patterns.load] <= limit))


def _costs(rank: PricedRank, patterns: Patterns) -> Floats:
    """Return what patterns cost at the rank's weights, [patterns]."""
    cost: Floats = patterns.counts @ rank.cost + rank.offset
    return cost


def _near(
    rank: PricedRank, table: Floats, slack: Floats, within: _Within
) -> tuple[Patterns, Floats]:
    """Return the patterns of a rank within the slack of their load [loads], and their costs."""
    known = np.isfinite(table) & np.isfinite(slack)
    most = np.where(known, slack, -np.inf) + np.where(known, table, 0.0) - rank.offset
    gaps = most[:, None] - np.where(np.isfinite(rank.bounds), rank.bounds, _NEVER)
    parts: list[Patterns] = []
    total = 0
    for load in np.flatnonzero((gaps >= 0.0).any(axis=1)).tolist():
        bounds = rank.transient_bounds(load)
        for place in np.flatnonzero(gaps[load] >= 0.0).tolist():
            at = bounds.reduced(place)
            parts.append(_under(rank, within, at, gap=float(most[load]) - at.bound).at(load))
            total += len(parts[-1].load)
            if total > within.most:
                raise TooManyError
    if not parts:
        parts = [_nothing(rank)]
    every = Patterns.together(parts)
    return every, _costs(rank, every)


def _nothing(rank: PricedRank) -> Patterns:
    empty = np.zeros(0)
    return Patterns(
        load=np.zeros(0, dtype=np.int64),
        excess=empty,
        pace=empty,
        fill=empty,
        end=empty,
        counts=np.zeros((0, len(rank.cost)), dtype=np.int64),
    )


def _under(rank: PricedRank, within: _Within, at: Reduced, *, gap: float) -> Patterns:
    """Return the patterns of a load with one largest transient whose costs are within a gap."""
    repeats, own = rank.rank.repeats, rank.rank.own
    caps = within.box.caps(repeats)
    ceilings = Ceilings(
        gap=gap,
        memory_price=at.price,
        capacity=at.room,
        host=rank.rank.host,
        pace=caps.pace,
        end=caps.end,
        both=caps.both,
        repeats=repeats,
        own_pace=own.pace,
        own_end=own.end,
    )
    return patterns_of_load(
        _columns(rank, at),
        at.held,
        ceilings,
        needed=at.columns[at.needed],
        most=within.most,
        effort=within.effort,
    )


def _columns(rank: PricedRank, at: Reduced) -> Columns:
    """Return the columns with their reduced costs; those above the threshold are left out."""
    columns = rank.rank.columns
    reduced, most = np.zeros(len(columns.kind)), np.zeros_like(columns.most)
    reduced[at.columns], most[at.columns] = at.reduced, columns.most[at.columns]
    return replace(columns, reduced=reduced, most=most, transient=np.zeros(len(reduced)))
