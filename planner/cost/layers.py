"""Layers: all that one layer costs under every configuration and choice, and at which end."""

from __future__ import annotations

from dataclasses import dataclass, fields, replace
from typing import TypeVar

import numpy as np

from planner.cost.activations import activation_bytes, all_bytes, gradient_rows_bytes
from planner.cost.adapters import frozen, unpacked_bytes, with_adapters
from planner.cost.compute import ComputeSeconds, compute_seconds
from planner.cost.configuration import Booleans, Choices, Floats, Integers
from planner.cost.layer_costs import (
    LayerBytes,
    LayerCosts,
    LayerSeconds,
    MicroBatchSeconds,
    StepEndSeconds,
)
from planner.cost.model_parallel import (
    ModelParallelSeconds,
    Role,
    model_parallel_seconds,
    with_experts_hidden,
)
from planner.cost.offload import OffloadSeconds, offload_seconds
from planner.cost.setting import Setting
from planner.cost.states import (
    LocalParameters,
    StateMemory,
    SyncSeconds,
    local_parameters,
    sharded_parameters,
    state_memory,
    sync_seconds,
)
from planner.cost.syncing import (
    ExposedSeconds,
    Windows,
    micro_batch_sync,
    step_end_sync,
    windows_of,
)
from planner.units import GIB
from planner.workload.layer import LayerWorkload

# Copies in 8 bits of a weight in 16: one in the order of forward's product, and one transposed for
# the inputs' gradient, which Hopper's products in 8 bits ask for. Norms and routers, which have
# none, are counted as if they had, and on Blackwell the second of scales by tensor.
# Source: Transformer Engine `pytorch/module/base.py` (`get_weight_workspace`), `linear.py`
# (`set_usage` of the weight's quantizer); Megatron-Core `extensions/transformer_engine.py`.
_COPIES_BYTES = 2.0


@dataclass(frozen=True, slots=True, kw_only=True)
class Spared:
    """What has the room of the loss's buffers, which are gone by then, each [configurations, 1].

    `gradient_bytes` per parameter are spared of what a layer's late gradients take, `total_bytes`
    by all layers together; a layer whose transient is more than `transient_bytes` is not spared
    any. `step_bytes` per parameter are spared of what the optimizer's step needs.
    """

    gradient_bytes: Floats
    total_bytes: Floats
    transient_bytes: Floats
    step_bytes: Floats


@dataclass(frozen=True, slots=True, kw_only=True)
class Extras:
    """What a layer adds to a plain one, [configurations, 1]: loss buffers, a tied copy.

    `logits_bytes` are the loss's buffers at their peak, of which `logits_gradient_bytes`, those of
    the logits' gradient, are left while the head runs backward. `is_end` says that the layer is
    the embedding or the head; `spared` is None where nothing is. `stage` are the trained parameters
    of a pipeline stage in the mean, None where the layer stands alone.
    """

    is_end: bool
    logits_bytes: Floats
    logits_gradient_bytes: Floats
    copied_parameters: Floats
    spared: Spared | None = None
    stage: LocalParameters | None = None


def no_extras(
    setting: Setting,
    *,
    is_end: bool = False,
    spared: Spared | None = None,
    stage: LocalParameters | None = None,
) -> Extras:
    """Return the extras of a layer that is no head: nothing of its own."""
    zero = np.zeros_like(setting.tokens)
    return Extras(
        is_end=is_end,
        logits_bytes=zero,
        logits_gradient_bytes=zero,
        copied_parameters=zero,
        spared=spared,
        stage=stage,
    )


def layer_costs(
    layer: LayerWorkload, role: Role, *, choices: Choices, setting: Setting, extras: Extras
) -> LayerCosts:
    """Return the seconds and bytes of one layer, each array [configurations, choices]."""
    held = local_states(layer, setting, extras)
    kept = activation_bytes(layer, choices, setting)
    seconds = _seconds(layer, role, kept, choices=choices, setting=setting, extras=extras)
    return LayerCosts(
        micro_batch_seconds=seconds.micro_batch_seconds,
        step_end_seconds=seconds.step_end_seconds,
        bytes=_layer_bytes(layer, held, kept, choices=choices, setting=setting, extras=extras),
    )


def layer_seconds(
    layer: LayerWorkload, role: Role, *, choices: Choices, setting: Setting, extras: Extras
) -> LayerSeconds:
    """Return the seconds of one layer alone, each array [configurations, choices].

    Its bytes only matter where activations are moved.
    """
    kept = np.zeros_like(setting.tokens)
    if choices.offload_activations.any():
        kept = activation_bytes(layer, choices, setting)
    return _seconds(layer, role, kept, choices=choices, setting=setting, extras=extras)


