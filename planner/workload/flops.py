"""FLOPs: the matrix products and the attention core of a block, and its elementwise traffic."""

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
    Norm,
    NormPlacement,
)
from planner.workload.compressed import (
    compressed_core,
    compressed_gemms,
    compressed_traffic,
    stream_gemms,
    stream_traffic,
)
from planner.workload.launches import (
    LATENT_KERNELS,
    feed_forward_kernel_count,
    mixture_kernel_count,
)
from planner.workload.layer import AttentionCore, ElementwiseTraffic, Gemm
from planner.workload.mixers import mixer_gemms, mixer_traffic

Split = Literal["outer", "inner", "none"]

_NORM_PASSES = 4  # read for the mean square, read, scale in fp32, write

# What plain torch moves beside, in passes over a row of 16 bits. An RMSNorm copies to fp32,
# squares, sums, scales, copies back and multiplies in kernels of their own: 36 bytes an element, of
# which 8 are counted. Rotary negates, concatenates, multiplies twice and adds. A layer norm is one.
_UNFUSED_NORM_PASSES = {Norm.RMS: 14, Norm.RMS_FLOAT32: 14, Norm.LAYER: 0}
_UNFUSED_ROTARY_PASSES = 6

# Kernels that eager torch launches beside products and attention, counted in transformers' layers.
# RMSNorm: 8 in plain torch, 1 fused; between them
_NORM_KERNELS = {Norm.RMS: 5, Norm.RMS_FLOAT32: 5, Norm.LAYER: 1}
_ROTARY_KERNELS = 10  # negate, concatenate, two products and a sum, for queries and for keys
_FUSED_ROTARY_KERNELS = 2
_RESIDUAL_KERNELS = 1
_GATE_KERNELS = 2  # sigmoid and product, where attention's output is gated
_LAYER_INPUT_KERNELS = 3  # activation, product with the block's own row, residual
_LAYER_INPUT_PASSES = 5  # read and write the activation, read both rows, write their product


def block_gemms(block: Block, hidden_size: int) -> tuple[Gemm, ...]:
    """Return the matrix products of one block over its own tokens, in order of execution."""
    cross = block.cross_attention
    mix = stream_gemms(block, hidden_size, 1)
    *others, last = (
        *mix,
        *(() if block.mixer is None else mixer_gemms(block.mixer, hidden_size)),
        *_attention_gemms(block.attention, hidden_size),
        *(() if cross is None else _attention_gemms(cross, hidden_size)),
        *mix,
        *_feed_forward_gemms(block.feed_forward, hidden_size),
        *_layer_input_gemms(block, hidden_size),
    )
    return (*others, replace(last, ends_block=_ends_with_a_product(block)))


def _ends_with_a_product(block: Block) -> bool:
    """Return whether a residual alone reads the last product: no norm, and no router's weights."""
    if isinstance(block.feed_forward, MixtureFeedForward) or block.layer_input_size is not None:
        return False
    return block.norm_placement is NormPlacement.BEFORE


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


def norm_count(block: Block) -> int:
    """Return the norms over the block's hidden row."""
    count = sublayer_count(block) * (2 if block.norm_placement is NormPlacement.BOTH else 1)
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
        causal=attention.causal,
        chunk_tokens=attention.chunk_tokens,
    )


def elementwise_traffic(block: Block, hidden_size: int) -> ElementwiseTraffic:
    """Return the elements per token that norms, residuals, rotary and activations move.

    A norm passes over its row `_NORM_PASSES` times, each residual addition reads two rows and
    writes one; rotary reads and writes queries and keys twice; a gated activation reads gate,
    writes silu, reads silu and up, writes the product.
    """
    attention, feed_forward = block.attention, block.feed_forward
    whole = (norm_count(block) * _NORM_PASSES + sublayer_count(block) * 3) * hidden_size
    divided = _rotated_width(attention) * 4
    if isinstance(attention, LatentAttention | CompressedAttention):
        whole += _NORM_PASSES * sum(_normed_inside(attention))
    else:
        divided += _NORM_PASSES * sum(_normed_inside(attention))
    if block.cross_attention is not None:
        divided += _NORM_PASSES * sum(_normed_inside(block.cross_attention))
    mixed = 0.0
    if block.mixer is not None:
        mixed = mixer_traffic(block.mixer).sharded
    divided += 3 * _gate_width(attention)
    passes = 5 if _is_gated(feed_forward) else 2
    if isinstance(feed_forward, MixtureFeedForward):
        chosen = feed_forward.experts_per_token
        divided += passes * (chosen * feed_forward.expert_ffn_size + feed_forward.shared_ffn_size)
        whole += 6 * chosen * hidden_size + 4 * feed_forward.expert_count
    elif not isinstance(feed_forward, NoFeedForward):
        divided += passes * feed_forward.ffn_size
    unfused_whole, unfused_divided = _unfused_elements(block, hidden_size)
    return ElementwiseTraffic(
        replicated=float(whole) + _later_traffic(block, hidden_size).replicated,
        sharded=float(divided) + mixed,
        kernel_count=_kernel_count(block),
        unfused_replicated=float(unfused_whole),
        unfused_sharded=float(unfused_divided),
        unfused_kernel_count=_unfused_kernel_count(block),
        feed_forward_kernel_count=feed_forward_kernel_count(block),
    )


