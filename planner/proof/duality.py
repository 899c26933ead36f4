"""Duality: what no plan of a configuration can beat, from cost tables and prices of memory alone.

A configuration has ranks r = 0..p-1 and layers of kinds k, of which L_k are blocks; the embedding
and the head are on given ranks. A layer under choice s on rank r adds phi to the rank's fill, omega
= rho tau + u to what it takes rho times and once a step, m to its bytes and h to its host bytes.
A plan's step is

    sum_r fill_r + rho max_r t_r + max_r u_r,   and  rho t_r + u_r <= rho max t + max u.

Any price lambda >= 0 of a byte gives bounds of all plans that fit, since lambda (memory - capacity)
is not positive (weak duality). With slack_r = capacity - what a rank holds in any case, and B the
step that is to be excluded, no plan is below B

- pooled: if sum_r (own_r - lambda slack_r / p) + sum_k L_k min_r c_rk is no less than B, where c_rk
  is the least phi + (omega + lambda m) / p of any choice: a maximum over ranks is no less than
  their mean, and layers are where they cost least;
- by rooms: if ranks have no room for all blocks. With S a bound of the sum of all fills, a rank's
  blocks cost omega + lambda m, within B - S + lambda slack_r - own_r at every lambda.

Without seconds the same says that no plan fits, here with a price on host bytes beside the
device's. Nothing of it depends on how good the prices are, nor on who chose them.
"""

from __future__ import annotations

from collections.abc import Iterator, Sequence
from dataclasses import dataclass
from functools import cached_property
from itertools import pairwise

import numpy as np

from planner.cost.configuration import (
    Booleans,
    Choices,
    Configuration,
    Configurations,
    Floats,
    Integers,
    LayerChoices,
)
from planner.cost.layer_costs import CostTable, LayerCosts, MemoryLimits, StageFixed
from planner.cost.schedule import ScheduleTiming, in_flight, rank_of_virtual_stage, schedule_timing
from planner.cost.stage import boundary_places
from planner.cost.table import cost_table
from planner.hardware import ClusterHardware
from planner.schema.job import Job
from planner.schema.model import ModelGraph
from planner.space.choices import block_choices, edge_choices
from planner.space.degrees import enumerate_configurations
from planner.space.schedules import skips_checkpointing
from planner.workload.layer import ModelWorkload

ROUNDING = 1e-9
_SHAPE = (
    "pipeline_schedule",
    "pipeline_parallel_degree",
    "virtual_pipeline_degree",
    "micro_batch_count",
    "device_order",
)
_PRICED_AT_ONCE = 512
_NUMBERS_AT_ONCE = 2**22
_HOST_PRICES = (0.0, 0.01, 0.1, 1.0)
"""Of a byte of the host, beside one of the device."""


@dataclass(frozen=True, slots=True, kw_only=True)
class Space:
    """All configurations of a job, and the choices of their layers."""

    workload: ModelWorkload
    hardware: ClusterHardware
    job: Job
    configurations: Configurations
    choices: LayerChoices


def space_of(
    graph: ModelGraph, workload: ModelWorkload, hardware: ClusterHardware, job: Job
) -> Space:
    """Return what a resolved job is searched for, listed anew."""
    is_part = job.framework is not None
    edges = Choices.of(edge_choices(job.limits, job.offload_to, offloads_all=is_part))
    return Space(
        workload=workload,
        hardware=hardware,
        job=job,
        configurations=enumerate_configurations(graph, hardware, job).configurations,
        choices=LayerChoices(
            blocks=Choices.of(block_choices(job.limits, job.offload_to, offloads_all=is_part)),
            embedding=edges,
            head=edges,
        ),
    )


@dataclass(frozen=True, slots=True, kw_only=True)
class Verdicts:
    """Which configurations have no plan that fits, or none below a step; [configurations]."""

    is_infeasible: Booleans
    is_bounded: Booleans


