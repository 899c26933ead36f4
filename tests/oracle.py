"""Oracle: the least step of a small instance by trying everything.

It shares nothing with `planner.ilp` but the plain numbers of an `Instance`. It enumerates every cut
of the chain into virtual stages, all multisets of choices of what a rank then holds, and applies
the sums written out below.
"""

from __future__ import annotations

from collections.abc import Callable, Iterator, Sequence
from dataclasses import dataclass, field
from functools import cache
from itertools import combinations

import numpy as np
from numpy.typing import NDArray

from planner.ilp.instance import Instance

Numbers = NDArray[np.float64]
Whole = NDArray[np.int64]
CutsAllowed = Callable[[tuple[int, ...], Whole], bool]

_SECONDS, _BYTES = slice(0, 3), 3  # columns of a way: pace, fill, end; bytes, host; largest,
_HOST, _TRANSIENT = 4, 5  # and activations of a micro-batch by the rank's virtual stages
_KEPT = 6


@dataclass(frozen=True, slots=True, kw_only=True)
class Keeping:
    """Micro-batches that a rank holds: in all its layers, and by its virtual stages at moments.

    The instance's bytes have `in_flight` times all activations in them. Where a moment has more,
    that counts.
    """

    in_flight: float
    moments: tuple[tuple[int, ...], ...]


@dataclass(frozen=True, slots=True, kw_only=True)
class Optimum:
    """The least step, and what the parts of it are in one plan that reaches it."""

    step_seconds: float
    fill_sum: float
    repeated_pace: float
    largest_end: float


def least_step(instance: Instance) -> float | None:
    """Return the least step of all plans that fit, None where none does."""
    best = best_plan(instance)
    return None if best is None else best.step_seconds


def best_plan(
    instance: Instance,
    *,
    most: Sequence[Whole] | None = None,
    cuts_allowed: CutsAllowed | None = None,
    keeping: Sequence[Keeping] | None = None,
) -> Optimum | None:
    """Return the best of the plans that fit.

    `most` allows so many layers of each kind by [ranks, choices]; `cuts_allowed` sees cuts and the
    layers of each kind on each rank, [ranks, kinds]. `keeping` is by rank; without it all layers of
    a rank have the same micro-batches in flight.
    """
    ranks = _Ranks(instance=instance, most=most, keeping=keeping)
    best: Optimum | None = None
    for cuts in every_cut(sum(count for _, count in instance.chain), len(instance.holders)):
        held = _held(instance, cuts)
        totals = np.array([np.sum(parts, axis=0) for parts in held])
        if cuts_allowed is not None and not cuts_allowed(cuts, totals):
            continue
        added = _added(instance, cuts)
        ways = [ranks.ways(rank, held[rank], added[rank]) for rank in range(len(held))]
        if all(len(way) for way in ways):
            found = _combined(ways, instance.repeat_count)
            if best is None or found.step_seconds < best.step_seconds:
                best = found
    return best


def every_cut(blocks: int, parts: int) -> Iterator[tuple[int, ...]]:
    """Yield every way to cut a chain into parts, none of them empty."""
    for inner in combinations(range(1, blocks), parts - 1):
        yield (0, *inner, blocks)


def _blocks(instance: Instance) -> list[int]:
    return [kind for kind, count in instance.chain for _ in range(count)]


def _held(instance: Instance, cuts: tuple[int, ...]) -> list[list[Whole]]:
    """Return layers of each kind by rank and its virtual stages, pinned ones with the rest."""
    blocks, last = _blocks(instance), len(instance.holders) - 1
    held: list[list[Whole]] = [[] for _ in range(len(instance.stage_pace))]
    for part, rank in enumerate(instance.holders):
        own = np.bincount(blocks[cuts[part] : cuts[part + 1]], minlength=len(instance.kinds))
        own[0] += part == 0
        own[-1] += part == last
        held[rank].append(own)
    return held


def _added(instance: Instance, cuts: tuple[int, ...]) -> Numbers:
    """Return pace, fill and bytes that the places of the cuts add to each rank, [ranks, 3]."""
    added = np.zeros((len(instance.stage_pace), 3))
    extras = instance.extras
    if extras is None:
        return added
    classes = [group for group, count in instance.classes or instance.chain for _ in range(count)]
    for place in range(len(instance.holders) - 1):
        before = classes[cuts[place + 1] - 1]
        near, far = instance.holders[place], instance.holders[place + 1]
        seconds = (extras.pace[place, before], extras.fill[place, before])
        added[near] += (*seconds, extras.first_bytes[place, before])
        added[far] += (*seconds, extras.second_bytes[place, before])
    return added


