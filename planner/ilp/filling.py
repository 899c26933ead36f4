"""Filling: choices for given layers on given ranks, best first, until they fit.

Every layer starts at the choice with the least fill and weighted omega. While a rank exceeds its
memory, as few of its layers as are needed move to the choice that loses the fewest of these seconds
for each byte saved: a walk down the lower hull of the rank's choices, which ends near the best mix.
All ranks walk at once.
"""

from __future__ import annotations

from dataclasses import dataclass, replace

import numpy as np

from planner.cost.configuration import Booleans, Floats, Integers
from planner.ilp.duals import scaled
from planner.ilp.instance import Instance

_MOVES_MOST = 60


@dataclass(frozen=True, slots=True, kw_only=True)
class Filling:
    """Layers by choice of each kind, [rows, choices] a kind; by row what fits, omega and fill.

    `end` is the part of omega that is no pace.
    """

    counts: tuple[Integers, ...]
    fits: Booleans
    omega: Floats
    fill: Floats
    end: Floats


@dataclass(frozen=True, slots=True, kw_only=True)
class _Columns:
    """All choices of all kinds side by side, [rows, columns]; `kind` [columns] says whose.

    `cost` is what a layer is chosen by: its fill and its weighted omega.
    """

    kind: Integers
    cost: Floats
    omega: Floats
    fill: Floats
    end: Floats
    memory: Floats
    transient: Floats
    host: Floats

    def of(self, rows: Integers) -> _Columns:
        """Return the columns of some rows."""
        return replace(
            self,
            cost=self.cost[rows],
            omega=self.omega[rows],
            fill=self.fill[rows],
            end=self.end[rows],
            memory=self.memory[rows],
            transient=self.transient[rows],
            host=self.host[rows],
        )


def filled(
    instance: Instance,
    ranks: Integers,
    held: Integers,
    *,
    weight: float | None = None,
    end_weight: float | None = None,
    further_bytes: Floats | None = None,
) -> Filling:
    """Return choices for `held` [rows, kinds] layers on rank `ranks` [rows] of each row.

    `weight` is omega's beside fill, one over the number of ranks unless it is given: what is right
    where all ranks are as slow. `end_weight` is the end's where it is another. `further_bytes`
    [rows] are taken on the device beside the layers.
    """
    weight = 1.0 / instance.stage_count if weight is None else weight
    columns = _columns(instance, ranks, weight, weight if end_weight is None else end_weight)
    counts = _cheapest(columns, held)
    capacity = (instance.capacity_bytes - instance.stage_bytes)[ranks]
    if further_bytes is not None:
        capacity = capacity - further_bytes
    host = instance.host_capacity_bytes[ranks]
    walking = np.arange(len(counts))
    for _ in range(_MOVES_MOST):
        those, now = columns.of(walking), counts[walking]
        over = _peak(those, now) - capacity[walking]
        left = host[walking] - (now * those.host).sum(axis=1)
        moved = _moved(those, now, over=over, host_left=left)
        counts[walking] = now
        walking = walking[moved]
        if not len(walking):
            break
    fits = (_peak(columns, counts) <= capacity) & ((counts * columns.host).sum(axis=1) <= host)
    own = (instance.repeat_count * instance.stage_pace + instance.stage_end)[ranks]
    return Filling(
        counts=tuple(counts[:, columns.kind == k] for k in range(len(instance.kinds))),
        fits=fits,
        omega=own + (counts * columns.omega).sum(axis=1),
        fill=instance.stage_fill[ranks] + (counts * columns.fill).sum(axis=1),
        end=instance.stage_end[ranks] + (counts * columns.end).sum(axis=1),
    )


def _columns(instance: Instance, ranks: Integers, weight: float, end_weight: float) -> _Columns:
    kinds = instance.kinds
    omega = np.concatenate([scaled(kind, instance.repeat_count) for kind in kinds], axis=1)
    fill = np.concatenate([kind.fill for kind in kinds], axis=1)
    end = np.concatenate([kind.end for kind in kinds], axis=1)
    return _Columns(
        kind=np.repeat(np.arange(len(kinds)), [len(kind.choice) for kind in kinds]),
        cost=(weight * (omega - end) + end_weight * end + fill)[ranks],
        omega=omega[ranks],
        fill=fill[ranks],
        end=end[ranks],
        memory=np.concatenate([kind.memory for kind in kinds], axis=1)[ranks],
        transient=np.concatenate([kind.transient for kind in kinds], axis=1)[ranks],
        host=np.concatenate([kind.host for kind in kinds], axis=1)[ranks],
    )


def _cheapest(columns: _Columns, held: Integers) -> Integers:
    """Return every layer at its cheapest choice that needs no host memory, or at all."""
    counts = np.zeros(columns.omega.shape, dtype=np.int64)
    rows = np.arange(len(held))
    for k in range(held.shape[1]):
        own = np.flatnonzero(columns.kind == k)
        hosted = columns.host[:, own] > 0.0
        avoided = hosted & ~np.all(hosted, axis=1, keepdims=True)
        cost = np.where(avoided, np.inf, columns.cost[:, own])
        counts[rows, own[cost.argmin(axis=1)]] = held[:, k]
    return counts


def _peak(columns: _Columns, counts: Integers) -> Floats:
    """Return bytes with the largest transient of what is used, [rows]."""
    transient = np.where(counts > 0, columns.transient, 0.0).max(axis=1)
    peak: Floats = (counts * columns.memory).sum(axis=1) + transient
    return peak


def _moved(columns: _Columns, counts: Integers, *, over: Floats, host_left: Floats) -> Booleans:
    """Move layers of every row that is over its memory, in place; return which rows moved."""
    rows = np.arange(len(counts))
    best_ratio = np.full(len(counts), np.inf)
    source, target = np.zeros(len(counts), dtype=np.int64), np.zeros(len(counts), dtype=np.int64)
    for place in np.flatnonzero(counts.any(axis=0)):
        ratio = _ratios(columns, counts, int(place), host_left)
        found = ratio.argmin(axis=1)
        better = ratio[rows, found] < best_ratio
        best_ratio = np.where(better, ratio[rows, found], best_ratio)
        source, target = np.where(better, place, source), np.where(better, found, target)
    moving = np.isfinite(best_ratio) & (over > 0.0)
    saved = columns.memory[rows, source] - columns.memory[rows, target]
    hosted = np.maximum(columns.host[rows, target] - columns.host[rows, source], 0.0)
    wanted = np.ceil(over / np.where(moving, saved, 1.0))
    room = np.floor(host_left / np.where(hosted > 0.0, hosted, 1.0))
    wanted = np.where(hosted > 0.0, np.minimum(wanted, room), wanted)
    number = np.clip(wanted, 1, np.maximum(counts[rows, source], 1)).astype(np.int64)
    number = np.where(moving, number, 0)
    counts[rows, source] -= number
    counts[rows, target] += number
    moved: Booleans = moving
    return moved


def _ratios(columns: _Columns, counts: Integers, place: int, host_left: Floats) -> Floats:
    """Return seconds lost for each byte saved by leaving the choice at `place`, [rows, columns]."""
    saved = columns.memory[:, place, None] - columns.memory
    lost = columns.cost - columns.cost[:, place, None]
    hosted = columns.host - columns.host[:, place, None]
    legal = (columns.kind == columns.kind[place])[None, :] & (saved > 0.0)
    legal &= (counts[:, place] > 0)[:, None] & ((hosted <= 0.0) | (hosted <= host_left[:, None]))
    ratio = np.full_like(saved, np.inf)
    np.divide(lost, saved, out=ratio, where=legal)
    return ratio
