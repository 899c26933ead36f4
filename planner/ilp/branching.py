"""Branching: one configuration to the end, by what its ranks hold.

Sets of plans wait under the bound of `planner.ilp.decomposition`; the least is looked into next.
A set with certain loads is settled from the fronts of its ranks (`planner.ilp.joining`) where fills
are shares of paces. Where the patterns near a bound are few they are enumerated
(`planner.ilp.nearby`) and the best put together (`planner.ilp.sweep`), which settles any set.
Elsewhere it is split: by the load of a rank, or by the largest pace or end once all loads are
certain. The packings that set a bound are plans as well, and most of the good ones are found so.
"""

from __future__ import annotations

import time
from collections.abc import Sequence
from dataclasses import dataclass, field, replace
from itertools import islice

import numpy as np

from planner.cost.configuration import Booleans, Floats, Integers
from planner.ilp.cutting import Cutter
from planner.ilp.decomposition import Bounded, Decomposition, step_of
from planner.ilp.edges import edge_kind_count
from planner.ilp.instance import Assignment, Instance, evaluate, fits
from planner.ilp.joining import Joining
from planner.ilp.loads import Load
from planner.ilp.nearby import Effort, patterns_below
from planner.ilp.patterns import TooManyError
from planner.ilp.planes import WeightSearch
from planner.ilp.rank import Caps, Parts
from planner.ilp.regions import REACH_FIRST, Packed, Region, split
from planner.ilp.sketching import sketched
from planner.ilp.sweep import swept
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
_WIDE_SECONDS = 0.15
_WIDE_SECONDS_A_RANK = 0.0125
_NARROW_SECONDS = 0.7
_SKIPPED_MOST = 3
_SKETCHED_AT = (0, 4, 16, 64)
_SKETCHES_MOST = 40
_SKETCHES_TAKEN = 3
_REACH_GROWTH = 4.0
_LOOK_SECONDS = 0.25
_TRIES_FEW = 500
_TRIES_MANY = 20_000


