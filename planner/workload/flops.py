"""FLOPs: the matrix products and the attention core of a block, and its elementwise traffic."""

from __future__ import annotations

from typing import Literal

from planner.schema.model import (
    Attention,
    Block,
    FeedForward,
    LatentAttention,
    MixtureFeedForward,
)
from planner.workload.layer import AttentionCore, ElementwiseTraffic, Gemm

Split = Literal["outer", "inner", "none"]

_NORM_PASSES = 4  # read for the mean square, read, scale in fp32, write
_KERNELS_GROUPED_QUERY = 24  # eager torch: 2 norms, rotary on q and k, 2 residuals, activation
_KERNELS_LATENT = 40
_KERNELS_MIXTURE = 25  # router, top-k, permute, unpermute, scale


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

    Each of two norms passes over its row `_NORM_PASSES` times, each of two residual additions
    reads two rows and writes one; rotary reads and writes queries and keys twice; a gated
    activation reads gate, writes silu, reads silu and up, writes the product.
    """
    attention, feed_forward = block.attention, block.feed_forward
    core = attention_core(attention)
    query_width = core.head_count * core.key_head_size
    rotary = 4 * (query_width + core.key_value_width // 2)
    kernels = _KERNELS_LATENT if isinstance(attention, LatentAttention) else _KERNELS_GROUPED_QUERY
    replicated = (2 * _NORM_PASSES + 6) * hidden_size
    passes = 5 if feed_forward.gated else 2
    if isinstance(feed_forward, MixtureFeedForward):
        chosen = feed_forward.experts_per_token
        sharded = passes * (chosen * feed_forward.expert_ffn_size + feed_forward.shared_ffn_size)
        replicated += 6 * chosen * hidden_size + 4 * feed_forward.expert_count
        kernels += _KERNELS_MIXTURE
    else:
        sharded = passes * feed_forward.ffn_size
    return ElementwiseTraffic(
        replicated=float(replicated), sharded=float(rotary + sharded), kernel_count=kernels
    )


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
