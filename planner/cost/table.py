"""Cost table: every layer of a job priced under every configuration and choice."""

from __future__ import annotations

from collections.abc import Sequence
from dataclasses import dataclass, replace
from typing import Generic, Protocol, TypeVar

import numpy as np

from planner.cost.collectives import (
    all_gather_seconds,
    all_reduce_seconds,
    send_recv_seconds_by_level,
)
from planner.cost.configuration import Choices, Configurations, Floats, LayerChoices
from planner.cost.fitting import room
from planner.cost.intervals import shared_deviation
from planner.cost.late_gradients import spared_gradients
from planner.cost.layer_costs import (
    BytesTable,
    CostTable,
    LayerBytes,
    LayerSeconds,
    MemoryLimits,
    SecondsTable,
    StageFixed,
)
from planner.cost.layers import (
    Extras,
    layer_bytes,
    layer_costs,
    layer_seconds,
    local_states,
    no_extras,
    unsynced_seconds,
)
from planner.cost.learnt import learnt_by, points_of
from planner.cost.model_parallel import Role
from planner.cost.setting import Setting, boundary_elements, setting
from planner.cost.states import LocalParameters
from planner.hardware import DeviceHardware
from planner.schema.job import Job, OffloadStore
from planner.workload.layer import HeadWorkload, LayerWorkload, ModelWorkload

# What InternEvo's runs of 7B on 256 to 1,024 ranks take beyond those on 8 is 2.0 to 2.7 ms a rank,
# whether ranks share whole parameters or halves of them.
_BROADCAST_SECONDS = 2.4e-3

UNSYNCED_BY = (
    "tensor_parallel_degree",
    "sequence_parallel",
    "is_pipelined",
    "context_parallel_degree",
    "context_parallel_kind",
    "expert_parallel_degree",
    "expert_tensor_parallel_degree",
    "micro_batch_size",
)
"""Columns of configurations that decide what layers and boundaries take without syncing."""


def cost_table(
    workload: ModelWorkload,
    hardware: DeviceHardware,
    job: Job,
    *,
    configurations: Configurations,
    choices: LayerChoices,
) -> CostTable:
    """Return the prices of all layers; arrays are [configurations, choices].

    Raises:
        ValueError: if the job is not resolved.
    """
    priced = setting(job, hardware, configurations)
    factors = learnt_factors(workload, hardware, job, configurations)
    layers = _scaled(_layers(workload, choices, priced, layer_costs, is_held=True), factors)
    return CostTable(
        embedding=layers.embedding,
        blocks=layers.blocks,
        chain=layers.chain,
        head=layers.head,
        fixed=layers.fixed,
        limits=memory_limits(workload, hardware, job),
    )


def seconds_table(
    workload: ModelWorkload,
    hardware: DeviceHardware,
    job: Job,
    *,
    configurations: Configurations,
    choices: LayerChoices,
    is_synced: bool = True,
) -> SecondsTable:
    """Return how long all layers take, and nothing of memory; the same numbers as a cost table's.

    If not `is_synced`, layers take what they do in any case (`unsynced_seconds`), which is alike
    for configurations alike in `UNSYNCED_BY`, but for learnt factors.

    Raises:
        ValueError: if the job is not resolved.
    """
    priced = setting(job, hardware, configurations)
    factors = learnt_factors(workload, hardware, job, configurations)
    price = layer_seconds if is_synced else unsynced_seconds
    layers = _scaled(_layers(workload, choices, priced, price, is_held=False), factors)
    return SecondsTable(
        embedding=layers.embedding,
        blocks=layers.blocks,
        chain=layers.chain,
        head=layers.head,
        fixed=layers.fixed,
    )


def bytes_table(
    workload: ModelWorkload,
    hardware: DeviceHardware,
    job: Job,
    *,
    configurations: Configurations,
    choices: LayerChoices,
) -> BytesTable:
    """Return what all layers hold, and nothing of time; the same numbers as a cost table's.

    Raises:
        ValueError: if the job is not resolved.
    """

    def held(
        layer: LayerWorkload, _: Role, *, choices: Choices, setting: Setting, extras: Extras
    ) -> LayerBytes:
        return layer_bytes(layer, choices=choices, setting=setting, extras=extras)

    priced = setting(job, hardware, configurations)
    layers = _layers(workload, choices, priced, held, is_held=True)
    return BytesTable(
        embedding=layers.embedding,
        blocks=layers.blocks,
        chain=layers.chain,
        head=layers.head,
        fixed=layers.fixed,
        limits=memory_limits(workload, hardware, job),
    )


_Own_co = TypeVar("_Own_co", covariant=True)


class _Price(Protocol[_Own_co]):
    """Prices one layer under its choices."""

    def __call__(
        self,
        layer: LayerWorkload,
        role: Role,
        /,
        *,
        choices: Choices,
        setting: Setting,
        extras: Extras,
    ) -> _Own_co: ...