@dataclass(slots=True, kw_only=True)
class Branching:
    """The regions that are left, and the best plan known below the limit.

    Plans are evaluated as ones of `whole`, of which the decomposition's instance may be a part.
    `floors` are lower bounds of rho t + u, of rho t and of u by rank, each [loads], the first from
    packings where `is_packed` [loads]; `unsettled` is the least bound of the regions that nothing
    can be done about. `is_taken` is for whoever asks: what became of the plan when it was offered.
    Regions are `hard` where packings of certain loads are, and it `is_stuck` where the last run
    ended for their sake. `fill_shares` are the shares of paces that the fills of ranks are, None
    where they are none.
    """

    decomposition: Decomposition
    whole: Instance
    loads: Sequence[Sequence[Load]]
    floors: tuple[tuple[Floats, Floats, Floats], ...]
    is_packed: tuple[Booleans, ...]
    fill_sum: float
    limit: float
    deadline: float = float("inf")
    best_seconds: float = float("inf")
    assignment: Assignment | None = None
    is_taken: bool = True
    is_stuck: bool = False
    fill_shares: tuple[float, ...] | None = None
    waiting: Waiting[Region] = field(default_factory=Waiting)
    hard: list[Region] = field(default_factory=list)
    unsettled: float = float("inf")
    looks: int = 0
    cutter: Cutter = field(init=False)

    def __post_init__(self) -> None:
        """Remember what was asked about cuts."""
        self.cutter = Cutter(self.decomposition.instance)

    def lower(self) -> float:
        """Return a bound of every plan but the best known; inf where nothing is left below it."""
        hard = min((region.lower for region in self.hard), default=float("inf"))
        least = min(self.waiting.least(), hard, self.unsettled)
        return least if least < self.limit else float("inf")

    def look(self) -> None:
        """Look into the region with the least bound."""
        if self.waiting.least() < self.limit:
            _, region = self.waiting.pop()
            self._look_into(region)

    def run(self, *, seconds: float, enough: float = float("inf")) -> None:
        """Look into regions until none is left, the bound is beyond `enough`, or time is over.

        One is looked into in any case. Where packings of certain loads are too hard, it ends if
        something else is below the limit too, and otherwise when nothing but these is left.
        """
        started = time.perf_counter()
        self.deadline = started + max(seconds, _LOOK_SECONDS)
        self.is_stuck = False
        while np.isfinite(self.lower()):
            self.look()
            is_late = time.perf_counter() > started + seconds
            is_out = self.waiting.least() >= self.limit
            self.is_stuck = bool(self.hard) and (is_out or enough < self.limit)
            if self.lower() > enough or is_late or is_out or self.is_stuck:
                break
        if self.waiting.least() >= self.limit:
            self.waiting.clear()
        hard, self.hard = self.hard, []
        for region in hard:
            self.push(region)

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
        packed = self._bounded(region)
        if packed is None:
            return
        if self.looks in _SKETCHED_AT:
            self._sketch(packed.bounded)
        self.looks += 1
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

    def _sketch(self, bounded: Bounded) -> None:
        """Look for plans of loads near a bound."""
        taken = 0
        plans = sketched(self.decomposition.instance, self.decomposition, bounded)
        for path, counts in islice(plans, _SKETCHES_MOST):
            taken += self._take(path, counts)
            if taken == _SKETCHES_TAKEN:
                break

    def _settle(self, region: Region, packed: Packed) -> None:
        """Enumerate what is in a region a little above its bound, or split it if that is too much.

        Where nothing is there, the region waits under what was looked at, and is next looked into
        further up.
        """
        if self._is_joined(region, packed):
            return
        closer = min(region.lower * (1.0 + region.reach), self.limit)
        failures, skipped = region.failures, region.skipped - 1
        if skipped < 0 and self._is_settled(region, packed.bounded, closer):
            self.push(replace(region, lower=closer, reach=_REACH_GROWTH * region.reach))
            return
        if skipped < 0:
            failures, skipped = failures + 1, min(failures, _SKIPPED_MOST)
        split = replace(region, packed=None, reach=REACH_FIRST, failures=failures, skipped=skipped)
        self._split(split, packed)

    def _is_joined(self, region: Region, packed: Packed) -> bool:
        """Return whether the fronts of certain loads are looked into, and put back what is left."""
        if self.fill_shares is None or region.is_spent or not region.is_certain():
            return False
        path = self.decomposition.best(packed.bounded)

        def take(counts: Sequence[Integers]) -> float | None:
            return self.limit if self._take(path, counts, tries=_TRIES_MANY) else None

        pairs = zip(self.decomposition.ranks, path, strict=True)
        ranks = [rank.with_loads(np.array([at])) for rank, at in pairs]
        known = region.joining or Joining.of(ranks, self.fill_shares, region.box, region.weights)
        left = region.joined(known, take, limit=self.limit, deadline=self.deadline)
        if left is not None:
            if left.is_stuck:
                self.hard.append(left)
            else:
                self.push(left)
        return True

    def offer_packed(self, path: Sequence[int]) -> None:
        """Offer the plan of some loads, each packed for its own share of the step."""
        counts, ranks = [], self.decomposition.roster.priced(1.0, 1.0, Caps())
        for priced, load in zip(ranks, path, strict=True):
            packing = priced.packing(load, upper=self.limit, effort=_EFFORT_OPEN)
            if packing.counts is None:
                return
            counts.append(packing.counts)
        self._take(path, counts)

    def _is_settled(self, region: Region, bounded: Bounded, limit: float) -> bool:
        """Return whether the best plan of a region below a limit is known, if there is one.

        Where certain loads can be joined, that is not asked unless it would end the region.
        """
        if self.fill_shares is not None and not region.is_spent and limit < self.limit:
            return False
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
            deadline=self.deadline,
        )
        is_open = not region.is_certain()
        if not is_open and self.fill_shares is not None and not region.is_spent:
            parts = tuple(decomposition.divided(bounded))
            return Packed(bounded=bounded, parts=parts) if bounded.lower < self.limit else None
        best, size = self._packed(bounded, is_open=is_open), 1.0
        for _ in range(_ROUNDS_OPEN if is_open else _ROUNDS_CERTAIN):
            if best is None:
                return None
            if time.perf_counter() > self.deadline:
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
            if time.perf_counter() > self.deadline:
                turns = -1
            if not vague or turns < 0:
                for r, load in vague:
                    exact[r][load] = bounded.ranks[r].divided(load)
                self._offer(path, exact, counts)
                parts = tuple(known[load] for known, load in zip(exact, path, strict=True))
                return Packed(bounded=bounded, parts=parts) if bounded.lower < self.limit else None
            tables = [table.copy() for table in bounded.tables]
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
        evaluation = evaluate(self.whole, assignment)
        if not fits(self.whole, evaluation):
            return False
        if evaluation.step_seconds < self.limit:
            self.limit = self.best_seconds = evaluation.step_seconds
            self.assignment = assignment
        return True

    def _enumerated(self, region: Region, bounded: Bounded, limit: float) -> bool:
        """Return whether enumeration settles a region below a limit.

        Raises:
            TooManyError: if there are too many patterns.
        """
        decomposition = self.decomposition
        seconds = _NARROW_SECONDS
        if not region.is_narrow:
            seconds = max(_WIDE_SECONDS, _WIDE_SECONDS_A_RANK * len(bounded.ranks))
        deadline = min(time.perf_counter() + seconds, self.deadline + _WIDE_SECONDS)
        effort = Effort(patterns=_PATTERNS_MOST, deadline=deadline)
        found = patterns_below(decomposition, bounded, region.box, limit=limit, effort=effort)
        if found is None or any(not len(one.load) for one in found):
            return True
        instance = decomposition.instance
        best = swept(
            decomposition.steps,
            found,
            load_counts=[len(own) for own in self.loads],
            repeat_count=instance.repeat_count,
            below=limit - float(instance.stage_fill.sum()),
            deadline=deadline,
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