@dataclass(slots=True, kw_only=True)
class _Ranks:
    """The ways to run a rank, kept by what it holds."""

    instance: Instance
    most: Sequence[Whole] | None
    keeping: Sequence[Keeping] | None
    known: dict[tuple[object, ...], Numbers] = field(default_factory=dict)

    def ways(self, rank: int, parts: Sequence[Whole], added: Numbers) -> Numbers:
        """Return pace, fill and end of every way that fits and that no other beats, [ways, 3].

        `parts` are the layers of each kind by virtual stage.
        """
        held = [np.sum(parts, axis=0)] if self.keeping is None else list(parts)
        key = (rank, *(count for part in held for count in part.tolist()), *added.tolist())
        if key not in self.known:
            self.known[key] = _unbeaten(self._fitting(rank, held, added))
        return self.known[key]

    def _fitting(self, rank: int, parts: Sequence[Whole], added: Numbers) -> Numbers:
        own = self.instance
        pace, fill, more_bytes = added.tolist()
        start = (
            own.stage_pace[rank] + pace,
            own.stage_fill[rank] + fill,
            own.stage_end[rank],
            own.stage_bytes[rank] + more_bytes,
            *(0.0, 0.0),
            *(0.0 for _ in parts),
        )
        ways = np.array([start], dtype=np.float64)
        for place, part in enumerate(parts):
            for kind, count in enumerate(part.tolist()):
                if count:
                    mixes = self._mixes(rank, kind, count)
                    more = np.zeros((len(mixes), len(start)))
                    more[:, :_KEPT] = mixes[:, :_KEPT]
                    more[:, _KEPT + place] = mixes[:, _KEPT]
                    ways = _product(ways, more)
        peak = ways[:, _BYTES] + ways[:, _TRANSIENT] + self._more_at_moments(rank, ways[:, _KEPT:])
        kept = peak <= own.capacity_bytes[rank]
        kept &= ways[:, _HOST] <= own.host_capacity_bytes[rank]
        return np.asarray(ways[kept][:, _SECONDS])

    def _more_at_moments(self, rank: int, kept: Numbers) -> Numbers:
        """Return what a moment has beyond the activations in flight of all layers, [ways]."""
        if self.keeping is None:
            return np.zeros(len(kept))
        own = self.keeping[rank]
        moments = kept @ np.array(own.moments, dtype=np.float64).T
        return np.maximum(moments.max(axis=1) - own.in_flight * kept.sum(axis=1), 0.0)

    def _mixes(self, rank: int, kind: int, count: int) -> Numbers:
        """Return all multisets of choices of `count` equal layers as ways, [ways, 7]."""
        layer = self.instance.kinds[kind]
        mixes = _compositions(count, len(layer.choice))
        if self.most is not None:
            mixes = mixes[(mixes <= self.most[kind][rank]).all(axis=1)]
        columns = (layer.pace, layer.fill, layer.end, layer.memory, layer.host)
        sums = [mixes @ column[rank] for column in columns]
        largest = np.where(mixes > 0, layer.transient[rank], 0.0).max(axis=1)
        return np.stack([*sums, largest, mixes @ layer.kept[rank]], axis=1)


def _product(one: Numbers, other: Numbers) -> Numbers:
    """Return every way of one with every way of the other: sums, and the larger transient."""
    summed = (one[:, None, :] + other[None, :, :]).reshape(-1, one.shape[1])
    larger = np.maximum(one[:, None, _TRANSIENT], other[None, :, _TRANSIENT])
    summed[:, _TRANSIENT] = larger.ravel()
    return np.asarray(summed)


@cache
def _compositions(total: int, parts: int) -> Whole:
    """Return all ways to write `total` as a sum of `parts` numbers not below 0."""
    if parts == 1:
        return np.array([[total]])
    rows = [
        np.insert(_compositions(total - first, parts - 1), 0, first, axis=1)
        for first in range(total + 1)
    ]
    return np.concatenate(rows)


def _unbeaten(ways: Numbers) -> Numbers:
    """Return the ways of which no other is as good in all three columns."""
    ways = np.unique(ways, axis=0)  # sorted, so that a way is beaten by an earlier one only
    kept: list[Numbers] = []
    for way in ways:
        if not any((other <= way).all() for other in kept):
            kept.append(way)
    return np.array(kept).reshape(-1, 3)


def _combined(ways: Sequence[Numbers], repeat_count: float) -> Optimum:
    """Return the best of one way for each rank: sum of fills, largest pace, largest end."""
    pace, fill, end = (ways[0][:, column] for column in range(3))
    for way in ways[1:]:
        pace = np.maximum(pace[:, None], way[None, :, 0]).ravel()
        fill = (fill[:, None] + way[None, :, 1]).ravel()
        end = np.maximum(end[:, None], way[None, :, 2]).ravel()
    steps = fill + repeat_count * pace + end
    best = int(steps.argmin())
    return Optimum(
        step_seconds=float(steps[best]),
        fill_sum=float(fill[best]),
        repeated_pace=float(repeat_count * pace[best]),
        largest_end=float(end[best]),
    )
