"""Layers: all that one layer costs under every configuration and choice."""

from __future__ import annotations

from typing import Literal

import numpy as np

from planner.cost.adapters import kept_elements, with_adapters
from planner.cost.compute import ComputeSeconds, compute_seconds
from planner.cost.configuration import Booleans, Choices, Floats
from planner.cost.extras import Extras
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
from planner.cost.tokens import layer_tokens, source_tokens
from planner.units import GIB
from planner.workload.layer import ActivationElements, LayerWorkload

_Kept = Literal["none", "selective", "full"]


def layer_costs(
    layer: LayerWorkload, role: Role, *, choices: Choices, setting: Setting, extras: Extras
) -> LayerCosts:
    """Return the seconds and bytes of one layer, each array [configurations, choices]."""
    held = local_states(layer, setting, extras)
    kept = _activation_bytes(layer, choices, setting)
    seconds = _seconds(layer, role, held, kept, choices=choices, setting=setting)
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
    held = local_states(layer, setting, extras)
    kept = np.zeros_like(setting.tokens)
    if choices.offload_activations.any():
        kept = _activation_bytes(layer, choices, setting)
    return _seconds(layer, role, held, kept, choices=choices, setting=setting)


def layer_bytes(
    layer: LayerWorkload, *, choices: Choices, setting: Setting, extras: Extras
) -> LayerBytes:
    """Return the bytes of one layer alone, each array [configurations, choices]."""
    held = local_states(layer, setting, extras)
    kept = _activation_bytes(layer, choices, setting)
    return _layer_bytes(layer, held, kept, choices=choices, setting=setting, extras=extras)


def local_states(layer: LayerWorkload, setting: Setting, extras: Extras) -> LocalParameters:
    """Return the layer's parameters on one device, with copies and adapters."""
    parameters = local_parameters(layer.parameters, setting)
    own = LocalParameters(
        dense=parameters.dense + extras.copied_parameters, expert=parameters.expert
    )
    return with_adapters(layer, own, setting)


def _seconds(
    layer: LayerWorkload,
    role: Role,
    held: LocalParameters,
    kept: Floats,
    *,
    choices: Choices,
    setting: Setting,
) -> LayerSeconds:
    compute = compute_seconds(layer, setting)
    parallel = model_parallel_seconds(layer, role, setting, compute.attention_forward)
    windows = windows_of(compute, choices, held, setting)
    parallel = with_experts_hidden(
        parallel, forward=windows.forward, backward=windows.backward, setting=setting
    )
    offload = offload_seconds(
        held, kept_bytes=kept, windows=windows, choices=choices, setting=setting
    )
    sync = sync_seconds(held, setting)
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


def _kept_bytes(layer: LayerWorkload, kept: _Kept, setting: Setting) -> Floats:
    """Return what one micro-batch keeps on one device under a choice, [configurations, 1]."""
    own: ActivationElements = getattr(layer.activations, kept)
    if kept == "none":
        own = kept_elements(own, layer, setting.job)
    total = _bytes_of(own, layer_tokens(layer, setting), setting)
    for source in layer.sources:
        elements: ActivationElements = getattr(source.activations, kept)
        total = total + _bytes_of(elements, source_tokens(source, setting), setting)
    return total


def _bytes_of(elements: ActivationElements, tokens: Floats, setting: Setting) -> Floats:
    """Return the bytes of `elements` for each of `tokens` on one device, [configurations, 1].

    The stack and the job say whether fused kernels spare copies and whether inputs of column-split
    products are gathered anew in backward, the stack whether products keep what they read in 8
    bits under fp8.
    """
    keeps, spread = (
        setting.stack.activations,
        np.where(setting.sequence_parallel, setting.tensor, 1.0),
    )
    narrow = elements.replicated / spread + elements.sharded / setting.tensor
    narrow = narrow + np.where(setting.tensor > 1.0, elements.reduced / spread, 0.0)
    if setting.unfused:
        narrow = narrow + elements.norm_copies / spread
    if not keeps.fused:
        narrow = narrow + elements.row_copies / setting.tensor
    again = keeps.gathers_again or setting.job.regathered_rows
    read = elements.gathered / (spread if again else 1.0)
    read = read + elements.products / setting.tensor
    routed = elements.routed / 2.0 * setting.expert_tensor / setting.tensor
    narrow, read = narrow + routed, read + routed
    masks = elements.masks / spread if setting.job.dropout else 0.0
    wide = elements.float32 / setting.tensor
    return tokens * (
        setting.compute_bytes * narrow + setting.product_input_bytes * read + 4.0 * wide + masks
    )


