"""Products: seconds of one matrix product on one rank, forward and in both ways backward.

Over M rows, with K inner and N outer elements, each of the three products sums over another size,
and runs at plateau x size / (size + K0), or as fast as what it reads and writes can be moved:

    forward            M x K times K x N      sums over K;
    inputs' gradient   M x N times N x K      sums over N;
    weights' gradient  K x M times M x N      sums over M, of each expert its own rows.

What a dense product in 16 bits puts out is made in tiles of 128 by 128, T of them. Few do not fill
a device: it takes 1 + T0 / T - T0 / 2048 times as long, T0 being 25, since profiles' rates are of
large products. Fused stacks make queries, keys and values as one, and gates with what they gate.
Experts have few rows each, which fill tiles and processors less well: of theirs a product takes
1 + M0 / M times as long. The products of a scan along the sequence are small ones inside kernels
that do other things between them, at a tenth of the rate.

A stack with buffers for gradients adds what it finds to what is there, which reads and writes them
in every micro-batch: with few rows for each of many experts, that is most of the time.

Source: the ramps are fitted on measured tables named in `profiles/devices`; that backward products
have the forward ones' ramp is assumed.
"""

from __future__ import annotations

from dataclasses import dataclass

import numpy as np

from planner.cost.adapters import frozen
from planner.cost.configuration import Floats
from planner.cost.setting import Setting, layer_tokens
from planner.schema.job import Precision
from planner.workload.layer import Gemm, LayerWorkload

# Over one scale a tensor. Published pairs of torchao (H100, B200, MI300X) and torchtitan (H100, 8B
# and 70B) take 1.04 to 1.37 times as long with a scale a row; chosen on these 8 runs.
_ROW_SCALED_RATE = 0.65

# mamba_ssm's scan of 131,072 tokens with 8 heads and groups of 128, a state of 128 and chunks of 64
# takes 6.3 ms forward on what is taken to be an A100 (flash-linear-attention, pull request 50). Of
# these 2.0 ms are its states, 24 TFLOP/s the rest, where products reach 248.
_SCAN_RATE = 0.1

# With 512, 1024, 2048 and 4096 rows, N of 4 to 9 and K of 2 to 9 thousand, products in 16 bits have
# 0.79 to 0.91, 0.90 to 0.98, 0.98 to 1.06 and 0.96 to 1.09 of the rate of larger ones, those in 8
# bits 0.39 to 0.65, 0.59 to 0.73, 0.80 to 0.88 and 0.92 to 0.99: medians on A100, H100, H200, B200,
# B300 and GB200 (aiconfigurator). Each expert's product is one of its own.
_ROWS_HALF_IN_16_BITS = 100.0
_ROWS_HALF_IN_8_BITS = 400.0

# Products in 16 bits of 32, 64, 128, 256 and 512 tiles take 1.8, 1.32, 1.24, 1.09 and 1.05 times as
# long as larger ones on A100, 1.86, 1.33, 1.14, 1.06 and 1.04 on H100, 2.3, 1.5, 1.24, 1.14 and
# 1.08 on B200: medians of 2000 products each (aiconfigurator). In 8 bits those kernels cast too.
_TILES_HALF = 25.0
_TILES_OF_PROFILES = 2048.0
_TILE = 128.0


@dataclass(frozen=True, slots=True, kw_only=True)
class ProductSeconds:
    """Seconds of one product and its two gradients; arrays [configurations, 1]."""

    forward: Floats
    input_gradient: Floats
    weight_gradient: Floats


def product_seconds(gemm: Gemm, tokens: Floats, setting: Setting) -> ProductSeconds:
    """Return the seconds of one product over `tokens` on one rank.

    Tensor-parallel ranks that do not split experts split the tokens of experts instead. All wait
    for the rank that most tokens go to.
    """
    tensor = setting.expert_tensor if gemm.expert_count else setting.tensor
    inner = gemm.inner_size / (tensor if gemm.split == "inner" else np.ones_like(tensor))
    outer = gemm.outer_size / (tensor if gemm.split == "outer" else np.ones_like(tensor))
    rows = tokens * gemm.tokens_ratio * (tensor / setting.tensor)
    rows = rows * setting.expert_load_ratio if gemm.expert_count else rows
    copies = np.maximum(gemm.expert_count / setting.expert, 1.0)
    plateau, half = _plateau(gemm, setting)
    pace = setting.hardware.memory_bytes_per_second
    least = 2.0 * rows * inner * outer / plateau
    weights = copies * inner * outer
    read, written = _operand_bytes(gemm, setting) / pace, setting.compute_bytes / pace
    came, went = rows * inner, rows * outer
    forward = read * (weights + came) + written * went
    input_gradient = read * (weights + went) + written * came
    weight_gradient = read * (came + went) + _gradient_bytes(setting) / pace * weights
    few = _expert_rows_half(gemm, setting) * copies / rows
    wide = outer * _fused_ratio(gemm, setting)
    return ProductSeconds(
        forward=np.maximum(
            least * (1.0 + half / inner + few + _few_tiles(gemm, rows, wide, setting)), forward
        ),
        input_gradient=np.maximum(
            least * (1.0 + half / outer + few + _few_tiles(gemm, rows, inner, setting)),
            input_gradient,
        ),
        weight_gradient=np.maximum(
            least * (1.0 + half * copies / rows + _few_tiles(gemm, inner, wide, setting)),
            weight_gradient,
        ),
    )


