"""Branch and bound: one configuration solved to the end on its ranks' loads.

Regions, sets of plans, wait under the bound of `planner.ilp.lagrangian_decomposition`; the least is
looked into next. A region is enumerated up to its bound x (1 + reach): 0.1 % first, and four times
as far each time that nothing is there. Where there are too many patterns it is split, and its parts
begin at 0.1 % again: by the load of a rank, or by the largest pace or end once all loads are
certain. The packings that set a bound are plans as well, and most of the good ones are found so.

Before that `tightened` says what the ways that ranks have together leave of their loads, and of V =
rho T and U, where T is the largest pace, U the largest end and rho the schedule's repeats. The
largest rho t, u and rho t + u of a plan are no less than the least maxima over all ways, and its
fills no less than their least sum: dynamic programming over the ranks, each load at its linear
bounds. What is then left for one of them beside the others may be less than some loads need, and
without these the maxima may be larger.

A rank's pattern is a way to hold a load. What it costs beyond the least of its load, at the weights
of a decomposition, is beyond the bound of every plan that has it: `patterns_below` lists others.

`swept` puts the best plan together from patterns. Below caps T on every rank's pace and U on every
rank's end, the least sum of fills falls apart into ranks, which only share the blocks: dynamic
programming. The best plan is the least of S(T, U) + rho T + U over the paces and ends that occur.
All T are looked at together with no cap on U; then, for those that are left, all U.
"""

from __future__ import annotations

import heapq
import itertools
import sys
from collections.abc import Iterator, Sequence
from contextlib import suppress
from dataclasses import dataclass, field, replace
from typing import Literal

import numpy as np

from planner.cost.configuration import Booleans, Floats, Integers
from planner.ilp.cut_point_graph import (
    Cutter,
    Moves,
    RankMoves,
    best_loads,
    different,
    edge_kind_count,
    least_maximum,
    least_sums,
    loads_with_edges,
    rank_moves_along,
    rank_moves_of,
    sums_through,
    with_loads,
)
from planner.ilp.instance import Assignment, Instance, evaluate, everywhere, fits, placed
from planner.ilp.lagrangian_bound import Reduction, reduction, scaled
from planner.ilp.lagrangian_decomposition import (
    Bounded,
    Box,
    Caps,
    Decomposition,
    Parts,
    PricedRank,
    Rank,
    Roster,
    Weights,
    WeightSearch,
    rank_of,
    step_seconds_of,
)
from planner.ilp.problem import Effort, Outcome, TooManyError
from planner.ilp.settings import (
    FINE_ROUNDING,
    LOAD_SUMS,
    LOADS_BRANCHED,
    LOADS_LISTED,
    PACKING_ROUNDS,
    PLANE_ROUNDS,
    REGION_REACH_FIRST,
    REGION_WIDTH_LEAST,
    ROUNDING,
    SETS_FEW,
    SETS_MOST,
    TURN_UNITS,
    UNITS_PER_CELL,
    UNITS_PER_LOOK,
    UNITS_PER_TURN,
)
from planner.ilp.stage_knapsack import Budget, Packing, enumeration_of
from planner.ilp.stage_loads import Load, as_loads, held_of
from planner.ilp.stage_patterns import Patterns, sets_within, undominated_columns


@dataclass(frozen=True, slots=True, kw_only=True)
class RankLoads:
    """What a rank may hold, and lower bounds of rho t + u and of rho t, each [loads]."""

    rank: Rank
    loads: list[Load]
    omega: Floats
    repeated_pace: Floats

    def taken(self, mask: Booleans) -> RankLoads:
        """Return those of the loads that a mask leaves."""
        places = np.flatnonzero(mask)
        return RankLoads(
            rank=self.rank.with_loads(places),
            loads=[self.loads[place] for place in places.tolist()],
            omega=self.omega[places],
            repeated_pace=self.repeated_pace[places],
        )


def ranks_of(
    instance: Instance, reduced: Reduction, loads: Sequence[Sequence[Load]]
) -> list[RankLoads]:
    """Return the loads of every rank with their linear bounds."""
    ranks = tuple(
        rank_of(instance, place, loads=own, most=reduced.most) for place, own in enumerate(loads)
    )
    roster = Roster(ranks=ranks)
    omegas = roster.least(1.0, 1.0, fill_weight=0.0)
    paces = roster.least(1.0, 0.0, fill_weight=0.0)
    return [
        RankLoads(
            rank=rank,
            loads=list(loads[place]),
            omega=omegas[place],
            repeated_pace=paces[place],
        )
        for place, rank in enumerate(ranks)
    ]


