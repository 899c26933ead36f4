"""Annealing: cuts made better by luck, of a chain of several kinds that ranks hold parts of.

Where parts are short, moving one cut rarely helps: a rank that gets a block of one kind has to give
one of another kind elsewhere. Here one cut, or all between two, move by a block, and moves that
make a plan worse are taken as well, ever more rarely. What ranks cost with a load is looked up.
Chance is that of a given seed, so that the same request gives the same cuts. It proves nothing.

Source: Kirkpatrick, Gelatt and Vecchi 1983, doi:10.1126/science.220.4598.671.
"""

from __future__ import annotations

import time
from collections.abc import Sequence
from dataclasses import dataclass
from itertools import product
from random import Random

import numpy as np

from planner.cost.configuration import Floats
from planner.ilp.filling import filled
from planner.ilp.heuristic import best_filling
from planner.ilp.instance import Assignment, Instance
from planner.ilp.loads import Load, held_of, with_pinned
from planner.ilp.places import everywhere, placed, places_of
from planner.ilp.rank_loads import loads_in_band
from planner.ilp.reduction import reduction
from planner.ilp.segments import load_weights

_MOVES_A_LOOK = 256
_WARMEST = 0.01
_EASE = 1.1
_LOADS_LISTED = 150_000
_LOADS_MOST = 12_000
_LONE = 0.5
_KEPT = 3
_WEIGHTS = (1.0, 0.3, 0.1)

_Cost = tuple[float, float, float]


def annealed(
    instance: Instance,
    cuts: tuple[int, ...],
    *,
    limit_seconds: float,
    move_count: int,
    deadline: float,
    seed: int = 0,
) -> Assignment | None:
    """Return the best plan found from `cuts` on, None where none of the best cuts fit.

    Ranks hold what they may in plans that take little more than `limit_seconds`; anything else
    counts as if it took as long by itself. So many moves are tried, on which the warmth depends,
    so that a slow machine finds the same; the deadline (of `perf_counter`) is for very slow ones.
    """
    loads = _loads(instance, _EASE * limit_seconds)
    if loads is None:
        return None
    walk = _Walk.of(instance, loads, cuts, missing=limit_seconds)
    luck = Random(seed)  # noqa: S311 - the same every time is what is wanted
    warmest = _WARMEST * limit_seconds
    found = walk.run(luck, warmest=warmest, move_count=move_count, deadline=deadline)
    return best_filling(instance, product(found, (*_WEIGHTS, 1.0 / instance.stage_count)))


def _loads(instance: Instance, limit_seconds: float) -> list[list[Load]] | None:
    """Return what ranks may hold in plans below a limit, None if nothing or too much."""
    reduced = reduction(instance, cutoff_seconds=limit_seconds)
    if reduced is None:
        return None
    held = held_of(instance, reduced.windows, most=_LOADS_LISTED)
    if held is None:
        return None
    loads = loads_in_band(instance, held, most=limit_seconds - reduced.bounds.fill_sum)
    return loads if all(loads) and sum(map(len, loads)) <= _LOADS_MOST else None