def _plateau(gemm: Gemm, setting: Setting) -> tuple[float, float]:
    """Return the rate of a product over many elements inside a step, and where half is reached."""
    precision = Precision.BF16 if _is_kept(gemm, setting) else setting.job.precision
    rate = setting.product_flop_per_second(precision)
    if setting.job.row_scaled_fp8 and precision is Precision.FP8:
        rate = rate * _ROW_SCALED_RATE
    if gemm.weightless and not setting.host_is_device:
        rate = rate * _SCAN_RATE
    return rate, setting.hardware.profile.gemm.rate(precision).inner_size_half


def _is_kept(gemm: Gemm, setting: Setting) -> bool:
    """Return whether the product stays in 16 bits where others have 8."""
    return gemm.in_16_bits and setting.job.precision is Precision.FP8


def _operand_bytes(gemm: Gemm, setting: Setting) -> float:
    in_8_bits = setting.job.precision is Precision.FP8 and not gemm.in_16_bits
    return 1.0 if in_8_bits else setting.compute_bytes


def _expert_rows_half(gemm: Gemm, setting: Setting) -> float:
    """Return the rows of an expert at which a long product has half its rate, 0 if dense."""
    if not gemm.expert_count:
        return 0.0
    in_8_bits = setting.job.precision is Precision.FP8
    return _ROWS_HALF_IN_8_BITS if in_8_bits else _ROWS_HALF_IN_16_BITS


def _few_tiles(gemm: Gemm, height: Floats, width: Floats, setting: Setting) -> Floats:
    """Return what putting out `height` x `width` takes longer than products of profiles, over them.

    Tiles are whole: rows that are fewer than a tile's take as long.
    """
    precision = setting.job.precision
    in_16_bits = gemm.in_16_bits or precision in {Precision.BF16, Precision.FP16}
    if gemm.expert_count or setting.host_is_device or not in_16_bits or precision is Precision.FP32:
        return np.zeros_like(height)
    tiles = np.maximum(height / _TILE, 1.0) * np.maximum(width / _TILE, 1.0)
    return _TILES_HALF * (1.0 / tiles - 1.0 / _TILES_OF_PROFILES)


def _fused_ratio(gemm: Gemm, setting: Setting) -> float:
    """Return the width of what is launched with a product, itself included, over its own."""
    if gemm.fused_outer_size is None or not setting.stack.activations.fused:
        return 1.0
    return gemm.fused_outer_size / gemm.outer_size


def _gradient_bytes(setting: Setting) -> float:
    """Return the bytes moved for one element of a weight's gradient in a micro-batch."""
    if not setting.stack.gradient_buffers:
        return setting.compute_bytes
    return 2.0 * (2.0 if setting.narrow_gradients else 4.0)


_ROW_SCALED_RATIO = 10.0 / 6.0  # each of two orders: a pass for its scales, a read and a write
_ONE_ORDER_RATIO = 0.5


def cast_seconds(layer: LayerWorkload, setting: Setting) -> tuple[Floats, Floats]:
    """Return seconds, forward and backward, to cast what products read, [configurations, 1].

    A product reads its rows forward, the gradient of its output backward, and its weight in both.
    Each is passed over for its scale, read in 16 bits and written in 8, in the order of the product
    at hand and in that of the weight's gradient, which what is frozen has none of. Rows that
    tensor-parallel ranks gather under sequence parallel are cast before that, each rank its share.

    Source: Micikevicius et al. 2022, arXiv:2209.05433; what kernels fuse is the stack's, see
    `casts` in `profiles/stacks`; Transformer Engine `pytorch/module/linear.py` (`set_usage` of
    quantizers: by columns where the weight needs a gradient). Not modelled: selective checkpointing
    keeps what it cast; of weights that are gathered in 8 bits each rank casts its share alone.
    """
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
    rows = rows * setting.expert_load_ratio if gemm.expert_count else rows
    divided = rows / np.where(setting.sequence_parallel, tensor, 1.0)
    copies = np.maximum(gemm.expert_count / setting.expert, 1.0)
    weight = copies * inner * outer * setting.stack.casts.weight_bytes
    read = (divided if gemm.split == "outer" else rows) * inner * input_bytes
    gradient = (divided if gemm.split == "inner" else rows) * outer * gradient_bytes
    return weight + (0.0 if gemm.shares_input else read), weight + gradient
