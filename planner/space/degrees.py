"""Degrees: every configuration that model, cluster and job allow, as columns."""

from __future__ import annotations

from collections import Counter
from collections.abc import Iterator, Sequence
from dataclasses import dataclass
from typing import overload

import numpy as np

from planner.cost.configuration import Configuration, Configurations, Integers
from planner.hardware import ORDERS_MOST, ClusterHardware
from planner.schema.job import Job, Stack
from planner.schema.model import ModelGraph
from planner.schema.strategy import ContextParallelKind, PipelineSchedule
from planner.space.branches import Options, branched
from planner.space.divisibility import (
    divisors,
    expert_count,
    has_experts,
    sequence_parallel_obstacle,
)
from planner.space.frameworks import splits_experts_as_it_must
from planner.space.legality import needs_sequence_parallel
from planner.space.meshes import Mesh, MeshRequest, meshes
from planner.space.refusals import Indivisible, Outside, Refusal, worded
from planner.space.rules import (
    HELD_IN_TURN,
    Rule,
    searches_expert_split,
    searches_micro_batch_size,
    wide_space_most,
)
from planner.space.schedules import schedule_options, skips_checkpointing

_KINDS = tuple(ContextParallelKind)
_SCHEDULES = tuple(PipelineSchedule)
# A space that should have as many times the most is not even listed: 42 spaces of random cases had
# 0.6 to 3.0 times as many configurations as the narrow one and the meshes of both let expect.
_EXPECTED_RATIO = 2.0


@dataclass(frozen=True, slots=True)
class ConfigurationRows(Sequence[Configuration]):
    """Configurations one by one, each made from the columns when it is asked for."""

    columns: Configurations

    def __len__(self) -> int:
        return len(self.columns)

    @overload
    def __getitem__(self, index: int) -> Configuration: ...
    @overload
    def __getitem__(self, index: slice) -> Sequence[Configuration]: ...
    def __getitem__(self, index: int | slice) -> Configuration | Sequence[Configuration]:
        if isinstance(index, slice):
            return ConfigurationRows(self.columns.take(np.arange(len(self))[index]))
        return self.columns.row(index)

    def __iter__(self) -> Iterator[Configuration]:
        return (self.columns.row(index) for index in range(len(self)))


@dataclass(frozen=True, slots=True, kw_only=True)
class ConfigurationSpace:
    """The legal configurations in a fixed order, and how many were refused by which rule.

    `not_searched` says what is legal and yet left out (`planner.space.rules`).
    """

    configurations: Configurations
    refused: dict[str, int]
    not_searched: tuple[str, ...] = ()

    @property
    def rows(self) -> Sequence[Configuration]:
        """Return the configurations one by one."""
        return ConfigurationRows(self.configurations)

    def columns(self) -> Configurations:
        """Return the configurations as columns."""
        return self.configurations


def enumerate_configurations(
    graph: ModelGraph, hardware: ClusterHardware, job: Job, *, wide_most: int | None = None
) -> ConfigurationSpace:
    """Return every configuration of the searched space: all that are legal but for `space.rules`.

    Meshes first, then for each its batches, experts, sequence parallelism, schedules and orders of
    the kinds of devices. It is the widest space of at most `wide_most` configurations, by default
    as many as the limit of time allows, or else the narrowest that has any.
    """
    most = wide_space_most(job.limits) if wide_most is None else wide_most
    few = _Enumeration(graph, hardware, job, held=HELD_IN_TURN[-1])
    narrow = few.columns()
    count = _row_count(narrow)
    for held in HELD_IN_TURN[:-1] if count <= most else ():
        many = _Enumeration(graph, hardware, job, held=held)
        expected = count * len(many.meshes) / max(len(few.meshes), 1)
        if count and expected > _EXPECTED_RATIO * most:
            continue
        wide = many.columns()
        if _row_count(wide) <= most or not count:
            return many.space(wide)
    return few.space(narrow)


def _row_count(columns: dict[str, Integers]) -> int:
    return len(columns["tensor"])


