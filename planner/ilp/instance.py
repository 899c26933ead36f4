"""Instance: one configuration's numbers, ready to be optimised, and how they are put together.

Sets: ranks r = 0..p-1 of the pipeline, which are also called stages; virtual stages j, each held by
one rank; kinds k of layers, of which the embedding and the head are pinned to a rank and all others
follow one another as `chain` says; choices s of kind k.

Numbers per kind, rank and choice: pace (tau, seconds per micro-batch), fill (phi, seconds of fill
and drain), end (u, seconds once a step), memory (bytes with the activations in flight), transient
(w, bytes of which a rank needs the largest once), host (bytes). Per rank: what it costs by itself.

Kinds of blocks that cost the same become one, and so do classes of cuts (`merged`). Blocks of a
model may differ in what travels behind them alone, as those of a vision tower do whose outputs are
collected on the way. Such kinds differ in cuts (`CutExtras`), not in layers: as one kind they leave
fewer loads and no plans that are the same but for names.
"""

from __future__ import annotations

from collections import Counter
from collections.abc import Callable, Iterable, Sequence
from dataclasses import dataclass, fields, replace
from functools import cached_property
from itertools import accumulate, pairwise

import numpy as np
from numpy.typing import NDArray

from planner.cost.configuration import Booleans, Configuration, Floats, Integers
from planner.cost.layer_costs import StageFixed
from planner.cost.schedule import (
    BoundaryShares,
    FillWeights,
    in_flight,
    rank_of_virtual_stage,
    schedule_timing,
)
from planner.cost.stage import boundary_places
from planner.hardware import ClusterHardware
from planner.ilp.cost_arrays import Sheet
from planner.schema.job import Stack

_NUMBERS = ("pace", "fill", "end", "memory", "transient", "host", "kept")


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
    (class, blocks), None where classes are the kinds.
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

    @property
    def cell_count(self) -> int:
        """Return the choices of all ranks and the runs of all virtual stages together."""
        choices = sum(len(kind.choice) for kind in self.kinds)
        return self.stage_count * choices + len(self.holders) * len(self.chain)

    @cached_property
    def block_kinds(self) -> Integers:
        """Return the kind of every block of the chain, [blocks]."""
        return _unrolled(self.chain)

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
    instance = at_cuts(instance, assignment.cuts)
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
    step = fill.sum() + instance.repeat_count * pace.max() + end.max()
    return Evaluation(
        step_seconds=float(step),
        pace=pace,
        end=end,
        memory_bytes=memory + transient,
        host_bytes=host,
    )


def fits(instance: Instance, evaluation: Evaluation) -> bool:
    """Return whether an assignment keeps within device and host memory."""
    return bool(
        (evaluation.memory_bytes <= instance.capacity_bytes).all()
        and (evaluation.host_bytes <= instance.host_capacity_bytes).all()
    )


def cuts_of(instance: Instance, counts: tuple[NDArray[np.int64], ...]) -> tuple[int, ...]:
    """Return cuts at which every rank holds as many blocks as `counts` say."""
    held = np.sum([counts[k].sum(axis=1) for k in instance.free_kinds], axis=0)
    return even_cuts(instance, held.tolist())


def even_cuts(instance: Instance, blocks: Sequence[int]) -> tuple[int, ...]:
    """Return cuts at which every rank holds so many blocks, [stages].

    Exact where ranks follow one another along the chain; where a rank holds several virtual stages
    of a chain of one kind, its blocks are spread evenly over them. Later ones get no fewer, as
    earlier ones hold more micro-batches.
    """
    shares = [iter(_even(held, instance.holders.count(rank))) for rank, held in enumerate(blocks)]
    return (0, *accumulate(next(shares[rank]) for rank in instance.holders))


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


def everywhere(instance: Instance) -> Integers:
    """Return the windows of all cuts: a block on every virtual stage, [2, virtual stages + 1]."""
    count = len(instance.holders)
    first = np.arange(count + 1)
    last = instance.block_count - first[::-1]
    first[-1], last[0] = instance.block_count, 0
    return np.stack([first, last])


