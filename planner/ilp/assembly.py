"""Assembly: instances from sheets of prices."""

from __future__ import annotations

from collections import Counter
from collections.abc import Callable, Iterable, Sequence
from dataclasses import dataclass
from itertools import pairwise

import numpy as np

from planner.cost.boundary import boundary_places
from planner.cost.configuration import Booleans, Configuration, Floats, Integers
from planner.cost.layer_costs import StageFixed
from planner.cost.schedule import (
    BoundaryShares,
    FillWeights,
    in_flight,
    rank_of_virtual_stage,
)
from planner.cost.timing import ScheduleTiming, schedule_timing
from planner.hardware import ClusterHardware
from planner.ilp.instance import CutExtras, Instance, Kind, undominated
from planner.ilp.merging import merged
from planner.ilp.sheet import Sheet
from planner.schema.job import Stack


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
        holders, kinds = _holders(configuration), _kinds(configuration, hardware)
        if (holders, kinds) not in known:
            known[holders, kinds] = _exchanges(holders, kinds, hardware)
        exchanges = known[holders, kinds]
        shapes.append(
            _shape(
                configuration,
                schedule_timing(configuration, stack, lone_speed_ratio=lone_speed_ratio),
                holders=holders,
                kinds=kinds,
                exchanges=exchanges,
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


def _kinds(configuration: Configuration, hardware: ClusterHardware) -> tuple[int, ...]:
    """Return the kind of device of each rank."""
    degree = configuration.pipeline_parallel_degree
    return hardware.stage_kinds(configuration.device_order, pipeline_parallel_degree=degree)


def _shape(
    configuration: Configuration,
    timing: ScheduleTiming,
    *,
    holders: tuple[int, ...],
    kinds: tuple[int, ...],
    exchanges: Exchanges,
) -> Shape:
    schedule, degree = configuration.pipeline_schedule, configuration.pipeline_parallel_degree
    virtual, count = configuration.virtual_pipeline_degree, configuration.micro_batch_count
    size = {"pipeline_parallel_degree": degree, "virtual_pipeline_degree": virtual}
    return Shape(
        degree=degree,
        holders=holders,
        in_flight=np.array(
            [
                in_flight(schedule, micro_batch_count=count, stage=stage, **size)
                for stage in range(degree)
            ]
        ),
        repeat_count=timing.repeat_count,
        weights=timing.weights,
        shares=timing.shares,
        device_kinds=kinds,
        exchanges=exchanges,
    )


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


_NUMBERS = ("pace", "fill", "end", "memory", "transient", "host", "kept")

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
    compared: Compared = compared_alike,
) -> Instance:
    """Return the numbers of price `index` of the sheets (one a kind of device).

    Choices of blocks that are not `allowed` [choices], and those that are dominated on every rank
    in what is `compared`, are dropped; kinds that cost the same become one.
    """
    first = sheets[0].spent
    of_layer = [_numbers(sheets, place, index, shape) for place in range(len(first.layers))]
    *blocks, embedding, head = of_layer
    places, ranks = np.arange(blocks[0].shape[2]), _ranks_compared(shape)
    if allowed is not None:
        places, blocks = np.flatnonzero(allowed), [own[:, :, allowed] for own in blocks]
    kinds = [_pinned(embedding, shape.holders[0], shape, compared)]
    for own, count in zip(blocks, first.block_counts().tolist(), strict=True):
        kept = undominated(_flat(own, ranks, shape, compared))
        kinds.append(_kind(own, kept, places, count=count))
    kinds.append(_pinned(head, shape.holders[-1], shape, compared))
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
    spent = np.stack([sheet.spent.layers[place].values[:, :, index] for sheet in sheets], axis=1)
    held = np.stack([sheet.held.layers[place].values[:, :, index] for sheet in sheets], axis=1)
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


def _pinned(numbers: Floats, stage: int, shape: Shape, compared: Compared) -> Kind:
    """Return the embedding or the head, which is on one rank."""
    kept = undominated(_flat(numbers, [stage], shape, compared))
    return _kind(numbers, kept, np.arange(numbers.shape[2]), count=1, pinned_stage=stage)


def _flat(numbers: Floats, ranks: Sequence[int], shape: Shape, compared: Compared) -> Floats:
    """Return what choices are compared in on all of some ranks, [numbers by ranks, choices]."""
    own = compared(numbers.take(ranks, axis=1), shape.in_flight.take(ranks))
    return own.reshape(-1, numbers.shape[2])


def _kind(
    numbers: Floats,
    kept: Integers,
    places: Integers,
    *,
    count: int,
    pinned_stage: int | None = None,
) -> Kind:
    """Return a kind of layer with the choices that are `kept`."""
    columns = zip(_NUMBERS, numbers.take(kept, axis=2), strict=True)
    return Kind(
        count=count,
        pinned_stage=pinned_stage,
        choice=tuple(places[kept].tolist()),
        **dict(columns),
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
