"""Branching: one configuration to the end, by what its ranks hold.

Sets of plans wait under the bound of `planner.ilp.decomposition`; the least is looked into next.
Where the patterns near a bound are few they are enumerated (`planner.ilp.nearby`) and the best put
together (`planner.ilp.sweep`), which settles any set. Elsewhere it is split: by the load of a rank,
or by the largest pace or end once all loads are certain. The packings that set a bound are plans as
well, and most of the good ones are found so.
"""

from __future__ import annotations

from collections.abc import Sequence
from dataclasses import dataclass, field, replace

import numpy as np

from planner.cost.configuration import Floats, Integers
from planner.ilp.cutting import Cutter
from planner.ilp.decomposition import Bounded, Decomposition, step_of
from planner.ilp.edges import edge_kind_count
from planner.ilp.effort import Effort
from planner.ilp.instance import Assignment, evaluate, fits
from planner.ilp.loads import Load
from planner.ilp.nearby import patterns_below
from planner.ilp.outcome import Outcome
from planner.ilp.patterns import TooManyError
from planner.ilp.planes import WeightSearch
from planner.ilp.rank import Caps, Parts
from planner.ilp.regions import REACH_FIRST, Packed, Region, split
from planner.ilp.sweep import swept
from planner.ilp.transitions import levelled_loads
from planner.ilp.waiting import Waiting

_ROUNDS_FIRST = 16
_ROUNDS = 8
_ROUNDS_OPEN = 1
_ROUNDS_CERTAIN = 4
_EFFORT_OPEN = 300
_SLACK_OPEN = 0.1
_EFFORT_CERTAIN = 2000
_TURNS_OPEN = 5
_TURNS_MOST = 100
_SIZE_LEAST = 0.1
_SLOW = 0.5
_GAIN_LEAST = 0.02
_PATTERNS_MOST = 5000
_WIDE_UNITS = 150_000.0
_WIDE_UNITS_A_RANK = 12_500.0
_NARROW_UNITS = 700_000.0
_UNITS_A_PACKING = 500.0
_UNITS_A_LOOK = 1000.0
_SKIPPED_MOST = 3
_REACH_GROWTH = 4.0
_TRIES_FEW = 500
_TRIES_MANY = 20_000