def loads_in_band(instance: Instance, held: Sequence[Integers], *, most: float) -> list[list[Load]]:
    """Return the loads that plans with no rho t + u above `most` may have, by the cheapest choices.

    They are of those that ranks may hold by themselves, [loads, free kinds].

    With w_k the least omega of a layer of kind k on any rank, w times the loads of all ranks adds
    up to the same in every plan: what a rank holds is at least what the others leave.
    """
    costs = [scaled(kind, instance.repeat_count) for kind in instance.kinds]
    own = instance.repeat_count * instance.stage_pace + instance.stage_end
    for kind, cost in zip(instance.kinds, costs, strict=True):
        if kind.pinned_stage is not None:
            own[kind.pinned_stage] += cost[kind.pinned_stage].min()
    free = list(instance.free_kinds)
    weights = np.array([costs[k].min() for k in free])
    counts = np.array([instance.kinds[k].count for k in free])
    least = float(own.sum() + weights @ counts) - (instance.stage_count - 1) * most
    rounding = ROUNDING * abs(most)
    kept = []
    for loads, alone in zip(held, own, strict=True):
        cost = loads @ weights + alone
        inside = (cost <= most + rounding) & (cost >= least - rounding)
        kept.append(as_loads(loads[inside]))
    return kept


@dataclass(frozen=True, slots=True, kw_only=True)
class Linked:
    """The loads that ranks can have together, and how they follow one another, by rank."""

    ranks: tuple[RankLoads, ...]
    rank_moves: tuple[RankMoves, ...]


def linked(
    instance: Instance,
    reduced: Reduction,
    ranks: Sequence[RankLoads],
    *,
    limit: float,
) -> Linked | None:
    """Return what is left of the loads in plans of at most the limit, None where that is nothing.

    Raises:
        TooManyError: if there are too many.
    """
    most = limit - reduced.bounds.fill_sum
    paced = most - reduced.bounds.largest_end
    below = [own.taken((own.omega <= most) & (own.repeated_pace <= paced)) for own in ranks]
    if not all(own.loads for own in below):
        return None
    rank_moves = rank_moves_of(
        instance,
        reduced.windows,
        [own.loads for own in below],
        sums_most=LOAD_SUMS,
    )
    if rank_moves is None:
        return None
    return _linked(below, rank_moves)


def kept_ways(left: Linked, masks: Sequence[Booleans]) -> Linked | None:
    """Return the ways with loads that are kept, [loads] by rank; None where there is none."""
    if all(mask.all() for mask in masks):
        return left
    moves = [Moves(before=own.before, after=own.after, load=own.load) for own in left.rank_moves]
    rank_moves = rank_moves_along(with_loads(moves, masks))
    return None if rank_moves is None else _linked(left.ranks, rank_moves)


def _linked(ranks: Sequence[RankLoads], rank_moves: Sequence[RankMoves]) -> Linked:
    """Return the ranks with those of their loads alone that moves have."""
    used = [different(moves.load)[0] for moves in rank_moves]
    return Linked(
        ranks=tuple(
            own.taken(np.isin(np.arange(len(own.loads)), places))
            for own, places in zip(ranks, used, strict=True)
        ),
        rank_moves=tuple(
            replace(moves, load=np.searchsorted(places, moves.load))
            for moves, places in zip(rank_moves, used, strict=True)
        ),
    )


@dataclass(frozen=True, slots=True, kw_only=True)
class Tightened:
    """Loads that are left with their ways, and the limits of V, U and the sum of fills."""

    left: Linked
    box: Box
    fill_sum: float


Floors = tuple[Floats, Floats, Floats]
"""Lower bounds of rho t + u, of rho t and of u of a rank, each [loads]."""


def floors_of(ranks: Sequence[RankLoads], roster: Roster) -> tuple[Floors, ...]:
    """Return the floors of every rank."""
    ends = roster.least(0.0, 1.0, fill_weight=0.0)
    return tuple((own.omega, own.repeated_pace, end) for own, end in zip(ranks, ends, strict=True))


def tightened(left: Linked, box: Box, *, fill_sum: float, limit: float) -> Tightened | None:
    """Return what is left of plans of at most the limit, None where that is nothing."""
    roster = Roster(ranks=tuple(own.rank for own in left.ranks))
    floors, fills = floors_of(left.ranks, roster), roster.least(0.0, 0.0)
    masks = [np.ones(len(own.loads), dtype=bool) for own in left.ranks]
    while True:
        fill_sum, through = _least_fill(left.rank_moves, fills, masks, fill_sum)
        box = _narrowed(box, left.rank_moves, floors, masks, most_both=limit - fill_sum)
        if box.is_empty():
            return None
        spent = max(box.least_both, box.least_pace + box.least_end)
        before = sum(int(mask.sum()) for mask in masks)
        masks = [
            mask & _fits(own, box) & (filled + spent <= limit * (1.0 + FINE_ROUNDING))
            for own, mask, filled in zip(floors, masks, through, strict=True)
        ]
        if sum(int(mask.sum()) for mask in masks) == before:
            break
    kept = kept_ways(left, masks)
    return None if kept is None else Tightened(left=kept, box=box, fill_sum=fill_sum)


