"""Elementwise traffic: what norms, residuals, rotary and activations of a block move and launch."""

from __future__ import annotations

from dataclasses import replace

from planner.schema.model import (
    Attention,
    Block,
    CompressedAttention,
    CrossAttention,
    FeedForward,
    GroupedQueryAttention,
    LatentAttention,
    MixtureFeedForward,
    NoAttention,
    NoFeedForward,
    Norm,
)
from planner.workload.activation_steps import activation_steps
from planner.workload.compressed import (
    compressed_traffic,
    stream_traffic,
)
from planner.workload.flops import gate_width, norm_count, sublayer_count
from planner.workload.launches import (
    LATENT_KERNELS,
    activation_kernel_count,
    feed_forward_kernel_count,
    mixture_kernel_count,
)
from planner.workload.layer import ElementwiseTraffic
from planner.workload.mixers import mixer_traffic

NORM_PASSES = 4  # read for the mean square, read, scale in fp32, write
ROTARY_PASSES = 4  # read and write queries and keys twice

# What plain torch moves beside, in passes over a row of 16 bits. An RMSNorm copies to fp32,
# squares, sums, scales, copies back and multiplies in kernels of their own: 36 bytes an element, of
# which 8 are counted. Rotary negates, concatenates, multiplies twice and adds. A layer norm is one;
# OLMo copies the row to fp32 before it and back after it.
_UNFUSED_NORM_PASSES = {Norm.RMS: 14, Norm.RMS_FLOAT32: 14, Norm.LAYER: 0, Norm.WEIGHTLESS: 6}
_UNFUSED_ROTARY_PASSES = 6

# Kernels that eager torch launches beside products and attention, counted in transformers' layers.
# RMSNorm: 8 in plain torch, 1 fused; between them
NORM_KERNELS = {Norm.RMS: 5, Norm.RMS_FLOAT32: 5, Norm.LAYER: 1, Norm.WEIGHTLESS: 3}
_ROTARY_KERNELS = 10  # negate, concatenate, two products and a sum, for queries and for keys
_FUSED_ROTARY_KERNELS = 2
_RESIDUAL_KERNELS = 1
_GATE_KERNELS = 2  # sigmoid and product, where attention's output is gated
_LAYER_INPUT_KERNELS = 3  # activation, product with the block's own row, residual
_LAYER_INPUT_PASSES = 5  # read and write the activation, read both rows, write their product
_BESIDE_PASSES = 2  # what reads the row of a product beside the block's parts, and writes another


def elementwise_traffic(block: Block, hidden_size: int) -> ElementwiseTraffic:
    """Return the elements per token that norms, residuals, rotary and activations move.

    A norm passes over its row `NORM_PASSES` times, each residual addition reads two rows and
    writes one; rotary reads and writes queries and keys twice; a gated activation reads gate,
    writes silu, reads silu and up, writes the product.
    """
    attention, feed_forward = block.attention, block.feed_forward
    whole = (norm_count(block) * NORM_PASSES + sublayer_count(block) * 3) * hidden_size
    divided = _rotated_width(attention) * ROTARY_PASSES
    if isinstance(attention, LatentAttention | CompressedAttention):
        whole += NORM_PASSES * sum(_normed_inside(attention))
    else:
        divided += NORM_PASSES * sum(_normed_inside(attention))
    if block.cross_attention is not None:
        divided += NORM_PASSES * sum(_normed_inside(block.cross_attention))
    mixed, routed = 0.0, 0
    if block.mixer is not None:
        mixed = mixer_traffic(block.mixer).sharded
    divided += 3 * gate_width(attention)
    passes = activation_passes(feed_forward)
    if isinstance(feed_forward, MixtureFeedForward):
        chosen = feed_forward.experts_per_token
        divided += passes * (chosen * feed_forward.expert_ffn_size + feed_forward.shared_ffn_size)
        whole += 4 * feed_forward.expert_count
        routed = routed_elements(feed_forward, hidden_size)
    elif not isinstance(feed_forward, NoFeedForward):
        divided += passes * feed_forward.ffn_size
    norms, divided_norms = _unfused_norm_elements(block, hidden_size)
    return ElementwiseTraffic(
        replicated=float(whole) + _later_traffic(block, hidden_size).replicated,
        sharded=float(divided) + mixed,
        kernel_count=_kernel_count(block),
        routed=float(routed),
        unfused_replicated=float(norms),
        unfused_sharded=float(divided_norms + _unfused_rotary_elements(block.attention)),
        unfused_kernel_count=_unfused_kernel_count(block),
        unfused_norms_sharded=float(divided_norms),
        unfused_norm_kernel_count=_unfused_norm_kernel_count(block),
        feed_forward_kernel_count=feed_forward_kernel_count(block),
        steps=activation_steps(feed_forward),
        key_values=float(_key_passes(attention)),
    )