def placed(instance: Instance, places: Integers) -> Instance:
    """Return the instance with its cuts within the windows, each at its least extras there."""
    pace, fill = instance.stage_pace.copy(), instance.stage_fill.copy()
    held = instance.stage_bytes.copy()
    for cut, least in enumerate(_least(instance, places)):
        for rank, added in zip(instance.holders[cut : cut + 2], least[2:], strict=True):
            pace[rank] += least[0]
            fill[rank] += least[1]
            held[rank] += added
    return replace(
        instance,
        stage_pace=pace,
        stage_fill=fill,
        stage_bytes=held,
        extras=None,
        classes=None,
    )


def at_cuts(instance: Instance, cuts: Sequence[int]) -> Instance:
    """Return the instance with what cuts at these places add as costs of the ranks themselves."""
    if instance.extras is None:
        return instance
    return placed(instance, np.array([cuts, cuts]))


def _least(instance: Instance, places: Integers) -> list[list[float]]:
    """Return what every cut adds at the least: pace, fill, bytes before and behind it."""
    assert instance.extras is not None  # noqa: S101 - nothing to place otherwise
    extras, classes = instance.extras, instance.block_classes
    earliest, latest = places[:, 1:-1]
    cuts = np.arange(len(earliest))
    open_cuts = np.flatnonzero(earliest < latest).tolist()
    found = []
    for part in (extras.pace, extras.fill, extras.first_bytes, extras.second_bytes):
        least = part[cuts, classes[earliest - 1]]
        for cut in open_cuts:
            least[cut] = part[cut, classes[earliest[cut] - 1 : latest[cut]]].min()
        found.append(least.tolist())
    return [list(own) for own in zip(*found, strict=True)]


def beaten(columns: Floats) -> Booleans:
    """Return which choices another one equals or beats in every column, [..., choices].

    `columns` is [columns, ..., choices]. Of equal choices the first is not beaten.
    """
    no_worse = (columns[..., :, None] <= columns[..., None, :]).all(axis=0)
    earlier = np.tri(columns.shape[-1], k=-1, dtype=bool).T
    beats = no_worse & (earlier | ~np.swapaxes(no_worse, -1, -2))
    return np.asarray(beats.any(axis=-2))


def undominated(columns: Floats) -> Integers:
    """Return the indices of the choices that no other beats, `columns` [columns, choices]."""
    return np.flatnonzero(~beaten(columns))


def merged(instance: Instance) -> Instance:
    """Return the instance with equal kinds as one, and cuts that cost the same as one class."""
    kinds, places = _merged_kinds(instance.kinds)
    if instance.extras is None:
        if len(kinds) == len(instance.kinds):
            return instance
        return replace(instance, kinds=kinds, chain=_runs(places[instance.block_kinds]))
    extras, groups = _merged_extras(instance.extras)
    return replace(
        instance,
        kinds=kinds,
        chain=_runs(places[instance.block_kinds]),
        extras=extras,
        classes=_runs(groups[instance.block_classes]),
    )


def _merged_kinds(kinds: Sequence[Kind]) -> tuple[tuple[Kind, ...], Integers]:
    """Return the kinds that differ, and the place of each one's among them, [kinds]."""
    found: dict[object, Kind] = {}
    for kind in kinds:
        known = found.get(_key(kind))
        found[_key(kind)] = replace(known, count=known.count + kind.count) if known else kind
    names = list(found)
    return tuple(found.values()), np.array([names.index(_key(kind)) for kind in kinds])


def _key(kind: Kind) -> object:
    """Return what equal kinds share; one that is pinned has no equal."""
    if kind.pinned_stage is not None:
        return id(kind)
    return (kind.choice, *(getattr(kind, name).tobytes() for name in _NUMBERS))


def _merged_extras(extras: CutExtras) -> tuple[CutExtras, Integers]:
    """Return the extras of the classes that differ, and the place of each one's, [classes]."""
    names = [field.name for field in fields(CutExtras)]
    columns = np.concatenate([getattr(extras, name) for name in names])
    _, firsts, places = np.unique(columns, axis=1, return_index=True, return_inverse=True)
    kept = {name: getattr(extras, name)[:, firsts] for name in names}
    return CutExtras(**kept), np.asarray(places, dtype=np.int64).ravel()


