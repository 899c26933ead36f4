"""Attention: seconds of the cores of one layer, softmax(Q K') V, forward and backward.

Fused, a core runs at plateau x s / (s + s0), and skips what the mask hides. Unfused, it is two
matrix products over all pairs of queries and keys, masked or not, and passes over the scores in
memory, as many as Megatron-LM's kernels make:

    forward   written by Q K', read and written by the softmax, read by the product with V: 4,
              and 2 and a mask of one byte where dropout reads and writes them;
    backward  their gradient written, read and written by the softmax, whose output it reads, and
              read by the products for Q and K, the scores read for V: 7, and as much for dropout.

Source: Dao et al. 2022, arXiv:2205.14135; Korthikanti et al. 2022, arXiv:2205.05198, figure 3.
"""

from __future__ import annotations

import math
from collections.abc import Iterator

import numpy as np

from planner.cost.configuration import Floats
from planner.cost.setting import Setting, layer_tokens
from planner.rates import AttentionRate
from planner.schema.job import Precision
from planner.workload.layer import AttentionCore, LayerWorkload, SourceWorkload

_BACKWARD_FUSED_FLOP_RATIO = 2.5  # flash attention works the scores out again
_BACKWARD_UNFUSED_FLOP_RATIO = 2.0
_FORWARD_PASSES = 4.0
_BACKWARD_PASSES = 7.0
_DROPOUT_PASSES = 2.0
_MASK_BYTES = 1.0
_STEP_PASSES = 2.0
_HEAD_SIZE = 128.0  # that the profiles' rates are of

# The second generation is about 1.5 to 2 times as fast (Dao 2023, arXiv:2307.08691, figure 4).
# llm-foundry's runs with the first take 1.5 (A100) and 1.4 times (H100) as long in attention alone
# as the second's rates say; products and elementwise kernels were fitted beside, over 512 to 65,536
# tokens.
_FIRST_GENERATION_RATIO = 0.72

# Rows of heads whose size is no multiple of 8 do not begin at the 16 bytes that tensor cores read.
# BLOOM's published runs with heads of 108 take 1.30 to 1.40 times as long as with 144 (4 pairs);
# those with heads of 150 and 450 (26 runs) take 1.35 times as long, against what is predicted, as
# those with 144 to 224. Such products account for it if they run at an eighth and a twelfth.
_ALIGNED_SIZE, _HALF_ALIGNED_SIZE = 8, 4
_HALF_ALIGNED_RATIO = 1.0 / 8.0
_MISALIGNED_RATIO = 1.0 / 12.0


def attention_seconds(layer: LayerWorkload, setting: Setting) -> tuple[Floats, Floats]:
    """Return forward and backward seconds of the cores; fp8 does not speed them up."""
    forward = backward = np.zeros_like(setting.tokens)
    queries = layer.token_count(setting.sequence_length)
    tokens = layer_tokens(layer, setting)
    for core, keys in _cores(layer, setting):
        if setting.job.fused_attention:
            flop = tokens * core.flop_per_token(keys) / setting.tensor
            flop = flop / _head_ratio(core, setting)
            once, back = _fused_seconds(flop, _kernel_length(core, queries, keys), setting)
        else:
            once, back = _unfused_seconds(core, tokens * core.all_keys(keys), setting)
        forward, backward = forward + once, backward + back
    return forward, backward


def _cores(layer: LayerWorkload, setting: Setting) -> Iterator[tuple[AttentionCore, int]]:
    """Yield each core with the keys that a query has before masking."""
    parts: tuple[LayerWorkload | SourceWorkload, ...] = (layer, *layer.sources)
    for part in parts:
        if part.attention is not None:
            yield part.attention, part.token_count(setting.sequence_length)


def _kernel_length(core: AttentionCore, query_count: int, key_count: int) -> int:
    """Return the tokens over which a kernel runs at once: of one chunk, or the fewer of two."""
    return min(query_count, key_count, core.chunk_tokens or key_count)


