"""FLOPs: the matrix products and the attention core of a block."""

from __future__ import annotations

from dataclasses import replace
from typing import Literal

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
    NormPlacement,
)
from planner.workload.compressed import (
    compressed_core,
    compressed_gemms,
    stream_gemms,
)
from planner.workload.layer import AttentionCore, Gemm
from planner.workload.mixers import mixer_gemms

Split = Literal["outer", "inner", "none"]


def block_gemms(block: Block, hidden_size: int) -> tuple[Gemm, ...]:
    """Return the matrix products of one block over its own tokens, in order of execution."""
    cross = block.cross_attention
    mix = stream_gemms(block, hidden_size, 1)
    *others, last = (
        *mix,
        *(() if block.mixer is None else mixer_gemms(block.mixer, hidden_size)),
        *_attention_gemms(block.attention, hidden_size),
        *(() if cross is None else _attention_gemms(cross, hidden_size)),
        *_beside_gemms(block),
        *mix,
        *_feed_forward_gemms(block.feed_forward, hidden_size),
        *_layer_input_gemms(block, hidden_size),
    )
    return (*others, replace(last, ends_block=_ends_with_a_product(block)))


def _ends_with_a_product(block: Block) -> bool:
    """Return whether a residual alone reads the last product: no norm, and no router's weights."""
    if isinstance(block.feed_forward, MixtureFeedForward) or block.layer_input_size is not None:
        return False
    return block.norm_placement in {NormPlacement.BEFORE, NormPlacement.SHARED}


def source_gemms(cross: CrossAttention) -> tuple[Gemm, ...]:
    """Return the matrix products of a cross-attention over the tokens that it reads."""
    key_value_width = cross.key_value_head_count * cross.head_size
    return (
        _gemm("source_key", cross.source_width, key_value_width, "outer"),
        _gemm("source_value", cross.source_width, key_value_width, "outer"),
    )


def cross_attentions(block: Block) -> tuple[CrossAttention, ...]:
    """Return what in the block reads a tower's output."""
    both = (block.attention, block.cross_attention)
    return tuple(item for item in both if isinstance(item, CrossAttention))


def sublayer_count(block: Block) -> int:
    """Return how many parts of the block have a residual of their own."""
    count = 1 if isinstance(block.feed_forward, NoFeedForward) else 2
    return count if block.cross_attention is None else count + 1


def read_row_count(block: Block) -> int:
    """Return how many rows the block's parts read: one less where two of them share a norm."""
    count = sublayer_count(block)
    return max(count - 1, 1) if block.norm_placement is NormPlacement.SHARED else count


def norm_count(block: Block) -> int:
    """Return the norms over the block's hidden row."""
    count = read_row_count(block) * (2 if block.norm_placement is NormPlacement.BOTH else 1)
    return count if block.layer_input_size is None else count + 1


def attention_core(
    attention: GroupedQueryAttention | LatentAttention | CompressedAttention | CrossAttention,
) -> AttentionCore:
    """Return what of attention depends on the sequence."""
    if isinstance(attention, CompressedAttention):
        return compressed_core(attention)
    if isinstance(attention, CrossAttention):
        return AttentionCore(
            head_count=attention.head_count,
            key_head_size=attention.head_size,
            value_head_size=attention.head_size,
            key_value_width=2 * attention.key_value_head_count * attention.head_size,
            causal=False,
        )
    if isinstance(attention, LatentAttention):
        index = attention.index
        key_size = attention.no_position_head_size + attention.rotary_head_size
        return AttentionCore(
            head_count=attention.head_count,
            key_head_size=key_size,
            value_head_size=attention.value_head_size,
            key_value_width=attention.head_count * (key_size + attention.value_head_size),
            window_tokens=attention.sliding_window_tokens
            if index is None
            else index.entries_per_token,
            index_width=index.head_count * index.head_size
            if index and attention.picks_again
            else 0,
        )
    passes = 2 if attention.differential else 1
    return AttentionCore(
        head_count=passes * attention.head_count,
        key_head_size=attention.head_size,
        value_head_size=attention.value_size,
        key_value_width=passes
        * attention.key_value_head_count
        * (attention.head_size + attention.value_size),
        window_tokens=attention.sliding_window_tokens,
        causal=attention.causal,
        chunk_tokens=attention.chunk_tokens,
        gathered_width=attention.head_count * attention.head_size
        + gate_width(attention)
        + attention.key_value_head_count * (attention.head_size + attention.value_size),
    )


