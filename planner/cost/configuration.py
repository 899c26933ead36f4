"""Configurations and choices as columns, so that thousands are priced in one pass.

A *configuration* fixes what holds for the whole job: the degrees, the schedule, the micro-batch.
A *choice* is one option of one layer: ZeRO stage, checkpointing, offload. Cost functions take
both as columns of integers and broadcast them to arrays of shape `[configurations, choices]`.
"""

from __future__ import annotations

from collections.abc import Iterable, Sequence
from dataclasses import dataclass, fields

import numpy as np
from numpy.typing import NDArray

from planner.schema.strategy import (
    ActivationCheckpointing,
    ContextParallelKind,
    Offload,
    PipelineSchedule,
)

Integers = NDArray[np.int64]
Booleans = NDArray[np.bool_]
Floats = NDArray[np.float64]


@dataclass(frozen=True, slots=True, kw_only=True, order=True)
class Configuration:
    """The degrees, schedule and micro-batch that hold for all layers.

    `expert_tensor_parallel_degree` is the tensor-parallel degree where it is None; `device_order`
    is the place of the order of kinds of devices in `ClusterHardware.stage_orders`.
    """

    tensor_parallel_degree: int = 1
    sequence_parallel: bool = False
    pipeline_parallel_degree: int = 1
    virtual_pipeline_degree: int = 1
    pipeline_schedule: PipelineSchedule = PipelineSchedule.ONE_F_ONE_B
    context_parallel_degree: int = 1
    context_parallel_kind: ContextParallelKind = ContextParallelKind.RING
    expert_parallel_degree: int = 1
    expert_tensor_parallel_degree: int | None = None
    data_parallel_replicate_degree: int = 1
    data_parallel_shard_degree: int = 1
    micro_batch_size: int = 1
    micro_batch_count: int = 1
    device_order: int = 0

    @property
    def expert_tensor_degree(self) -> int:
        """Return the ranks over which the matrices of one expert are split."""
        return self.expert_tensor_parallel_degree or self.tensor_parallel_degree


@dataclass(frozen=True, slots=True, kw_only=True, order=True)
class Choice:
    """One option of one layer."""

    zero_stage: int = 0
    activation_checkpointing: ActivationCheckpointing = ActivationCheckpointing.NONE
    offload: tuple[Offload, ...] = ()


@dataclass(frozen=True, slots=True, kw_only=True)
class Configurations:
    """Configurations as columns, each of shape [configurations]."""

    tensor_parallel_degree: Integers
    sequence_parallel: Booleans
    pipeline_parallel_degree: Integers
    virtual_pipeline_degree: Integers
    pipeline_schedule: NDArray[np.str_]
    context_parallel_degree: Integers
    context_parallel_kind: NDArray[np.str_]
    expert_parallel_degree: Integers
    expert_tensor_parallel_degree: Integers
    data_parallel_replicate_degree: Integers
    data_parallel_shard_degree: Integers
    micro_batch_size: Integers
    micro_batch_count: Integers
    device_order: Integers

    @staticmethod
    def of(rows: Sequence[Configuration]) -> Configurations:
        """Return `rows` as columns."""
        columns = {
            field.name: np.array([getattr(row, field.name) for row in rows])
            for field in fields(Configuration)
            if field.name != "expert_tensor_parallel_degree"
        }
        columns["expert_tensor_parallel_degree"] = np.array(
            [row.expert_tensor_degree for row in rows], dtype=np.int64
        )
        return Configurations(**columns)

    def __len__(self) -> int:
        return len(self.tensor_parallel_degree)

    def row(self, index: int) -> Configuration:
        """Return the configuration at `index`."""
        values = {field.name: getattr(self, field.name)[index].item() for field in fields(self)}
        values["pipeline_schedule"] = PipelineSchedule(values["pipeline_schedule"])
        values["context_parallel_kind"] = ContextParallelKind(values["context_parallel_kind"])
        return Configuration(**values)

    def take(self, indices: Integers | Booleans) -> Configurations:
        """Return the configurations at `indices` (or where a mask holds)."""
        return Configurations(
            **{field.name: getattr(self, field.name)[indices] for field in fields(self)}
        )

    @property
    def data_parallel_degree(self) -> Integers:
        """Return shard x replicate, [configurations]."""
        return self.data_parallel_shard_degree * self.data_parallel_replicate_degree

    @property
    def turns(self) -> Integers:
        """Return the virtual stages of a rank that takes turns with them, 1 under other schedules.

        Ranks take turns under the interleaved schedule.
        """
        interleaved = self.pipeline_schedule == PipelineSchedule.INTERLEAVED
        return np.where(interleaved, self.virtual_pipeline_degree, 1)

    @property
    def is_pipelined(self) -> Booleans:
        """Return whether there are several stages."""
        return np.asarray(self.pipeline_parallel_degree > 1)

    @property
    def forwards_first(self) -> Booleans:
        """Return whether a pipeline runs all forwards before the first backward."""
        return np.asarray(self.is_pipelined & (self.pipeline_schedule == PipelineSchedule.GPIPE))


@dataclass(frozen=True, slots=True, kw_only=True)
class Choices:
    """Choices as columns, each of shape [choices]."""

    zero_stage: Integers
    selective: Booleans
    full: Booleans
    offload_optimizer: Booleans
    offload_parameters: Booleans
    offload_activations: Booleans
    rows: tuple[Choice, ...]

    @staticmethod
    def of(rows: Sequence[Choice]) -> Choices:
        """Return `rows` as columns."""

        def column(values: list[bool]) -> Booleans:
            return np.array(values, dtype=np.bool_)

        return Choices(
            zero_stage=np.array([row.zero_stage for row in rows], dtype=np.int64),
            selective=column(
                [row.activation_checkpointing is ActivationCheckpointing.SELECTIVE for row in rows]
            ),
            full=column(
                [row.activation_checkpointing is ActivationCheckpointing.FULL for row in rows]
            ),
            offload_optimizer=column([Offload.OPTIMIZER in row.offload for row in rows]),
            offload_parameters=column([Offload.PARAMETERS in row.offload for row in rows]),
            offload_activations=column([Offload.ACTIVATIONS in row.offload for row in rows]),
            rows=tuple(rows),
        )

    def __len__(self) -> int:
        return len(self.rows)


@dataclass(frozen=True, slots=True, kw_only=True)
class LayerChoices:
    """The choices under which blocks, the embedding and the head are priced."""

    blocks: Choices
    embedding: Choices
    head: Choices


_KEYS_MOST = 2**62


def combinations(columns: Iterable[tuple[Integers, int]], count: int) -> tuple[Integers, Integers]:
    """Return the first row of each combination of the columns, and whose each of all rows is.

    Columns [rows] are whole numbers, not negative, each with one more than its largest; `count` is
    the number of rows. Shapes are [combinations] and [rows].
    """
    key, span = np.zeros(count, dtype=np.int64), 1
    for codes, size in columns:
        if span * size > _KEYS_MOST:
            _, key = np.unique(key, return_inverse=True)
            span = int(key.max()) + 1
        key, span = key * size + codes, span * size
    _, first, whose = np.unique(key, return_index=True, return_inverse=True)
    return first, whose
