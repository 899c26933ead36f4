"""Construction heuristic: good plans of one configuration in milliseconds.

Chains are cut so that no rank's pace is above a level, which is bisected. Between cuts every layer
starts at the choice with the least fill and weighted omega. While a rank exceeds its memory, as few
of its layers as are needed move to the choice that loses the fewest of these seconds for each byte
saved: a walk down the lower hull of the rank's choices, which ends near the best mix. All ranks
walk at once.
"""

from __future__ import annotations

from bisect import bisect_right
from collections.abc import Iterator
from dataclasses import dataclass
from functools import cached_property

import numpy as np

from planner.cost.configuration import Booleans, Floats, Integers
from planner.ilp.instance import Assignment, Instance, at_cuts, evaluate, fits
from planner.ilp.lagrangian_bound import scaled
from planner.ilp.settings import HEURISTIC_ROUNDS, LEAN_TRANSIENTS, NEVER, TINY


@dataclass(frozen=True, slots=True, kw_only=True)
class Filling:
    """Layers by choice of each kind, [rows, choices] a kind, and which rows fit."""

    counts: tuple[Integers, ...]
    fits: Booleans


@dataclass(frozen=True, kw_only=True)
class _Columns:
    """All choices of all kinds side by side, [stages, columns]; `kind` [columns] says whose.

    `cost` is what a layer is chosen by: its fill and its weighted omega.
    """

    kind: Integers
    cost: Floats
    memory: Floats
    transient: Floats
    host: Floats

    @cached_property
    def moves(self) -> tuple[Floats, Integers]:
        """Return seconds lost for a byte saved by leaving a choice, and the one to go to instead.

        Both are [stages, columns]; inf where no choice of its kind saves anything.
        """
        least, target = np.full(self.cost.shape, np.inf), np.zeros(self.cost.shape, dtype=np.int64)
        for k in range(int(self.kind.max()) + 1):
            own = np.flatnonzero(self.kind == k)
            cost, memory = self.cost[:, own], self.memory[:, own]
            saved = memory[:, :, None] - memory[:, None, :]
            ratio = np.full_like(saved, np.inf)
            lost = cost[:, None, :] - cost[:, :, None]
            np.divide(lost, saved, out=ratio, where=saved > 0.0)
            to = ratio.argmin(axis=2)
            least[:, own] = np.take_along_axis(ratio, to[:, :, None], axis=2)[:, :, 0]
            target[:, own] = own[to]
        return least, target

    def moves_within(
        self, ranks: Integers, places: Integers, host_left: Floats
    ) -> tuple[Floats, Integers]:
        """Return the same of some ranks with little host memory left, from some choices alone.

        Both are [rows, columns].
        """
        shape = (len(ranks), len(self.kind))
        least, target = np.full(shape, np.inf), np.zeros(shape, dtype=np.int64)
        rows, cost, memory = np.arange(len(ranks)), self.cost[ranks], self.memory[ranks]
        host = self.host[ranks]
        for place in places.tolist():
            own = np.flatnonzero(self.kind == self.kind[place])
            saved = memory[:, place, None] - memory[:, own]
            hosted = host[:, own] - host[:, place, None]
            legal = (saved > 0.0) & ((hosted <= 0.0) | (hosted <= host_left[:, None]))
            ratio = np.full_like(saved, np.inf)
            np.divide(cost[:, own] - cost[:, place, None], saved, out=ratio, where=legal)
            to = ratio.argmin(axis=1)
            least[:, place], target[:, place] = ratio[rows, to], own[to]
        return least, target


def filled(
    instance: Instance,
    ranks: Integers,
    held: Integers,
    *,
    transient_most: float = float("inf"),
) -> Filling:
    """Return choices for `held` [rows, kinds] layers on rank `ranks` [rows] of each row.

    Omega weighs one over the number of ranks beside fill: what is right where all are as slow.
    Choices of larger transients than `transient_most` are taken where a kind has no others alone.
    """
    columns = _columns(instance, transient_most)
    counts = _cheapest(columns, ranks, held)
    capacity = (instance.capacity_bytes - instance.stage_bytes)[ranks]
    host = instance.host_capacity_bytes[ranks]
    walking = np.arange(len(counts))
    while len(walking):
        own, now = ranks[walking], counts[walking]
        over = _peak(columns, own, now) - capacity[walking]
        above = over > 0.0
        walking, own, now, over = walking[above], own[above], now[above], over[above]
        left = host[walking] - (now * columns.host[own]).sum(axis=1)
        moved = _moved(columns, own, now, over=over, host_left=left)
        counts[walking] = now
        walking = walking[moved]
    used = (counts * columns.host[ranks]).sum(axis=1)
    fits = (_peak(columns, ranks, counts) <= capacity) & (used <= host)
    return Filling(
        counts=tuple(counts[:, columns.kind == k] for k in range(len(instance.kinds))), fits=fits
    )


