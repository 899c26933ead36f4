"""Instance: the numbers of one configuration, ready to be optimised.

Sets: ranks r = 0..p-1 of the pipeline, which are also called stages; virtual stages j, each held by
one rank; kinds k of layers, of which the embedding and the head are pinned to a rank and all others
follow one another as `chain` says; choices s of kind k.

Numbers per kind, rank and choice: pace (tau, seconds per micro-batch), fill (phi, seconds of fill
and drain), end (u, seconds once a step), memory (bytes with the activations in flight), transient
(w, bytes of which a rank needs the largest once), host (bytes). Per rank: what it costs by itself.
"""

from __future__ import annotations

from dataclasses import dataclass
from functools import cached_property

import numpy as np
from numpy.typing import NDArray

from planner.cost.configuration import Floats, Integers


@dataclass(frozen=True, slots=True, kw_only=True, eq=False)
class Kind:
    """`count` identical layers with their choices; arrays are [stages, choices].

    It equals itself alone.

    `kept` are the activations of one micro-batch, which `memory` has in it. `choice` maps each
    choice to its place in the table that it came from.
    """

    count: int
    pinned_stage: int | None
    pace: Floats
    fill: Floats
    end: Floats
    memory: Floats
    transient: Floats
    host: Floats
    kept: Floats
    choice: tuple[int, ...]


@dataclass(frozen=True, slots=True, kw_only=True)
class CutExtras:
    """What a cut adds beyond the cheapest place for it, by the class of the block before it.

    Arrays are [cuts, classes]; both neighbours pay. `first_bytes` is on the rank before the cut,
    `second_bytes` on the one behind it.
    """

    pace: Floats
    fill: Floats
    first_bytes: Floats
    second_bytes: Floats


@dataclass(frozen=True, kw_only=True, eq=False)
class Instance:
    """One configuration's numbers; stage arrays are [stages]. It equals itself alone.

    `least_blocks` is what every rank must hold, one for each of its virtual stages. `chain` is the
    order of the free kinds as (kind, blocks); `extras` is None where all cuts cost the same. Blocks
    behind which a cut costs the same are of one class: `classes` is the chain's order of these as
    (class, blocks), None where classes are the kinds. `places` [2, virtual stages + 1] are the
    earliest and the latest place of every cut, None where any will do.
    """

    repeat_count: float
    stage_pace: Floats
    stage_fill: Floats
    stage_bytes: Floats
    stage_end: Floats
    capacity_bytes: Floats
    host_capacity_bytes: Floats
    least_blocks: int
    holders: tuple[int, ...]
    kinds: tuple[Kind, ...]
    chain: tuple[tuple[int, int], ...]
    extras: CutExtras | None = None
    classes: tuple[tuple[int, int], ...] | None = None
    places: Integers | None = None

    @property
    def stage_count(self) -> int:
        """Return p."""
        return len(self.stage_pace)

    @cached_property
    def free_kinds(self) -> tuple[int, ...]:
        """Return the indices of the kinds that are free to be placed."""
        return tuple(k for k, kind in enumerate(self.kinds) if kind.pinned_stage is None)

    @cached_property
    def block_count(self) -> int:
        """Return the blocks of the chain."""
        return sum(count for _, count in self.chain)

    @property
    def is_in_order(self) -> bool:
        """Return whether every rank holds one contiguous part of the chain, in the ranks' order."""
        return self.holders == tuple(range(self.stage_count))

    @property
    def is_uniform(self) -> bool:
        """Return whether only the number of blocks on a rank matters, and not which they are."""
        return len(self.free_kinds) == 1 and self.extras is None

    @property
    def has_several_parts(self) -> bool:
        """Return whether ranks hold several parts of a chain in which it matters which they are."""
        return not (self.is_uniform or self.is_in_order)

    @cached_property
    def block_kinds(self) -> Integers:
        """Return the kind of every block of the chain, [blocks]."""
        return _unrolled(self.chain)

    @cached_property
    def kind_regions(self) -> Integers:
        """Return the region of every kind, [kinds], -1 of pinned ones.

        A region is a part of the chain; kinds whose blocks lie between one another's share one.
        """
        spans = []
        for kind in self.free_kinds:
            own = np.flatnonzero(self.block_kinds == kind)
            spans.append((int(own[0]), int(own[-1]), kind))
        regions = np.full(len(self.kinds), -1, dtype=np.int64)
        region, end = -1, -1
        for first, last, kind in sorted(spans):
            region += first > end
            end = max(end, last)
            regions[kind] = region
        return regions

    @cached_property
    def block_classes(self) -> Integers:
        """Return the class of every block of the chain, which says what a cut adds, [blocks]."""
        return self.block_kinds if self.classes is None else _unrolled(self.classes)

    @cached_property
    def runs(self) -> tuple[tuple[int, int], ...]:
        """Return (class, blocks) of the chain's parts in which kinds and classes are the same."""
        kinds, classes = self.block_kinds, self.block_classes
        ends = (np.diff(kinds) != 0) | (np.diff(classes) != 0)
        starts = np.concatenate([[0], np.flatnonzero(ends) + 1, [len(kinds)]])
        return tuple(zip(classes[starts[:-1]].tolist(), np.diff(starts).tolist(), strict=True))

    @cached_property
    def prefix_counts(self) -> Integers:
        """Return how many of the first i blocks are of each kind, [blocks + 1, kinds]."""
        one_hot = self.block_kinds[:, None] == np.arange(len(self.kinds))[None, :]
        start = np.zeros((1, len(self.kinds)), dtype=np.int64)
        return np.concatenate([start, np.cumsum(one_hot, axis=0)])