def unsynced_seconds(
    layer: LayerWorkload, role: Role, *, choices: Choices, setting: Setting, extras: Extras
) -> LayerSeconds:
    """Return the seconds of one layer whose states are neither exchanged, moved nor updated.

    The layer takes no less. Configurations are alike here whose micro-batches are
    (`Setting.of_micro_batch`), and of which all or none have a pipeline.
    """
    held = local_states(layer, setting, extras)
    compute, parallel, windows = _in_windows(layer, role, held, choices=choices, setting=setting)
    zero = 0.0 * windows.forward
    return LayerSeconds(
        micro_batch_seconds=_micro_batch_seconds(
            compute,
            parallel,
            windows=windows,
            offload=OffloadSeconds(forward=zero, backward=zero, step_end=zero),
            choices=choices,
            exposed=ExposedSeconds(forward=zero, backward=zero),
        ),
        step_end_seconds=StepEndSeconds(
            data_parallel_exposed=zero, offload_exposed=zero, optimizer=zero
        ),
    )


def layer_bytes(
    layer: LayerWorkload, *, choices: Choices, setting: Setting, extras: Extras
) -> LayerBytes:
    """Return the bytes of one layer alone, each array [configurations, choices]."""
    held = local_states(layer, setting, extras)
    kept = activation_bytes(layer, choices, setting)
    return _layer_bytes(layer, held, kept, choices=choices, setting=setting, extras=extras)


def local_states(layer: LayerWorkload, setting: Setting, extras: Extras) -> LocalParameters:
    """Return the layer's parameters on one device, with copies and adapters.

    DTensor splits no embedding's gradient by rows of its table: where sequence parallelism splits
    what comes in, each rank's is a part of the sum, of all rows, until it is reduced.
    Source: torch `distributed/tensor/_ops/_embedding_ops.py` (`embedding_dense_backward_strategy`),
    `distributed/fsdp/_fully_shard/_fsdp_param.py` (`_get_grad_inner_tensor`). Ignored: the time to
    scatter it over tensor-parallel ranks, once it is reduced.
    """
    parameters = local_parameters(layer.parameters, setting)
    own = LocalParameters(
        dense=parameters.dense + extras.copied_parameters,
        expert=parameters.expert,
        dense_gathered_bytes=1.0 if setting.job.gathered_in_8_bits and not extras.is_end else None,
    )
    held = with_adapters(layer, own, setting)
    if layer.name != "embedding" or frozen(layer, setting.job):
        return held
    others = (1.0 - 1.0 / setting.tensor) * layer.parameters.sharded
    return replace(held, unsplit=np.where(setting.copies_rows, others, 0.0))


def _seconds(
    layer: LayerWorkload,
    role: Role,
    kept: Floats,
    *,
    choices: Choices,
    setting: Setting,
    extras: Extras,
) -> LayerSeconds:
    held = local_states(layer, setting, extras)
    compute, parallel, windows = _in_windows(layer, role, held, choices=choices, setting=setting)
    offload = offload_seconds(
        held, kept_bytes=kept, windows=windows, choices=choices, setting=setting
    )
    sync = _sync(held, setting, extras.stage)
    return LayerSeconds(
        micro_batch_seconds=_micro_batch_seconds(
            compute,
            parallel,
            windows=windows,
            offload=offload,
            choices=choices,
            exposed=micro_batch_sync(sync, windows, choices, setting, held=held),
        ),
        step_end_seconds=_step_end_seconds(
            held,
            step_end_sync(sync, windows, choices, setting, role=role),
            offload=offload,
            choices=choices,
            setting=setting,
        ),
    )


def _in_windows(
    layer: LayerWorkload,
    role: Role,
    held: LocalParameters,
    *,
    choices: Choices,
    setting: Setting,
) -> tuple[ComputeSeconds, ModelParallelSeconds, Windows]:
    """Return what a micro-batch takes, and the windows under which other exchanges hide."""
    compute, parallel = _of_micro_batch(layer, role, setting)
    windows = windows_of(compute, choices, held, setting)
    hidden = with_experts_hidden(
        parallel, forward=windows.forward, backward=windows.backward, setting=setting
    )
    return compute, hidden, windows


