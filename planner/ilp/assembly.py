"""Assembly: instances from cost tables."""

from __future__ import annotations

from collections import Counter
from collections.abc import Iterable, Sequence
from dataclasses import dataclass
from itertools import pairwise

import numpy as np

from planner.cost.boundary import boundary_places
from planner.cost.configuration import Booleans, Configuration, Floats, Integers
from planner.cost.layer_costs import CostTable, LayerCosts
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


def instance_of(
    tables: Sequence[CostTable],
    index: int,
    shape: Shape,
    *,
    allowed: Booleans | None = None,
) -> Instance:
    """Return the numbers of row `index` of the tables (one a kind of device).

    Choices of blocks that are not `allowed` [choices], and those that are dominated on every rank,
    are dropped; kinds that cost the same become one.
    """
    devices = np.array(shape.device_kinds)
    first, last = shape.holders[0], shape.holders[-1]
    kinds = [_kind([t.embedding for t in tables], index, shape, count=1, pinned_stage=first)]
    totals = np.zeros(len(tables[0].blocks), dtype=np.int64)
    for kind, count in tables[0].chain:
        totals[kind] += count
    for kind, count in enumerate(totals.tolist()):
        costs = [table.blocks[kind] for table in tables]
        kinds.append(_kind(costs, index, shape, count=count, pinned_stage=None, allowed=allowed))
    kinds.append(_kind([t.head for t in tables], index, shape, count=1, pinned_stage=last))
    boundaries = _boundaries(tables, index, shape)
    limits = [table.limits for table in tables]
    made = Instance(
        repeat_count=shape.repeat_count,
        stage_pace=boundaries.pace,
        stage_fill=boundaries.fill,
        stage_bytes=boundaries.bytes,
        stage_end=np.array([table.fixed.step_end_seconds[index] for table in tables])[devices],
        capacity_bytes=np.array([limit.live_capacity_bytes for limit in limits])[devices],
        host_capacity_bytes=np.array([limit.host_capacity_bytes for limit in limits])[devices],
        least_blocks=len(shape.holders) // shape.degree,
        holders=shape.holders,
        kinds=tuple(kinds),
        chain=tuple((kind + 1, count) for kind, count in tables[0].chain),
        extras=boundaries.extras,
    )
    return merged(made)


def _kind(
    costs: Sequence[LayerCosts],
    index: int,
    shape: Shape,
    *,
    count: int,
    pinned_stage: int | None,
    allowed: Booleans | None = None,
) -> Kind:
    devices = np.array(shape.device_kinds)
    flight = shape.in_flight[:, None]
    seconds = [cost.micro_batch_seconds for cost in costs]
    totals = np.stack([part.total()[index] for part in seconds])
    forward = totals * np.stack([part.forward_share[index] for part in seconds])
    weight = totals * np.stack([part.weight_gradient_share[index] for part in seconds])
    fill = shape.weights.of(forward, totals - forward - weight, weight)

    def column(values: Sequence[Floats]) -> Floats:
        picked: Floats = np.stack(values)[devices]
        return picked

    static = column([cost.bytes.static()[index] for cost in costs])
    activation = column([cost.bytes.activations[index] for cost in costs])
    host = column([cost.bytes.host[index] for cost in costs])
    host_activation = column([cost.bytes.host_activations[index] for cost in costs])
    columns = {
        "pace": totals[devices],
        "fill": fill[devices],
        "end": column([cost.step_end_seconds.total()[index] for cost in costs]),
        "memory": static + flight * activation,
        "transient": column([cost.bytes.transient[index] for cost in costs]),
        "host": host + flight * host_activation,
        "kept": activation,
    }
    if allowed is not None:
        columns = {name: values[:, allowed] for name, values in columns.items()}
    kept = _kept(columns, shape, pinned_stage)
    places = np.arange(totals.shape[1]) if allowed is None else np.flatnonzero(allowed)
    return Kind(
        count=count,
        pinned_stage=pinned_stage,
        choice=tuple(int(choice) for choice in places[kept]),
        **{name: values[:, kept] for name, values in columns.items()},
    )


def _kept(columns: dict[str, Floats], shape: Shape, pinned_stage: int | None) -> Integers:
    """Return the choices that are dominated nowhere.

    Ranks on one kind of device differ by their micro-batches in flight alone, in which memory is
    linear: the least and the most of them stand for all.
    """
    if pinned_stage is not None:
        ranks = {pinned_stage}
    else:
        ranks = set()
        for device in set(shape.device_kinds):
            own = [r for r in range(shape.degree) if shape.device_kinds[r] == device]
            ranks.add(min(own, key=lambda r: shape.in_flight[r]))
            ranks.add(max(own, key=lambda r: shape.in_flight[r]))
    rows = sorted(ranks)
    compared = [values[rows] for name, values in columns.items() if name != "kept"]
    return undominated(np.concatenate(compared))


@dataclass(frozen=True, slots=True, kw_only=True)
class _Boundaries:
    pace: Floats
    fill: Floats
    bytes: Floats
    extras: CutExtras | None


def _boundaries(tables: Sequence[CostTable], index: int, shape: Shape) -> _Boundaries:
    """Return what exchanges cost every rank at the cheapest cuts, and what others add."""
    exchanges = shape.exchanges
    seconds = np.zeros((len(exchanges.apart), len(tables[0].blocks)))
    for end in range(2):
        each = [
            tables[kind].fixed.boundary_seconds[index, :, level]
            for kind, level in exchanges.places[end]
        ]
        seconds = np.maximum(seconds, np.reshape(each, seconds.shape))
    apart = exchanges.apart[:, None]
    seconds = np.where(apart, seconds, 0.0)
    sent = np.array([table.fixed.sent_bytes[index] for table in tables])
    buffers = np.array([table.fixed.buffer_bytes[index] for table in tables])
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
        extras=_extras(paces, fills, sides, len(tables[0].chain)),
    )


def _extras(
    paces: Floats, fills: Floats, sides: Sequence[Floats], run_count: int
) -> CutExtras | None:
    """Return what each cut costs beyond its cheapest place, with a column for the embedding.

    None where nothing differs.
    """
    if run_count == 1 or not len(paces):
        return None
    parts = [part - part.min(axis=1, keepdims=True) for part in (paces, fills, *sides)]
    if not any((part > 0.0).any() for part in parts):
        return None
    pace, fill, first, second = (np.pad(part, ((0, 0), (1, 1))) for part in parts)
    return CutExtras(pace=pace, fill=fill, first_bytes=first, second_bytes=second)
