"""Compute: seconds of one layer's kernels on one device, forward and backward.

A matrix product of K inner elements runs at peak x efficiency x K / (K + K0), or as fast as its
operands can be read; attention as `planner.cost.attention` has it; the rest at the memory's pace;
and nothing faster than the host launches it.

Source: roofline as in Williams et al. 2009, doi:10.1145/1498765.1498785; the ramps are fitted on
measured tables named in `profiles/devices`.
"""

from __future__ import annotations

from dataclasses import dataclass

import numpy as np

from planner.cost.attention import attention_seconds
from planner.cost.casts import cast_seconds
from planner.cost.configuration import Floats
from planner.cost.setting import Setting
from planner.cost.tokens import layer_tokens, source_tokens
from planner.schema.job import Precision
from planner.workload.layer import (
    ElementwiseTraffic,
    Gemm,
    LayerWorkload,
    SourceWorkload,
)

_BACKWARD_GEMM_FLOP_RATIO = 2.0  # one product for the input's gradient, one for the weight's
_SELECTIVE_KERNEL_RATIO = 0.6  # norms, rotary, activation and half of the products
_BACKWARD_ELEMENTWISE_RATIO = 2.0  # reads what forward kept beside the gradients


@dataclass(frozen=True, slots=True, kw_only=True)
class ComputeSeconds:
    """Device and host seconds of one layer and micro-batch; arrays [configurations, 1]."""

    forward: Floats
    backward: Floats
    forward_host: Floats
    backward_host: Floats
    recompute_selective: Floats
    recompute_full: Floats
    attention_forward: Floats
    weight_gradient: Floats


def compute_seconds(layer: LayerWorkload, setting: Setting) -> ComputeSeconds:
    """Return what one micro-batch of `layer` takes.

    Host seconds are what launching exceeds the kernels by; where the host is the device, launching
    takes its time beside them. Gradients of weights are half of backward's products.
    """
    products, products_again = _product_seconds(layer, setting)
    attention_forward, attention_backward = attention_seconds(layer, setting)
    elementwise = _elementwise_seconds(layer, setting)
    casts_forward, casts_backward = cast_seconds(layer, setting)
    forward = products + attention_forward + elementwise + casts_forward
    backward = (
        _BACKWARD_GEMM_FLOP_RATIO * products
        + attention_backward
        + _BACKWARD_ELEMENTWISE_RATIO * elementwise
        + casts_backward
    )
    launches = _kernel_count(layer) * setting.host_seconds_per_kernel
    backward_launches = launches * setting.stack.backward_kernel_ratio
    selective, kernels_again = products_again + elementwise, _SELECTIVE_KERNEL_RATIO * launches
    if not setting.job.fused_attention:  # its scores are not kept, and are worked out again
        selective = selective + attention_forward
    if setting.core_alone_runs_again:
        selective, kernels_again = attention_forward, 0.0
    return ComputeSeconds(
        forward=forward,
        backward=backward,
        forward_host=_host_seconds(launches, forward, setting),
        backward_host=_host_seconds(backward_launches, backward, setting),
        recompute_selective=selective + _host_seconds(kernels_again, selective, setting),
        recompute_full=forward + _host_seconds(launches, forward, setting),
        attention_forward=attention_forward,
        weight_gradient=products,
    )


def _host_seconds(launches: float, kernels: Floats, setting: Setting) -> Floats:
    """Return what launching adds to kernels that take `kernels` seconds."""
    if setting.host_is_device:
        return np.full_like(kernels, launches)
    return np.maximum(launches - kernels, 0.0)


def _kernel_count(layer: LayerWorkload) -> int:
    """Return how many kernels forward launches, those for other parts' tokens included."""
    parts: tuple[LayerWorkload | SourceWorkload, ...] = (layer, *layer.sources)
    return sum(
        len(part.gemms) + part.elementwise.kernel_count + (part.attention is not None)
        for part in parts
    )


def _product_seconds(layer: LayerWorkload, setting: Setting) -> tuple[Floats, Floats]:
    """Return forward seconds of all products, and of those that selective recompute runs again."""
    products = np.zeros_like(setting.tokens)
    tokens = layer_tokens(layer, setting)
    for gemm in layer.gemms:
        products = products + _gemm_seconds(gemm, tokens, setting)
    again = layer.selective_recompute_ratio * products
    for source in layer.sources:
        tokens = source_tokens(source, setting)
        for gemm in source.gemms:
            seconds = _gemm_seconds(gemm, tokens, setting)
            products = products + seconds
            again = again + source.selective_recompute_ratio * seconds
    return products, again


def _gemm_seconds(gemm: Gemm, tokens: Floats, setting: Setting) -> Floats:
    """Return forward seconds of one product over `tokens` on one rank.

    Tensor-parallel ranks that do not split experts split the tokens of experts instead.
    """
    tensor = setting.expert_tensor if gemm.expert_count else setting.tensor
    inner = (
        gemm.inner_size / tensor if gemm.split == "inner" else np.full_like(tensor, gemm.inner_size)
    )
    outer = (
        gemm.outer_size / tensor if gemm.split == "outer" else np.full_like(tensor, gemm.outer_size)
    )
    rows = tokens * gemm.tokens_ratio * (tensor / setting.tensor)
    precision = _precision(gemm, setting)
    device = setting.hardware.profile.gemm.rate(precision)
    peak = setting.hardware.peak_flop_per_second[precision]
    rate = (
        peak
        * device.efficiency
        * setting.in_situ_efficiency
        * inner
        / (inner + device.inner_size_half)
    )
    copies = np.maximum(gemm.expert_count / setting.expert, 1.0) if gemm.expert_count else 1.0
    moved = setting.compute_bytes * (copies * inner * outer + rows * (inner + outer))
    return np.maximum(
        2.0 * rows * inner * outer / rate, moved / setting.hardware.memory_bytes_per_second
    )


def _precision(gemm: Gemm, setting: Setting) -> Precision:
    """Return the number format of a product."""
    own = setting.job.precision
    return Precision.BF16 if gemm.in_16_bits and own is Precision.FP8 else own


def _elementwise_seconds(layer: LayerWorkload, setting: Setting) -> Floats:
    moved = _moved_elements(layer.elementwise, layer_tokens(layer, setting), setting)
    for source in layer.sources:
        tokens = source_tokens(source, setting)
        moved = moved + _moved_elements(source.elementwise, tokens, setting)
    moved_bytes = moved * setting.compute_bytes * setting.stack.elementwise_ratio
    return moved_bytes / setting.hardware.memory_bytes_per_second


def _moved_elements(traffic: ElementwiseTraffic, tokens: Floats, setting: Setting) -> Floats:
    spread = np.where(setting.sequence_parallel, setting.tensor, 1.0)
    return tokens * (traffic.replicated / spread + traffic.sharded / setting.tensor)