def _unfused_elements(block: Block, hidden_size: int) -> tuple[int, int]:
    """Return the elements per token that plain torch moves beside: of whole and of divided rows."""
    attention = block.attention
    whole = norm_count(block) * _UNFUSED_NORM_PASSES[block.norm] * hidden_size
    inside = _UNFUSED_NORM_PASSES[Norm.RMS] * sum(_normed_inside(attention))
    divided = _rotated_width(attention) * _UNFUSED_ROTARY_PASSES
    if isinstance(attention, LatentAttention | CompressedAttention):
        return whole + inside, divided
    return whole, divided + inside + _repeated_width(attention)


def _later_traffic(block: Block, hidden_size: int) -> ElementwiseTraffic:
    """Return what compressed keys, further rows of residual and a row of the block's own move."""
    traffic = stream_traffic(block, hidden_size, sublayer_count(block))
    moved, kernels = traffic.replicated, traffic.kernel_count
    if isinstance(block.attention, CompressedAttention):
        windows = compressed_traffic(block.attention)
        moved, kernels = moved + windows.replicated, kernels + windows.kernel_count
    if block.layer_input_size is not None:
        moved += _LAYER_INPUT_PASSES * block.layer_input_size + 3.0 * hidden_size
        kernels += _LAYER_INPUT_KERNELS
    return replace(traffic, replicated=moved, kernel_count=kernels)


def _is_gated(feed_forward: FeedForward) -> bool:
    return not isinstance(feed_forward, NoFeedForward) and feed_forward.gated


def _gate_width(attention: Attention) -> int:
    """Return the width of the gate of attention's output, 0 without."""
    if isinstance(attention, GroupedQueryAttention) and attention.output_gate:
        return attention.head_count * attention.head_size
    return 0


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
        sharded=float(_NORM_PASSES * normed),
        kernel_count=_NORM_KERNELS[Norm.RMS] if normed else 0,
    )


def _kernel_count(block: Block) -> int:
    attention, feed_forward = block.attention, block.feed_forward
    inside = len(_normed_inside(attention))
    if block.cross_attention is not None:
        inside += len(_normed_inside(block.cross_attention))
    count = norm_count(block) * _NORM_KERNELS[block.norm] + inside * _NORM_KERNELS[Norm.RMS]
    count += sublayer_count(block) * _RESIDUAL_KERNELS
    if not isinstance(feed_forward, NoFeedForward):
        count += 2 if feed_forward.gated else 1
    if block.mixer is not None:
        count += mixer_traffic(block.mixer).kernel_count
    if _gate_width(attention):
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
    inside = len(_normed_inside(attention))
    if block.cross_attention is not None:
        inside += len(_normed_inside(block.cross_attention))
    spared = norm_count(block) * (_NORM_KERNELS[block.norm] - 1)
    spared += inside * (_NORM_KERNELS[Norm.RMS] - 1) + int(_is_gated(block.feed_forward))
    spared += _later_traffic(block, 1).unfused_kernel_count
    if isinstance(attention, LatentAttention | CompressedAttention):
        return spared + LATENT_KERNELS - _FUSED_ROTARY_KERNELS
    return spared + (_ROTARY_KERNELS - _FUSED_ROTARY_KERNELS if _rotates(attention) else 0)


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
    rows = ("key",) if attention.values_are_keys else ("key", "value")
    return (
        *_fused(
            _gemm("query", hidden_size, query_width + _gate_width(attention), "outer"),
            *(
                _gemm(name, hidden_size, key_value_width, "outer", shares_input=True)
                for name in rows
            ),
        ),
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
        _gemm("key_value_down", hidden_size, compressed, "none", shares_input=True),
        _gemm("key_value_up", attention.key_value_rank, expanded, "outer"),
        _gemm("output", value_width, hidden_size, "inner"),
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