def _of_micro_batch(
    layer: LayerWorkload, role: Role, setting: Setting
) -> tuple[ComputeSeconds, ModelParallelSeconds]:
    """Return what a micro-batch takes, each combination of what that depends on priced once."""
    alike = setting.of_micro_batch
    compute = compute_seconds(layer, alike.setting)
    parallel = model_parallel_seconds(layer, role, alike.setting, compute.attention_forward)
    return _each(compute, alike.whose), _each(parallel, alike.whose)


def _sync(held: LocalParameters, setting: Setting, stage: LocalParameters | None) -> SyncSeconds:
    """Return what a layer's collectives of states take, found in the same way."""
    alike = setting.of_states
    own, first = held.of_rows(alike.first), alike.first
    every = None if stage is None else stage.of_rows(first)
    return _each(sync_seconds(own, alike.setting, stage=every), alike.whose)


_Columns = TypeVar("_Columns", ComputeSeconds, ModelParallelSeconds, SyncSeconds)


def _each(columns: _Columns, rows: Integers) -> _Columns:
    """Return the columns of the rows, which may be the same again and again."""
    kind = type(columns)
    return kind(**{own.name: getattr(columns, own.name)[rows] for own in fields(columns)})


def _micro_batch_seconds(
    compute: ComputeSeconds,
    parallel: ModelParallelSeconds,
    *,
    windows: Windows,
    offload: OffloadSeconds,
    choices: Choices,
    exposed: ExposedSeconds,
) -> MicroBatchSeconds:
    zero = 0.0 * windows.forward
    tensor_again = np.where(choices.full, parallel.tensor_recompute_full, 0.0) + np.where(
        choices.selective, parallel.tensor_recompute_selective, 0.0
    )
    expert_again = np.where(choices.full, parallel.expert_forward, 0.0)
    context_again = np.where(choices.full, parallel.context_forward, 0.0)
    forward = (
        windows.forward
        + parallel.tensor_forward
        + parallel.context_forward
        + parallel.expert_forward
        + exposed.forward
        + offload.forward
    )
    parts = {
        "compute": compute.forward + compute.backward + windows.casts,
        "recompute": windows.recompute + zero,
        "tensor_parallel": parallel.tensor_forward + parallel.tensor_backward + tensor_again,
        "context_parallel": parallel.context_forward + parallel.context_backward + context_again,
        "expert_parallel": parallel.expert_forward + parallel.expert_backward + expert_again,
        "pipeline_point_to_point": zero,
        "data_parallel_exposed": exposed.forward + exposed.backward,
        "offload_exposed": offload.forward + offload.backward,
        "host": windows.host + zero,
    }
    total = np.asarray(sum(parts.values()))
    weights = np.where(_is_undivided(choices), zero, compute.weight_gradient)
    weights = np.minimum(weights, total - forward)
    return MicroBatchSeconds(
        **parts, forward_share=_share(forward, total), weight_gradient_share=_share(weights, total)
    )


def _is_undivided(choices: Choices) -> Booleans:
    """Return for which choices weights' gradients come with the inputs', [choices].

    V-shaped schedules take them apart, which a checkpointed block would be computed again for,
    once for its inputs and once for each of its matrices (11 forwards of a block with nine
    parameters where one backward takes 2, measured with torch 2.13), and which parameters that
    ZeRO-3 has freed would be gathered again for. The executor runs such a backward whole.
    """
    undivided: Booleans = choices.selective | choices.full | (choices.zero_stage == 3)
    return undivided


def _share(part: Floats, total: Floats) -> Floats:
    return np.divide(part, total, out=np.zeros_like(total), where=total > 0.0)


def _step_end_seconds(
    held: LocalParameters,
    synced: Floats,
    *,
    offload: OffloadSeconds,
    choices: Choices,
    setting: Setting,
) -> StepEndSeconds:
    """Return the sync that is left for the last micro-batch, and the optimiser."""
    trained = held.trained()
    shard = sharded_parameters(trained, setting)
    updated = np.where(choices.zero_stage == 0, trained.total(), shard)
    seconds = updated * setting.optimizer_seconds_per_parameter
    return StepEndSeconds(
        data_parallel_exposed=synced,
        offload_exposed=offload.step_end,
        optimizer=np.where(choices.offload_optimizer, 0.0, seconds),
    )