def _runs(numbers: Integers) -> tuple[tuple[int, int], ...]:
    """Return (number, how often) of equal numbers that follow one another."""
    starts = np.concatenate([[0], np.flatnonzero(np.diff(numbers)) + 1, [len(numbers)]])
    return tuple(zip(numbers[starts[:-1]].tolist(), np.diff(starts).tolist(), strict=True))


@dataclass(frozen=True, slots=True, kw_only=True)
class Exchanges:
    """Where neighbouring virtual stages exchange, [cuts]: between which ranks, over which link.

    `ranks` and `places` are of the rank before each cut and of the one behind it; a place is a kind
    of device and a level of its networks. A cut on one rank is not `apart`. `meets` counts the
    exchanges that each rank takes part in, by rank.
    """

    ranks: tuple[Integers, Integers]
    apart: Booleans
    meets: tuple[int, ...]
    places: tuple[tuple[tuple[int, int], ...], tuple[tuple[int, int], ...]]


@dataclass(frozen=True, slots=True, kw_only=True)
class Shape:
    """What the schedule of a configuration makes of its ranks; `kinds` are those of devices."""

    degree: int
    holders: tuple[int, ...]
    in_flight: Floats
    repeat_count: float
    weights: FillWeights
    shares: BoundaryShares
    device_kinds: tuple[int, ...]
    exchanges: Exchanges


def shapes_of(
    configurations: Iterable[Configuration], hardware: ClusterHardware, stack: Stack
) -> list[Shape]:
    """Return the ranks of each configuration.

    Those whose ranks follow one another alike, on the same kinds of devices, share exchanges.
    """
    known: dict[tuple[tuple[int, ...], tuple[int, ...]], Exchanges] = {}
    shapes, lone_speed_ratio = [], hardware.lone_speed_ratio
    for configuration in configurations:
        degree = configuration.pipeline_parallel_degree
        holders = _holders(configuration)
        kinds = hardware.stage_kinds(configuration.device_order, pipeline_parallel_degree=degree)
        if (holders, kinds) not in known:
            known[holders, kinds] = _exchanges(holders, kinds, hardware)
        timing = schedule_timing(configuration, stack, lone_speed_ratio=lone_speed_ratio)
        shapes.append(
            Shape(
                degree=degree,
                holders=holders,
                in_flight=np.array(_in_flight(configuration)),
                repeat_count=timing.repeat_count,
                weights=timing.weights,
                shares=timing.shares,
                device_kinds=kinds,
                exchanges=known[holders, kinds],
            )
        )
    return shapes


def _holders(configuration: Configuration) -> tuple[int, ...]:
    """Return the rank that holds each virtual stage."""
    degree = configuration.pipeline_parallel_degree
    return tuple(
        rank_of_virtual_stage(
            configuration.pipeline_schedule, pipeline_parallel_degree=degree, virtual_stage=j
        )
        for j in range(degree * configuration.virtual_pipeline_degree)
    )


def _in_flight(configuration: Configuration) -> list[float]:
    """Return how many micro-batches each rank holds as if its virtual stages held alike."""
    degree = configuration.pipeline_parallel_degree
    return [
        in_flight(
            configuration.pipeline_schedule,
            pipeline_parallel_degree=degree,
            virtual_pipeline_degree=configuration.virtual_pipeline_degree,
            micro_batch_count=configuration.micro_batch_count,
            stage=stage,
        )
        for stage in range(degree)
    ]


def _exchanges(
    holders: Sequence[int], kinds: Sequence[int], hardware: ClusterHardware
) -> Exchanges:
    cuts = list(pairwise(holders))
    links = [boundary_places(hardware, kinds, stage=stage, other=other) for stage, other in cuts]
    first, second = (np.array([pair[end] for pair in cuts], dtype=np.int64) for end in range(2))
    met = Counter(rank for cut in cuts if cut[0] != cut[1] for rank in cut)
    return Exchanges(
        ranks=(first, second),
        apart=first != second,
        meets=tuple(met[rank] for rank in range(len(kinds))),
        places=(tuple(link[0] for link in links), tuple(link[-1] for link in links)),
    )


