"""FLOPs: the matrix products and the attention core of a block, and its elementwise traffic."""

from __future__ import annotations

from typing import Literal

from planner.schema.model import (
    Attention,
    Block,
    FeedForward,
    LatentAttention,
    MixtureFeedForward,
    Norm,
)
from planner.workload.layer import AttentionCore, ElementwiseTraffic, Gemm

Split = Literal["outer", "inner", "none"]

_NORM_PASSES = 4  # read for the mean square, read, scale in fp32, write

# Kernels that eager torch launches beside products and attention, counted in transformers' layers.
_NORM_KERNELS = {Norm.RMS: 5, Norm.LAYER: 1}  # RMSNorm: 8 in plain torch, 1 fused; between them
_ROTARY_KERNELS = 10  # negate, concatenate, two products and a sum, for queries and for keys
_LATENT_KERNELS = 18  # the same interleaved, and queries and keys put together
_RESIDUAL_KERNELS = 2
_ROUTING_KERNELS = 19  # softmax, top-k, sort, count, gather, weigh, scatter


def block_gemms(block: Block, hidden_size: int) -> tuple[Gemm, ...]:
    """Return the matrix products of one block, in order of execution."""
    return (
        *_attention_gemms(block.attention, hidden_size),
        *_feed_forward_gemms(block.feed_forward, hidden_size),
    )


def attention_core(attention: Attention) -> AttentionCore:
    """Return what of attention depends on the sequence."""
    if isinstance(attention, LatentAttention):
        key_size = attention.no_position_head_size + attention.rotary_head_size
        return AttentionCore(
            head_count=attention.head_count,
            key_head_size=key_size,
            value_head_size=attention.value_head_size,
            key_value_width=attention.head_count * (key_size + attention.value_head_size),
        )
    return AttentionCore(
        head_count=attention.head_count,
        key_head_size=attention.head_size,
        value_head_size=attention.head_size,
        key_value_width=2 * attention.key_value_head_count * attention.head_size,
        window_tokens=attention.sliding_window_tokens,
    )


def elementwise_traffic(block: Block, hidden_size: int) -> ElementwiseTraffic:
    """Return the elements per token that norms, residuals, rotary and activations move.

    A norm passes over its row `_NORM_PASSES` times, each of two residual additions reads two rows
    and writes one; rotary reads and writes queries and keys twice; a gated activation reads gate,
    writes silu, reads silu and up, writes the product.
    """
    attention, feed_forward = block.attention, block.feed_forward
    normed = _normed_inside(attention)
    whole = (2 * _NORM_PASSES + 6) * hidden_size
    divided = _rotated_width(attention) * 4
    if isinstance(attention, LatentAttention):
        whole += _NORM_PASSES * sum(normed)
    else:
        divided += _NORM_PASSES * sum(normed)
    passes = 5 if feed_forward.gated else 2
    if isinstance(feed_forward, MixtureFeedForward):
        chosen = feed_forward.experts_per_token
        divided += passes * (chosen * feed_forward.expert_ffn_size + feed_forward.shared_ffn_size)
        whole += 6 * chosen * hidden_size + 4 * feed_forward.expert_count
    else:
        divided += passes * feed_forward.ffn_size
    return ElementwiseTraffic(
        replicated=float(whole), sharded=float(divided), kernel_count=_kernel_count(block)
    )


def _kernel_count(block: Block) -> int:
    attention, feed_forward = block.attention, block.feed_forward
    inside = len(_normed_inside(attention)) * _NORM_KERNELS[Norm.RMS]
    count = 2 * _NORM_KERNELS[block.norm] + inside + _RESIDUAL_KERNELS
    count += 2 if feed_forward.gated else 1
    if isinstance(attention, LatentAttention):
        count += _LATENT_KERNELS
    elif attention.rotary:
        count += _ROTARY_KERNELS
    return count + (_ROUTING_KERNELS if isinstance(feed_forward, MixtureFeedForward) else 0)


