"""Attention: seconds of the cores of one layer, softmax(Q K') V, forward and backward.

Fused, a core runs at plateau x s / (s + s0), and skips what the mask hides. Unfused, it is two
matrix products over all pairs of queries and keys, masked or not, and four backward:

    over heads' size          Q K', and of its output the gradient by V;
    over keys or queries      P V, and the gradients by V, Q and K.

Beside them go passes over the scores in memory, as many as Megatron-LM's kernels make:

    forward   written by Q K', read and written by the softmax, read by the product with V: 4,
              and 2 and a mask of one byte where dropout reads and writes them;
    backward  their gradient written, read and written by the softmax, whose output it reads, and
              read by the products for Q and K, the scores read for V: 7, and as much for dropout.

Where its kernel knows the causal mask, a softmax reads no more than the half that is not hidden, of
the scores and of what backward reads, and writes zeros in the other. Other kinds move more, forward
and backward (`Softmax` of the job):

    masked      the mask reads and writes, and so does that of the gradient: 2 and 2;
    steps       scale and mask do: 4 and 4;
    wide steps  scale and mask do, and backward the scale alone, for a mask that is added: 4 and 2.
                In 16 bits the softmax writes 4 bytes, which a copy reads for 2, 8 bytes more, and
                backward a copy reads 2 for 4, and the softmax twice 4, 10 bytes more;
    reductions  maximum and sum read the scores once each before the quotient does; backward the sum
                of their product reads gradient and output before the difference does: 2 and 2.

Source: Dao et al. 2022, arXiv:2205.14135; Korthikanti et al. 2022, arXiv:2205.05198, figure 3;
Megatron-LM `megatron/fused_kernels/scaled_upper_triang_masked_softmax.h` (`local_seq`) and
`fused_softmax.py` (`forward_torch_softmax`, whose mask is `masked_fill_`); transformers
`models/llama/modeling_llama.py` (`eager_attention_forward`); XLA's fusion of producers into
reductions, each of which is a kernel (`xla/service/gpu/instruction_fusion.cc`).
"""

from __future__ import annotations

import math
from collections.abc import Iterator

import numpy as np

from planner.cost.configuration import Floats
from planner.cost.setting import Setting, layer_tokens
from planner.rates import AttentionRate
from planner.schema.job import Precision, Softmax
from planner.workload.layer import AttentionCore, LayerWorkload, SourceWorkload

_BACKWARD_FUSED_FLOP_RATIO = 2.5  # flash attention works the scores out again
_FORWARD_PASSES = 4.0
_BACKWARD_PASSES = 7.0
_HIDDEN_FORWARD_PASSES = 0.5  # half of what the softmax reads
_HIDDEN_BACKWARD_PASSES = 1.0  # half of its output, and of the gradient by it
_DROPOUT_PASSES = 2.0
_MASK_BYTES = 1.0
# Beyond one kernel's, forward and backward
_PASSES_MORE = {
    Softmax.KERNEL: (0.0, 0.0),
    Softmax.MASKED: (2.0, 2.0),
    Softmax.STEPS: (4.0, 4.0),
    Softmax.WIDE_STEPS: (4.0, 2.0),
    Softmax.REDUCTIONS: (2.0, 2.0),
}
_WIDE_FORWARD_BYTES, _WIDE_BACKWARD_BYTES = 8.0, 10.0
_HEAD_SIZE = 128.0  # that the profiles' rates are of

# The second generation is about 1.5 to 2 times as fast (Dao 2023, arXiv:2307.08691, figure 4).
# llm-foundry's runs with the first take 1.5 (A100) and 1.4 times (H100) as long in attention alone
# as the second's rates say; products and elementwise kernels were fitted beside, over 512 to 65,536
# tokens.
_FIRST_GENERATION_RATIO = 0.72