def gate_width(attention: Attention) -> int:
    """Return the width of the gate of attention's output, 0 without."""
    if isinstance(attention, GroupedQueryAttention) and attention.output_gate:
        return attention.head_count * attention.head_size
    return 0


def _attention_gemms(attention: Attention, hidden_size: int) -> tuple[Gemm, ...]:
    if isinstance(attention, LatentAttention):
        return _latent_gemms(attention, hidden_size)
    if isinstance(attention, CompressedAttention):
        return compressed_gemms(attention, hidden_size)
    if isinstance(attention, NoAttention):
        return ()
    query_width = attention.head_count * attention.head_size
    if isinstance(attention, CrossAttention):
        return (
            _gemm("cross_query", hidden_size, query_width, "outer"),
            _gemm("cross_output", query_width, hidden_size, "inner"),
        )
    key_value_width = attention.key_value_head_count * attention.head_size
    if attention.shares_keys:
        return (
            _gemm("query", hidden_size, query_width, "outer"),
            _gemm("output", query_width, hidden_size, "inner"),
        )
    rows = {"key": key_value_width}
    if not attention.values_are_keys:
        rows["value"] = attention.key_value_head_count * attention.value_size
    return (
        *_fused(
            _gemm("query", hidden_size, query_width + gate_width(attention), "outer"),
            *(
                _gemm(name, hidden_size, width, "outer", shares_input=True)
                for name, width in rows.items()
            ),
        ),
        _gemm("output", attention.head_count * attention.value_size, hidden_size, "inner"),
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
        _gemm("key_value_down", hidden_size, compressed, "none", shares_input=True),
        _gemm("key_value_up", attention.key_value_rank, expanded, "outer"),
        *index_gemms(attention, hidden_size),
        _gemm("output", value_width, hidden_size, "inner"),
    )


def index_gemms(attention: LatentAttention, hidden_size: int) -> tuple[Gemm, ...]:
    """Return the products of an index that picks keys, whole on every tensor-parallel rank."""
    index = attention.index
    if index is None or attention.query_rank is None or not attention.picks_again:
        return ()
    return (
        _gemm("index_query", attention.query_rank, index.head_count * index.head_size, "none"),
        _gemm("index_key", hidden_size, index.head_size, "none", shares_input=True),
        _gemm("index_weight", hidden_size, index.head_count, "none", shares_input=True),
    )


def _layer_input_gemms(block: Block, hidden_size: int) -> tuple[Gemm, ...]:
    """Return the products to and from a row of the block's own, whole on every rank."""
    size = block.layer_input_size
    if size is None:
        return ()
    return (
        _gemm("layer_input_gate", hidden_size, size, "none"),
        _gemm("layer_input_output", size, hidden_size, "none"),
    )


def _beside_gemms(block: Block) -> tuple[Gemm, ...]:
    """Return the products beside the block's parts, whole on every rank."""
    if block.beside is None:
        return ()
    return tuple(
        _gemm(f"beside{index}", product.inner_size, product.outer_size, "none")
        for index, product in enumerate(block.beside.products)
    )


def _feed_forward_gemms(feed_forward: FeedForward, hidden_size: int) -> tuple[Gemm, ...]:
    if isinstance(feed_forward, NoFeedForward):
        return ()
    if not isinstance(feed_forward, MixtureFeedForward):
        return _ffn_gemms("ffn", hidden_size, feed_forward.ffn_size, gated=feed_forward.gated)
    routed = tuple(
        replace(
            gemm,
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
    return (replace(router, in_16_bits=True), *routed, *shared)


def _ffn_gemms(name: str, hidden_size: int, ffn_size: int, *, gated: bool) -> tuple[Gemm, ...]:
    up = _gemm(f"{name}_up", hidden_size, ffn_size, "outer", shares_input=gated)
    down = _gemm(f"{name}_down", ffn_size, hidden_size, "inner")
    if not gated:
        return (up, down)
    return (*_fused(_gemm(f"{name}_gate", hidden_size, ffn_size, "outer"), up), down)


def _fused(*gemms: Gemm) -> tuple[Gemm, ...]:
    """Return products of the same rows with the width that they have as one."""
    width = sum(gemm.outer_size for gemm in gemms)
    return tuple(replace(gemm, fused_outer_size=width) for gemm in gemms)


def _gemm(
    name: str, inner_size: int, outer_size: int, split: Split, *, shares_input: bool = False
) -> Gemm:
    return Gemm(
        name=name,
        inner_size=inner_size,
        outer_size=outer_size,
        split=split,
        shares_input=shares_input,
    )