Compared = Callable[[Floats, Floats], Floats]
"""Says of [numbers, ranks, choices] at micro-batches in flight [ranks] what choices differ in."""


def compared_alike(numbers: Floats, _: Floats) -> Floats:
    """Return what matters of choices where virtual stages hold alike: memory has what is kept."""
    return numbers[:-1]


def compared_apart(numbers: Floats, in_flight: Floats) -> Floats:
    """Return what matters where virtual stages hold more or less: what is kept, and what stays."""
    found = numbers.copy()
    found[_NUMBERS.index("memory")] -= in_flight[:, None] * numbers[-1]
    return found


def instance_of(
    sheets: Sequence[Sheet],
    index: int,
    shape: Shape,
    *,
    allowed: Booleans | None = None,
    allowed_ends: Booleans | None = None,
    compared: Compared | None = compared_alike,
) -> Instance:
    """Return the numbers of price `index` of the sheets (one a kind of device).

    Choices of blocks and of the ends that are not `allowed` [choices], and those that are dominated
    on every rank in what is `compared`, are dropped; kinds that cost the same become one.
    """
    first = sheets[0].spent
    of_layer = [_numbers(sheets, place, index, shape) for place in range(len(first.layers))]
    *blocks, embedding, head = of_layer
    places, ranks = _allowed_places(blocks[0], allowed), _ranks_compared(shape)
    ends = _allowed_places(embedding, allowed_ends)
    kinds = [_pinned(embedding, ends, shape, compared, first=True)]
    for own, count in zip(blocks, first.block_counts().tolist(), strict=True):
        kept = _kept(own[:, :, places], ranks, shape, compared)
        kinds.append(_kind(own, places[kept], count=count))
    kinds.append(_pinned(head, ends, shape, compared, first=False))
    boundaries = _boundaries([sheet.spent.fixed for sheet in sheets], index, shape)
    devices = np.array(shape.device_kinds)
    limits = [sheet.held.limits for sheet in sheets]
    ends = np.array([sheet.spent.fixed.step_end_seconds[index] for sheet in sheets])
    made = Instance(
        repeat_count=shape.repeat_count,
        stage_pace=boundaries.pace,
        stage_fill=boundaries.fill,
        stage_bytes=boundaries.bytes,
        stage_end=ends[devices],
        capacity_bytes=np.array([limit.live_capacity_bytes for limit in limits])[devices],
        host_capacity_bytes=np.array([limit.host_capacity_bytes for limit in limits])[devices],
        least_blocks=len(shape.holders) // shape.degree,
        holders=shape.holders,
        kinds=tuple(kinds),
        chain=tuple((kind + 1, count) for kind, count in first.chain),
        extras=boundaries.extras,
    )
    return merged(made)


def _numbers(sheets: Sequence[Sheet], place: int, index: int, shape: Shape) -> Floats:
    """Return the numbers of a layer's choices on every rank, [numbers, stages, choices]."""
    spent, held = (
        np.array([[own[:, index] for own in layer] for layer in each]).swapaxes(0, 1)
        for each in (
            [sheet.spent.layers[place] for sheet in sheets],
            [sheet.held.layers[place] for sheet in sheets],
        )
    )
    pace, forward, weight, end = spent
    fill = shape.weights.of(forward, pace - forward - weight, weight)
    devices, flight = np.array(shape.device_kinds), shape.in_flight[:, None]
    static, activation, transient, host, host_activation = held[:, devices]
    numbers = np.empty((len(_NUMBERS), *static.shape))
    for row, own in zip(numbers, (pace, fill, end), strict=False):
        row[:] = own[devices]
    numbers[3] = static + flight * activation
    numbers[4] = transient
    numbers[5] = host + flight * host_activation
    numbers[6] = activation
    return numbers


def _allowed_places(numbers: Floats, allowed: Booleans | None) -> Integers:
    """Return the choices that are allowed, all where nothing is said."""
    return np.arange(numbers.shape[2]) if allowed is None else np.flatnonzero(allowed)