def _unfused_norm_elements(block: Block, hidden_size: int) -> tuple[int, int]:
    """Return the elements per token that norms of plain torch move beside: whole and divided."""
    whole = norm_count(block) * _UNFUSED_NORM_PASSES[block.norm] * hidden_size
    inside = _UNFUSED_NORM_PASSES[Norm.RMS] * sum(_normed_inside(block.attention))
    if isinstance(block.attention, LatentAttention | CompressedAttention):
        return whole + inside, 0
    return whole, inside


def _unfused_rotary_elements(attention: Attention) -> int:
    """Return what rotary, and repeating keys and values, of plain torch move beside."""
    rotary = _rotated_width(attention) * _UNFUSED_ROTARY_PASSES
    if isinstance(attention, LatentAttention | CompressedAttention):
        return rotary
    return rotary + _repeated_width(attention)


def _key_passes(attention: Attention) -> int:
    """Return what rotary, and a norm of keys, read and write of a block's own keys."""
    if not isinstance(attention, GroupedQueryAttention) or attention.shares_keys:
        return 0
    passes = ROTARY_PASSES * attention.rotary + NORM_PASSES * attention.query_key_norm
    return passes * attention.key_value_head_count * attention.head_size


def _later_traffic(block: Block, hidden_size: int) -> ElementwiseTraffic:
    """Return what compressed keys, further rows of residual and a row of the block's own move."""
    traffic = stream_traffic(block, hidden_size, sublayer_count(block))
    moved, kernels = traffic.replicated, traffic.kernel_count
    if isinstance(block.attention, CompressedAttention):
        windows = compressed_traffic(block.attention)
        moved, kernels = moved + windows.replicated, kernels + windows.kernel_count
    if block.beside is not None:
        moved += NORM_PASSES * sum(block.beside.norm_widths)
        moved += _BESIDE_PASSES * sum(product.outer_size for product in block.beside.products)
        kernels += NORM_KERNELS[block.beside.norm] * len(block.beside.norm_widths)
        kernels += len(block.beside.products)
    if block.layer_input_size is not None:
        moved += _LAYER_INPUT_PASSES * block.layer_input_size + 3.0 * hidden_size
        kernels += _LAYER_INPUT_KERNELS
    return replace(traffic, replicated=moved, kernel_count=kernels)


def routed_elements(mixture: MixtureFeedForward, hidden_size: int) -> int:
    """Return what moves a token's row to its experts and back, for each that is chosen.

    Gathered, weighed and scattered, each reads a row and writes one: 6 passes.
    """
    return 6 * mixture.experts_per_token * hidden_size


def activation_passes(feed_forward: FeedForward) -> int:
    """Return how often the row inside a feed-forward is read or written by its activation."""
    return 5 if _is_gated(feed_forward) else 2


def _is_gated(feed_forward: FeedForward) -> bool:
    return not isinstance(feed_forward, NoFeedForward) and feed_forward.gated


def _repeated_width(attention: GroupedQueryAttention | CrossAttention | NoAttention) -> int:
    """Return what repeating keys and values for all queries reads and writes, as `repeat_kv` does.

    Source: torchtitan `models/llama3/model.py`, transformers `models/llama/modeling_llama.py`.
    """
    if isinstance(attention, NoAttention):
        return 0
    if attention.key_value_head_count == attention.head_count:
        return 0
    return 2 * (attention.key_value_head_count + attention.head_count) * attention.head_size


