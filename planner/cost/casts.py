"""Casts: seconds that memory takes to turn what products in 8 bits read into 8 bits.

A product reads its rows forward, the gradient of its output backward, and its weight in both. Each
is passed over for its scale, read in 16 bits and written in 8, in the order of the product at hand
and in that of the weight's gradient, which what is frozen has none of. Rows that tensor-parallel
ranks gather under sequence parallel are cast before that, each rank its share.

Source: Micikevicius et al. 2022, arXiv:2209.05433; what kernels fuse is the stack's, see `casts` in
`profiles/stacks`; Transformer Engine `pytorch/module/linear.py` (`set_usage` of quantizers: by
columns where the weight needs a gradient). Not modelled: selective checkpointing keeps what it
cast.
"""

from __future__ import annotations

import numpy as np

from planner.cost.adapters import frozen
from planner.cost.configuration import Floats
from planner.cost.setting import Setting
from planner.cost.tokens import layer_tokens
from planner.schema.job import Precision
from planner.workload.layer import Gemm, LayerWorkload

_ROW_SCALED_RATIO = 10.0 / 6.0  # each of two orders: a pass for its scales, a read and a write
_ONE_ORDER_RATIO = 0.5


def cast_seconds(layer: LayerWorkload, setting: Setting) -> tuple[Floats, Floats]:
    """Return forward and backward seconds of one layer and micro-batch, [configurations, 1]."""
    forward = backward = np.zeros_like(setting.tokens)
    if setting.job.precision is not Precision.FP8:
        return forward, backward
    tokens = layer_tokens(layer, setting)
    each = _row_bytes(setting, once=frozen(layer, setting.job))
    for gemm in layer.gemms:
        if not gemm.in_16_bits:
            own, back = _cast_bytes(gemm, tokens, setting, each=each)
            forward, backward = forward + own, backward + back
    pace = setting.hardware.memory_bytes_per_second
    times = _ROW_SCALED_RATIO if setting.job.row_scaled_fp8 else 1.0
    return times * forward / pace, times * backward / pace


def _row_bytes(setting: Setting, *, once: bool) -> tuple[float, float]:
    """Return the bytes to cast one element of an input and of a gradient, in one order or both."""
    casts = setting.stack.casts
    if not once:
        return casts.input_bytes, casts.gradient_bytes
    if setting.job.row_scaled_fp8:  # nothing is read for both orders
        return _ONE_ORDER_RATIO * casts.input_bytes, _ONE_ORDER_RATIO * casts.gradient_bytes
    return (
        casts.input_bytes - casts.transposed_input_bytes,
        casts.gradient_bytes - casts.transposed_gradient_bytes,
    )


def _cast_bytes(
    gemm: Gemm, tokens: Floats, setting: Setting, *, each: tuple[float, float]
) -> tuple[Floats, Floats]:
    """Return the bytes that one product's casts move on one rank, forward and backward.

    `each` are those of one element of its input, and of the gradient of its output.
    """
    input_bytes, gradient_bytes = each
    tensor = setting.expert_tensor if gemm.expert_count else setting.tensor
    inner = gemm.inner_size / np.where(gemm.split == "inner", tensor, 1.0)
    outer = gemm.outer_size / np.where(gemm.split == "outer", tensor, 1.0)
    rows = tokens * gemm.tokens_ratio * (tensor / setting.tensor)
    rows = rows * setting.job.expert_load_ratio if gemm.expert_count else rows
    divided = rows / np.where(setting.sequence_parallel, tensor, 1.0)
    copies = np.maximum(gemm.expert_count / setting.expert, 1.0)
    weight = copies * inner * outer * setting.stack.casts.weight_bytes
    read = (divided if gemm.split == "outer" else rows) * inner * input_bytes
    gradient = (divided if gemm.split == "inner" else rows) * outer * gradient_bytes
    return weight + (0.0 if gemm.shares_input else read), weight + gradient
