"""Compute: seconds of one layer's kernels on one device, forward and backward.

What matrix products and their casts to 8 bits take, and attention, `planner.cost.products` and
`attention` say; the rest runs at the memory's pace, and nothing faster than the host launches it.

Source: roofline as in Williams et al. 2009, doi:10.1145/1498765.1498785.
"""

from __future__ import annotations

from dataclasses import dataclass

import numpy as np

from planner.cost.adapters import (
    adapters_of,
    added_kernel_count,
    addition_seconds,
    frozen,
    unpacking_seconds,
)
from planner.cost.attention import attention_seconds
from planner.cost.configuration import Floats
from planner.cost.products import ProductSeconds, cast_seconds, product_seconds
from planner.cost.setting import Setting, key_value_copies, layer_tokens, source_tokens
from planner.schema.job import Precision, Softmax
from planner.workload.layer import (
    ElementwiseTraffic,
    Gemm,
    LayerWorkload,
    SourceWorkload,
)

_SELECTIVE_KERNEL_RATIO = 0.6  # norms, rotary, activation and half of the products
_NORMS = 2  # modules with parameters beside products
# DTensor operators of a module with parameters, one way: a step of four blocks, each with seven
# linears and two norms, beside embedding, norm and head has 641 of them (torch 2.13's profiler).
_SPLIT_OPERATORS = 7
_UNFUSED_CORE_KERNELS = 8  # transpose queries, keys and values, scale, mask, softmax, and back
_NARROWING_KERNELS = 1  # of what the softmax puts out in 32 bits
_KERNELS_MORE = {Softmax.MASKED: 1, Softmax.STEPS: 2, Softmax.WIDE_STEPS: 2, Softmax.REDUCTIONS: 2}
_DROPOUT_KERNELS = 3
_FOLLOWING = ("expert_", "shared_", "ffn_")  # products that follow attention and routing
_WIDE_BYTES = 4
_MASK_BYTES = 1.0
_BACKWARD_ELEMENTWISE_RATIO = 2.0  # reads what forward kept beside the gradients

# A launch that waits for its kernel over one that does not. BLOOM's grids under
# CUDA_LAUNCH_BLOCKING take, from runs of 1, 2 and 4 sequences a micro-batch that are alike in all
# else, 9 to 14 ms a layer beside its kernels, recomputation included, of which launching is 3.2.
_BLOCKED_RATIO = 3.4


@dataclass(frozen=True, slots=True, kw_only=True)
class ComputeSeconds:
    """Device and host seconds of one layer and micro-batch; arrays [configurations, 1].

    `_gathered_host` are the host's where parameters are gathered for each of the layer's modules.
    """

    forward: Floats
    backward: Floats
    forward_host: Floats
    backward_host: Floats
    forward_gathered_host: Floats
    backward_gathered_host: Floats
    recompute_selective: Floats
    recompute_full: Floats
    attention_forward: Floats
    weight_gradient: Floats


def compute_seconds(layer: LayerWorkload, setting: Setting) -> ComputeSeconds:
    """Return what one micro-batch of `layer` takes.

    Host seconds are what launching exceeds the kernels by; where the host is the device, or waits
    for each kernel, launching takes its time beside them.
    """
    products = _products(layer, setting)
    attention_forward, attention_backward = attention_seconds(layer, setting)
    elementwise = _elementwise_seconds(layer, setting)
    steps_forward, steps_backward = _step_seconds(layer, setting)
    dropped = _dropout_seconds(layer, setting)
    steps_forward, steps_backward = steps_forward + dropped, steps_backward + dropped
    casts_forward, casts_backward = cast_seconds(layer, setting)
    forward = products.forward + attention_forward + elementwise + steps_forward + casts_forward
    backward = (
        products.backward
        + attention_backward
        + _BACKWARD_ELEMENTWISE_RATIO * elementwise
        + steps_backward
        + casts_backward
        + _seconds_again(layer, setting)
        + (attention_forward if layer.again is not None and layer.again.attention else 0.0)
    )
    each = _launch_seconds(layer, setting)
    launches = _kernel_count(layer, setting) * each
    backward_launches = launches * setting.stack.backward_kernel_ratio
    backward_launches += _kernel_count_again(layer, setting) * each
    if frozen(layer, setting.job):  # no products for weights' gradients
        backward_launches -= len(layer.gemms) * each
    hooks = (len(layer.gemms) + _NORMS) * setting.host_seconds_per_gathered_module
    selective = products.again + elementwise + steps_forward
    kernels_again = _SELECTIVE_KERNEL_RATIO * launches
    if not setting.job.fused_attention:  # its scores are not kept, and are worked out again
        selective = selective + attention_forward
    if setting.core_alone_runs_again:
        selective, kernels_again = attention_forward, 0.0
    again = forward if setting.recomputes_all else forward - products.last
    split = _split_seconds(layer, setting)
    return ComputeSeconds(
        forward=forward,
        backward=backward,
        forward_host=_host_seconds(launches, forward, setting) + split,
        backward_host=_host_seconds(backward_launches, backward, setting) + split,
        forward_gathered_host=_host_seconds(launches + hooks, forward, setting) + split,
        backward_gathered_host=_host_seconds(backward_launches + hooks, backward, setting) + split,
        recompute_selective=selective + _host_seconds(kernels_again, selective, setting),
        recompute_full=again + _host_seconds(launches, again, setting) + split,
        attention_forward=attention_forward,
        weight_gradient=products.weight_gradient,
    )