@dataclass(frozen=True, slots=True, kw_only=True)
class _Layers(Generic[_Own_co]):
    """All layers of a table, priced in one way."""

    embedding: _Own_co
    blocks: tuple[_Own_co, ...]
    chain: tuple[tuple[int, int], ...]
    head: _Own_co
    fixed: StageFixed


def _layers(
    workload: ModelWorkload,
    choices: LayerChoices,
    priced: Setting,
    price: _Price[_Own_co],
    *,
    is_held: bool,
) -> _Layers[_Own_co]:
    """Return the embedding, each kind of block and the head, and what a stage costs by itself.

    `is_held` says that prices are bytes too.
    """
    kinds, chain = block_kinds(workload)
    embedding, head = workload.embedding, workload.head.layer
    last = _head_extras(workload.head, priced)
    spared, counted = None, [(kinds[kind], count) for kind, count in chain]
    if is_held:
        spared = spared_gradients(embedding, counted, head, extras=last, setting=priced)
    stage = _stage_parameters([(embedding, 1), *counted, (head, 1)], priced, last)
    plain = no_extras(priced, spared=spared, stage=stage)
    first = no_extras(priced, is_end=True, spared=spared, stage=stage)

    def own(layer: LayerWorkload, role: Role, allowed: Choices, extras: Extras) -> _Own_co:
        return price(layer, role, choices=allowed, setting=priced, extras=extras)

    return _Layers(
        embedding=own(embedding, "embedding", choices.embedding, first),
        blocks=tuple(own(layer, "block", choices.blocks, plain) for layer in kinds),
        chain=chain,
        head=own(head, "head", choices.head, replace(last, spared=spared, stage=stage)),
        fixed=_stage_fixed(kinds, priced),
    )


def learnt_factors(
    workload: ModelWorkload, hardware: DeviceHardware, job: Job, configurations: Configurations
) -> Floats | None:
    """Return by what measured runs have all seconds scaled, [configurations]; None without any."""
    learnt = learnt_by(job)
    if learnt is None:
        return None
    points = points_of(workload, hardware, job, configurations=configurations)
    deviation = shared_deviation(workload, hardware, job)
    return np.exp(learnt.log_factors(points, deviation=deviation))


_Timed = TypeVar("_Timed", bound=LayerSeconds)


def _scaled(layers: _Layers[_Timed], factors: Floats | None) -> _Layers[_Timed]:
    """Return the layers, and what a stage costs by itself, with all seconds times `factors`."""
    if factors is None:
        return layers
    fixed = layers.fixed
    return replace(
        layers,
        embedding=_scaled_layer(layers.embedding, factors),
        blocks=tuple(_scaled_layer(layer, factors) for layer in layers.blocks),
        head=_scaled_layer(layers.head, factors),
        fixed=replace(
            fixed,
            boundary_seconds=fixed.boundary_seconds * factors[:, None, None],
            step_end_seconds=fixed.step_end_seconds * factors,
        ),
    )


def _scaled_layer(layer: _Timed, factors: Floats) -> _Timed:
    return replace(
        layer,
        micro_batch_seconds=layer.micro_batch_seconds.scaled(factors),
        step_end_seconds=layer.step_end_seconds.scaled(factors),
    )


def _stage_parameters(
    layers: Sequence[tuple[LayerWorkload, int]], priced: Setting, extras: Extras
) -> LocalParameters:
    """Return the trained parameters of a pipeline stage on one device, in the mean of stages."""
    dense = expert = np.zeros_like(priced.tokens)
    for layer, count in layers:
        trained = local_states(layer, priced, extras).trained()
        dense, expert = dense + count * trained.dense, expert + count * trained.expert
    return LocalParameters(dense=dense / priced.pipeline, expert=expert / priced.pipeline)


def block_kinds(
    workload: ModelWorkload,
) -> tuple[tuple[LayerWorkload, ...], tuple[tuple[int, int], ...]]:
    """Return the different blocks, and the chain as (kind, count); equal neighbours are one."""
    places: dict[LayerWorkload, int] = {}
    chain: list[tuple[int, int]] = []
    for layer, count in workload.runs:
        kind = places.setdefault(replace(layer, name="block"), len(places))
        if chain and chain[-1][0] == kind:
            count += chain.pop()[1]  # noqa: PLW2901
        chain.append((kind, count))
    return tuple(places), tuple(chain)