@dataclass(slots=True, kw_only=True)
class _Walk:
    """Cuts on their way, plain lists since moves are many and small.

    `blocks` are codes of the chain's blocks, `known` the pace, end and fill of each rank's loads by
    their code, `added` the pace and fill that a cut adds to both its ranks, by cut and place; paces
    are those of all micro-batches. `codes`, `pace`, `end` and `fill` are by rank.
    """

    holders: tuple[int, ...]
    windows: tuple[list[int], list[int]]
    blocks: list[int]
    known: list[dict[int, _Cost]]
    added: list[list[tuple[float, float]]]
    missing: _Cost
    cuts: list[int]
    codes: list[int]
    pace: list[float]
    end: list[float]
    fill: list[float]

    @staticmethod
    def of(
        instance: Instance,
        loads: Sequence[Sequence[Load]],
        cuts: tuple[int, ...],
        *,
        missing: float,
    ) -> _Walk:
        """Return the walk at its start."""
        weights = np.zeros(len(instance.kinds), dtype=np.int64)
        weights[list(instance.free_kinds)] = load_weights(instance)
        earliest, latest = places_of(instance)
        walk = _Walk(
            holders=instance.holders,
            windows=(earliest.tolist(), latest.tolist()),
            blocks=weights[instance.block_kinds].tolist(),
            known=_known(instance, loads),
            added=_added(instance),
            missing=(missing, 0.0, 0.0),
            cuts=list(cuts),
            codes=[0] * instance.stage_count,
            pace=[0.0] * instance.stage_count,
            end=[0.0] * instance.stage_count,
            fill=[0.0] * instance.stage_count,
        )
        for part, rank in enumerate(walk.holders):
            walk.codes[rank] += sum(walk.blocks[cuts[part] : cuts[part + 1]])
        for rank, code in enumerate(walk.codes):
            own = walk.known[rank].get(code, walk.missing)
            walk.pace[rank], walk.end[rank], walk.fill[rank] = own
        for cut in range(1, len(cuts) - 1) if walk.added else ():
            walk._add(walk.pace, walk.fill, (cut, cuts[cut]), 1.0)
        return walk

    def run(
        self, random: Random, *, warmest: float, move_count: int, deadline: float
    ) -> list[tuple[int, ...]]:
        """Return the best cuts that were met, the very best last."""
        now = max(self.pace) + max(self.end) + sum(self.fill)
        best, found = now, [tuple(self.cuts)]
        for turn in range(move_count):
            if turn % _MOVES_A_LOOK == 0 and time.perf_counter() > deadline:
                break
            move = self._drawn(random)
            if move is None:
                continue
            codes, pace, end, fill = self._after(*move)
            seconds = max(pace) + max(end) + sum(fill)
            warmth = warmest * (1.0 - turn / move_count)
            if seconds - now > warmth * random.expovariate(1.0):
                continue
            first, last, shift = move
            for cut in range(first, last + 1):
                self.cuts[cut] += shift
            self.codes, self.pace, self.end, self.fill, now = codes, pace, end, fill, seconds
            if now < best:
                best = now
                found = [*found[1 - _KEPT :], tuple(self.cuts)]
        return found

    def _drawn(self, random: Random) -> tuple[int, int, int] | None:
        """Return the first and the last cut that move, and which way; None if they cannot."""
        count = len(self.cuts) - 2
        first = last = 1 + int(random.random() * count)
        if random.random() >= _LONE:
            other = 1 + int(random.random() * count)
            first, last = min(first, other), max(first, other)
        shift = 1 if random.random() < 0.5 else -1
        cuts, (earliest, latest) = self.cuts, self.windows
        if shift > 0 and cuts[last] + 1 >= cuts[last + 1]:
            return None
        if shift < 0 and cuts[first] - 1 <= cuts[first - 1]:
            return None
        moved = range(first, last + 1)
        if any(not earliest[cut] <= cuts[cut] + shift <= latest[cut] for cut in moved):
            return None
        return first, last, shift

    def _after(
        self, first: int, last: int, shift: int
    ) -> tuple[list[int], list[float], list[float], list[float]]:
        """Return codes, pace, end and fill by rank after a move."""
        codes, fill = self.codes.copy(), self.fill.copy()
        pace, end = self.pace.copy(), self.end.copy()
        holders, blocks, cuts = self.holders, self.blocks, self.cuts
        for cut in range(first, last + 1):
            place = cuts[cut] if shift > 0 else cuts[cut] - 1
            passed = shift * blocks[place]
            codes[holders[cut - 1]] += passed
            codes[holders[cut]] -= passed
            if self.added:
                self._add(pace, fill, (cut, cuts[cut]), -1.0)
                self._add(pace, fill, (cut, cuts[cut] + shift), 1.0)
        for rank in {*holders[first - 1 : last + 1]}:
            if codes[rank] != self.codes[rank]:
                before = self.known[rank].get(self.codes[rank], self.missing)
                after = self.known[rank].get(codes[rank], self.missing)
                pace[rank] += after[0] - before[0]
                end[rank] += after[1] - before[1]
                fill[rank] += after[2] - before[2]
        return codes, pace, end, fill

    def _add(self, pace: list[float], fill: list[float], at: tuple[int, int], sign: float) -> None:
        """Add what a cut costs at a place to both its ranks, or take it away."""
        cut, place = at
        more_pace, more_fill = self.added[cut - 1][place]
        first, second = self.holders[cut - 1], self.holders[cut]
        pace[first] += sign * more_pace
        fill[first] += sign * more_fill
        pace[second] += sign * more_pace
        fill[second] += sign * more_fill


def _known(instance: Instance, loads: Sequence[Sequence[Load]]) -> list[dict[int, _Cost]]:
    """Return pace, end and fill of what fits, by rank and code of a load."""
    least = instance if instance.extras is None else placed(instance, everywhere(instance))
    weights = load_weights(instance)
    ranks = np.repeat(np.arange(instance.stage_count), [len(own) for own in loads])
    held = np.array(
        [with_pinned(instance, rank, load) for rank, own in enumerate(loads) for load in own],
        dtype=np.int64,
    )
    codes = held[:, list(instance.free_kinds)] @ weights
    filling = filled(least, ranks, held)
    known: list[dict[int, _Cost]] = [{} for _ in loads]
    columns = (filling.omega - filling.end, filling.end, filling.fill)
    costs = zip(*(column.tolist() for column in columns), strict=True)
    for place, cost in enumerate(costs):
        if filling.fits[place]:
            known[int(ranks[place])][int(codes[place])] = cost
    return known


def _added(instance: Instance) -> list[list[tuple[float, float]]]:
    """Return the pace and fill that every cut adds by its place, nothing if all cost the same."""
    extras = instance.extras
    if extras is None:
        return []

    def by_place(values: Floats) -> list[list[float]]:
        columns: Floats = values[:, np.concatenate([[0], instance.block_classes])]
        found: list[list[float]] = columns.tolist()
        return found

    paces, fills = by_place(instance.repeat_count * extras.pace), by_place(extras.fill)
    return [list(zip(*both, strict=True)) for both in zip(paces, fills, strict=True)]
