"""Sketching: plans of ranks whose loads are known, filled quickly and put together exactly.

Loads near the least of a decomposition's bound are filled (`planner.ilp.filling`) for several
weights of pace and end beside fill. Under caps on the largest pace and end, the way through the
ranks with the least sum of fills is found by dynamic programming, and the best of a few caps are
the plans. It proves nothing, and gives a search a plan to beat whose cuts are chosen together.
"""

from __future__ import annotations

from collections.abc import Iterator
from dataclasses import dataclass, replace

import numpy as np

from planner.cost.configuration import Booleans, Floats, Integers
from planner.ilp.decomposition import Bounded, Decomposition
from planner.ilp.filling import Filling, filled
from planner.ilp.instance import Instance
from planner.ilp.rank import Rank
from planner.ilp.transitions import best_loads, least_sums

_LOADS_MOST = 24
_PACES = 16
_ENDS = 8
_WEIGHTS = ((1.0, 1.0), (1.0, 0.1), (0.1, 1.0), (0.3, 0.3), (0.1, 0.1))

Sketch = tuple[tuple[int, ...], list[Integers]]
"""The place of every rank's load, and its layers by the columns of the rank."""


def sketched(
    instance: Instance, decomposition: Decomposition, bounded: Bounded
) -> Iterator[Sketch]:
    """Yield plans for caps on pace and end, the best first; none where nothing fits."""
    near = [_near(own) for own in bounded.through]
    if not all(map(len, near)):
        return
    ranks = np.repeat(np.arange(len(near)), [len(own) for own in near])
    rows = _Rows(instance=instance, ranks=decomposition.ranks, near=near, of=ranks)
    even = 1.0 / instance.stage_count
    fillings = [rows.filled(*weights) for weights in (*_WEIGHTS, (even, even))]
    fits = np.stack([own.fits for own in fillings])
    end = np.stack([np.where(own.fits, own.end, np.inf) for own in fillings])
    pace = np.where(fits, np.stack([own.omega for own in fillings]) - end, np.inf)
    fill = np.stack([own.fill for own in fillings])
    pace_caps, end_caps = (
        side.ravel() for side in np.meshgrid(_caps(pace, ranks, _PACES), _caps(end, ranks, _ENDS))
    )
    under = (pace[:, :, None] <= pace_caps) & (end[:, :, None] <= end_caps)
    cost = np.where(under, fill[:, :, None], np.inf)
    tables = []
    for rank, (own, loads) in enumerate(zip(bounded.through, near, strict=True)):
        table = np.full((len(own), len(pace_caps)), np.inf)
        table[loads] = cost[:, ranks == rank].min(axis=0)
        tables.append(table)
    total = least_sums(decomposition.steps, tables) + pace_caps + end_caps
    best = np.argsort(total, kind="stable")
    seen: set[tuple[int, ...]] = set()
    for place in best[np.isfinite(total[best])].tolist():
        path = best_loads(decomposition.steps, [table[:, place] for table in tables])
        if path in seen:
            continue
        seen.add(path)
        taken = list(_places(path, near))
        chosen = [fillings[which] for which in cost[:, taken, place].argmin(axis=0).tolist()]
        yield path, _counts(decomposition.ranks, path, taken, chosen)


@dataclass(frozen=True, slots=True, kw_only=True)
class _Rows:
    """The loads that are filled: `near` are their places by rank, `of` is the rank of each."""

    instance: Instance
    ranks: tuple[Rank, ...]
    near: list[Integers]
    of: Integers

    def filled(self, pace_weight: float, end_weight: float) -> Filling:
        """Return the loads filled, with what their edges add."""
        kinds = len(self.instance.kinds)
        each = list(zip(self.ranks, self.near, strict=True))
        held = np.concatenate([own.held[loads, :kinds] for own, loads in each])
        edges = [_edges(own, loads, kinds) for own, loads in each]
        pace, fill, memory = np.concatenate(edges, axis=1)
        found = filled(
            self.instance,
            self.of,
            held,
            weight=pace_weight,
            end_weight=end_weight,
            further_bytes=memory,
        )
        more = self.instance.repeat_count * pace
        fits = found.fits & self._may_be_had(found)
        return replace(found, fits=fits, omega=found.omega + more, fill=found.fill + fill)

    def _may_be_had(self, found: Filling) -> Booleans:
        """Return which fillings have such choices alone as plans below the cutoff have, [rows]."""
        counts = np.concatenate(found.counts, axis=1)
        known = np.zeros((len(self.ranks), counts.shape[1]), dtype=bool)
        for own, rank in zip(known, self.ranks, strict=True):
            own[rank.places[rank.places < len(own)]] = True
        return np.asarray(~((counts > 0) & ~known[self.of]).any(axis=1))


def _near(through: Floats) -> Integers:
    """Return the loads on the ways with the least bounds."""
    order = np.argsort(through, kind="stable")[:_LOADS_MOST]
    return np.sort(order[np.isfinite(through[order])])


def _edges(rank: Rank, loads: Integers, kinds: int) -> Floats:
    """Return pace, fill and bytes of the edges of loads, [3, loads]."""
    columns = rank.columns
    own = np.flatnonzero(columns.kind >= kinds)
    held = rank.held[loads][:, columns.kind[own]].astype(np.float64)
    return np.stack([held @ part[own] for part in (columns.pace, columns.fill, columns.memory)])


def _caps(values: Floats, ranks: Integers, count: int) -> Floats:
    """Return caps from the least that every rank has a load within, some of the values above it."""
    least = values.min(axis=0)
    level = max(float(least[ranks == rank].min()) for rank in np.unique(ranks).tolist())
    known = np.unique(values[np.isfinite(values) & (values >= level)])
    places = np.linspace(0, len(known) - 1, min(count, len(known))).astype(np.int64)
    caps: Floats = known[np.unique(places)]
    return caps


def _places(path: tuple[int, ...], near: list[Integers]) -> Iterator[int]:
    """Return the row of every rank's load among those that were filled."""
    start = 0
    for load, own in zip(path, near, strict=True):
        yield start + int(np.searchsorted(own, load))
        start += len(own)


def _counts(
    ranks: tuple[Rank, ...], path: tuple[int, ...], rows: list[int], chosen: list[Filling]
) -> list[Integers]:
    """Return the layers of every rank by its columns, edges with them."""
    found = []
    for rank, load, row, filling in zip(ranks, path, rows, chosen, strict=True):
        layers = np.concatenate([own[row] for own in filling.counts])
        edges = rank.held[load, len(filling.counts) :]
        found.append(np.concatenate([layers, edges])[rank.places])
    return found
