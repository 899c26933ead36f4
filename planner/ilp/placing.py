"""Placing: one configuration to the end where ranks hold several parts and cuts differ by place.

Windows of the cuts (`planner.ilp.places`) are split until every cut has one class; what cuts add
is then a constant of each rank, and the plans within are branched on by what ranks hold
(`planner.ilp.branching`). Until then a cut adds the least that it can within its window, and the
bound of the ranks says whether the windows are split any further. What ranks cost at the least
holds of narrower windows too.
"""

from __future__ import annotations

import time
from collections.abc import Sequence
from dataclasses import dataclass, field, replace

import numpy as np

from planner.cost.configuration import Integers
from planner.ilp.branching import Branching
from planner.ilp.instance import Assignment, Instance
from planner.ilp.loads import held_of, loads_within
from planner.ilp.patterns import TooManyError
from planner.ilp.places import everywhere, halves, placed
from planner.ilp.rank_loads import Linked, RankLoads, linked, loads_in_band, ranks_of
from planner.ilp.reduction import Reduction, reduction
from planner.ilp.settling import EASING, branching_on, nothing
from planner.ilp.waiting import Waiting

_LOADS_LISTED = 150_000
_LOADS_PRICED = 20_000
_LEAST_SECONDS = 0.05


@dataclass(frozen=True, slots=True, kw_only=True)
class _Node:
    """Windows of the cuts, and what ranks may hold in wider ones; None where that is too much.

    `branching` is what is left of the plans, where the windows are not split any further.
    """

    places: Integers
    ranks: Sequence[RankLoads] | None = None
    branching: Branching | None = None