def _head_ratio(core: AttentionCore, setting: Setting) -> float:
    """Return the rate of the kernels on heads of the core's size over that on heads of 128."""
    profile = _rate(setting)
    size = (core.key_head_size + core.value_head_size) / 2.0
    ratio = math.pow(min(size / _HEAD_SIZE, 1.0), -math.log2(profile.half_head_ratio))
    is_first = setting.job.flash_attention_generation == 1
    return ratio * (_FIRST_GENERATION_RATIO if is_first else 1.0)


def _rate(setting: Setting) -> AttentionRate:
    """Return the rate of the job's kernels: of its generation where that is known of the device."""
    profile = setting.hardware.profile.attention
    return profile.rate(setting.job.stack, setting.job.flash_attention_generation)


def _fused_seconds(flop: Floats, length: int, setting: Setting) -> tuple[Floats, Floats]:
    """Return forward and backward seconds of `flop` of attention over `length` tokens."""
    profile = _rate(setting)
    local = length / np.where(setting.heads_exchanged, 1.0, setting.context)
    ratio = setting.peak_ratio if setting.job.precision is not Precision.FP8 else 1.0
    scale = 1e12 * ratio * setting.in_situ_efficiency
    forward_ramp = local / (local + profile.forward_tokens_half)
    backward_ramp = local / (local + profile.backward_tokens_half)
    forward_rate = scale * profile.forward_tflop_per_second * forward_ramp
    backward_rate = scale * profile.backward_tflop_per_second * backward_ramp
    return flop / forward_rate, _BACKWARD_FUSED_FLOP_RATIO * flop / backward_rate


def _unfused_seconds(core: AttentionCore, pairs: Floats, setting: Setting) -> tuple[Floats, Floats]:
    """Return forward and backward seconds of a core over `pairs` of queries and keys a head."""
    scores = pairs * core.head_count / setting.tensor
    flop = 2.0 * scores * (core.key_head_size + core.value_head_size)
    products = flop / _product_rate(core.key_head_size, setting)
    return (
        products + scores * _pass_seconds(_FORWARD_PASSES, setting),
        _BACKWARD_UNFUSED_FLOP_RATIO * products + scores * _pass_seconds(_BACKWARD_PASSES, setting),
    )


def _product_rate(inner_size: int, setting: Setting) -> float:
    """Return the rate of a product over heads of `inner_size`, in 16 bits under fp8."""
    precision = setting.job.precision
    precision = Precision.BF16 if precision is Precision.FP8 else precision
    gemm = setting.hardware.profile.gemm.rate(precision)
    peak = setting.hardware.peak_flop_per_second[precision]
    ramp = inner_size / (inner_size + gemm.inner_size_half)
    return peak * gemm.efficiency * setting.in_situ_efficiency * ramp * _alignment_ratio(inner_size)


def _alignment_ratio(size: int) -> float:
    """Return the rate of products over rows of `size` over that of rows that tensor cores read."""
    if size % _ALIGNED_SIZE == 0:
        return 1.0
    return _HALF_ALIGNED_RATIO if size % _HALF_ALIGNED_SIZE == 0 else _MISALIGNED_RATIO


def _softmax_in_steps(setting: Setting) -> bool:
    """Return whether the mask is a kernel of its own: in torch, and in Megatron's at fp32.

    Source: Megatron-LM `fused_softmax.py`, whose kernel takes 16 bits alone.
    """
    return setting.unfused or setting.job.precision is Precision.FP32


def _pass_seconds(passes: float, setting: Setting) -> float:
    """Return the seconds that memory takes for `passes` over one score, dropout beside them."""
    mask = 0.0
    if _softmax_in_steps(setting):
        passes = passes + _STEP_PASSES
    if setting.job.dropout:
        passes, mask = passes + _DROPOUT_PASSES, _MASK_BYTES
    moved = setting.stack.elementwise_ratio * passes * setting.compute_bytes + mask
    return moved / setting.hardware.memory_bytes_per_second