def _normed_inside(attention: Attention) -> tuple[int, ...]:
    """Return the widths of the norms within attention."""
    if isinstance(attention, LatentAttention):
        ranks = (attention.query_rank, attention.key_value_rank)
        return tuple(rank for rank in ranks if rank is not None)
    if not attention.query_key_norm:
        return ()
    heads = (attention.head_count, attention.key_value_head_count)
    return tuple(count * attention.head_size for count in heads)


def _rotated_width(attention: Attention) -> int:
    """Return the width of queries and keys that rotary, or putting them together, rewrites."""
    if isinstance(attention, LatentAttention):
        key_size = attention.no_position_head_size + attention.rotary_head_size
        return 2 * attention.head_count * key_size
    if not attention.rotary:
        return 0
    return (attention.head_count + attention.key_value_head_count) * attention.head_size


def _attention_gemms(attention: Attention, hidden_size: int) -> tuple[Gemm, ...]:
    if isinstance(attention, LatentAttention):
        return _latent_gemms(attention, hidden_size)
    query_width = attention.head_count * attention.head_size
    key_value_width = attention.key_value_head_count * attention.head_size
    return (
        _gemm("query", hidden_size, query_width, "outer"),
        _gemm("key", hidden_size, key_value_width, "outer"),
        _gemm("value", hidden_size, key_value_width, "outer"),
        _gemm("output", query_width, hidden_size, "inner"),
    )


def _latent_gemms(attention: LatentAttention, hidden_size: int) -> tuple[Gemm, ...]:
    key_size = attention.no_position_head_size + attention.rotary_head_size
    query_width = attention.head_count * key_size
    expanded = attention.head_count * (attention.no_position_head_size + attention.value_head_size)
    compressed = attention.key_value_rank + attention.rotary_head_size
    query: tuple[Gemm, ...]
    if attention.query_rank is None:
        query = (_gemm("query", hidden_size, query_width, "outer"),)
    else:
        query = (
            _gemm("query_down", hidden_size, attention.query_rank, "none"),
            _gemm("query_up", attention.query_rank, query_width, "outer"),
        )
    value_width = attention.head_count * attention.value_head_size
    return (
        *query,
        _gemm("key_value_down", hidden_size, compressed, "none"),
        _gemm("key_value_up", attention.key_value_rank, expanded, "outer"),
        _gemm("output", value_width, hidden_size, "inner"),
    )


def _feed_forward_gemms(feed_forward: FeedForward, hidden_size: int) -> tuple[Gemm, ...]:
    if not isinstance(feed_forward, MixtureFeedForward):
        return _ffn_gemms("ffn", hidden_size, feed_forward.ffn_size, gated=feed_forward.gated)
    routed = tuple(
        Gemm(
            name=gemm.name,
            inner_size=gemm.inner_size,
            outer_size=gemm.outer_size,
            split=gemm.split,
            tokens_ratio=float(feed_forward.experts_per_token),
            expert_count=feed_forward.expert_count,
        )
        for gemm in _ffn_gemms(
            "expert", hidden_size, feed_forward.expert_ffn_size, gated=feed_forward.gated
        )
    )
    shared: tuple[Gemm, ...] = ()
    if feed_forward.shared_ffn_size:
        shared = _ffn_gemms(
            "shared", hidden_size, feed_forward.shared_ffn_size, gated=feed_forward.gated
        )
    router = _gemm("router", hidden_size, feed_forward.expert_count, "none")
    return (router, *routed, *shared)


def _ffn_gemms(name: str, hidden_size: int, ffn_size: int, *, gated: bool) -> tuple[Gemm, ...]:
    up = _gemm(f"{name}_up", hidden_size, ffn_size, "outer")
    down = _gemm(f"{name}_down", ffn_size, hidden_size, "inner")
    gate = (_gemm(f"{name}_gate", hidden_size, ffn_size, "outer"),) if gated else ()
    return (*gate, up, down)


def _gemm(name: str, inner_size: int, outer_size: int, split: Split) -> Gemm:
    return Gemm(name=name, inner_size=inner_size, outer_size=outer_size, split=split)
