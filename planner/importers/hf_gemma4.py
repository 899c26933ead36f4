"""Gemma-4 of Hugging Face, its decoder: wider heads where all is seen, experts beside a dense part.

Defaults are those of `configuration_gemma4.py` of transformers 5.23. The small ones, whose layers
have inputs of their own or share keys and values, cannot be priced, and are refused.
"""

from __future__ import annotations

from planner.errors import UnsupportedModelError
from planner.importers.fields import POSITION_LIMIT, Fields, require_at_most, require_divides
from planner.importers.hf_attention import grouped_query, layer_count, layer_kinds
from planner.importers.hf_decoder import rotary_decoder
from planner.schema.model import (
    Block,
    DenseFeedForward,
    FeedForward,
    GroupedQueryAttention,
    MixtureFeedForward,
    ModelGraph,
    Norm,
    NormPlacement,
)

_FULL, _SLIDING = "full_attention", "sliding_attention"
_PERIOD = 6  # five layers slide, the sixth sees all
_UNPRICED = (
    ("hidden_size_per_layer_input", 256, "inputs of each layer's own, from a second embedding,"),
    ("num_kv_shared_layers", 0, "layers that use an earlier layer's keys and values"),
)


def gemma4(fields: Fields, name: str) -> ModelGraph:
    """Return the decoder of a gemma4, and say that its towers are left out."""
    text = fields.section("text_config", defaults={"model_type": "gemma4_text"})
    graph = gemma4_text(text, name)
    towers = [word for word in ("vision", "audio") if fields.is_mapping(f"{word}_config")]
    said = tuple(f"the {word} tower is left out: its cost is not counted" for word in towers)
    tied = fields.flag("tie_word_embeddings", graph.tied_embeddings)
    return graph.model_copy(
        update={"architecture": "gemma4", "tied_embeddings": tied, "assumptions": said}
    )


def gemma4_text(fields: Fields, name: str) -> ModelGraph:
    """Return the decoder: norms before and after each part, keys that may be values as well.

    Raises:
        UnsupportedModelError: if layers have inputs of their own, or share keys and values.
    """
    for field, default, what in _UNPRICED:
        value = fields.size(field, default, minimum=0)
        if value:
            raise UnsupportedModelError(
                f"{what} cannot be priced",
                field=fields.spelling(field),
                value=value,
                remedy="trace the model with `meshwright trace`, or set it to 0 for a model "
                "without",
            )
    count = layer_count(fields)
    default_kinds = [_SLIDING if (index + 1) % _PERIOD else _FULL for index in range(count)]
    kinds = [*layer_kinds(fields, default_kinds, known=(_FULL, _SLIDING))]
    kinds[-1] = _FULL  # as its class forces
    attentions = {_SLIDING: _sliding(fields), _FULL: _seeing_all(fields)}
    feed_forward = _feed_forward(fields)
    blocks = [
        Block(
            attention=attentions[kind],
            feed_forward=feed_forward,
            norm=Norm.RMS_FLOAT32,
            norm_placement=NormPlacement.BOTH,
        )
        for kind in kinds
    ]
    return rotary_decoder(fields, name, blocks, positions=131_072, tied=True)


def _attention(fields: Fields) -> GroupedQueryAttention:
    bias = fields.flag("attention_bias", False)
    both_sides = fields.text("use_bidirectional_attention") == "all"
    return grouped_query(fields, key_value_heads=4, head_size=256).model_copy(
        update={
            "query_key_value_bias": bias,
            "output_bias": bias,
            "query_key_norm": True,
            "causal": not both_sides,
        }
    )


def _sliding(fields: Fields) -> GroupedQueryAttention:
    attention = _attention(fields)
    window = fields.size("sliding_window", 512, limit=POSITION_LIMIT)
    own = window if attention.causal else window // 2 + 1
    return attention.model_copy(update={"sliding_window_tokens": own})


def _seeing_all(fields: Fields) -> GroupedQueryAttention:
    """Return attention of layers that see all: its own head size, perhaps fewer key-value heads."""
    attention = _attention(fields)
    same = fields.flag("attention_k_eq_v", False)
    heads = attention.key_value_head_count
    if same:
        heads = fields.optional_size("num_global_key_value_heads") or heads
        require_divides(
            fields.spelling("num_global_key_value_heads"),
            heads,
            fields.spelling("num_attention_heads"),
            attention.head_count,
        )
    return attention.model_copy(
        update={
            "head_size": fields.size("global_head_dim", 512),
            "key_value_head_count": heads,
            "values_are_keys": same,
        }
    )


def _feed_forward(fields: Fields) -> FeedForward:
    """Return the dense part, with `enable_moe_block` as the shared expert of a mixture.

    Beside the mixture stand three norms more, a scale of the router's row and one per expert.
    """
    width = fields.size("intermediate_size")
    if not fields.flag("enable_moe_block", False):
        return DenseFeedForward(ffn_size=width)
    count, chosen = fields.size("num_experts"), fields.size("top_k_experts")
    require_at_most("top_k_experts", chosen, limit_name="num_experts", limit=count)
    return MixtureFeedForward(
        expert_count=count,
        experts_per_token=chosen,
        expert_ffn_size=fields.size("moe_intermediate_size"),
        shared_ffn_size=width,
        scale_elements=4 * fields.size("hidden_size") + count,
    )