def _pinned(
    numbers: Floats, places: Integers, shape: Shape, compared: Compared | None, *, first: bool
) -> Kind:
    """Return the embedding, which is on the rank of the first virtual stage, or the head."""
    stage = shape.holders[0 if first else -1]
    kept = _kept(numbers[:, :, places], [stage], shape, compared)
    return _kind(numbers, places[kept], count=1, pinned_stage=stage)


def _kept(
    numbers: Floats, ranks: Sequence[int], shape: Shape, compared: Compared | None
) -> Integers:
    """Return the choices that none beats on all of some ranks, all where nothing is compared."""
    if compared is None:
        return np.arange(numbers.shape[2])
    own = compared(numbers.take(ranks, axis=1), shape.in_flight.take(ranks))
    return undominated(own.reshape(-1, numbers.shape[2]))


def _kind(
    numbers: Floats, places: Integers, *, count: int, pinned_stage: int | None = None
) -> Kind:
    """Return a kind of layer with the choices at some places."""
    columns = zip(_NUMBERS, numbers.take(places, axis=2), strict=True)
    return Kind(
        count=count, pinned_stage=pinned_stage, choice=tuple(places.tolist()), **dict(columns)
    )


def _ranks_compared(shape: Shape) -> list[int]:
    """Return ranks that a choice is dominated on if it is dominated on all.

    Ranks on one kind of device differ by their micro-batches in flight alone, in which memory is
    linear: the least and the most of them stand for all.
    """
    flight, ranks = shape.in_flight.tolist(), set()
    for device in set(shape.device_kinds):
        own = [r for r in range(shape.degree) if shape.device_kinds[r] == device]
        ranks |= {min(own, key=flight.__getitem__), max(own, key=flight.__getitem__)}
    return sorted(ranks)


@dataclass(frozen=True, slots=True, kw_only=True)
class _Boundaries:
    pace: Floats
    fill: Floats
    bytes: Floats
    extras: CutExtras | None


def _boundaries(fixed: Sequence[StageFixed], index: int, shape: Shape) -> _Boundaries:
    """Return what exchanges cost every rank at the cheapest cuts, and what others add."""
    exchanges = shape.exchanges
    seconds = np.zeros((len(exchanges.apart), fixed[0].sent_bytes.shape[1]))
    for end in range(2):
        each = [
            fixed[kind].boundary_seconds[index, :, level] for kind, level in exchanges.places[end]
        ]
        seconds = np.maximum(seconds, np.reshape(each, seconds.shape))
    apart = exchanges.apart[:, None]
    seconds = np.where(apart, seconds, 0.0)
    sent = np.array([own.sent_bytes[index] for own in fixed])
    buffers = np.array([own.buffer_bytes[index] for own in fixed])
    devices = np.array(shape.device_kinds)
    before, behind = exchanges.ranks
    sides = [
        np.where(
            apart,
            shape.in_flight[before][:, None] * sent[devices[before]] + buffers[devices[before]],
            0.0,
        ),
        np.where(apart, buffers[devices[behind]], 0.0),
    ]
    paces, fills = shape.shares.pace * seconds, shape.shares.fill * seconds
    pace, fill, held = (np.zeros(shape.degree) for _ in range(3))
    for ranks, side in zip(exchanges.ranks, sides, strict=True):
        np.add.at(pace, ranks, paces.min(axis=1))
        np.add.at(fill, ranks, fills.min(axis=1))
        np.add.at(held, ranks, side.min(axis=1))
    return _Boundaries(
        pace=pace,
        fill=fill,
        bytes=held,
        extras=_extras(paces, fills, sides),
    )


def _extras(paces: Floats, fills: Floats, sides: Sequence[Floats]) -> CutExtras | None:
    """Return what each cut costs beyond its cheapest place, with a column for the embedding.

    None where nothing differs.
    """
    if not len(paces):
        return None
    parts = [part - part.min(axis=1, keepdims=True) for part in (paces, fills, *sides)]
    if not any((part > 0.0).any() for part in parts):
        return None
    pace, fill, first, second = (np.pad(part, ((0, 0), (1, 1))) for part in parts)
    return CutExtras(pace=pace, fill=fill, first_bytes=first, second_bytes=second)
