"""Decoders of Hugging Face with short convolutions: lfm2, lfm2_moe and lfm3.

Each reader states the defaults of its configuration class (`configuration_<type>.py` of
transformers 5.23). All say by two names whether embeddings are tied, and are unless told.
"""

from __future__ import annotations

from collections.abc import Callable, Sequence

from planner.importers.fields import POSITION_LIMIT, Fields
from planner.importers.hugging_face.attention import grouped_query, layer_count, layer_kinds
from planner.importers.hugging_face.decoder import rotary_decoder
from planner.importers.hugging_face.mixture import routed_experts
from planner.schema.model import (
    Block,
    DenseFeedForward,
    Entry,
    FeedForward,
    GroupedQueryAttention,
    ModelGraph,
    NoAttention,
    NormPlacement,
    Product,
    ShortConvolutionMixer,
)

_FULL, _SLIDING, _CONVOLUTION = "full_attention", "sliding_attention", "conv"
_LFM3_PERIOD = 4


def lfm2(fields: Fields, name: str) -> ModelGraph:
    """Return a lfm2: attention where `layer_types` or `full_attn_idxs` say, else convolutions."""
    absent = "full_attn_idxs" not in fields
    full = fields.indices("full_attn_idxs")
    default = [
        _FULL if absent or index in full else _CONVOLUTION for index in range(layer_count(fields))
    ]
    dense = DenseFeedForward(ffn_size=_adjusted_width(fields))
    return _decoder(fields, name, default, lambda _: dense)


def lfm2_moe(fields: Fields, name: str) -> ModelGraph:
    """Return a lfm2_moe: a lfm2 that routes from layer `num_dense_layers` on."""
    mixture = routed_experts(
        fields,
        expert_count=("num_experts", 32),
        experts_per_token=4,
        expert_ffn_size=fields.size("moe_intermediate_size", 1792),
    )
    dense = DenseFeedForward(ffn_size=fields.size("intermediate_size"))
    first = fields.size("num_dense_layers", 2, minimum=0)
    default = [_CONVOLUTION] * layer_count(fields)
    return _decoder(fields, name, default, lambda index: dense if index < first else mixture)


def _decoder(
    fields: Fields, name: str, default: Sequence[str], feed_forward: Callable[[int], FeedForward]
) -> ModelGraph:
    attention = grouped_query(fields, key_value_heads=8).model_copy(update={"query_key_norm": True})
    mixer = _mixer(fields, taps=3)
    blocks = [
        Block(
            attention=attention if kind == _FULL else NoAttention(),
            mixer=None if kind == _FULL else mixer,
            feed_forward=feed_forward(index),
        )
        for index, kind in enumerate(layer_kinds(fields, default, known=(_FULL, _CONVOLUTION)))
    ]
    return _tied(fields, name, blocks)


def lfm3(fields: Fields, name: str) -> ModelGraph:
    """Return a lfm3: windows and full attention among convolutions, a gate for each head's output.

    Norms stand before and after each part, unless `use_sandwich_norm` is false.
    """
    bias = fields.flag("attention_bias", False)
    attention = grouped_query(fields, key_value_heads=4, head_size=128).model_copy(
        update={"query_key_norm": True, "query_key_value_bias": bias, "output_bias": bias}
    )
    window = fields.optional_size("sliding_window", 256, limit=POSITION_LIMIT)
    gate = Product(inner_size=fields.size("hidden_size"), outer_size=attention.head_count)
    gated = Entry(products=(gate,)) if fields.flag("use_attention_gate", True) else None
    both = fields.flag("use_sandwich_norm", True)
    mixed = Block(
        attention=NoAttention(),
        mixer=_mixer(fields, taps=7),
        feed_forward=DenseFeedForward(ffn_size=fields.size("intermediate_size")),
        norm_placement=NormPlacement.BOTH if both else NormPlacement.BEFORE,
    )
    attended = mixed.model_copy(update={"attention": attention, "mixer": None, "beside": gated})
    slides: GroupedQueryAttention = attention.model_copy(update={"sliding_window_tokens": window})
    blocks = {
        _FULL: attended,
        _SLIDING: attended.model_copy(update={"attention": slides}),
        _CONVOLUTION: mixed,
    }
    kinds = layer_kinds(fields, _lfm3_kinds(layer_count(fields)), known=tuple(blocks))
    return _tied(fields, name, [blocks[kind] for kind in kinds])


def _lfm3_kinds(count: int) -> list[str]:
    """Return every fourth layer from the third as full, every fourth but the first as sliding."""
    kinds = {2: _FULL, 0: _SLIDING}
    return [kinds.get(i % _LFM3_PERIOD, _CONVOLUTION) if i else _CONVOLUTION for i in range(count)]


def _mixer(fields: Fields, *, taps: int) -> ShortConvolutionMixer:
    return ShortConvolutionMixer(
        inner_width=fields.size("hidden_size"),
        convolution_width=fields.size("conv_L_cache", taps),
        bias=fields.flag("conv_bias", False),
    )


def _tied(fields: Fields, name: str, blocks: Sequence[Block]) -> ModelGraph:
    graph = rotary_decoder(fields, name, blocks, positions=128_000, tied=True)
    tied = fields.flag("tie_embedding", graph.tied_embeddings)
    return graph.model_copy(update={"tied_embeddings": tied})


def _adjusted_width(fields: Fields) -> int:
    """Return the feed-forward's columns: two thirds of what is said, rounded up, unless told."""
    width = fields.size("block_ff_dim", fields.size("intermediate_size", 12288))
    if not fields.flag("block_auto_adjust_ff_dim", True):
        return width
    multiple = fields.size("block_multiple_of", 256)
    scaled = int(fields.number("block_ffn_dim_multiplier", 1.0) * int(2 * width / 3))
    return multiple * max(-(-scaled // multiple), 1)