class _Enumeration:
    """The meshes of a space under the rules that are held, and what becomes of them."""

    def __init__(
        self, graph: ModelGraph, hardware: ClusterHardware, job: Job, *, held: frozenset[Rule]
    ) -> None:
        self._job = job
        self._refused: Counter[Refusal] = Counter()
        self._space = _Space(
            graph=graph, hardware=hardware, job=job, refused=self._refused, held=held
        )
        self.meshes = tuple(
            meshes(
                MeshRequest(
                    graph=graph,
                    hardware=hardware,
                    job=job,
                    refused=self._refused,
                    held=held,
                )
            )
        )

    def columns(self) -> dict[str, Integers]:
        """Return what the configurations decide, by decision."""
        return self._space.grown(_mesh_columns(self.meshes))

    def space(self, columns: dict[str, Integers]) -> ConfigurationSpace:
        """Return the configurations of the columns, and what was left out as they were found."""
        found = _configurations(columns)
        left_out = {rule for rule in Rule if self._refused[rule]}
        schedules = {PipelineSchedule(name) for name in np.unique(found.pipeline_schedule)}
        if any(skips_checkpointing(self._job, schedule) for schedule in schedules):
            left_out.add(Rule.CHECKPOINTED)
        return ConfigurationSpace(
            configurations=found,
            refused=worded(self._refused, self._job),
            not_searched=tuple(rule.value for rule in Rule if rule in left_out),
        )


def _mesh_columns(found: Sequence[Mesh]) -> dict[str, Integers]:
    rows = [
        (m.tensor, m.pipeline, m.context, _KINDS.index(m.kind), m.shard, m.replicate) for m in found
    ]
    table = np.array(rows, dtype=np.int32).reshape(-1, 6)
    names = ("tensor", "pipeline", "context", "kind", "shard", "replicate")
    columns = {name: table[:, place] for place, name in enumerate(names)}
    return columns | {
        "data": columns["shard"] * columns["replicate"],
        "ranks": columns["shard"] * columns["context"],
    }