def _score_bytes(layer: LayerWorkload, setting: Setting) -> Floats:
    """Return what attention keeps of its scores where it is not fused, [configurations, 1].

    The softmax, and under dropout its mask and what is left of it: 5 a s^2 b in 16 bits.
    Source: Korthikanti et al. 2022, arXiv:2205.05198, section 4.1.
    """
    per_score = setting.compute_bytes * (2 if setting.job.dropout else 1)
    per_score += 1 if setting.job.dropout else 0
    return _scores(layer, setting) * per_score


def _scores(layer: LayerWorkload, setting: Setting) -> Floats:
    """Return how many scores attention writes on one device, [configurations, 1]."""
    if setting.job.fused_attention or layer.attention is None:
        return np.zeros_like(setting.tokens)
    keys = layer.token_count(setting.sequence_length) / setting.context
    heads = layer.attention.head_count / setting.tensor
    return layer_tokens(layer, setting) * keys * heads


def _activation_bytes(layer: LayerWorkload, choices: Choices, setting: Setting) -> Floats:
    """Return what one micro-batch keeps, wherever it is kept, [configurations, choices]."""
    return np.where(
        choices.full,
        _kept_bytes(layer, "full", setting),
        np.where(
            choices.selective,
            _kept_bytes(layer, _kept_when_selective(setting), setting),
            _all_bytes(layer, setting),
        ),
    )


def _kept_when_selective(setting: Setting) -> _Kept:
    return "none" if setting.core_alone_runs_again else "selective"


def _all_bytes(layer: LayerWorkload, setting: Setting) -> Floats:
    """Return what one micro-batch has live where nothing is run again, [configurations, 1]."""
    return _kept_bytes(layer, "none", setting) + _score_bytes(layer, setting)


def _gradient_rows_bytes(layer: LayerWorkload, setting: Setting) -> Floats:
    """Return what backward holds of a block's own gradients at once, [configurations, 1].

    The most is where the gate meets its product: with the gradient of the block's input go those
    of the rows inside the feed-forward, whose product is freed. Tensor-parallel ranks hold the
    gradient before it is summed whole, with the whole rows that it is multiplied with. Where
    attention writes its scores it may be where they get their gradient, one more for each.
    """
    rows, tokens = layer.activations.none, layer_tokens(layer, setting)
    beside = layer.activations.full.replicated * np.where(setting.tensor > 1.0, 2.0, 1.0)
    inside = (rows.products + rows.row_copies) / setting.tensor
    elements = np.maximum(tokens * (beside + inside), _scores(layer, setting))
    return np.asarray(setting.compute_bytes * elements)


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
    live = _all_bytes(layer, setting) - kept
    on_device = np.where(choices.offload_activations, 0.0, kept)
    single = (setting.micro_batch_count == 1.0) | setting.forwards_first
    single = single & (not setting.stack.gradient_buffers)
    beside = on_device
    if extras.spared is not None:
        beside = on_device + extras.spared.bytes_per_parameter * held.trained().total()
    gradients = np.where(single, np.maximum(states.gradients - beside, 0.0), states.gradients)
    live = live + np.where(choices.offload_activations, 2.0 * kept, 0.0)
    live = np.maximum(live, 0.0) + _gradient_rows_bytes(layer, setting)
    transient, logits = _transient_bytes(states, live, setting, extras)
    bucket = np.where(choices.zero_stage > 0, setting.stack.reduce_bucket_gib * GIB, 0.0)
    transient = transient + bucket + _not_spared_bytes(transient + bucket, extras)
    zero = 0.0 * on_device
    return LayerBytes(
        parameters=states.parameters,
        gradients=gradients,
        optimizer=states.optimizer,
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


def _not_spared_bytes(transient: Floats, extras: Extras) -> Floats:
    """Return what gradients are spared, for layers that need more room than is left by it."""
    spared = extras.spared
    if spared is None or extras.logits_bytes.any():
        return np.zeros_like(transient)
    return np.where(transient > spared.transient_bytes, spared.total_bytes, 0.0)