def _least_fill(
    rank_moves: Sequence[RankMoves],
    fills: Sequence[Floats],
    masks: Sequence[Booleans],
    known: float,
) -> tuple[float, list[Floats]]:
    """Return the least sum of fills, and the least with each load by rank [loads]."""
    tables = [np.where(mask, fill, np.inf) for fill, mask in zip(fills, masks, strict=True)]
    least, through = sums_through(rank_moves, tables)
    return max(known, least), through


def _narrowed(
    box: Box,
    rank_moves: Sequence[RankMoves],
    floors: Sequence[Floors],
    masks: Sequence[Booleans],
    *,
    most_both: float,
) -> Box:
    """Return the limits of V and U with the least maxima over all ways with allowed loads."""
    both, pace, end = (
        least_maximum(
            rank_moves,
            [np.where(mask, own[which], np.inf) for own, mask in zip(floors, masks, strict=True)],
        )
        for which in range(3)
    )
    least_pace, least_end = max(box.least_pace, pace), max(box.least_end, end)
    most_both = min(box.most_both, most_both)
    return replace(
        box,
        least_both=max(box.least_both, both),
        least_pace=least_pace,
        least_end=least_end,
        most_both=most_both,
        most_pace=min(box.most_pace, most_both - least_end),
        most_end=min(box.most_end, most_both - least_pace),
    )


def _fits(floors: Floors, box: Box) -> Booleans:
    """Return which loads of a rank keep the limits, [loads]."""
    most = np.array([box.most_both, box.most_pace, box.most_end])
    room = FINE_ROUNDING * abs(box.most_both)
    return np.asarray((np.stack(floors) <= most[:, None] + room).all(axis=0))


@dataclass(frozen=True, slots=True, kw_only=True)
class Packed:
    """A bound whose least sharing is packed exactly, and what its ranks add to the step."""

    bounded: Bounded
    parts: tuple[Parts, ...]


@dataclass(frozen=True, slots=True, kw_only=True)
class Known:
    """The cheapest packing below `upper` under some ceilings, which others may have as well."""

    packing: Packing
    ceilings: Floats
    upper: float

    def tells(self, rank: PricedRank, *, upper: float) -> bool:
        """Return whether another look would say the same: a packing found keeps lower ceilings."""
        if upper > self.upper or (rank.ceilings > self.ceilings).any():
            return False
        return self.packing.counts is None or bool(rank.keeps(self.packing.counts))


@dataclass(frozen=True, slots=True, kw_only=True)
class Region:
    """A set of plans: allowed loads by rank [loads], limits of V and U, weights of its bound.

    `packed` is the bound itself, once it is known; `reach` is how far above it plans are looked for
    next, as a share of it. The packing of one rank alone looks at `sets_most` sets at a time.
    """

    allowed: tuple[Booleans, ...]
    box: Box
    weights: Weights
    lower: float
    packed: Packed | None = None
    reach: float = REGION_REACH_FIRST
    sets_most: int = SETS_MOST

    def is_certain(self) -> bool:
        """Return whether every rank has one load."""
        return all(int(mask.sum()) == 1 for mask in self.allowed)

    def narrowed(
        self,
        rank_moves: Sequence[RankMoves],
        floors: Sequence[Floors],
        *,
        fill_sum: float,
        limit: float,
    ) -> Region:
        """Return the region with what plans below the limit leave of its loads and of V and U."""
        box = _narrowed(self.box, rank_moves, floors, self.allowed, most_both=limit - fill_sum)
        allowed = tuple(
            mask & _fits(own, box) for own, mask in zip(floors, self.allowed, strict=True)
        )
        lower = max(self.lower, fill_sum + box.least_sum())
        return replace(self, box=box, allowed=allowed, lower=lower)


def split(
    region: Region,
    parts: Sequence[Parts],
    path: Sequence[int],
    *,
    loads: Sequence[Sequence[Load]],
    repeats: float,
    limit: float,
) -> list[Region]:
    """Return a region in two, by the load of a rank or by a limit; nothing where that is no use.

    `parts` are what its ranks add to the step under the loads of a `path`, `loads` what they have.
    Once all loads are certain it is split by the largest end or by the largest pace.
    """
    open_ranks = [r for r, mask in enumerate(region.allowed) if mask.sum() > 1]
    if not open_ranks:
        return _by_the_box(region, limit=limit)
    rank = max(open_ranks, key=lambda r: repeats * parts[r].pace + parts[r].end)
    before, behind = region.allowed[:rank], region.allowed[rank + 1 :]
    return [
        replace(region, allowed=(*before, mask, *behind))
        for mask in _halves_of(region.allowed[rank], loads[rank], path[rank])
    ]