@dataclass(slots=True, kw_only=True)
class Branching:
    """The regions that are left of the plans below the limit.

    `floors` are lower bounds of rho t + u, of rho t and of u by rank, each [loads]; `unsettled` is
    the least bound of the regions that nothing can be done about.
    """

    decomposition: Decomposition
    loads: Sequence[Sequence[Load]]
    floors: tuple[tuple[Floats, Floats, Floats], ...]
    fill_sum: float
    limit: float
    waiting: Waiting[Region] = field(default_factory=Waiting)
    unsettled: float = float("inf")
    cutter: Cutter = field(init=False)
    _effort: Effort = field(default_factory=Effort)
    _found: Assignment | None = None
    _is_begun: bool = False

    def __post_init__(self) -> None:
        """Remember what was asked about cuts."""
        self.cutter = Cutter(self.decomposition.instance)

    def lower(self) -> float:
        """Return a bound of every plan that is left; inf where none is left below the limit."""
        least = min(self.waiting.least(), self.unsettled)
        return least if least < self.limit else float("inf")

    def run(self, *, limit: float, enough: float, effort: Effort) -> Outcome:
        """Look into regions until none is left, the bound is beyond `enough`, or effort is spent.

        One is looked into in any case. Plans of `limit` and more are of no interest.
        """
        self.limit = min(self.limit, limit)
        self._effort, self._found = effort, None
        if not self._is_begun:
            self._is_begun = True
            self._offer_levelled()
        while self.waiting.least() < self.limit:
            self._look_into(self.waiting.pop()[1])
            if self.lower() > enough or effort.is_over:
                break
        lower = self.lower()
        return Outcome(
            bound_seconds=min(lower, self.limit),
            assignment=self._found,
            is_done=not np.isfinite(lower),
            is_stuck=self.waiting.least() >= self.limit,
        )

    def push(self, region: Region) -> None:
        """Let a region wait, unless nothing below the limit can be in it."""
        if region.lower < self.limit and not region.box.is_empty():
            self.waiting.push(region, region.lower)

    def _look_into(self, region: Region) -> None:
        """Bound a region, or settle or split it if that is done."""
        if region.packed is not None:
            self._settle(region, region.packed)
            return
        region = region.narrowed(
            self.decomposition.steps, self.floors, fill_sum=self.fill_sum, limit=self.limit
        )
        if region.box.is_empty() or not all(mask.any() for mask in region.allowed):
            return
        if region.is_certain() and self.cutter.is_never(self._held(region.first_loads())):
            return
        self._effort.spend(_UNITS_A_LOOK)
        packed = self._bounded(region)
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

    def _settle(self, region: Region, packed: Packed) -> None:
        """Enumerate what is in a region a little above its bound, or split it if that is too much.

        Where nothing is there, the region waits under what was looked at, and is next looked into
        further up.
        """
        closer = min(region.lower * (1.0 + region.reach), self.limit)
        failures, skipped = region.failures, region.skipped - 1
        if skipped < 0 and self._is_settled(region, packed.bounded, closer):
            self.push(replace(region, lower=closer, reach=_REACH_GROWTH * region.reach))
            return
        if skipped < 0:
            failures, skipped = failures + 1, min(failures, _SKIPPED_MOST)
        split = replace(region, packed=None, reach=REACH_FIRST, failures=failures, skipped=skipped)
        self._split(split, packed)

    def _offer_levelled(self) -> None:
        """Take the plan of the loads that level the ranks best, each packed for its share."""
        decomposition = self.decomposition
        if not decomposition.ranks:
            return
        path = levelled_loads(decomposition.steps, [both for both, _, _ in self.floors])
        counts, ranks = [], decomposition.roster.priced(1.0, 1.0, Caps())
        for priced, load in zip(ranks, path, strict=True):
            self._effort.spend(_UNITS_A_PACKING)
            packing = priced.packing(load, upper=self.limit, effort=_EFFORT_OPEN)
            if packing.counts is None:
                return
            counts.append(packing.counts)
        self._take(path, counts)

    def _is_settled(self, region: Region, bounded: Bounded, limit: float) -> bool:
        """Return whether the best plan of a region below a limit is known, if there is one."""
        try:
            return self._enumerated(region, bounded, limit)
        except TooManyError:
            return False

    def _bounded(self, region: Region) -> Packed | None:
        """Return the best bound that is known how to get, None if it is at the limit."""
        decomposition, box, allowed = self.decomposition, region.box, region.allowed
        rounds = _ROUNDS_FIRST if self.waiting.count == 1 else _ROUNDS
        search = WeightSearch(decomposition=decomposition, box=box, allowed=allowed)
        bounded = search.best(
            decomposition.bounded(region.weights, box, allowed),
            target=self.limit,
            rounds=rounds,
            effort=self._effort,
        )
        is_open = not region.is_certain()
        best, size = self._packed(bounded, is_open=is_open), 1.0
        for _ in range(_ROUNDS_OPEN if is_open else _ROUNDS_CERTAIN):
            if best is None:
                return None
            if self._effort.is_over:
                break
            left = self.limit - best.bounded.lower
            weights = decomposition.moved(best.bounded.weights, best.parts, box, reach=size * left)
            if weights is None or size < _SIZE_LEAST:
                break
            now = self._packed(decomposition.bounded(weights, box, allowed), is_open=is_open)
            if now is None:
                return None
            if not now.bounded.lower - best.bounded.lower > _GAIN_LEAST * left:
                size *= _SLOW
            best = now if now.bounded.lower > best.bounded.lower else best
        return best

    def _packed(self, bounded: Bounded, *, is_open: bool) -> Packed | None:
        """Return the bound with exact packings where it is set, None if it is at the limit.

        While many loads are open they are not all packed, nor to the end.
        """
        effort, turns = (_EFFORT_OPEN, _TURNS_OPEN) if is_open else (_EFFORT_CERTAIN, _TURNS_MOST)
        slack_ratio = _SLACK_OPEN if is_open else 0.0
        decomposition = self.decomposition
        exact: list[dict[int, Parts]] = [{} for _ in bounded.ranks]
        counts: list[dict[int, Integers]] = [{} for _ in bounded.ranks]
        while bounded.lower < self.limit:
            path = decomposition.best(bounded)
            vague = [(r, load) for r, load in enumerate(path) if load not in exact[r]]
            turns -= 1
            if self._effort.is_over:
                turns = -1
            if not vague or turns < 0:
                for r, load in vague:
                    exact[r][load] = bounded.ranks[r].divided(load)
                self._offer(path, exact, counts)
                parts = tuple(known[load] for known, load in zip(exact, path, strict=True))
                return Packed(bounded=bounded, parts=parts) if bounded.lower < self.limit else None
            tables = [table.copy() for table in bounded.tables]
            self._effort.spend(_UNITS_A_PACKING * len(vague))
            for r, load in vague:
                slack = self.limit - (float(bounded.through[r][load]) + bounded.beyond)
                upper = float(bounded.tables[r][load]) + slack
                packing = bounded.ranks[r].packing(
                    load, upper=upper, effort=effort, slack_ratio=slack_ratio
                )
                tables[r][load] = max(tables[r][load], packing.lower)
                exact[r][load] = bounded.ranks[r].divided(load)
                if packing.counts is not None:
                    exact[r][load] = decomposition.ranks[r].parts(packing.counts.astype(np.float64))
                    counts[r][load] = packing.counts
            bounded = decomposition.summed(bounded, tables)
        return None

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
        step = step_of([known[load] for known, load in zip(exact, path, strict=True)], repeats)
        if step < self.limit:
            self._take(path, [known[load] for known, load in zip(counts, path, strict=True)])

    def _take(
        self, path: Sequence[int], counts: Sequence[Integers], *, tries: int = _TRIES_FEW
    ) -> bool:
        """Keep a plan if it is the best; return whether its chain can be cut so, and it fits."""
        instance = self.decomposition.instance
        cuts = self.cutter.cuts(self._held(path), tries=tries)
        if cuts is None:
            return False
        width = sum(len(kind.choice) for kind in instance.kinds)
        edges = edge_kind_count(instance)
        every = np.zeros((len(path), width + edges), dtype=np.int64)
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

    def _enumerated(self, region: Region, bounded: Bounded, limit: float) -> bool:
        """Return whether all patterns below a limit settle a region.

        Raises:
            TooManyError: if there are too many patterns.
        """
        most = _NARROW_UNITS
        if not region.is_narrow:
            most = max(_WIDE_UNITS, _WIDE_UNITS_A_RANK * len(bounded.ranks))
        effort = self._effort.part(most)
        try:
            return self._is_swept(region, bounded, limit, effort)
        finally:
            self._effort.spend(effort.spent)

    def _is_swept(self, region: Region, bounded: Bounded, limit: float, effort: Effort) -> bool:
        decomposition = self.decomposition
        found = patterns_below(
            decomposition, bounded, region.box, limit=limit, most=_PATTERNS_MOST, effort=effort
        )
        if found is None or any(not len(one.load) for one in found):
            return True
        instance = decomposition.instance
        best = swept(
            decomposition.steps,
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
        return self._take(path, counts, tries=_TRIES_MANY)

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