def _layer_bytes(
    layer: LayerWorkload,
    held: LocalParameters,
    kept: Floats,
    *,
    choices: Choices,
    setting: Setting,
    extras: Extras,
) -> LayerBytes:
    """Return the layer's bytes by cause.

    With a single micro-batch, or all forwards first, a layer's gradients only appear once its
    activations are freed, so that the larger of both counts: gradients are what exceeds the
    activations, and what the loss's buffers spare. A stack that keeps gradients in a buffer has
    them from the start.
    """
    states = state_memory(held, choices, setting)
    if setting.job.copies_in_8_bits and not extras.is_end:
        copies = np.where(choices.zero_stage == 3, 0.0, _COPIES_BYTES * held.total())
        states = replace(states, parameters=states.parameters + copies)
    if extras.is_end and setting.job.ends_stay_gathered:
        stays = states.parameters + states.gathered
        states = replace(states, parameters=stays, gathered=np.zeros_like(stays))
    live = all_bytes(layer, setting) - kept
    on_device = np.where(choices.offload_activations, 0.0, kept)
    single = (setting.micro_batch_count == 1.0) | setting.forwards_first
    single = single & (not setting.stack.gradient_buffers)
    beside = on_device
    if extras.spared is not None:
        beside = on_device + extras.spared.gradient_bytes * held.trained().total()
    gradients = np.where(single, np.maximum(states.gradients - beside, 0.0), states.gradients)
    live = live + np.where(choices.offload_activations, 2.0 * kept, 0.0)
    _, unpacked = unpacked_bytes(layer, setting)
    live = np.maximum(live, 0.0) + gradient_rows_bytes(layer, setting) + unpacked
    transient, logits = _transient_bytes(states, live, setting, extras)
    bucket = np.where(choices.zero_stage > 0, setting.stack.reduce_bucket_gib * GIB, 0.0)
    transient = transient + bucket + _not_spared_bytes(transient + bucket, extras)
    beside = states.gradients - gradients - on_device
    step = _step_bytes(held, beside, transient, choices=choices, setting=setting, extras=extras)
    zero = 0.0 * on_device
    return LayerBytes(
        parameters=states.parameters,
        gradients=gradients,
        optimizer=states.optimizer + step,
        activations=on_device,
        logits=logits,
        communication_buffers=zero,
        transient=transient,
        host=states.host + zero,
        host_activations=np.where(choices.offload_activations, kept, 0.0),
    )


def _transient_bytes(
    states: StateMemory, live: Floats, setting: Setting, extras: Extras
) -> tuple[Floats, Floats]:
    """Return the bytes needed only while the layer runs, and the loss's buffers among them.

    A block holds its gathered parameters and those prefetched, its gradients, what is left of those
    reduced before, and one live layer. An end holds its gathered parameters with what backward
    makes, and then its gradients while they are reduced; a head the loss's buffers at their peak
    before, and the gradient of the logits while it runs backward.
    Source: FSDP2's post_backward in torch 2.13, which reshards before it reduces.
    """
    prefetched = setting.stack.gathered_layer_count * states.gathered
    block = prefetched + states.unreduced + live
    if not extras.is_end:
        return block, np.zeros_like(block)
    is_head = extras.logits_bytes > 0.0
    loss = states.gathered + extras.logits_bytes
    backward = states.gathered + states.made + extras.logits_gradient_bytes
    backward = backward + np.where(is_head, 0.0, live)
    most = np.maximum(np.maximum(loss, backward), states.unreduced)
    after = np.where(backward >= most, extras.logits_gradient_bytes, 0.0)
    return most, np.where(loss >= most, extras.logits_bytes, after)


def _step_bytes(
    held: LocalParameters,
    beside: Floats,
    transient: Floats,
    *,
    choices: Choices,
    setting: Setting,
    extras: Extras,
) -> Floats | float:
    """Return what the optimizer's step needs beyond what is counted anyhow: activations, buffers.

    `beside` is what there is then and was not counted, less what was and is gone by then. A rank
    without pipeline neighbours has the loss's buffers, and the stage with the head all of its own.
    """
    if not setting.step_bytes or extras.spared is None:
        return 0.0
    trained = held.trained()
    updated = np.where(
        choices.zero_stage == 0, trained.total(), sharded_parameters(trained, setting)
    )
    needed = np.where(choices.offload_optimizer, 0.0, setting.step_bytes * updated)
    is_head = extras.logits_bytes > 0.0
    own = np.where(is_head, transient, 0.0)
    room = np.where(setting.pipeline == 1.0, extras.spared.step_bytes * trained.total(), own)
    return np.maximum(needed + beside - room, 0.0)


def _not_spared_bytes(transient: Floats, extras: Extras) -> Floats:
    """Return what gradients are spared, for layers that need more room than is left by it."""
    spared = extras.spared
    if spared is None or extras.logits_bytes.any():
        return np.zeros_like(transient)
    return np.where(transient > spared.transient_bytes, spared.total_bytes, 0.0)
