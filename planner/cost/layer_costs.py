"""Layer costs: the numbers that the step, the memory of a stage and the ILP are made of.

Everything that a layer costs is linear in how many layers take a choice, but for two terms that
the users of this table know: `transient_bytes` (the largest counts, not the sum) and the maxima
over stages in the step. See `planner.cost.step` for the sums.
"""

from __future__ import annotations

from collections.abc import Iterable, Mapping
from dataclasses import dataclass, fields, replace
from functools import cached_property
from typing import TypeVar

import numpy as np

from planner.cost.configuration import Floats


@dataclass(frozen=True, kw_only=True)
class MicroBatchSeconds:
    """Seconds that one layer adds to each micro-batch, forward and backward, by cause.

    Each array has shape [configurations, choices]. `forward_share` (0..1) is the part of the total
    that falls into forward, `weight_gradient_share` that of the weights' gradients; the rest is
    the inputs' gradients with their recompute.
    """

    compute: Floats
    recompute: Floats
    tensor_parallel: Floats
    context_parallel: Floats
    expert_parallel: Floats
    pipeline_point_to_point: Floats
    data_parallel_exposed: Floats
    offload_exposed: Floats
    host: Floats
    forward_share: Floats
    weight_gradient_share: Floats

    def total(self) -> Floats:
        """Return the sum over causes, [configurations, choices]."""
        return self._total

    def scaled(self, factors: Floats) -> MicroBatchSeconds:
        """Return them with each configuration's times its factor, [configurations]."""
        return replace(self, **_times(self, factors, _SUMMED))

    @cached_property
    def _total(self) -> Floats:
        return np.asarray(sum(getattr(self, name) for name in _SUMMED))


_SHARES = {"forward_share", "weight_gradient_share"}
_SUMMED = tuple(field.name for field in fields(MicroBatchSeconds) if field.name not in _SHARES)


@dataclass(frozen=True, slots=True, kw_only=True)
class StepEndSeconds:
    """Seconds that one layer adds once a step: exposed gradient sync and the optimiser."""

    data_parallel_exposed: Floats
    offload_exposed: Floats
    optimizer: Floats

    def total(self) -> Floats:
        """Return the sum over causes, [configurations, choices]."""
        return self.data_parallel_exposed + self.offload_exposed + self.optimizer

    def scaled(self, factors: Floats) -> StepEndSeconds:
        """Return them with each configuration's times its factor, [configurations]."""
        return replace(self, **_times(self, factors, {field.name for field in fields(self)}))


def _times(
    seconds: MicroBatchSeconds | StepEndSeconds, factors: Floats, names: Iterable[str]
) -> dict[str, Floats]:
    return {name: getattr(seconds, name) * factors[:, None] for name in names}


@dataclass(frozen=True, kw_only=True)
class LayerBytes:
    """Bytes that one layer adds on one device, by cause; each [configurations, choices].

    `activations` is per micro-batch in flight. `transient` is needed only while the layer runs
    (unsharded parameters and gradients, one live layer under recompute, the loss's buffers): a
    stage needs its largest once. `logits` says how much of the transient is the loss's buffers.
    `host` is host memory per device, and `host_activations` that per micro-batch in flight.
    """

    parameters: Floats
    gradients: Floats
    optimizer: Floats
    activations: Floats
    logits: Floats
    communication_buffers: Floats
    transient: Floats
    host: Floats
    host_activations: Floats

    def static(self) -> Floats:
        """Return what is held whatever is in flight, [configurations, choices]."""
        return self._static

    @cached_property
    def _static(self) -> Floats:
        return self.parameters + self.gradients + self.optimizer + self.communication_buffers


@dataclass(frozen=True, slots=True, kw_only=True)
class LayerSeconds:
    """How long one layer (a block, the embedding or the head) takes under each choice."""

    micro_batch_seconds: MicroBatchSeconds
    step_end_seconds: StepEndSeconds


@dataclass(frozen=True, slots=True, kw_only=True)
class LayerCosts(LayerSeconds):
    """What one layer costs under each choice."""

    bytes: LayerBytes


@dataclass(frozen=True, slots=True, kw_only=True)
class StageFixed:
    """What a stage costs whatever it holds.

    `boundary_seconds` [configurations, kinds, levels] is the exposed point-to-point time that one
    boundary after a block of the kind adds to each micro-batch, forward activation and backward
    gradient together, if it crosses a link of the network level; both neighbours pay it.
    `sent_bytes` [configurations, kinds] is what the stage before it keeps per micro-batch in
    flight, `buffer_bytes` what both keep throughout. `step_end_seconds` [configurations] is paid
    once a step by every stage.
    """

    boundary_seconds: Floats
    sent_bytes: Floats
    buffer_bytes: Floats
    step_end_seconds: Floats