def _by_the_box(region: Region, *, limit: float) -> list[Region]:
    """Return a region of certain loads in two, by the largest end or the largest pace."""
    box = region.box
    widths = (box.most_pace - box.least_pace, box.most_end - box.least_end)
    if max(widths) <= REGION_WIDTH_LEAST * limit:
        return []
    return [replace(region, box=half) for half in box.halves(by_end=widths[1] > widths[0])]


def _halves_of(mask: Booleans, loads: Sequence[Load], at: int) -> tuple[Booleans, Booleans]:
    """Return two parts of the allowed loads, each with one at least, divided at the load `at`."""
    sizes = np.array([(sum(load), *load) for load in loads])
    for column in sizes.T:
        own = column[mask]
        if own.min() == own.max():
            continue
        border = min(max(int(column[at]) - 1, int(own.min())), int(own.max()) - 1)
        return mask & (column <= border), mask & (column > border)
    first = mask & (np.cumsum(mask) <= int(mask.sum()) // 2)
    return first, mask & ~first


def patterns_below(
    decomposition: Decomposition,
    bounded: Bounded,
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
    eased = limit * (1.0 + ROUNDING)
    found: list[Patterns] = []
    for place in range(len(bounded.ranks)):
        slack = eased - (bounded.through[place] + bounded.beyond)
        one, costs = _near(
            bounded.ranks[place], bounded.tables[place], slack, most=most, effort=effort
        )
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
    rank: PricedRank, table: Floats, slack: Floats, *, most: int, effort: Effort
) -> tuple[Patterns, Floats]:
    """Return the patterns of a rank within the slack of their load [loads], and their costs."""
    known = np.isfinite(table) & np.isfinite(slack)
    costs = np.where(known, slack, -np.inf) + np.where(known, table, 0.0) - rank.offset
    parts = [patterns_of(rank, 0, cost_most=-np.inf, most=most, effort=effort)]
    total = 0
    for load in np.flatnonzero((rank.bounds <= costs[:, None]).any(axis=1)).tolist():
        cost_most = float(costs[load])
        parts.append(patterns_of(rank, load, cost_most=cost_most, most=most, effort=effort))
        total += len(parts[-1].load)
        if total > most:
            raise TooManyError
    every = parts[0].followed_by(*parts[1:])
    return every, _costs(rank, every)


def patterns_of(
    rank: PricedRank, load: int, *, cost_most: float, most: int, effort: Effort
) -> Patterns:
    """Return the patterns of a load that cost no more than `cost_most`, without the rank's offset.

    Of two with the same largest transient, one that the other equals or beats is left out.

    Raises:
        TooManyError: if there are more than `most` to look at, or no effort is left.
    """
    bounds, columns, own = rank.transient_bounds(load), rank.rank.columns, rank.rank.own
    measures = np.stack([columns.fill, columns.pace, columns.end])
    found = [np.zeros((0, len(columns.kind)), dtype=np.int64)]
    for place in np.flatnonzero(bounds.values <= cost_most).tolist():
        at = bounds.reduced(place)
        enumeration = enumeration_of(rank.knapsack, at, measures=measures, most=columns.most)
        sets = sets_within(enumeration, cost_most - at.bound, most=most, effort=effort)
        counts = np.zeros((len(sets.rows), len(columns.kind)), dtype=np.int64)
        counts[:, at.columns] = sets.counts(np.arange(len(sets.rows)))
        keeps = (counts @ columns.memory <= at.room) & (counts @ columns.host <= rank.rank.host)
        keeps &= rank.keeps(counts)
        counts = counts[keeps]
        counts = counts[undominated_columns(measures @ counts.T)]
        found.append(counts)
        if sum(map(len, found)) > most:
            raise TooManyError
    every = np.concatenate(found)
    fill, pace, end = measures @ every.T
    return Patterns(
        load=np.full(len(every), load),
        pace=own.pace + pace,
        fill=fill,
        end=own.end + end,
        counts=every,
    )


@dataclass(frozen=True, slots=True, kw_only=True)
class Swept:
    """The least S + rho T + U without the ranks' own fills, and the pattern of each rank."""

    step_seconds: float
    rows: tuple[int, ...]


def swept(
    rank_moves: Sequence[RankMoves],
    patterns: Sequence[Patterns],
    *,
    load_counts: Sequence[int],
    repeat_count: float,
    below: float,
    effort: Effort,
) -> Swept | None:
    """Return the best choice of one pattern a rank, None if none is below `below`.

    Raises:
        TooManyError: if no effort is left.
    """
    paces = _candidates([one.pace for one in patterns])
    ends = _candidates([one.end for one in patterns])
    ranks = _Ranks(rank_moves=rank_moves, patterns=patterns, load_counts=load_counts)
    best, caps = below, None
    loose = ranks.least_fills("pace", paces)
    floor = loose + repeat_count * paces + ends[0]
    moves = sum(len(moves.load) for moves in rank_moves)
    effort.spend(UNITS_PER_CELL * moves * len(paces))
    for place in np.argsort(floor, kind="stable").tolist():
        if floor[place] >= best:
            break
        effort.check()
        pace = float(paces[place])
        # Of what rounding makes no end at all the least is one: the floor is below the best.
        own = ends[ends <= max(best - loose[place] - repeat_count * pace, ends[0])]
        effort.spend(UNITS_PER_TURN * len(patterns) + UNITS_PER_CELL * moves * len(own))
        total = ranks.under(pace=pace).least_fills("end", own) + repeat_count * pace + own
        least = int(total.argmin())
        if total[least] < best:
            best, caps = float(total[least]), (pace, float(own[least]))
    if caps is None:
        return None
    return Swept(step_seconds=best, rows=ranks.rows(pace=caps[0], end=caps[1]))


def _candidates(columns: Sequence[Floats]) -> Floats:
    """Return the values that the largest of all ranks may have: no less than each rank's least."""
    least = max(float(column.min()) for column in columns)
    every = np.unique(np.concatenate(columns))
    return np.asarray(every[every >= least])


@dataclass(frozen=True, slots=True, kw_only=True)
class _Ranks:
    """The patterns of all ranks, and how these share the blocks."""

    rank_moves: Sequence[RankMoves]
    patterns: Sequence[Patterns]
    load_counts: Sequence[int]

    def under(self, *, pace: float) -> _Ranks:
        """Return the ranks without the patterns above a pace."""
        kept = [one.taken(np.flatnonzero(one.pace <= pace)) for one in self.patterns]
        return replace(self, patterns=kept)

    def least_fills(self, name: Literal["pace", "end"], caps: Floats) -> Floats:
        """Return the least sums of fills with every rank's `name` at most each of the caps."""
        tables = [
            _least_fills(one, count, name, caps)
            for one, count in zip(self.patterns, self.load_counts, strict=True)
        ]
        return least_sums(self.rank_moves, tables)

    def rows(self, *, pace: float, end: float) -> tuple[int, ...]:
        """Return each rank's pattern in a plan with the least sum of fills under both caps."""
        cheapest, tables = [], []
        for one, count in zip(self.patterns, self.load_counts, strict=True):
            table, which = np.full(count, np.inf), np.full(count, -1)
            for row in np.flatnonzero((one.pace <= pace) & (one.end <= end)).tolist():
                load = int(one.load[row])
                if one.fill[row] < table[load]:
                    table[load], which[load] = one.fill[row], row
            tables.append(table)
            cheapest.append(which)
        places = best_loads(self.rank_moves, tables)
        return tuple(int(which[place]) for which, place in zip(cheapest, places, strict=True))


def _least_fills(patterns: Patterns, load_count: int, name: str, caps: Floats) -> Floats:
    """Return the least fill of each load with `name` at most each of the caps, [loads, caps]."""
    table = np.full((load_count, len(caps)), np.inf)
    first = np.searchsorted(caps, getattr(patterns, name), side="left")
    inside = first < len(caps)
    np.minimum.at(table, (patterns.load[inside], first[inside]), patterns.fill[inside])
    return np.asarray(np.minimum.accumulate(table, axis=1))


@dataclass(slots=True, kw_only=True)
class Branching:
    """The regions that are left of the plans below the limit.

    They wait in a heap by their bounds, of equal ones in the order they came. `floors` are by rank;
    `unsettled` is the least bound of the regions that nothing can be done about.
    """

    decomposition: Decomposition
    loads: Sequence[Sequence[Load]]
    floors: tuple[Floors, ...]
    fill_sum: float
    limit: float
    waiting: list[tuple[float, int, Region]] = field(default_factory=list)
    _numbers: Iterator[int] = field(default_factory=itertools.count)
    unsettled: float = float("inf")
    cutter: Cutter = field(init=False)
    _effort: Effort = field(default_factory=Effort)
    _known: dict[tuple[float, ...], Known] = field(default_factory=dict)
    _found: Assignment | None = None

    def __post_init__(self) -> None:
        """Remember what was asked about cuts."""
        self.cutter = Cutter(self.decomposition.instance)

    def lower(self) -> float:
        """Return a bound of every plan that is left; inf where none is left below the limit."""
        least = min(self._least(), self.unsettled)
        return least if least < self.limit else float("inf")

    def _least(self) -> float:
        """Return the least bound of a region that waits, inf without any."""
        return self.waiting[0][0] if self.waiting else float("inf")

    def run(self, *, limit: float, enough: float, effort: Effort) -> Outcome:
        """Look into regions until none is left, the bound is beyond `enough`, or effort is spent.

        One is looked into in any case. Plans of `limit` and more are of no interest.
        """
        self.limit = min(self.limit, limit)
        self._effort, self._found = effort, None
        while self._least() < self.limit:
            self._look_into(heapq.heappop(self.waiting)[2])
            if self.lower() > enough or effort.is_over:
                break
        lower = self.lower()
        return Outcome(
            bound_seconds=min(lower, self.limit),
            assignment=self._found,
            is_done=not np.isfinite(lower),
            is_stuck=self._least() >= self.limit,
        )

    def push(self, region: Region) -> None:
        """Let a region wait, unless nothing below the limit can be in it."""
        if region.lower < self.limit and not region.box.is_empty():
            heapq.heappush(self.waiting, (region.lower, next(self._numbers), region))

    def _look_into(self, region: Region) -> None:
        """Bound a region, or settle or split it if that is done."""
        if region.packed is not None:
            self._enumerate(region, region.packed)
            return
        region = region.narrowed(
            self.decomposition.rank_moves, self.floors, fill_sum=self.fill_sum, limit=self.limit
        )
        if region.box.is_empty() or not all(mask.any() for mask in region.allowed):
            return
        first = [int(mask.argmax()) for mask in region.allowed]
        if region.is_certain() and self.cutter.is_never(self._held(first)):
            return
        self._effort.spend(UNITS_PER_LOOK)
        if len(first) == 1:
            self._pack_one(region, first[0])
            return
        packed = self._packed_bound(region)
        if packed is None:
            return
        bounded = packed.bounded
        allowed = tuple(
            mask & (through + bounded.beyond < self.limit)
            for mask, through in zip(region.allowed, bounded.through, strict=True)
        )
        if not all(mask.any() for mask in allowed):
            return
        self.push(
            replace(
                region,
                allowed=allowed,
                weights=bounded.weights,
                lower=max(bounded.lower, region.lower),
                packed=packed,
            )
        )

    def _enumerate(self, region: Region, packed: Packed) -> None:
        """Enumerate what is in a region a little above its bound, or split it if that is too much.

        Where nothing is there, the region waits under what was looked at, and is next looked into
        further up.
        """
        closer = min(region.lower * (1.0 + region.reach), self.limit)
        with suppress(TooManyError):
            if self._swept(packed.bounded, closer):
                self.push(replace(region, lower=closer, reach=4.0 * region.reach))
                return
        self._split(replace(region, packed=None, reach=REGION_REACH_FIRST), packed)

    def _pack_one(self, region: Region, load: int) -> None:
        """Settle a region of one rank by its packing, whose cost is the step."""
        (rank,) = self.decomposition.roster.priced(1.0, 1.0, Caps())
        budget = Budget(region.sets_most, self._effort)
        packing = rank.packing(load, upper=self.limit, budget=budget)
        if packing.counts is not None:
            self._try_plan([load], [packing.counts])
        lower = max(region.lower, packing.lower)
        if lower >= self.limit * (1.0 - FINE_ROUNDING):
            return
        if region.sets_most > SETS_MOST:
            self.unsettled = min(self.unsettled, lower)
            return
        self._effort.spend(TURN_UNITS)
        self.push(replace(region, lower=lower, sets_most=10 * SETS_MOST))

    def _packed_bound(self, region: Region) -> Packed | None:
        """Return the best bound that is known how to get, None if it is at the limit."""
        decomposition, box, allowed = self.decomposition, region.box, region.allowed
        bounded = decomposition.bounded(region.weights, box, allowed)
        search = WeightSearch(decomposition=decomposition, box=box, allowed=allowed)
        bounded = search.best(bounded, target=self.limit, rounds=PLANE_ROUNDS, effort=self._effort)
        is_open = not region.is_certain()
        best, size = self._packed(bounded, is_open=is_open), 1.0
        for _ in range(1 if is_open else PACKING_ROUNDS):
            if best is None or self._effort.is_over:
                break
            reach = size * (self.limit - best.bounded.lower)
            weights = decomposition.moved(best.bounded.weights, best.parts, box, reach=reach)
            if weights is None:
                break
            now = self._packed(decomposition.bounded(weights, box, allowed), is_open=is_open)
            if now is not None and now.bounded.lower <= best.bounded.lower:
                size *= 0.5
            else:
                best = now
        return best

    def _packed(self, bounded: Bounded, *, is_open: bool) -> Packed | None:
        """Return the bound with exact packings where it is set, None if it is at the limit.

        While many loads are open they are not all packed, nor to the end.
        """
        most, turns = (SETS_FEW, PACKING_ROUNDS) if is_open else (SETS_MOST, sys.maxsize)
        decomposition = self.decomposition
        exact: list[dict[int, Parts]] = [{} for _ in bounded.ranks]
        counts: list[dict[int, Integers]] = [{} for _ in bounded.ranks]
        while bounded.lower < self.limit:
            path = decomposition.best(bounded)
            vague = [(r, load) for r, load in enumerate(path) if load not in exact[r]]
            turns -= 1
            if not vague or turns < 0 or self._effort.is_over:
                for r, load in vague:
                    exact[r][load] = bounded.ranks[r].divided(load)
                self._offer(path, exact, counts)
                parts = tuple(known[load] for known, load in zip(exact, path, strict=True))
                return Packed(bounded=bounded, parts=parts) if bounded.lower < self.limit else None
            tables = [table.copy() for table in bounded.tables]
            for r, load in vague:
                slack = self.limit - (float(bounded.through[r][load]) + bounded.beyond)
                upper = float(bounded.tables[r][load]) + slack
                packing = self._packing(bounded, r, load, upper=upper, most=most)
                tables[r][load] = max(tables[r][load], packing.lower)
                exact[r][load] = bounded.ranks[r].divided(load)
                if packing.counts is not None:
                    exact[r][load] = decomposition.ranks[r].parts(packing.counts.astype(np.float64))
                    counts[r][load] = packing.counts
            bounded = decomposition.summed(bounded, tables)
        return None

    def _packing(
        self, bounded: Bounded, place: int, load: int, *, upper: float, most: int
    ) -> Packing:
        """Return the cheapest packing of a load; regions that are split off ask for it again."""
        rank, weights = bounded.ranks[place], bounded.weights
        key = (place, load, float(weights.pace[place]), float(weights.end[place]), most)
        known = self._known.get(key)
        if known is None or not known.tells(rank, upper=upper):
            packing = rank.packing(load, upper=upper, budget=Budget(most, self._effort))
            known = Known(packing=packing, ceilings=rank.ceilings, upper=upper)
            self._known[key] = known
        return known.packing

    def _held(self, path: Sequence[int]) -> tuple[Load, ...]:
        """Return the loads of the ranks from their places."""
        return tuple(own[load] for own, load in zip(self.loads, path, strict=True))

    def _offer(
        self,
        path: Sequence[int],
        exact: Sequence[dict[int, Parts]],
        counts: Sequence[dict[int, Integers]],
    ) -> None:
        """Take the plan of the packings on a path where it is better than the best known."""
        if not all(load in known for known, load in zip(counts, path, strict=True)):
            return
        repeats = self.decomposition.instance.repeat_count
        step = step_seconds_of(
            [known[load] for known, load in zip(exact, path, strict=True)], repeats
        )
        if step < self.limit:
            self._try_plan(path, [known[load] for known, load in zip(counts, path, strict=True)])

    def _try_plan(self, path: Sequence[int], counts: Sequence[Integers]) -> bool:
        """Keep a plan if it is the best; return whether its chain can be cut so, and it fits."""
        instance = self.decomposition.instance
        cuts = self.cutter.cuts(self._held(path))
        if cuts is None:
            return False
        width = sum(len(kind.choice) for kind in instance.kinds)
        every = np.zeros((len(path), width + edge_kind_count(instance)), dtype=np.int64)
        for row, rank, own in zip(every, self.decomposition.ranks, counts, strict=True):
            row[rank.places] = own
        ends = np.cumsum([len(kind.choice) for kind in instance.kinds])[:-1]
        counts_by_kind = tuple(np.split(every[:, :width], ends, axis=1))
        assignment = Assignment(counts=counts_by_kind, cuts=cuts)
        evaluation = evaluate(instance, assignment)
        if not fits(instance, evaluation):
            return False
        if evaluation.step_seconds < self.limit:
            self.limit, self._found = evaluation.step_seconds, assignment
        return True

    def _swept(self, bounded: Bounded, limit: float) -> bool:
        """Return whether the best plan of a region below a limit is known, if there is one.

        Raises:
            TooManyError: if there are too many patterns.
        """
        decomposition, effort = self.decomposition, self._effort.part(TURN_UNITS)
        found = patterns_below(decomposition, bounded, limit=limit, most=SETS_MOST, effort=effort)
        if found is None or any(not len(one.load) for one in found):
            return True
        instance = decomposition.instance
        best = swept(
            decomposition.rank_moves,
            found,
            load_counts=[len(own) for own in self.loads],
            repeat_count=instance.repeat_count,
            below=limit - float(instance.stage_fill.sum()),
            effort=effort,
        )
        if best is None:
            return True
        path = [int(one.load[row]) for one, row in zip(found, best.rows, strict=True)]
        counts = [one.counts[row] for one, row in zip(found, best.rows, strict=True)]
        return self._try_plan(path, counts)

    def _split(self, region: Region, packed: Packed) -> None:
        """Put the parts of a region back; what cannot be split is left unsettled."""
        path = self.decomposition.best(packed.bounded)
        repeats = self.decomposition.instance.repeat_count
        parts = split(
            region, packed.parts, path, loads=self.loads, repeats=repeats, limit=self.limit
        )
        if not parts:
            self.unsettled = min(self.unsettled, region.lower)
        for part in parts:
            self.push(part)


def branching_of(
    instance: Instance,
    *,
    cutoff_seconds: float,
    cuts: tuple[int, ...] | None = None,
) -> Branching | None:
    """Return what is to be looked into for plans of at most the cutoff, maybe nothing at all.

    Where cuts differ by place and ranks hold several parts, each is at the least that it adds: the
    step of the best plan is a bound then, and not the plan's. None where ranks may hold too many
    different loads.
    """
    reduced = reduction(instance, cutoff_seconds=cutoff_seconds, cuts=cuts)
    if reduced is None:
        return nothing(instance, cutoff_seconds)
    if instance.extras is not None and not instance.is_in_order:
        instance = placed(instance, everywhere(instance))
    try:
        left = _linked_loads(instance, reduced, limit=cutoff_seconds * (1.0 + ROUNDING))
    except TooManyError:
        return None
    if left is None:
        return nothing(instance, cutoff_seconds)
    return branching_on(instance, reduced, left, cutoff_seconds=cutoff_seconds)


def _linked_loads(instance: Instance, reduced: Reduction, *, limit: float) -> Linked | None:
    """Return the loads of plans of at most the limit and their ways, None where there are none.

    Raises:
        TooManyError: if there are too many.
    """
    loads = _loads(instance, reduced, most=limit - reduced.bounds.fill_sum)
    if loads is None:
        raise TooManyError
    if not all(loads):
        return None
    return linked(instance, reduced, ranks_of(instance, reduced, loads), limit=limit)


def branching_on(
    instance: Instance, reduced: Reduction, left: Linked, *, cutoff_seconds: float
) -> Branching:
    """Return what is to be looked into of plans whose ranks hold some of these loads."""
    limit = cutoff_seconds * (1.0 + ROUNDING)
    bounds = reduced.bounds
    tight = tightened(left, _box(reduced, limit), fill_sum=bounds.fill_sum, limit=limit)
    if tight is None:
        return nothing(instance, cutoff_seconds)
    ranks, box = tight.left.ranks, tight.box
    decomposition = Decomposition(
        instance=instance, ranks=tuple(own.rank for own in ranks), rank_moves=tight.left.rank_moves
    )
    branching = Branching(
        decomposition=decomposition,
        loads=[own.loads for own in ranks],
        floors=floors_of(ranks, decomposition.roster),
        fill_sum=tight.fill_sum,
        limit=limit,
    )
    every = _everything(decomposition, box, branching.floors)
    branching.push(replace(every, lower=max(every.lower, tight.fill_sum + box.least_sum())))
    return branching


def _loads(instance: Instance, reduced: Reduction, *, most: float) -> list[list[Load]] | None:
    """Return what ranks may hold in plans with no rho t + u above `most`."""
    held, cuts = held_of(instance, reduced.windows, most=LOADS_LISTED), reduced.windows.cuts
    loads = None if held is None else loads_in_band(instance, held, most=most)
    if loads is None or sum(map(len, loads)) > LOADS_BRANCHED:
        return None
    if instance.extras is None or cuts is None:
        return loads
    return loads_with_edges(instance, cuts, loads, most=LOADS_BRANCHED)


def nothing(instance: Instance, cutoff_seconds: float) -> Branching:
    """Return nothing to look into."""
    return Branching(
        decomposition=Decomposition(instance=instance, ranks=(), rank_moves=()),
        loads=(),
        floors=(),
        fill_sum=0.0,
        limit=cutoff_seconds * (1.0 + ROUNDING),
    )


def _box(reduced: Reduction, limit: float) -> Box:
    bounds = reduced.bounds
    most = limit - bounds.fill_sum
    return Box(
        least_pace=bounds.repeated_pace,
        most_pace=most - bounds.largest_end,
        least_end=bounds.largest_end,
        most_end=most - bounds.repeated_pace,
        least_both=bounds.omega,
        most_both=most,
    )


def _everything(decomposition: Decomposition, box: Box, floors: Sequence[Floors]) -> Region:
    """Return all plans, under weights between those of the sum and of an even mean of ranks."""
    count = len(decomposition.ranks)
    allowed = tuple(both <= box.most_both for both, _, _ in floors)
    weights = Weights(pace=np.full(count, 0.5 / count), end=np.full(count, 0.5 / count))
    lower = decomposition.bounded(weights, box, allowed).lower
    return Region(allowed=allowed, box=box, weights=weights, lower=lower)