@dataclass(frozen=True, slots=True, kw_only=True)
class _Space:
    """What each decision after the mesh may be."""

    graph: ModelGraph
    hardware: ClusterHardware
    job: Job
    refused: Counter[Refusal]
    held: frozenset[Rule]

    def grown(self, columns: dict[str, Integers]) -> dict[str, Integers]:
        """Return the meshes with all further decisions taken in all ways."""
        decisions = (
            (("size", "count"), ("data",), self._batches),
            (("expert", "expert_tensor"), ("tensor", "ranks"), self._experts),
            (("sequence",), ("tensor", "context"), self._sequence),
            (("schedule", "virtual"), ("pipeline", "count"), self._schedules),
            (("order",), ("pipeline",), self._orders),
        )
        for names, given, options in decisions:
            columns = branched(columns, names, given=given, options=options, refused=self.refused)
        return columns

    def _batches(self, data: int) -> Options:
        batch = self.job.global_batch_size or 1
        if batch % data:
            return Options(rows=(), refused=(Indivisible(data),))
        sizes = divisors(batch // data)
        limits = self.job.limits
        near = [
            s
            for s in sizes
            if Rule.MICRO_BATCHES not in self.held or searches_micro_batch_size(s, limits)
        ]
        kept = [size for size in near if limits.micro_batch_size.allows(size)]
        lost: list[Refusal] = [Outside("micro_batch_size", s) for s in near if s not in kept]
        lost.extend([Rule.MICRO_BATCHES] * (len(sizes) - len(near)))
        return Options(rows=[(size, batch // data // size) for size in kept], refused=lost)

    def _experts(self, tensor: int, ranks: int) -> Options:
        """Return expert-parallel degrees and over how many tensor-parallel ranks experts are split.

        How experts are split means nothing in a model without any.
        """
        rows: list[tuple[int, int]] = []
        lost: list[Refusal] = []
        for split, degree in self._expert_splits(tensor):
            if not splits_experts_as_it_must(
                self.job.framework, tensor=tensor, expert=degree, split=split
            ):
                lost.append(f"{self.job.framework} splits experts in another way")
                continue
            reason = self._expert_obstacle(degree, split, holders=tensor * ranks // split)
            if reason is None:
                rows.append((degree, split))
            else:
                lost.append(reason)
        return Options(rows=rows, refused=lost)

    def _expert_splits(self, tensor: int) -> Iterator[tuple[int, int]]:
        """Yield over how many ranks experts may be split with how many groups of them."""
        experts = expert_count(self.graph)
        for split in divisors(tensor) if has_experts(self.graph) else (tensor,):
            for degree in divisors(experts):
                if split in {1, tensor} or searches_expert_split(
                    split, expert=degree, expert_count=experts, limits=self.job.limits
                ):
                    yield split, degree

    def _expert_obstacle(self, degree: int, split: int, *, holders: int) -> Refusal | None:
        limits = self.job.limits
        if holders % degree:
            return "expert_parallel_degree does not divide the ranks that can hold experts"
        if not limits.expert_parallel_degree.allows(degree):
            return Outside("expert_parallel_degree", degree)
        if not limits.expert_tensor_parallel_degree.allows(split):
            return Outside("expert_tensor_parallel_degree", split)
        return None

    def _sequence(self, tensor: int, context: int) -> Options:
        """Return whether activations between products are split over tensor-parallel ranks.

        Without tensor parallelism there is nothing to split, whatever the limit says.
        """
        if tensor == 1:
            return Options(rows=((0,),))
        wanted = self.job.limits.sequence_parallel
        undivided = sequence_parallel_obstacle(
            self.graph, parts=tensor * context, length=self.job.sequence_length or 1
        )
        rows, lost = [], []
        if wanted is not True:
            if needs_sequence_parallel(self.job.stack, self.graph):
                lost.append(f"{Stack.MEGATRON.value} splits the sequence of a mixture of experts")
            else:
                rows.append((0,))
        if wanted is not False:
            if undivided is not None:
                lost.append("sequence parallelism of an indivisible sequence")
            else:
                rows.append((1,))
        return Options(rows=rows, refused=lost)

    def _schedules(self, pipeline: int, count: int) -> Options:
        found = schedule_options(
            self.job,
            pipeline_parallel_degree=pipeline,
            micro_batch_count=count,
            block_count=self.graph.block_count,
        )
        rows = [(_SCHEDULES.index(o.schedule), o.virtual_pipeline_degree) for o in found.options]
        return Options(rows=rows, refused=found.refused)

    def _orders(self, pipeline: int) -> Options:
        returns = self.job.limits.device_returns
        count = len(self.hardware.stage_orders(pipeline, returns=returns))
        more = self.hardware.can_return(pipeline, times=returns + 1)
        lost = [Rule.KINDS] if more or count == ORDERS_MOST else []
        return Options(rows=[(order,) for order in range(count)], refused=lost)


def _configurations(columns: dict[str, Integers]) -> Configurations:
    columns = {name: values.astype(np.int64) for name, values in columns.items()}
    return Configurations(
        tensor_parallel_degree=columns["tensor"],
        sequence_parallel=columns["sequence"] == 1,
        pipeline_parallel_degree=columns["pipeline"],
        virtual_pipeline_degree=columns["virtual"],
        pipeline_schedule=np.array([s.value for s in _SCHEDULES])[columns["schedule"]],
        context_parallel_degree=columns["context"],
        context_parallel_kind=np.array([k.value for k in _KINDS])[columns["kind"]],
        expert_parallel_degree=columns["expert"],
        expert_tensor_parallel_degree=columns["expert_tensor"],
        data_parallel_replicate_degree=columns["replicate"],
        data_parallel_shard_degree=columns["shard"],
        micro_batch_size=columns["size"],
        micro_batch_count=columns["count"],
        device_order=columns["order"],
    )
