"""Heuristic: good assignments in milliseconds, so that the search has something to prune with."""

from __future__ import annotations

from bisect import bisect_right
from collections.abc import Iterator

import numpy as np

from planner.cost.configuration import Floats, Integers
from planner.ilp.filling import Filling, filled
from planner.ilp.instance import Assignment, Instance, cuts_of, evaluate, fits
from planner.ilp.places import at_cuts

Tried = tuple[float, Assignment]

_ROUNDS = 16
_SPREAD = 4
_TRIED_MOST = 160


def heuristic_assignment(instance: Instance) -> Tried | None:
    """Return the best step found with its assignment, or None where nothing tried fits.

    Where only the number of layers on a rank matters, ranks are filled for every number near an
    even share and the split is chosen from the result; elsewhere balanced cuts are tried.
    """
    best: Tried | None = None
    tried = _by_number(instance) if instance.is_uniform else _by_cuts(instance)
    for assignment in tried:
        evaluation = evaluate(instance, assignment)
        if fits(instance, evaluation) and (best is None or evaluation.step_seconds < best[0]):
            best = (evaluation.step_seconds, assignment)
    return best


def _by_number(instance: Instance) -> Iterator[Assignment]:
    """Yield the split with the lowest level, and the even one."""
    stages, blocks = instance.stage_count, instance.block_count
    least, width = _numbers(instance)
    numbers = least[:, None] + np.arange(width)[None, :]
    ranks = np.repeat(np.arange(stages), width)
    held = pinned_layers(instance)[ranks]
    held[:, instance.free_kinds[0]] = numbers.ravel()
    filling = filled(instance, ranks, held)
    cost = np.where(filling.fits, filling.omega, np.inf).reshape(stages, width)
    splits = [_lowest_split(cost, numbers, blocks), _even_split(instance, stages, blocks)]
    for split in splits:
        if split is not None and ((split >= least) & (split < least + width)).all():
            rows = np.arange(stages) * width + (split - least)
            counts = tuple(count[rows] for count in filling.counts)
            yield Assignment(counts=counts, cuts=cuts_of(instance, counts))


def _numbers(instance: Instance) -> tuple[Integers, int]:
    """Return the least number of blocks to try on every rank, [stages], and how many numbers.

    They lie about the share that a rank would have by its speed alone; a short pipeline of
    different devices, where memory may ask for another share, gets more of them.
    """
    stages, blocks = instance.stage_count, instance.block_count
    pace = instance.kinds[instance.free_kinds[0]].pace.min(axis=1)
    speed = 1.0 / np.maximum(pace, 1e-300)
    share = np.floor(blocks * speed / speed.sum()).astype(np.int64)
    even = bool(np.ptp(pace) <= 1e-9 * float(pace.max()))
    spread = _SPREAD if even else max(_SPREAD, _TRIED_MOST // (2 * stages))
    width = min(2 * spread + 2, blocks - instance.least_blocks * (stages - 1))
    most = blocks - instance.least_blocks * (stages - 1) - width + 1
    return np.clip(share - spread, instance.least_blocks, max(most, instance.least_blocks)), width


def _lowest_split(cost: Floats, numbers: Integers, blocks: int) -> Integers | None:
    """Return how many blocks each rank takes so that the largest cost is least, [stages].

    `cost` and `numbers` are [stages, numbers]; None where what fits does not suffice.
    """
    levels = np.unique(cost[np.isfinite(cost)])
    if not len(levels):
        return None
    low, high = 0, len(levels)
    while low < high:
        middle = (low + high) // 2
        if int(_most_under(cost, numbers, float(levels[middle])).sum()) >= blocks:
            high = middle
        else:
            low = middle + 1
    if low == len(levels):
        return None
    split = _most_under(cost, numbers, float(levels[low]))
    stages = np.arange(len(split))
    for _ in range(int(split.sum()) - blocks):
        held = np.where(split > numbers[:, 0], cost[stages, split - numbers[:, 0]], -np.inf)
        split[int(held.argmax())] -= 1
    return split


def _most_under(cost: Floats, numbers: Integers, level: float) -> Integers:
    """Return the most blocks whose cost is within `level`, the least number where none is."""
    under = cost <= level
    place = np.where(under.any(axis=1), under.shape[1] - 1 - under[:, ::-1].argmax(axis=1), -1)
    most = np.take_along_axis(numbers, np.maximum(place, 0)[:, None], axis=1)[:, 0]
    return np.where(place >= 0, most, -(10**9))


def _even_split(instance: Instance, stages: int, blocks: int) -> Integers:
    extra = np.arange(stages) < blocks % stages
    even: Integers = blocks // stages + extra.astype(np.int64)
    return even if instance.is_in_order else even[::-1]


def _by_cuts(instance: Instance) -> Iterator[Assignment]:
    """Yield fillings of balanced cuts, by the paces of the blocks at several prices of memory."""
    seen: set[tuple[int, ...]] = set()
    for pace in block_paces(instance):
        for cuts in (balanced_cuts(instance, pace, with_own=own) for own in (True, False)):
            if cuts is None or cuts in seen:
                continue
            seen.add(cuts)
            filling = filling_of_cuts(instance, cuts)
            if filling.fits.all():
                yield Assignment(counts=filling.counts, cuts=cuts)


def filling_of_cuts(
    instance: Instance, cuts: tuple[int, ...], *, weight: float | None = None
) -> Filling:
    """Return choices for what the ranks hold between the cuts, with what these add."""
    instance = at_cuts(instance, cuts)
    held = pinned_layers(instance)
    prefix = instance.prefix_counts
    for j, rank in enumerate(instance.holders):
        held[rank] += prefix[cuts[j + 1]] - prefix[cuts[j]]
    return filled(instance, np.arange(instance.stage_count), held, weight=weight)


def pinned_layers(instance: Instance) -> Integers:
    """Return the pinned layers on every rank, [stages, kinds]."""
    held = np.zeros((instance.stage_count, len(instance.kinds)), dtype=np.int64)
    for k, kind in enumerate(instance.kinds):
        if kind.pinned_stage is not None:
            held[kind.pinned_stage, k] = 1
    return held


def block_paces(instance: Instance) -> Iterator[Floats]:
    """Yield the pace of every block on every rank, [stages, blocks]: cheapest, leanest, all one."""
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

    With `with_own` a rank's exchanges and pinned layers count as well.
    """
    own = np.zeros(instance.stage_count)
    if with_own:
        own += instance.stage_pace
        for kind in instance.kinds:
            if kind.pinned_stage is not None:
                own[kind.pinned_stage] += float(kind.pace[kind.pinned_stage].min())
    sums = np.concatenate([np.zeros((len(pace), 1)), np.cumsum(pace, axis=1)], axis=1)
    prefix = sums.tolist()
    share = float((1.0 / np.maximum(sums[:, -1], 1e-300)).sum())
    low, high = 0.9 / share, float(sums[:, -1].max() + own.max())
    best = None
    for _ in range(_ROUNDS):
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