@dataclass(frozen=True, slots=True, kw_only=True)
class MemoryLimits:
    """What one device and its share of the host can hold, in bytes.

    `capacity_bytes` is what a peak may take (`planner.cost.fitting`). Of it the runtime takes
    `runtime_bytes`, and the allocator `slack_ratio` of what is live, so that
    `live_capacity_bytes` is what tensors may take. `given_back_ratio` is how much less the latter
    are where memory runs short, and `error_ratio` the standard deviation of the logarithm of true
    over predicted peak.
    """

    device_bytes: float
    capacity_bytes: float
    runtime_bytes: float
    slack_ratio: float
    given_back_ratio: float
    error_ratio: float
    host_capacity_bytes: float

    @property
    def live_capacity_bytes(self) -> float:
        """Return the bytes that live tensors may take: (capacity - runtime) / (1 + slack)."""
        return max(self.capacity_bytes - self.runtime_bytes, 0.0) / (1.0 + self.slack_ratio)


@dataclass(frozen=True, slots=True, kw_only=True)
class SecondsTable:
    """The part of a cost table that says how long things take."""

    embedding: LayerSeconds
    blocks: tuple[LayerSeconds, ...]
    chain: tuple[tuple[int, int], ...]
    head: LayerSeconds
    fixed: StageFixed

    def layers(self) -> tuple[LayerSeconds, ...]:
        """Return each kind of block, the embedding and the head."""
        return (*self.blocks, self.embedding, self.head)


@dataclass(frozen=True, slots=True, kw_only=True)
class BytesTable:
    """The part of a cost table that says what is held, and where it has to fit."""

    embedding: LayerBytes
    blocks: tuple[LayerBytes, ...]
    chain: tuple[tuple[int, int], ...]
    head: LayerBytes
    fixed: StageFixed
    limits: MemoryLimits

    def layers(self) -> tuple[LayerBytes, ...]:
        """Return each kind of block, the embedding and the head."""
        return (*self.blocks, self.embedding, self.head)


@dataclass(frozen=True, slots=True, kw_only=True)
class CostTable(SecondsTable):
    """All that the ILP and the step need to know of a job on one kind of device.

    `blocks[k]` prices one block of kind k for every configuration and choice, and `chain` says
    how many blocks of which kind follow one another; `embedding` and `head` are layers of their
    own, priced for every configuration and edge choice.
    """

    embedding: LayerCosts
    blocks: tuple[LayerCosts, ...]
    head: LayerCosts
    limits: MemoryLimits

    def held(self) -> BytesTable:
        """Return the part of the table that says what is held."""
        return BytesTable(
            embedding=self.embedding.bytes,
            blocks=tuple(block.bytes for block in self.blocks),
            chain=self.chain,
            head=self.head.bytes,
            fixed=self.fixed,
            limits=self.limits,
        )

    def row(self, index: int) -> CostTable:
        """Return the prices of one configuration, arrays [1, choices]; they share memory."""
        return CostTable(
            embedding=_layer_row(self.embedding, index),
            blocks=tuple(_layer_row(block, index) for block in self.blocks),
            chain=self.chain,
            head=_layer_row(self.head, index),
            fixed=_row(self.fixed, index),
            limits=self.limits,
        )


def _layer_row(costs: LayerCosts, index: int) -> LayerCosts:
    return LayerCosts(
        micro_batch_seconds=_row(costs.micro_batch_seconds, index),
        step_end_seconds=_row(costs.step_end_seconds, index),
        bytes=_row(costs.bytes, index),
    )


_Columns = TypeVar("_Columns", MicroBatchSeconds, StepEndSeconds, LayerBytes, StageFixed)


def _row(columns: _Columns, index: int) -> _Columns:
    """Return the columns of one configuration; they share memory."""
    kind, rows = type(columns), slice(index, index + 1)
    return kind(**{name: getattr(columns, name)[rows] for name in _NAMES[kind]})


_NAMES: dict[type, tuple[str, ...]] = {
    kind: tuple(field.name for field in fields(kind))
    for kind in (MicroBatchSeconds, StepEndSeconds, LayerBytes, StageFixed)
}


@dataclass(frozen=True, slots=True, kw_only=True)
class LayerFigures:
    """Seconds per micro-batch, seconds at the step's end, and bytes of one layer, by cause.

    `split_seconds` are those of a micro-batch's forward, inputs' gradients and weights' gradients.
    """

    micro_batch_seconds: Mapping[str, float]
    split_seconds: tuple[float, float, float]
    step_end_seconds: Mapping[str, float]
    bytes: Mapping[str, float]


def figures_of(costs: LayerCosts, choice: int) -> LayerFigures:
    """Return the figures under the choice at `choice`; costs are of one row, [1, choices]."""
    seconds = costs.micro_batch_seconds
    parts = _numbers(seconds, _SUMMED, choice)
    total = sum(parts.values())
    forward = total * seconds.forward_share.item(0, choice)
    weight_gradient = total * seconds.weight_gradient_share.item(0, choice)
    return LayerFigures(
        micro_batch_seconds=parts,
        split_seconds=(forward, total - forward - weight_gradient, weight_gradient),
        step_end_seconds=_numbers(costs.step_end_seconds, _NAMES[StepEndSeconds], choice),
        bytes=_numbers(costs.bytes, _NAMES[LayerBytes], choice),
    )


def _numbers(columns: object, names: tuple[str, ...], choice: int) -> dict[str, float]:
    return {name: getattr(columns, name).item(0, choice) for name in names}