def memory_limits(workload: ModelWorkload, hardware: DeviceHardware, job: Job) -> MemoryLimits:
    """Return what one device, and its share of the host, can hold for the job."""
    own = room(workload, hardware.profile, job)
    return MemoryLimits(
        device_bytes=hardware.device_memory_bytes,
        capacity_bytes=own.capacity_bytes(hardware.device_memory_bytes),
        runtime_bytes=own.runtime_bytes,
        slack_ratio=own.slack_ratio,
        given_back_ratio=own.given_back_ratio,
        error_ratio=own.error_ratio,
        host_capacity_bytes=_store_bytes(hardware, job),
    )


def _store_bytes(hardware: DeviceHardware, job: Job) -> float:
    """Return what one device may offload: its share of host memory, or of its node's NVMe."""
    if job.offload_to is OffloadStore.HOST:
        return hardware.host_memory_bytes_per_device
    drives = hardware.nvme_per_device
    return 0.0 if drives is None else drives.capacity_bytes


def _head_extras(head: HeadWorkload, priced: Setting) -> Extras:
    """Return the loss's buffers and a tied embedding's copy.

    Plain torch holds 12 bytes per logit at its peak: the 16-bit logits, their fp32 copy, the fp32
    log-softmax, and its gradient in both widths take turns (measured on fake tensors: 12 S b V).
    A cap on logits keeps one more row, the tangent that its backward reads.
    """
    tokens = priced.tokens * head.layer.token_ratio
    logits = priced.varied_ratio * tokens * head.vocabulary_size / priced.logits_shares
    copied = head.tied_parameter_count / priced.tensor
    left = float(priced.compute_bytes)
    held = priced.logits_bytes + (left if head.caps_logits else 0.0)
    if priced.job.fused_linear_loss:
        # Pieces of as many tokens as make their logits a row of hidden size for each of all tokens;
        # what is left is the gradient of the head's input, which forward has worked out.
        # Source: Liger-Kernel `ops/fused_linear_cross_entropy.py`, chunk_size.
        logits = tokens * min(head.layer.hidden_size, head.vocabulary_size)
        held = np.full_like(tokens, 3.0 * left)
    return Extras(
        is_end=True,
        logits_bytes=logits * (held + priced.waiting_logits_bytes),
        logits_gradient_bytes=logits * (left + priced.waiting_logits_bytes),
        copied_parameters=np.where(priced.pipeline > 1.0, copied, 0.0),
    )


def _stage_fixed(kinds: Sequence[LayerWorkload], priced: Setting) -> StageFixed:
    """Return what a boundary between stages costs: activations forward, their gradients back.

    Without buffers, what was received lives on as the block's input alone.
    """
    spread = np.where(priced.sequence_parallel, priced.tensor, 1.0)
    apart = priced.pipeline > 1.0
    messages = np.concatenate(
        [
            boundary_elements(layer, priced) / spread * priced.compute_bytes * apart
            for layer in kinds
        ],
        axis=1,
    )
    return StageFixed(
        boundary_seconds=2.0 * _boundary_seconds(messages, priced),
        sent_bytes=messages * priced.holds_sent_rows,
        buffer_bytes=messages * priced.micro_batch_count * priced.holds_receive_buffers,
        step_end_seconds=_norm_seconds(priced) + _broadcast_seconds(priced),
    )


def _norm_seconds(priced: Setting) -> Floats:
    """Return the seconds in which all ranks sum the norm of gradients, [configurations].

    One number of 4 bytes over all ranks: latency alone. The pass over a rank's own gradients is in
    `Setting.optimizer_traffic_bytes`.
    """
    if not priced.job.prices_clipping:
        return np.zeros(len(priced.tokens))
    ranks = priced.tensor * priced.context * priced.shard * priced.replicate * priced.pipeline
    seconds = all_reduce_seconds(4.0, rank_count=ranks, stride=1.0, levels=priced.hardware.levels)
    return seconds[:, 0]


def _broadcast_seconds(priced: Setting) -> Floats:
    """Return what sending parameters rank by rank takes beyond one gather, [configurations].

    Every rank of a shard group starts one broadcast, which all others wait for.
    """
    shard = priced.data_shard[:, 0]
    if not priced.job.parameter_broadcasts:
        return np.zeros_like(shard)
    return np.where(shard > 1.0, shard * _BROADCAST_SECONDS, 0.0)


def _boundary_seconds(messages: Floats, priced: Setting) -> Floats:
    """Return seconds to hand `messages` on over each level, [configurations, kinds, levels].

    Tensor-parallel ranks that hold the same rows may send a share each, which is then gathered.
    Source: Narayanan et al. 2021, arXiv:2104.04473, section 4.1 (scatter/gather).
    """
    levels = priced.hardware.levels
    alike = priced.stack.splits_boundaries & ~priced.sequence_parallel & (priced.pipeline > 1.0)
    shares = np.where(alike, priced.tensor, 1.0)
    gather = all_gather_seconds(messages, rank_count=shares, stride=1.0, levels=levels)
    return send_recv_seconds_by_level(messages / shares, levels) + gather[..., None]
