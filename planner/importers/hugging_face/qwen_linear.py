"""Qwen decoders of Hugging Face with gated delta nets: qwen3_next, qwen3_5 and qwen3_5_moe.

Each reader states the defaults of its configuration class (`configuration_<type>.py` of
transformers 5.23). A qwen3_5 may have a vision tower, as its kin of `qwen_vl` has.
"""

from __future__ import annotations

from collections.abc import Callable

from planner.importers.fields import Fields, require_at_most, require_divides
from planner.importers.hugging_face.attention import grouped_query, layer_count, layer_kinds
from planner.importers.hugging_face.decoder import rotary_decoder
from planner.schema.model import (
    Block,
    DenseFeedForward,
    FeedForward,
    GatedDeltaMixer,
    MixtureFeedForward,
    ModelGraph,
    NoAttention,
    Norm,
)

_FULL, _LINEAR = "full_attention", "linear_attention"


def qwen3_next(fields: Fields, name: str) -> ModelGraph:
    """Return a qwen3_next: three layers of four are gated delta nets, and most route."""
    mixture = shared_mixture(fields, experts=512, chosen=10)
    dense_only = fields.indices("mlp_only_layers")
    step = fields.size("decoder_sparse_step", 1)

    def feed_forward(index: int) -> FeedForward:
        if index not in dense_only and (index + 1) % step == 0:
            return mixture
        return DenseFeedForward(ffn_size=fields.size("intermediate_size"))

    return _decoder(fields, name, feed_forward, key_value_heads=2)


def qwen3_5_text(fields: Fields, name: str) -> ModelGraph:
    """Return the decoder of a qwen3_5: a dense feed-forward in every layer."""
    dense = DenseFeedForward(ffn_size=fields.size("intermediate_size"))
    return _decoder(fields, name, lambda _: dense, key_value_heads=4)


def qwen3_5_moe_text(fields: Fields, name: str) -> ModelGraph:
    """Return the decoder of a qwen3_5_moe: every layer routes, beside a gated shared expert."""
    mixture = shared_mixture(fields, experts=256, chosen=8)
    return _decoder(fields, name, lambda _: mixture, key_value_heads=2)


def _decoder(
    fields: Fields,
    name: str,
    feed_forward: Callable[[int], FeedForward],
    *,
    key_value_heads: int,
) -> ModelGraph:
    """Return linear layers but for every fourth, whose attention gates its output."""
    interval = fields.size("full_attention_interval", 4)
    default = [_LINEAR if (index + 1) % interval else _FULL for index in range(layer_count(fields))]
    kinds = layer_kinds(fields, default, known=(_FULL, _LINEAR))
    bias = fields.flag("attention_bias", False)
    attention = grouped_query(fields, key_value_heads=key_value_heads, head_size=256).model_copy(
        update={
            "query_key_value_bias": bias,
            "output_bias": bias,
            "query_key_norm": True,
            "output_gate": True,
        }
    )
    mixer = delta_mixer(fields)
    blocks = [
        Block(
            attention=attention if kind == _FULL else NoAttention(),
            mixer=mixer if kind == _LINEAR else None,
            feed_forward=feed_forward(index),
            norm=Norm.RMS_FLOAT32,
        )
        for index, kind in enumerate(kinds)
    ]
    return rotary_decoder(fields, name, blocks, positions=32768)


def delta_mixer(fields: Fields) -> GatedDeltaMixer:
    """Return the gated delta net of a layer."""
    keys = fields.size("linear_num_key_heads", 16)
    values = fields.size("linear_num_value_heads", 32)
    require_divides(
        fields.spelling("linear_num_key_heads"),
        keys,
        fields.spelling("linear_num_value_heads"),
        values,
    )
    return GatedDeltaMixer(
        key_head_count=keys,
        value_head_count=values,
        key_head_size=fields.size("linear_key_head_dim", 128),
        value_head_size=fields.size("linear_value_head_dim", 128),
        convolution_width=fields.size("linear_conv_kernel_dim", 4),
    )


def shared_mixture(fields: Fields, *, experts: int, chosen: int) -> MixtureFeedForward:
    """Return routed experts beside a gated shared one; the type's own defaults are given."""
    count = fields.size("num_experts", experts)
    per_token = fields.size("num_experts_per_tok", chosen)
    require_at_most(
        "num_experts_per_tok",
        per_token,
        limit_name=fields.spelling("num_experts"),
        limit=count,
    )
    return MixtureFeedForward(
        expert_count=count,
        experts_per_token=per_token,
        expert_ffn_size=fields.size("moe_intermediate_size", 512),
        shared_ffn_size=fields.size("shared_expert_intermediate_size", 512),
        shared_gate=True,
    )