@dataclass(slots=True, kw_only=True)
class Placing:
    """The windows that are left, and the best plan known below the limit.

    It is asked as `Branching` is.
    """

    instance: Instance
    limit: float
    best_seconds: float = float("inf")
    assignment: Assignment | None = None
    is_taken: bool = True
    waiting: Waiting[_Node] = field(default_factory=Waiting)
    unsettled: float = float("inf")

    def lower(self) -> float:
        """Return a bound of every plan but the best known; inf where nothing is left below it."""
        least = min(self.waiting.least(), self.unsettled)
        return least if least < self.limit else float("inf")

    def run(self, *, seconds: float, enough: float = float("inf")) -> None:
        """Look into windows until none is left, the bound is beyond `enough`, or time is over."""
        deadline = time.perf_counter() + seconds
        while self.waiting and np.isfinite(self.lower()):
            self._look(deadline)
            if self.lower() > enough or time.perf_counter() > deadline:
                break

    def push(self, node: _Node, lower: float) -> None:
        """Let windows wait, unless no plan below the limit can be in them."""
        if lower < self.limit:
            self.waiting.push(node, lower)

    def _look(self, deadline: float) -> None:
        lower, node = self.waiting.pop()
        if lower >= self.limit:
            return
        if node.branching is not None:
            self._branch(node, node.branching, lower, deadline)
            return
        parts = halves(self.instance, node.places)
        branching, ranks = self._bounded(node, deadline, by_region=parts is not None)
        if branching is not None:
            self._take(branching)
            lower = max(lower, branching.lower())
        if parts is not None:
            for part in parts:
                if (part[0] <= part[1]).all():
                    self.push(_Node(places=part, ranks=ranks), lower)
        elif branching is not None:
            self.push(replace(node, ranks=None, branching=branching), lower)
        else:
            self.unsettled = min(self.unsettled, lower)

    def _bounded(
        self, node: _Node, deadline: float, *, by_region: bool
    ) -> tuple[Branching | None, Sequence[RankLoads] | None]:
        """Return the plans of some windows, and what is known of the loads of their ranks."""
        instance = placed(self.instance, node.places)
        reduced = reduction(instance, cutoff_seconds=self.limit)
        if reduced is None:
            return nothing(instance, self.limit), None
        ranks = self._ranks(instance, reduced, node.ranks, by_region=by_region)
        if ranks is None:
            return None, None
        if not ranks:
            return nothing(instance, self.limit), None
        try:
            left = self._linked(instance, reduced, ranks, by_region=by_region)
        except TooManyError:
            return None, ranks
        if left is None:
            return nothing(instance, self.limit), None
        branching = branching_on(
            instance,
            reduced,
            left,
            cutoff_seconds=self.limit,
            seconds=max(deadline - time.perf_counter(), _LEAST_SECONDS),
            whole=self.instance,
        )
        return branching, _levelled(left.ranks, branching)

    def _ranks(
        self,
        instance: Instance,
        reduced: Reduction,
        known: Sequence[RankLoads] | None,
        *,
        by_region: bool,
    ) -> Sequence[RankLoads] | None:
        """Return the loads of every rank, none where one has none, None where they are too many.

        Those `known` of wider windows are priced again only if they may go together.
        """
        if known is None:
            held = held_of(instance, reduced.windows, most=_LOADS_LISTED)
            if held is None:
                return None
            loads = loads_in_band(instance, held, most=self.limit - reduced.bounds.fill_sum)
            if not all(loads):
                return []
            is_much = sum(map(len, loads)) > _LOADS_PRICED
            return None if is_much else ranks_of(instance, reduced, loads)
        masks = loads_within(instance, reduced.windows, [own.loads for own in known])
        before: Sequence[RankLoads] = [
            own.shifted(instance, place).taken(mask)
            for place, (own, mask) in enumerate(zip(known, masks, strict=True))
        ]
        try:
            left = self._linked(instance, reduced, before, by_region=by_region)
        except TooManyError:
            return before
        if left is None:
            return []
        before = left.ranks
        ranks = ranks_of(instance, reduced, [own.loads for own in before])
        return [own.raised(other) for own, other in zip(ranks, before, strict=True)]

    def _linked(
        self,
        instance: Instance,
        reduced: Reduction,
        ranks: Sequence[RankLoads],
        *,
        by_region: bool,
    ) -> Linked | None:
        """Return the loads that ranks may have together, None where there are none.

        By region only where there are too many ways otherwise, and that is wanted.

        Raises:
            TooManyError: if there are too many.
        """
        try:
            return linked(instance, reduced, ranks, limit=self.limit)
        except TooManyError:
            if not by_region:
                raise
        return linked(instance, reduced, ranks, limit=self.limit, by_region=True)

    def _branch(self, node: _Node, branching: Branching, lower: float, deadline: float) -> None:
        """Look into the plans of windows in which cuts are certain."""
        branching.limit = min(branching.limit, self.limit)
        branching.run(seconds=max(deadline - time.perf_counter(), 0.0), enough=self.waiting.least())
        self._take(branching)
        after = branching.lower()
        if branching.waiting:
            self.push(node, max(after, lower))
        elif np.isfinite(after):
            self.unsettled = min(self.unsettled, after)

    def _take(self, branching: Branching) -> None:
        """Keep the best plan of a branching where it is the best of all."""
        if branching.assignment is not None and branching.best_seconds < self.limit:
            self.limit = self.best_seconds = branching.best_seconds
            self.assignment = branching.assignment


def _levelled(ranks: Sequence[RankLoads], branching: Branching) -> Sequence[RankLoads] | None:
    """Return the loads with the bounds that levelling has raised, None where none is left."""
    if not branching.loads:
        return None
    found = []
    for own, left, floors, packed in zip(
        ranks, branching.loads, branching.floors, branching.is_packed, strict=True
    ):
        kept = set(left)
        some = own.taken(np.array([load in kept for load in own.loads]))
        found.append(replace(some, both=floors[0], is_packed=packed))
    return found


def placing_of(instance: Instance, *, cutoff_seconds: float) -> Placing:
    """Return what is to be looked into for plans of at most the cutoff."""
    placing = Placing(instance=instance, limit=cutoff_seconds * (1.0 + EASING))
    placing.push(_Node(places=everywhere(instance)), 0.0)
    return placing