def _unrolled(runs: tuple[tuple[int, int], ...]) -> Integers:
    """Return one number for every block of the runs, [blocks]."""
    return np.repeat([number for number, _ in runs], [count for _, count in runs])


@dataclass(frozen=True, slots=True, kw_only=True)
class Assignment:
    """A complete answer: layers by [stages, choices] of every kind, and where the chain is cut.

    `cuts` [virtual stages + 1] starts with 0 and ends with the number of blocks.
    """

    counts: tuple[NDArray[np.int64], ...]
    cuts: tuple[int, ...]


@dataclass(frozen=True, slots=True, kw_only=True)
class Evaluation:
    """What a complete assignment costs; stage arrays are [stages]."""

    step_seconds: float
    pace: Floats
    end: Floats
    memory_bytes: Floats
    host_bytes: Floats


def evaluate(instance: Instance, assignment: Assignment) -> Evaluation:
    """Return the exact step and the memory of an assignment, from the counts alone."""
    pace, fill = instance.stage_pace.copy(), instance.stage_fill.copy()
    end, memory = instance.stage_end.copy(), instance.stage_bytes.copy()
    host, transient = np.zeros(instance.stage_count), np.zeros(instance.stage_count)
    for kind, placed in zip(instance.kinds, assignment.counts, strict=True):
        pace += (placed * kind.pace).sum(axis=1)
        fill += (placed * kind.fill).sum(axis=1)
        end += (placed * kind.end).sum(axis=1)
        memory += (placed * kind.memory).sum(axis=1)
        host += (placed * kind.host).sum(axis=1)
        held = np.where(placed > 0, kind.transient, 0.0)
        transient = np.maximum(transient, held.max(axis=1))
    if instance.extras is not None:
        _add_extras(instance, instance.extras, assignment.cuts, pace=pace, fill=fill, memory=memory)
    step = fill.sum() + instance.repeat_count * pace.max() + end.max()
    return Evaluation(
        step_seconds=float(step),
        pace=pace,
        end=end,
        memory_bytes=memory + transient,
        host_bytes=host,
    )


def _add_extras(
    instance: Instance,
    extras: CutExtras,
    cuts: tuple[int, ...],
    *,
    pace: Floats,
    fill: Floats,
    memory: Floats,
) -> None:
    """Add what the cuts cost where they are."""
    for place, cut in enumerate(cuts[1:-1]):
        group = instance.block_classes[cut - 1]
        sides = (
            (instance.holders[place], extras.first_bytes),
            (instance.holders[place + 1], extras.second_bytes),
        )
        for rank, held in sides:
            pace[rank] += extras.pace[place, group]
            fill[rank] += extras.fill[place, group]
            memory[rank] += held[place, group]


def fits(instance: Instance, evaluation: Evaluation) -> bool:
    """Return whether an assignment keeps within device and host memory."""
    return bool(
        (evaluation.memory_bytes <= instance.capacity_bytes).all()
        and (evaluation.host_bytes <= instance.host_capacity_bytes).all()
    )


def cuts_of(instance: Instance, counts: tuple[NDArray[np.int64], ...]) -> tuple[int, ...]:
    """Return cuts at which every rank holds as many blocks as `counts` say.

    Exact where ranks follow one another along the chain; where a rank holds several virtual stages
    of a chain of one kind, its blocks are spread evenly over them. Later ones get no fewer, as
    earlier ones hold more micro-batches.
    """
    held = np.sum([counts[k].sum(axis=1) for k in instance.free_kinds], axis=0)
    shares = {
        rank: list(_even(int(held[rank]), instance.holders.count(rank)))
        for rank in range(instance.stage_count)
    }
    cuts = [0]
    for rank in instance.holders:
        cuts.append(cuts[-1] + shares[rank].pop(0))
    return tuple(cuts)


def load_of_cuts(instance: Instance, cuts: tuple[int, ...]) -> list[list[int]]:
    """Return the blocks of every free kind on every rank, [stages][free kinds]."""
    prefix = instance.prefix_counts[:, list(instance.free_kinds)]
    held = np.zeros((instance.stage_count, prefix.shape[1]), dtype=np.int64)
    for j, rank in enumerate(instance.holders):
        held[rank] += prefix[cuts[j + 1]] - prefix[cuts[j]]
    loads: list[list[int]] = held.tolist()
    return loads


def _even(total: int, parts: int) -> tuple[int, ...]:
    return tuple(
        total // parts + (1 if part >= parts - total % parts else 0) for part in range(parts)
    )


def undominated(columns: Floats) -> Integers:
    """Return the indices of the choices that no other choice equals or beats in every column.

    `columns` is [columns, choices]. Of equal choices the first is kept. Memory is linear in the
    micro-batches in flight, so being no worse at their least and at their most is being no worse
    at every stage.
    """
    no_worse = (columns[:, :, None] <= columns[:, None, :]).all(axis=0)
    better = no_worse & ~no_worse.T
    count = columns.shape[1]
    earlier_equal = no_worse & no_worse.T & (np.arange(count)[:, None] < np.arange(count)[None, :])
    dominated = (better | earlier_equal).any(axis=0)
    return np.flatnonzero(~dominated)