def _columns(instance: Instance, transient_most: float) -> _Columns:
    kinds = instance.kinds
    transient = np.concatenate([kind.transient for kind in kinds], axis=1)
    omega = np.concatenate([scaled(kind, instance.repeat_count) for kind in kinds], axis=1)
    fill = np.concatenate([kind.fill for kind in kinds], axis=1)
    return _Columns(
        kind=np.repeat(np.arange(len(kinds)), [len(kind.choice) for kind in kinds]),
        cost=np.where(transient <= transient_most, omega / instance.stage_count + fill, NEVER),
        memory=np.concatenate([kind.memory for kind in kinds], axis=1),
        transient=transient,
        host=np.concatenate([kind.host for kind in kinds], axis=1),
    )


def _cheapest(columns: _Columns, ranks: Integers, held: Integers) -> Integers:
    """Return every layer at its cheapest choice that needs no host memory, or at all."""
    counts = np.zeros((len(held), len(columns.kind)), dtype=np.int64)
    rows = np.arange(len(held))
    for k in range(held.shape[1]):
        own = np.flatnonzero(columns.kind == k)
        hosted = columns.host[:, own] > 0.0
        avoided = hosted & ~np.all(hosted, axis=1, keepdims=True)
        cheapest = own[np.where(avoided, np.inf, columns.cost[:, own]).argmin(axis=1)]
        counts[rows, cheapest[ranks]] = held[:, k]
    return counts


def _peak(columns: _Columns, ranks: Integers, counts: Integers) -> Floats:
    """Return bytes with the largest transient of what is used, [rows]."""
    transient = np.where(counts > 0, columns.transient[ranks], 0.0).max(axis=1)
    return np.asarray((counts * columns.memory[ranks]).sum(axis=1) + transient)


def _moved(
    columns: _Columns, ranks: Integers, counts: Integers, *, over: Floats, host_left: Floats
) -> Booleans:
    """Move layers of every row, which is over its memory, in place; return which rows moved."""
    rows = np.arange(len(counts))
    ratio, target = (each[ranks] for each in columns.moves)
    scarce = np.flatnonzero(host_left < columns.host.max(axis=1)[ranks])
    if len(scarce):
        places = np.flatnonzero(counts[scarce].any(axis=0))
        few = columns.moves_within(ranks[scarce], places, host_left[scarce])
        ratio[scarce], target[scarce] = few
    ratio = np.where(counts > 0, ratio, np.inf)
    source = ratio.argmin(axis=1)
    moving: Booleans = np.isfinite(ratio[rows, source])
    goal = target[rows, source]
    saved = columns.memory[ranks, source] - columns.memory[ranks, goal]
    hosted = np.maximum(columns.host[ranks, goal] - columns.host[ranks, source], 0.0)
    wanted = np.ceil(over / np.where(moving, saved, 1.0))
    room = np.floor(host_left / np.where(hosted > 0.0, hosted, 1.0))
    wanted = np.where(hosted > 0.0, np.minimum(wanted, room), wanted)
    number = np.clip(wanted, 1, np.maximum(counts[rows, source], 1)).astype(np.int64)
    number = np.where(moving, number, 0)
    counts[rows, source] -= number
    counts[rows, goal] += number
    return moving


Tried = tuple[float, Assignment]


def heuristic_assignment(instance: Instance, *, is_thorough: bool = False) -> Tried | None:
    """Return the best step found with its assignment, or None where nothing tried fits.

    Where it `is_thorough`, more is tried before it is none.
    """
    best = _best(instance, _by_cuts(instance))
    if best is None and is_thorough:
        return _best(instance, _with_less_transients(instance))
    return best


def even_assignment(instance: Instance) -> Assignment | None:
    """Return the assignment tried that fits whose virtual stages wait least for one another.

    Ranks take turns: in each, all run a virtual stage, and the slowest sets its pace. A round takes
    sum_j max_r t_rj, where the step has max_r sum_j t_rj (`planner.cost.arrangement`).
    """
    found = []
    for assignment in _by_cuts(instance):
        evaluation = evaluate(instance, assignment)
        if fits(instance, evaluation):
            waited = _round_seconds(instance, assignment) - float(evaluation.pace.max())
            step = evaluation.step_seconds + instance.repeat_count * waited
            found.append((step, assignment))
    return min(found, key=lambda tried: tried[0])[1] if found else None


def _round_seconds(instance: Instance, assignment: Assignment) -> float:
    """Return sum_j max_r t_rj, each layer of a kind as long as the rank's are in the mean."""
    held = np.diff(instance.prefix_counts[list(assignment.cuts)], axis=0).astype(np.float64)
    ranks, parts = np.array(instance.holders), len(instance.holders)
    seconds = np.zeros(parts)
    for k, (kind, counts) in enumerate(zip(instance.kinds, assignment.counts, strict=True)):
        mean = (counts * kind.pace).sum(axis=1) / np.maximum(counts.sum(axis=1), 1)
        if kind.pinned_stage is not None:
            held[0 if k == 0 else parts - 1, k] = 1.0
        seconds += held[:, k] * mean[ranks]
    return float(seconds.reshape(-1, instance.stage_count).max(axis=1).sum())