def _launch_seconds(layer: LayerWorkload, setting: Setting) -> float:
    """Return the host's time to launch one kernel of the layer.

    Where experts take as many tokens as come, the host waits for the device to count them; where
    they take a fixed number, it runs ahead.
    """
    own = setting.host_seconds_per_kernel
    counted = layer.experts_per_token > 0 and setting.job.fixed_expert_tokens
    if counted and not setting.host_is_device:
        return own * setting.stack.counted_host_ratio
    return own


def _host_seconds(launches: float, kernels: Floats, setting: Setting) -> Floats:
    """Return what launching adds to kernels that take `kernels` seconds."""
    if setting.host_is_device:
        return np.full_like(kernels, launches)
    if setting.job.blocking_launches:
        return np.full_like(kernels, _BLOCKED_RATIO * launches)
    return np.maximum(launches - kernels, 0.0)


def _split_seconds(layer: LayerWorkload, setting: Setting) -> Floats:
    """Return what operators on tensors that know their placement add, forward or backward.

    Only where the host is the device, and tensor parallelism makes DTensors of parameters.
    """
    if not setting.host_is_device:
        return np.zeros_like(setting.tokens)
    own = setting.hardware.profile.split_operator_us * 1e-6
    each = _SPLIT_OPERATORS * (len(layer.gemms) + _NORMS) * own
    return np.where(setting.tensor > 1.0, each, 0.0)


def _seconds_again(layer: LayerWorkload, setting: Setting) -> Floats:
    """Return what parts of the layer that are recomputed by themselves add to backward."""
    again, seconds = layer.again, np.zeros_like(setting.tokens)
    if again is None:
        return seconds
    tokens = layer_tokens(layer, setting)
    for gemm in layer.gemms:
        if gemm.name in again.gemms:
            seconds = seconds + product_seconds(gemm, tokens, setting).forward
    return seconds + _moving_seconds(_moved_elements(again.elementwise, tokens, setting), setting)


def _kernel_count_again(layer: LayerWorkload, setting: Setting) -> int:
    if layer.again is None or setting.job.attention_graphs:
        return 0
    products = sum(gemm.name in layer.again.gemms for gemm in layer.gemms)
    return products + layer.again.elementwise.kernel_count


def _kernel_count(layer: LayerWorkload, setting: Setting) -> int:
    """Return how many kernels forward launches, those for other parts' tokens included.

    Where attention and routing are captured, only those that follow them in a block.
    """
    if setting.job.attention_graphs and not setting.host_is_device and layer.attention is not None:
        following = sum(gemm.name.startswith(_FOLLOWING) for gemm in layer.gemms)
        return following + layer.elementwise.feed_forward_kernel_count
    parts: tuple[LayerWorkload | SourceWorkload, ...] = (layer, *layer.sources)
    count = sum(len(part.gemms) + part.elementwise.kernel_count for part in parts)
    cores = sum(part.attention is not None for part in parts)
    if not setting.stack.activations.fused:
        count -= sum(_spared_kernel_count(part.elementwise, setting) for part in parts)
    if setting.unfused and layer.elementwise.steps is not None:
        count += layer.elementwise.steps.kernel_count
    count += added_kernel_count(layer, setting)
    each = 1
    if setting.unfused and not setting.job.fused_attention:
        each += _UNFUSED_CORE_KERNELS
        each += 0 if setting.job.precision is Precision.FP32 else _NARROWING_KERNELS
    elif not setting.job.fused_attention and setting.job.softmax is not None:
        each += _KERNELS_MORE.get(setting.job.softmax, 0)
    if setting.unfused and setting.job.dropout:
        each += _DROPOUT_KERNELS
    return count + each * cores


def _spared_kernel_count(traffic: ElementwiseTraffic, setting: Setting) -> int:
    """Return how many of plain torch's kernels fused ones take the place of."""
    norms = traffic.unfused_norm_kernel_count
    spared = 0 if setting.unfused else traffic.unfused_kernel_count - norms
    return spared if setting.unfused_norms else spared + norms


@dataclass(frozen=True, slots=True, kw_only=True)
class _Products:
    """Seconds of all products; `again` of those that selective recompute runs again.

    `last` is of those whose output nothing in backward needs.
    """

    forward: Floats
    backward: Floats
    weight_gradient: Floats
    again: Floats
    last: Floats