def source_traffic(cross: CrossAttention) -> ElementwiseTraffic:
    """Return the elements per source token that a cross-attention's key norm moves."""
    normed = cross.key_value_head_count * cross.head_size if cross.query_key_norm else 0
    return ElementwiseTraffic(
        replicated=0.0,
        sharded=float(NORM_PASSES * normed),
        kernel_count=NORM_KERNELS[Norm.RMS] if normed else 0,
    )


def _kernel_count(block: Block) -> int:
    attention, feed_forward = block.attention, block.feed_forward
    inside = len(_normed_inside(attention))
    if block.cross_attention is not None:
        inside += len(_normed_inside(block.cross_attention))
    count = norm_count(block) * NORM_KERNELS[block.norm] + inside * NORM_KERNELS[Norm.RMS]
    count += sublayer_count(block) * _RESIDUAL_KERNELS
    count += activation_kernel_count(feed_forward)
    if block.mixer is not None:
        count += mixer_traffic(block.mixer).kernel_count
    if gate_width(attention):
        count += _GATE_KERNELS
    count += _later_traffic(block, 1).kernel_count
    if isinstance(attention, LatentAttention | CompressedAttention):
        count += LATENT_KERNELS
    elif _rotates(attention):
        count += _ROTARY_KERNELS
    return count + mixture_kernel_count(block)


def _unfused_kernel_count(block: Block) -> int:
    """Return how many kernels are spared where norms, rotary and gates are one each."""
    attention = block.attention
    spared = _unfused_norm_kernel_count(block) + int(_is_gated(block.feed_forward))
    spared += _later_traffic(block, 1).unfused_kernel_count
    if isinstance(attention, LatentAttention | CompressedAttention):
        return spared + LATENT_KERNELS - _FUSED_ROTARY_KERNELS
    return spared + (_ROTARY_KERNELS - _FUSED_ROTARY_KERNELS if _rotates(attention) else 0)


def _unfused_norm_kernel_count(block: Block) -> int:
    """Return how many kernels are spared where norms are one each."""
    inside = len(_normed_inside(block.attention))
    if block.cross_attention is not None:
        inside += len(_normed_inside(block.cross_attention))
    return norm_count(block) * (NORM_KERNELS[block.norm] - 1) + inside * (
        NORM_KERNELS[Norm.RMS] - 1
    )


def _rotates(attention: Attention) -> bool:
    return isinstance(attention, GroupedQueryAttention) and attention.rotary


def _normed_inside(attention: Attention) -> tuple[int, ...]:
    """Return the widths of the norms within attention, over the block's own tokens."""
    if isinstance(attention, LatentAttention):
        ranks = (attention.query_rank, attention.key_value_rank)
        return tuple(rank for rank in ranks if rank is not None)
    if isinstance(attention, CompressedAttention):
        return (attention.query_rank, attention.head_size)
    if isinstance(attention, NoAttention) or not attention.query_key_norm:
        return ()
    if isinstance(attention, CrossAttention):
        return (attention.head_count * attention.head_size,)
    own_keys = not attention.shares_keys
    heads = (attention.head_count, attention.key_value_head_count * own_keys)
    return tuple(count * attention.head_size for count in heads)


def _rotated_width(attention: Attention) -> int:
    """Return the width of queries and keys that rotary, or putting them together, rewrites."""
    if isinstance(attention, LatentAttention):
        key_size = attention.no_position_head_size + attention.rotary_head_size
        return 2 * attention.head_count * key_size
    if isinstance(attention, CompressedAttention):  # queries, and the output turned back
        return 2 * attention.head_count * attention.head_size
    if not isinstance(attention, GroupedQueryAttention) or not attention.rotary:
        return 0
    return (attention.head_count + attention.key_value_head_count) * attention.head_size