# Rows of heads whose size is no multiple of 8 do not begin at the 16 bytes that tensor cores read.
# BLOOM's published runs with heads of 108 take 1.30 to 1.40 times as long as with 144 (4 pairs);
# those with heads of 150 and 450 (26 runs) take 1.35 times as long, against what is predicted, as
# those with 144 to 224. Such products account for it if they run at a 13th and an 18th.
_ALIGNED_SIZE, _HALF_ALIGNED_SIZE = 8, 4
_HALF_ALIGNED_RATIO = 1.0 / 13.0
_MISALIGNED_RATIO = 1.0 / 18.0


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
            every = core.all_keys(keys)
            once, back = _unfused_seconds(
                core, tokens, query_count=queries, key_count=every, setting=setting
            )
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


def _unfused_seconds(
    core: AttentionCore, tokens: Floats, *, query_count: int, key_count: int, setting: Setting
) -> tuple[Floats, Floats]:
    """Return forward and backward seconds of a core over `tokens` with `key_count` keys each.

    `query_count` of them share their keys, of one sequence.
    """
    scores = tokens * key_count * core.head_count / setting.tensor
    k, v = core.key_head_size, core.value_head_size
    over_k, over_v = (size / _product_rate(size, size, setting) for size in (k, v))
    keys_k, keys_v = (size / _product_rate(key_count, size, setting) for size in (k, v))
    queries_k, queries_v = (size / _product_rate(query_count, size, setting) for size in (k, v))
    forward, backward = _passes_seconds(core, setting)
    return (
        scores * (2.0 * (over_k + keys_v) + forward),
        scores * (2.0 * (over_v + queries_v + keys_k + queries_k) + backward),
    )


def _product_rate(inner_size: int, head_size: int, setting: Setting) -> float:
    """Return the rate of a product over `inner_size`, in 16 bits under fp8.

    One of its sides are heads' rows of `head_size`.
    """
    precision = setting.job.precision
    precision = Precision.BF16 if precision is Precision.FP8 else precision
    gemm = setting.hardware.profile.gemm.rate(precision)
    ramp = inner_size / (inner_size + gemm.inner_size_half)
    return setting.product_flop_per_second(precision) * ramp * _alignment_ratio(head_size)


def _alignment_ratio(size: int) -> float:
    """Return the rate of products over rows of `size` over that of rows that tensor cores read."""
    if size % _ALIGNED_SIZE == 0:
        return 1.0
    return _HALF_ALIGNED_RATIO if size % _HALF_ALIGNED_SIZE == 0 else _MISALIGNED_RATIO


def _passes_seconds(core: AttentionCore, setting: Setting) -> tuple[float, float]:
    """Return the seconds that memory takes to pass over one score, forward and backward."""
    kind = setting.softmax
    more, more_back = _PASSES_MORE[kind]
    forward, backward = _FORWARD_PASSES + more, _BACKWARD_PASSES + more_back
    wide_forward = wide_backward = 0.0
    if kind is Softmax.WIDE_STEPS and setting.job.precision is not Precision.FP32:
        wide_forward, wide_backward = _WIDE_FORWARD_BYTES, _WIDE_BACKWARD_BYTES
    elif kind is Softmax.KERNEL and core.causal and setting.stack.activations.fused:
        forward, backward = forward - _HIDDEN_FORWARD_PASSES, backward - _HIDDEN_BACKWARD_PASSES
    return (
        _pass_seconds(forward, wide_forward, setting),
        _pass_seconds(backward, wide_backward, setting),
    )


def _pass_seconds(passes: float, wide_bytes: float, setting: Setting) -> float:
    """Return the seconds of `passes` over one score and `wide_bytes`, dropout beside them."""
    if setting.job.dropout:
        passes, wide_bytes = passes + _DROPOUT_PASSES, wide_bytes + _MASK_BYTES
    moved = setting.stack.elementwise_ratio * passes * setting.compute_bytes + wide_bytes
    return moved / setting.hardware.memory_bytes_per_second