def _products(layer: LayerWorkload, setting: Setting) -> _Products:
    zero = np.zeros_like(setting.tokens)
    total = _Products(forward=zero, backward=zero, weight_gradient=zero, again=zero, last=zero)
    parts: list[tuple[LayerWorkload | SourceWorkload, Floats]] = [
        (layer, layer_tokens(layer, setting))
    ]
    parts.extend((source, source_tokens(source, setting)) for source in layer.sources)
    stays = frozen(layer, setting.job)
    for part, tokens in parts:
        for gemm in part.gemms:
            one = product_seconds(gemm, tokens, setting)
            if stays:
                unpacked = unpacking_seconds(gemm, layer, setting)
                one = _adapted(gemm, one, tokens, unpacked=unpacked, setting=setting)
            total = _Products(
                forward=total.forward + one.forward,
                backward=total.backward + one.input_gradient + one.weight_gradient,
                weight_gradient=total.weight_gradient + one.weight_gradient,
                again=total.again + part.selective_recompute_ratio * one.forward,
                last=total.last + (one.forward if gemm.ends_block else zero),
            )
    return total


def _adapted(
    gemm: Gemm,
    own: ProductSeconds,
    tokens: Floats,
    *,
    unpacked: tuple[Floats, Floats],
    setting: Setting,
) -> ProductSeconds:
    """Return the seconds of a frozen product with those of its adapter, if it has one."""
    forward, inputs = own.forward + unpacked[0], own.input_gradient + unpacked[1]
    weights = np.zeros_like(own.weight_gradient)
    adapters = setting.job.adapters
    pair = () if adapters is None else adapters_of(gemm, adapters)
    if pair:
        added, added_back = addition_seconds(gemm, tokens, setting)
        forward, inputs = forward + added, inputs + added_back
    for part in pair:
        one = product_seconds(part, tokens, setting)
        forward, inputs = forward + one.forward, inputs + one.input_gradient
        weights = weights + one.weight_gradient
    return ProductSeconds(forward=forward, input_gradient=inputs, weight_gradient=weights)


def _elementwise_seconds(layer: LayerWorkload, setting: Setting) -> Floats:
    tokens = layer_tokens(layer, setting)
    moved = _moved_elements(layer.elementwise, tokens, setting)
    moved = moved + tokens * layer.elementwise.key_values * key_value_copies(
        layer.attention, setting
    )
    for source in layer.sources:
        tokens = source_tokens(source, setting)
        moved = moved + _moved_elements(source.elementwise, tokens, setting)
    return _moving_seconds(moved, setting)


def _moving_seconds(elements: Floats, setting: Setting) -> Floats:
    moved_bytes = elements * setting.compute_bytes * setting.stack.elementwise_ratio
    return moved_bytes / setting.hardware.memory_bytes_per_second


def _step_seconds(layer: LayerWorkload, setting: Setting) -> tuple[Floats, Floats]:
    """Return what an activation in operations of its own adds to one kernel, each way."""
    steps, zero = layer.elementwise.steps, np.zeros_like(setting.tokens)
    if steps is None or not setting.unfused:
        return zero, zero
    element_bytes = _WIDE_BYTES if steps.wide else setting.compute_bytes
    moved_bytes = element_bytes * setting.stack.elementwise_ratio * layer_tokens(layer, setting)
    each = moved_bytes / setting.tensor / setting.hardware.memory_bytes_per_second
    return steps.forward * each, steps.backward * each


def _dropout_seconds(layer: LayerWorkload, setting: Setting) -> Floats:
    """Return what dropout of a block's rows adds each way; that of scores is attention's.

    A kernel of plain torch reads and writes the row, and writes a mask of one byte; backward reads
    gradient and mask, and writes. Where the residual's sum drops it, rates of kernels inside a step
    were chosen on runs that do so.
    Source: torch `native_dropout`.
    """
    if not (setting.job.dropout and setting.unfused):
        return np.zeros_like(setting.tokens)
    spread = np.where(setting.sequence_parallel, setting.tensor, 1.0)
    elements = layer_tokens(layer, setting) * layer.activations.none.masks / spread
    moved = 2.0 * setting.compute_bytes * setting.stack.elementwise_ratio + _MASK_BYTES
    return elements * moved / setting.hardware.memory_bytes_per_second


def _moved_elements(traffic: ElementwiseTraffic, tokens: Floats, setting: Setting) -> Floats:
    spread = np.where(setting.sequence_parallel, setting.tensor, 1.0)
    replicated, sharded = traffic.replicated, traffic.sharded
    if setting.unfused_norms:
        replicated += traffic.unfused_replicated
        sharded += traffic.unfused_norms_sharded
    if setting.unfused:
        sharded += traffic.unfused_sharded - traffic.unfused_norms_sharded
    routed = traffic.routed / np.where(setting.whole_tokens_inside, 1.0, setting.tensor)
    return tokens * (replicated / spread + sharded / setting.tensor + routed)
