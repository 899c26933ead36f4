"""Hybrid decoders of Hugging Face with Mamba-2 layers: bamba, granitemoehybrid and falcon_h1.

Each reader states the defaults of its configuration class (`configuration_<type>.py` of
transformers 5.23).
"""

from __future__ import annotations

from planner.errors import UnsupportedModelError
from planner.importers.fields import Fields, require_at_most, require_divides
from planner.importers.hugging_face.attention import grouped_query, layer_count, layer_kinds
from planner.importers.hugging_face.decoder import rotary_decoder
from planner.schema.model import (
    Block,
    DenseFeedForward,
    FeedForward,
    MixtureFeedForward,
    ModelGraph,
    NoAttention,
    StateSpaceMixer,
)

GRANITE_ALIASES = {"layers_block_type": "layer_types"}
BAMBA_ALIASES = {"layer_types": "layers_block_type"}

_FULL, _LINEAR = "full_attention", "linear_attention"


def granitemoehybrid(fields: Fields, name: str) -> ModelGraph:
    """Return a granitemoehybrid: each layer has state space or attention, then shared experts.

    Without routed experts (`num_local_experts` 0) the shared ones are a plain feed-forward.
    """
    count = layer_count(fields)
    kinds = layer_kinds(fields, [_LINEAR] * count, known=(_FULL, _LINEAR))
    bias = fields.flag("attention_bias", False)
    attention = grouped_query(fields).model_copy(
        update={
            "query_key_value_bias": bias,
            "output_bias": bias,
            "rotary": fields.text("position_embedding_type") == "rope",
        }
    )
    feed_forward = _granite_feed_forward(fields)
    mixer = _mamba(fields, fields.size("mamba_expand", 2) * fields.size("hidden_size"))
    biased = fields.flag("mamba_proj_bias", False)
    mixer = mixer.model_copy(update={"input_bias": biased, "output_bias": biased})
    mixed = Block(attention=NoAttention(), mixer=mixer, feed_forward=feed_forward)
    attends = Block(attention=attention, feed_forward=feed_forward)
    blocks = [mixed if kind == _LINEAR else attends for kind in kinds]
    return rotary_decoder(fields, name, blocks, positions=2048)


def bamba(fields: Fields, name: str) -> ModelGraph:
    """Return a bamba: state space but for the layers of `attn_layer_indices`, which attend.

    Its class computes `layers_block_type` of them, whatever a file says.
    """
    attends = fields.indices("attn_layer_indices")
    bias = fields.flag("attention_bias", False)
    attention = grouped_query(fields, key_value_heads=8).model_copy(
        update={"query_key_value_bias": bias, "output_bias": bias}
    )
    biased = fields.flag("mamba_proj_bias", False)
    mixer = _mamba(fields, fields.size("mamba_expand", 2) * fields.size("hidden_size"))
    mixer = mixer.model_copy(update={"input_bias": biased, "output_bias": biased})
    feed_forward = DenseFeedForward(
        ffn_size=fields.size("intermediate_size"), bias=fields.flag("mlp_bias", False)
    )
    attended = Block(attention=attention, feed_forward=feed_forward)
    mixed = Block(attention=NoAttention(), mixer=mixer, feed_forward=feed_forward)
    blocks = [attended if i in attends else mixed for i in range(layer_count(fields))]
    return rotary_decoder(fields, name, blocks, positions=262_144)


def falcon_h1(fields: Fields, name: str) -> ModelGraph:
    """Return a falcon_h1: attention and state space side by side in every layer."""
    bias = fields.flag("attention_bias", False)
    attention = grouped_query(fields, key_value_heads=8).model_copy(
        update={"query_key_value_bias": bias, "output_bias": bias}
    )
    width = fields.optional_size("mamba_d_ssm", 1024)
    if width is None:
        width = fields.size("mamba_expand", 2) * fields.size("hidden_size")
    mixer = _mamba(fields, width).model_copy(
        update={
            "input_bias": fields.flag("mamba_proj_bias", False),
            "output_bias": fields.flag("projectors_bias", False),
            "gated_norm": fields.flag("mamba_rms_norm", False),
        }
    )
    block = Block(
        attention=attention,
        mixer=mixer,
        feed_forward=DenseFeedForward(
            ffn_size=fields.size("intermediate_size"), bias=fields.flag("mlp_bias", False)
        ),
    )
    return rotary_decoder(fields, name, (block,) * layer_count(fields), positions=8192)


def _mamba(fields: Fields, width: int) -> StateSpaceMixer:
    """Return the state-space layer of `width`, its heads as wide as they must be.

    Raises:
        DocumentError: if the heads do not divide the width, or groups the heads.
    """
    heads = fields.size("mamba_n_heads", 128)
    require_divides(fields.spelling("mamba_n_heads"), heads, "the state-space width", width)
    groups = fields.size("mamba_n_groups", 1)
    require_divides(
        fields.spelling("mamba_n_groups"), groups, fields.spelling("mamba_n_heads"), heads
    )
    size = width // heads
    if fields.text("mamba_d_head") != "auto" and fields.size("mamba_d_head", size) != size:
        raise UnsupportedModelError(
            f"x mamba_n_heads {heads} must be the state-space width {width}",
            field=fields.spelling("mamba_d_head"),
            value=fields.size("mamba_d_head"),
            remedy=f"use {size}, or leave it out",
        )
    return StateSpaceMixer(
        head_count=heads,
        head_size=size,
        group_count=groups,
        state_size=fields.size("mamba_d_state", 256),
        convolution_width=fields.size("mamba_d_conv", 4),
        chunk_tokens=fields.size("mamba_chunk_size", 256),
        convolution_bias=fields.flag("mamba_conv_bias", True),
    )


def _granite_feed_forward(fields: Fields) -> FeedForward:
    shared = fields.size("shared_intermediate_size", 1024)
    count = fields.size("num_local_experts", 8, minimum=0)
    if not count:
        return DenseFeedForward(ffn_size=shared)
    chosen = fields.size("num_experts_per_tok", 2)
    require_at_most("num_experts_per_tok", chosen, limit_name="num_local_experts", limit=count)
    return MixtureFeedForward(
        expert_count=count,
        experts_per_token=chosen,
        expert_ffn_size=fields.size("intermediate_size"),
        shared_ffn_size=shared,
    )