def verdicts(space: Space, *, bound_seconds: float, prices: Sequence[float]) -> Verdicts:
    """Return what prices of memory say of every configuration; they are seconds per byte >= 0."""
    count = len(space.configurations)
    infeasible, bounded = np.zeros(count, dtype=bool), np.zeros(count, dtype=bool)
    seconds = bound_seconds * (1.0 - ROUNDING)
    for rows, alike in _alike(space):
        infeasible[rows] = alike.has_no_plan()
        for some in ([], prices):
            if not (infeasible[rows] | bounded[rows]).all():
                bounded[rows] |= alike.has_none_below(seconds, [0.0, *some])
    return Verdicts(is_infeasible=infeasible, is_bounded=bounded & ~infeasible)


def _alike(space: Space) -> Iterator[tuple[Integers, _Alike]]:
    """Yield configurations whose ranks follow the same schedule, priced, with their places."""
    columns = [getattr(space.configurations, name).tolist() for name in _SHAPE]
    keys = list(zip(*columns, strict=True))
    order = sorted(range(len(keys)), key=keys.__getitem__)
    for start in range(0, len(order), _PRICED_AT_ONCE):
        part = np.array(order[start : start + _PRICED_AT_ONCE])
        own = space.configurations.take(part)
        sheets = [
            _Sheet.of(
                cost_table(
                    space.workload, kind, space.job, configurations=own, choices=space.choices
                )
            )
            for kind in space.hardware.kinds
        ]
        changes = [i for i, (a, b) in enumerate(pairwise(part), 1) if keys[a] != keys[b]]
        for first, end in pairwise([0, *changes, len(part)]):
            ranks = _Ranks.of(own.row(first), space)
            most = max(_NUMBERS_AT_ONCE // (len(space.choices.blocks) * ranks.degree), 1)
            for low in range(first, end, most):
                rows = slice(low, min(low + most, end))
                yield part[rows], _Alike(sheets=sheets, rows=rows, ranks=ranks)


@dataclass(frozen=True, slots=True, kw_only=True)
class _Sheet:
    """What layers cost on one kind of device, [numbers, configurations, choices] each.

    Every kind of block comes first, with how many there are, then the embedding and the head.
    """

    layers: tuple[Floats, ...]
    counts: tuple[int, ...]
    fixed: StageFixed
    limits: MemoryLimits

    @staticmethod
    def of(table: CostTable) -> _Sheet:
        """Return the sums of a table over all causes."""
        counts = [0] * len(table.blocks)
        for kind, count in table.chain:
            counts[kind] += count
        every = (*table.blocks, table.embedding, table.head)
        return _Sheet(
            layers=tuple(map(_numbers, every)),
            counts=tuple(counts),
            fixed=table.fixed,
            limits=table.limits,
        )


def _numbers(layer: LayerCosts) -> Floats:
    seconds, held = layer.micro_batch_seconds, layer.bytes
    pace = seconds.total()
    forward, weight = pace * seconds.forward_share, pace * seconds.weight_gradient_share
    spent = (forward, pace - forward - weight, weight, layer.step_end_seconds.total())
    kept = (held.static(), held.activations, held.transient, held.host, held.host_activations)
    return np.array([*spent, *kept])


@dataclass(frozen=True, slots=True, kw_only=True)
class _Ranks:
    """What the schedule makes of the ranks of configurations that differ in nothing else.

    `cuts` are the exchanges between ranks: who sends, who receives, and over which links.
    """

    degree: int
    holders: tuple[int, ...]
    timing: ScheduleTiming
    devices: Integers
    in_flight: Floats
    cuts: tuple[tuple[int, int, tuple[tuple[int, int], ...]], ...]
    allowed: Integers

    @staticmethod
    def of(configuration: Configuration, space: Space) -> _Ranks:
        """Return the ranks of a configuration."""
        hardware, degree = space.hardware, configuration.pipeline_parallel_degree
        schedule = configuration.pipeline_schedule
        holders = tuple(
            rank_of_virtual_stage(schedule, pipeline_parallel_degree=degree, virtual_stage=stage)
            for stage in range(degree * configuration.virtual_pipeline_degree)
        )
        kinds = hardware.stage_kinds(configuration.device_order, pipeline_parallel_degree=degree)
        blocks = space.choices.blocks
        refused = (blocks.selective | blocks.full) & skips_checkpointing(space.job, schedule)
        return _Ranks(
            degree=degree,
            holders=holders,
            timing=schedule_timing(
                configuration, space.job.stack, lone_speed_ratio=hardware.lone_speed_ratio
            ),
            devices=np.array(kinds),
            in_flight=np.array(
                [
                    in_flight(
                        schedule,
                        micro_batch_count=configuration.micro_batch_count,
                        pipeline_parallel_degree=degree,
                        virtual_pipeline_degree=configuration.virtual_pipeline_degree,
                        stage=rank,
                    )
                    for rank in range(degree)
                ]
            ),
            cuts=tuple(
                (a, b, boundary_places(hardware, kinds, stage=a, other=b))
                for a, b in pairwise(holders)
                if a != b
            ),
            allowed=np.flatnonzero(~refused),
        )


@dataclass(frozen=True, slots=True, kw_only=True)
class _Layer:
    """What one layer adds under each choice, [rows, ranks, choices]; `count` of them are alike."""

    count: int
    fill: Floats
    omega: Floats
    memory: Floats
    host: Floats
    transient: Floats

    def least(
        self, *, fill: float = 0.0, omega: float = 0.0, memory: float = 0.0, host: float = 0.0
    ) -> Floats:
        """Return the least weighted sum of all choices, [rows, ranks]."""
        weights = {"fill": fill, "omega": omega, "memory": memory, "host": host}
        total = sum(w * getattr(self, name) for name, w in weights.items() if w > 0.0)
        return np.asarray(np.min(total, axis=2))


@dataclass(frozen=True, kw_only=True)
class _Alike:
    """Rows of cost tables, one a kind of device, of configurations with the same ranks."""

    sheets: Sequence[_Sheet]
    rows: slice
    ranks: _Ranks

    @cached_property
    def blocks(self) -> list[_Layer]:
        """Return the kinds of blocks."""
        return [
            self._layer(place, count, self.ranks.allowed)
            for place, count in enumerate(self.sheets[0].counts)
        ]

    @cached_property
    def pinned(self) -> list[tuple[int, _Layer]]:
        """Return the embedding and the head, each with its rank."""
        every = np.arange(self.sheets[0].layers[-1].shape[2])
        first, last = self.ranks.holders[0], self.ranks.holders[-1]
        return [(rank, self._layer(place, 1, every)) for rank, place in ((first, -2), (last, -1))]

    def _layer(self, place: int, count: int, choices: Integers) -> _Layer:
        """Return what a layer adds on every rank."""
        timing, flight = self.ranks.timing, self.ranks.in_flight[:, None]
        each = [sheet.layers[place][:, self.rows][:, :, choices] for sheet in self.sheets]
        own = np.array(each)[self.ranks.devices].transpose(1, 2, 0, 3)
        forward, inputs, weights, end, static, activations, transient, host, more_host = own
        return _Layer(
            count=count,
            fill=timing.weights.of(forward, inputs, weights),
            omega=timing.repeat_count * (forward + inputs + weights) + end,
            memory=static + flight * activations,
            host=host + flight * more_host,
            transient=transient,
        )

    @cached_property
    def own(self) -> tuple[Floats, Floats, Floats]:
        """Return fill, omega and bytes of every rank whatever it holds, each [rows, ranks].

        Exchanges are those of the block behind which they are cheapest.
        """
        fixed, timing = [sheet.fixed for sheet in self.sheets], self.ranks.timing
        ends = np.array([each.step_end_seconds[self.rows] for each in fixed])
        omega = ends[self.ranks.devices].T.copy()
        fill, held = np.zeros_like(omega), np.zeros_like(omega)
        sent = np.array([each.sent_bytes[self.rows].min(axis=1) for each in fixed])
        buffers = np.array([each.buffer_bytes[self.rows].min(axis=1) for each in fixed])
        for sender, receiver, places in self.ranks.cuts:
            seconds = np.max(
                [fixed[kind].boundary_seconds[self.rows, :, level] for kind, level in places],
                axis=0,
            ).min(axis=1)
            for rank in (sender, receiver):
                omega[:, rank] += timing.repeat_count * timing.shares.pace * seconds
                fill[:, rank] += timing.shares.fill * seconds
                held[:, rank] += buffers[self.ranks.devices[rank]]
            held[:, sender] += self.ranks.in_flight[sender] * sent[self.ranks.devices[sender]]
        return fill, omega, held

    @cached_property
    def slack(self) -> Floats:
        """Return the bytes that are left for layers but for the largest transient, [rows, ranks].

        Every rank holds a block, whose transient is the least of any at the least.
        """
        transient = np.min([layer.transient.min(axis=2) for layer in self.blocks], axis=0)
        for rank, layer in self.pinned:
            least = layer.transient[:, rank].min(axis=1)
            transient[:, rank] = np.maximum(transient[:, rank], least)
        limits = [sheet.limits.live_capacity_bytes * (1.0 + ROUNDING) for sheet in self.sheets]
        return np.asarray(np.array(limits)[self.ranks.devices] - self.own[2] - transient)

    def has_no_plan(self) -> Booleans:
        """Return whether no plan fits, [rows]."""
        limits = np.array([sheet.limits.host_capacity_bytes for sheet in self.sheets])
        found = np.zeros(len(self.slack), dtype=bool)
        for price in _HOST_PRICES:
            room = self.slack + price * limits[self.ranks.devices]
            found |= self._pooled(room, memory=1.0, host=price) > 0.0
            found |= self._are_too_few(self._held(room, memory=1.0, host=price))
        return found

    def has_none_below(self, seconds: float, prices: Sequence[float]) -> Booleans:
        """Return whether no plan is below some seconds, [rows]."""
        fill, omega, _ = self.own
        share = 1.0 / self.ranks.degree
        fills = np.full(len(fill), -np.inf)
        for price in prices:
            room = share * price * self.slack - fill
            fills = np.maximum(fills, self._pooled(room, fill=1.0, memory=share * price))
        found = np.zeros(len(fill), dtype=bool)
        for price in prices:
            room = share * (price * self.slack - omega) - fill
            pooled = self._pooled(room, fill=1.0, omega=share, memory=share * price)
            found |= pooled >= seconds
        rooms = [(seconds - fills)[:, None] + price * self.slack - omega for price in prices]
        held = [self._held(r, omega=1.0, memory=p) for r, p in zip(rooms, prices, strict=True)]
        return found | self._are_too_few(np.min(held, axis=0))

    def _pooled(self, room: Floats, **weights: float) -> Floats:
        """Return the least of all ranks' costs less their room, [rows]."""
        total = -room.sum(axis=1)
        for layer in self.blocks:
            total += layer.count * layer.least(**weights).min(axis=1)
        for rank, layer in self.pinned:
            total += layer.least(**weights)[:, rank]
        return np.asarray(total)

    @cached_property
    def sizes(self) -> Floats:
        """Return how much a block of each kind counts, [kinds, rows]: 1 where there is one."""
        if len(self.blocks) == 1:
            return np.ones((1, 1))
        return np.array([layer.least(omega=1.0).mean(axis=1) for layer in self.blocks])

    def _held(self, room: Floats, **weights: float) -> Floats:
        """Return the most blocks, by size, that a rank has room for, [rows, ranks]."""
        room = room.copy()
        for rank, layer in self.pinned:
            room[:, rank] -= layer.least(**weights)[:, rank]
        every = []
        for layer, size in zip(self.blocks, self.sizes, strict=True):
            price = layer.least(**weights)
            count = np.full_like(room, np.inf)
            np.divide(room, price, out=count, where=price > 0.0)
            every.append(count * size[:, None])
        most = np.max(every, axis=0)
        is_whole = len(self.blocks) == 1
        return np.asarray(np.floor(most + ROUNDING) if is_whole else most * (1.0 + ROUNDING))

    def _are_too_few(self, held: Floats) -> Booleans:
        """Return whether ranks have no room for all blocks, or one for none of its own, [rows]."""
        totals = sum(
            layer.count * size for layer, size in zip(self.blocks, self.sizes, strict=True)
        )
        least = len(self.ranks.holders) // self.ranks.degree * np.min(self.sizes, axis=0)
        return np.asarray((held.sum(axis=1) < totals) | (held < least[:, None]).any(axis=1))