def _best(instance: Instance, assignments: Iterator[Assignment]) -> Tried | None:
    best: Tried | None = None
    for assignment in assignments:
        evaluation = evaluate(instance, assignment)
        if fits(instance, evaluation) and (best is None or evaluation.step_seconds < best[0]):
            best = (evaluation.step_seconds, assignment)
    return best


def _with_less_transients(instance: Instance) -> Iterator[Assignment]:
    """Yield fillings by the choices of transients under several limits.

    A choice that takes little memory but for its transient is no use beside one that takes much.
    """
    each = [instance.kinds[k].transient.max(axis=0) for k in instance.free_kinds]
    levels = np.unique(np.concatenate(each))
    for share in np.linspace(1.0, 0.0, LEAN_TRANSIENTS + 1)[1:]:
        yield from _by_cuts(instance, float(np.quantile(levels, share)))


def _by_cuts(instance: Instance, transient_most: float = float("inf")) -> Iterator[Assignment]:
    """Yield fillings of balanced cuts, by the paces of the blocks at several prices of memory."""
    seen: set[tuple[int, ...]] = set()
    for pace in block_paces(instance):
        for cuts in (balanced_cuts(instance, pace, with_own=own) for own in (True, False)):
            if cuts is None or cuts in seen:
                continue
            seen.add(cuts)
            filling = filling_of_cuts(instance, cuts, transient_most)
            if filling.fits.all():
                yield Assignment(counts=filling.counts, cuts=cuts)


def filling_of_cuts(
    instance: Instance, cuts: tuple[int, ...], transient_most: float = float("inf")
) -> Filling:
    """Return choices for what the ranks hold between the cuts, with what these add."""
    instance, ranks = at_cuts(instance, cuts), np.arange(instance.stage_count)
    return filled(instance, ranks, _held(instance, cuts), transient_most=transient_most)


def _held(instance: Instance, cuts: tuple[int, ...]) -> Integers:
    """Return the layers that the ranks hold between the cuts, [stages, kinds]."""
    held = np.zeros((instance.stage_count, len(instance.kinds)), dtype=np.int64)
    for k, kind in enumerate(instance.kinds):
        if kind.pinned_stage is not None:
            held[kind.pinned_stage, k] = 1
    np.add.at(held, np.array(instance.holders), np.diff(instance.prefix_counts[list(cuts)], axis=0))
    return held


def block_paces(instance: Instance) -> Iterator[Floats]:
    """Yield the pace of every block on every rank, [stages, blocks].

    At its fastest choice, at that of the least memory, and as if all blocks were equal.
    """
    for pick in ("pace", "memory"):
        paces = np.zeros((instance.stage_count, len(instance.kinds)))
        for k in instance.free_kinds:
            kind = instance.kinds[k]
            chosen = getattr(kind, pick).argmin(axis=1)
            paces[:, k] = kind.pace[np.arange(instance.stage_count), chosen]
        yield paces[:, instance.block_kinds]
    yield np.ones((instance.stage_count, instance.block_count))


def balanced_cuts(instance: Instance, pace: Floats, *, with_own: bool) -> tuple[int, ...] | None:
    """Return the cuts with the lowest level of pace, found by bisection; None if none do.

    With `with_own` a rank's exchanges and pinned layers count as well. Below an even share of the
    blocks there are none; most chains have some little above it.
    """
    own = np.zeros(instance.stage_count)
    if with_own:
        own += instance.stage_pace
        for kind in instance.kinds:
            if kind.pinned_stage is not None:
                own[kind.pinned_stage] += float(kind.pace[kind.pinned_stage].min())
    sums = np.concatenate([np.zeros((len(pace), 1)), np.cumsum(pace, axis=1)], axis=1)
    prefix = sums.tolist()
    share = float((1.0 / np.maximum(sums[:, -1], TINY)).sum())
    low, high = 0.9 / share, float(sums[:, -1].max() + own.max())
    best = None
    for _ in range(HEURISTIC_ROUNDS):
        level = 0.5 * (low + high) if best is not None else min(1.15 * low, high)
        cuts = cuts_under(instance, prefix, ((level - own) / instance.least_blocks).tolist())
        if cuts is None:
            low = level
        else:
            best, high = cuts, level
    return best


def cuts_under(
    instance: Instance, prefix: list[list[float]], room: list[float]
) -> tuple[int, ...] | None:
    """Return cuts where every virtual stage takes what its rank's `room` allows, one at least.

    What a stage leaves of it the rank's next one may take too.
    """
    blocks, parts = instance.block_count, len(instance.holders)
    left = [0.0] * len(room)
    cuts = [0]
    for j, rank in enumerate(instance.holders):
        latest = blocks - (parts - 1 - j)
        start = prefix[rank][cuts[-1]]
        left[rank] += room[rank]
        reach = bisect_right(prefix[rank], start + left[rank]) - 1
        cuts.append(min(max(reach, cuts[-1] + 1), latest))
        left[rank] -= prefix[rank][cuts[-1]] - start
    return tuple(cuts) if cuts[-1] == blocks else None
