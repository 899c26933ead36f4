"""Compute: seconds of one layer's kernels on one device, forward and backward.

A matrix product of K inner elements runs at peak x efficiency x K / (K + K0), or as fast as its
operands can be read; attention at plateau x s / (s + s0); the rest at the memory's pace; and
nothing faster than the host launches it.

Source: roofline as in Williams et al. 2009, doi:10.1145/1498765.1498785; the ramps are fitted on
measured tables named in `profiles/devices`.
"""

from __future__ import annotations

from dataclasses import dataclass

import numpy as np

from planner.cost.configuration import Floats
from planner.cost.setting import Setting
from planner.schema.job import Precision
from planner.workload.layer import Gemm, LayerWorkload

_BACKWARD_GEMM_FLOP_RATIO = 2.0  # one product for the input's gradient, one for the weight's
_BACKWARD_ATTENTION_FLOP_RATIO = 2.5  # flash attention recomputes the scores
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
    products = np.zeros_like(setting.tokens)
    for gemm in layer.gemms:
        products = products + _gemm_seconds(gemm, setting)
    attention_forward, attention_backward = _attention_seconds(layer, setting)
    elementwise = _elementwise_seconds(layer, setting)
    forward = products + attention_forward + elementwise
    backward = (
        _BACKWARD_GEMM_FLOP_RATIO * products
        + attention_backward
        + _BACKWARD_ELEMENTWISE_RATIO * elementwise
    )
    kernels = len(layer.gemms) + layer.elementwise.kernel_count + (layer.attention is not None)
    launches = kernels * setting.host_seconds_per_kernel
    backward_launches = launches * setting.stack.backward_kernel_ratio
    selective = layer.selective_recompute_ratio * products + elementwise
    return ComputeSeconds(
        forward=forward,
        backward=backward,
        forward_host=_host_seconds(launches, forward, setting),
        backward_host=_host_seconds(backward_launches, backward, setting),
        recompute_selective=selective
        + _host_seconds(_SELECTIVE_KERNEL_RATIO * launches, selective, setting),
        recompute_full=forward + _host_seconds(launches, forward, setting),
        attention_forward=attention_forward,
        weight_gradient=products,
    )


def _host_seconds(launches: float, kernels: Floats, setting: Setting) -> Floats:
    """Return what launching adds to kernels that take `kernels` seconds."""
    if setting.host_is_device:
        return np.full_like(kernels, launches)
    return np.maximum(launches - kernels, 0.0)


def _gemm_seconds(gemm: Gemm, setting: Setting) -> Floats:
    """Return forward seconds of one product on one rank.

    Tensor-parallel ranks that do not split experts split the tokens of experts instead.
    """
    tensor = setting.expert_tensor if gemm.expert_count else setting.tensor
    inner = (
        gemm.inner_size / tensor if gemm.split == "inner" else np.full_like(tensor, gemm.inner_size)
    )
    outer = (
        gemm.outer_size / tensor if gemm.split == "outer" else np.full_like(tensor, gemm.outer_size)
    )
    rows = setting.tokens * gemm.tokens_ratio * (tensor / setting.tensor)
    device = setting.hardware.profile.gemm
    peak = setting.hardware.peak_flop_per_second[setting.job.precision]
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


def _attention_seconds(layer: LayerWorkload, setting: Setting) -> tuple[Floats, Floats]:
    """Return forward and backward seconds of the attention core; fp8 does not speed it up."""
    if layer.attention is None:
        zero = np.zeros_like(setting.tokens)
        return zero, zero
    flop = setting.tokens * layer.attention.flop_per_token(setting.sequence_length)
    flop = flop / setting.tensor
    profile = setting.hardware.profile.attention
    length = setting.sequence_length / np.where(setting.heads_exchanged, 1.0, setting.context)
    ratio = setting.peak_ratio if setting.job.precision is not Precision.FP8 else 1.0
    scale = 1e12 * ratio * setting.in_situ_efficiency
    forward_ramp = length / (length + profile.forward_tokens_half)
    backward_ramp = length / (length + profile.backward_tokens_half)
    forward_rate = scale * profile.forward_tflop_per_second * forward_ramp
    backward_rate = scale * profile.backward_tflop_per_second * backward_ramp
    return flop / forward_rate, _BACKWARD_ATTENTION_FLOP_RATIO * flop / backward_rate


def _elementwise_seconds(layer: LayerWorkload, setting: Setting) -> Floats:
    traffic = layer.elementwise
    spread = np.where(setting.sequence_parallel, setting.tensor, 1.0)
    elements = traffic.replicated / spread + traffic.sharded / setting.tensor
    moved = setting.tokens * elements * setting.compute_bytes * setting.stack.elementwise_ratio
    return moved / setting.hardware.memory_bytes_per_second
