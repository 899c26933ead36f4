"""Rank loads: what every rank may hold, with bounds of what it costs, and which go together."""

from __future__ import annotations

from collections.abc import Sequence
from dataclasses import dataclass, replace

import numpy as np

from planner.cost.configuration import Booleans, Floats, Integers
from planner.ilp.chunks import edged_moves_by_chunks
from planner.ilp.duals import scaled
from planner.ilp.instance import Instance
from planner.ilp.loads import Load, as_loads
from planner.ilp.moves import Moves, different, moves_by_sums, with_loads
from planner.ilp.patterns import TooManyError
from planner.ilp.rank import Rank, rank_of
from planner.ilp.reduction import Reduction
from planner.ilp.roster import Roster
from planner.ilp.transitions import Step, steps_along, steps_of

_SUMS_MOST = 1_500_000
_EDGED_MOST = 8000
_ROUNDING = 1e-9


@dataclass(frozen=True, slots=True, kw_only=True)
class RankLoads:
    """What a rank may hold, and lower bounds of rho t + u and of rho t, each [loads]."""

    rank: Rank
    loads: list[Load]
    both: Floats
    pace: Floats

    def taken(self, mask: Booleans) -> RankLoads:
        """Return those of the loads that a mask leaves."""
        places = np.flatnonzero(mask)
        return RankLoads(
            rank=self.rank.with_loads(places),
            loads=[self.loads[place] for place in places.tolist()],
            both=self.both[places],
            pace=self.pace[places],
        )


def ranks_of(
    instance: Instance, reduced: Reduction, loads: Sequence[Sequence[Load]]
) -> list[RankLoads]:
    """Return the loads of every rank with their linear bounds."""
    ranks = tuple(
        rank_of(instance, place, loads=own, most=reduced.most) for place, own in enumerate(loads)
    )
    roster = Roster(ranks=ranks)
    both = roster.least(1.0, 1.0, fill_weight=0.0)
    pace = roster.least(1.0, 0.0, fill_weight=0.0)
    return [
        RankLoads(
            rank=rank,
            loads=list(loads[place]),
            both=both[place],
            pace=pace[place],
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
    rounding = _ROUNDING * abs(most)
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
    steps: tuple[Step, ...]


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
    below = _below(reduced, ranks, limit)
    if not all(own.loads for own in below):
        return None
    steps = steps_of(
        instance,
        reduced.windows,
        [own.loads for own in below],
        sums_most=_SUMS_MOST,
    )
    if steps is None:
        return None
    return _linked(below, steps)


def linked_with_edges(
    instance: Instance, reduced: Reduction, ranks: Sequence[RankLoads], *, limit: float
) -> Linked | None:
    """Return the same where ranks hold several parts and cuts differ by place.

    `ranks` are priced with every cut where it adds the least; what ways along the chain lead to is
    priced with its edges.

    Raises:
        TooManyError: if there are too many.
    """
    below = _below(reduced, ranks, limit)
    if not all(own.loads for own in below):
        return None
    found = edged_moves_by_chunks(instance, reduced.windows, [own.loads for own in below])
    if found is None:
        raise TooManyError
    moves, loads = _used(*found)
    if not all(loads):
        return None
    if sum(map(len, loads)) > _EDGED_MOST:
        raise TooManyError
    edged = ranks_of(instance, reduced, loads)
    kept = [_is_below(reduced, own, limit) for own in edged]
    steps = steps_along(with_loads(moves, kept))
    return None if steps is None else _linked(edged, steps)


def linked_by_sums(
    instance: Instance, reduced: Reduction, ranks: Sequence[RankLoads], *, limit: float
) -> Linked | None:
    """Return the same without regard to the order of the chain, which is little to look at.

    Raises:
        TooManyError: if there are too many.
    """
    below = _below(reduced, ranks, limit)
    if not all(own.loads for own in below):
        return None
    moves = moves_by_sums(instance, [own.loads for own in below], most=_SUMS_MOST)
    steps = steps_along(moves)
    return None if steps is None else _linked(below, steps)


def kept_ways(left: Linked, masks: Sequence[Booleans]) -> Linked | None:
    """Return the ways with loads that are kept, [loads] by rank; None where there is none."""
    if all(mask.all() for mask in masks):
        return left
    moves = [Moves(before=own.before, after=own.after, load=own.load) for own in left.steps]
    steps = steps_along(with_loads(moves, masks))
    return None if steps is None else _linked(left.ranks, steps)


def _used(
    moves: Sequence[Moves], loads: Sequence[Sequence[Load]]
) -> tuple[list[Moves], list[list[Load]]]:
    """Return moves on a whole way with the loads that these have."""
    steps = steps_along(moves)
    if steps is None:
        return [], [[]]
    kept, held = [], []
    for step, own in zip(steps, loads, strict=True):
        places, load = different(step.load)
        kept.append(Moves(before=step.before, after=step.after, load=load))
        held.append([own[place] for place in places.tolist()])
    return kept, held


def _is_below(reduced: Reduction, own: RankLoads, limit: float) -> Booleans:
    """Return which loads plans of at most the limit may have, [loads]."""
    most = limit - reduced.bounds.fill_sum
    return np.asarray((own.both <= most) & (own.pace <= most - reduced.bounds.largest_end))


def _below(reduced: Reduction, ranks: Sequence[RankLoads], limit: float) -> list[RankLoads]:
    return [own.taken(_is_below(reduced, own, limit)) for own in ranks]


def _linked(ranks: Sequence[RankLoads], steps: Sequence[Step]) -> Linked:
    """Return the ranks with those of their loads alone that steps have."""
    used = [different(step.load)[0] for step in steps]
    return Linked(
        ranks=tuple(
            own.taken(np.isin(np.arange(len(own.loads)), places))
            for own, places in zip(ranks, used, strict=True)
        ),
        steps=tuple(
            replace(step, load=np.searchsorted(places, step.load))
            for step, places in zip(steps, used, strict=True)
        ),
    )
