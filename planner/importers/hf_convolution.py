"""Decoders of Hugging Face with short convolutions: lfm2 and lfm2_moe.

Each reader states the defaults of its configuration class (`configuration_<type>.py` of
transformers 5.23). Both say by two names whether embeddings are tied, and are unless told.
"""

from __future__ import annotations

from collections.abc import Callable, Sequence

from planner.importers.fields import Fields
from planner.importers.hf_attention import grouped_query, layer_count, layer_kinds
from planner.importers.hf_decoder import rotary_decoder
from planner.importers.hf_mixture import routed_experts
from planner.schema.model import (
    Block,
    DenseFeedForward,
    FeedForward,
    ModelGraph,
    NoAttention,
    ShortConvolutionMixer,
)

_FULL, _CONVOLUTION = "full_attention", "conv"


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
    mixer = ShortConvolutionMixer(
        inner_width=fields.size("hidden_size"),
        convolution_width=fields.size("conv_L_cache", 3),
        bias=fields.flag("conv_bias", False),
    )
    blocks = [
        Block(
            attention=attention if kind == _FULL else NoAttention(),
            mixer=None if kind == _FULL else mixer,
            feed_forward=feed_forward(index),
        )
        for index, kind in enumerate(layer_kinds(fields, default, known=(_FULL, _CONVOLUTION)))
    ]
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
