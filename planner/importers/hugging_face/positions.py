"""Decoders of Hugging Face of which some layers know no positions: smollm3 and llama4_text.

Each reader states the defaults of its configuration class (`configuration_<type>.py` of
transformers 5.23).
"""

from __future__ import annotations

from planner.errors import DocumentError
from planner.importers.fields import POSITION_LIMIT, Fields, require_at_most
from planner.importers.hugging_face.attention import grouped_query, layer_count, layer_kinds
from planner.importers.hugging_face.decoder import rotary_decoder
from planner.schema.model import Block, DenseFeedForward, MixtureFeedForward, ModelGraph

_FULL, _SLIDING, _CHUNKED = "full_attention", "sliding_attention", "chunked_attention"


def smollm3(fields: Fields, name: str) -> ModelGraph:
    """Return a smollm3: every fourth layer is without rotary positions, and slides where told."""
    rotary = _rotary_layers(fields)
    window = fields.optional_size("sliding_window", limit=POSITION_LIMIT)
    switched = window is not None and fields.flag("use_sliding_window", False)
    default = [_SLIDING if switched and not rotates else _FULL for rotates in rotary]
    kinds = layer_kinds(fields, default, known=(_FULL, _SLIDING))
    bias = fields.flag("attention_bias", False)
    attention = grouped_query(fields, key_value_heads=4).model_copy(
        update={"query_key_value_bias": bias, "output_bias": bias}
    )
    feed_forward = DenseFeedForward(
        ffn_size=fields.size("intermediate_size"), bias=fields.flag("mlp_bias", False)
    )
    blocks = [
        Block(
            attention=attention.model_copy(
                update={
                    "rotary": rotates,
                    "sliding_window_tokens": window if kind == _SLIDING else None,
                }
            ),
            feed_forward=feed_forward,
        )
        for rotates, kind in zip(rotary, kinds, strict=True)
    ]
    return rotary_decoder(fields, name, blocks, positions=32768, tied=True)


def llama4_text(fields: Fields, name: str) -> ModelGraph:
    """Return the decoder of a llama4: most layers see chunks, some route to one expert of many.

    Queries and keys are normed without weights, which is left out of what kernels move.
    """
    rotary = _rotary_layers(fields)
    default = [_CHUNKED if rotates else _FULL for rotates in rotary]
    kinds = layer_kinds(fields, default, known=(_FULL, _CHUNKED))
    chunk = fields.optional_size("attention_chunk_size", 8192, limit=POSITION_LIMIT)
    bias = fields.flag("attention_bias", False)
    attention = grouped_query(fields, key_value_heads=8, head_size=128).model_copy(
        update={"query_key_value_bias": bias, "output_bias": bias}
    )
    routed = _llama4_routed(fields)
    dense = DenseFeedForward(ffn_size=fields.size("intermediate_size_mlp", 16384))
    mixture = _llama4_mixture(fields)
    blocks = [
        Block(
            attention=attention.model_copy(
                update={"rotary": rotates, "chunk_tokens": chunk if kind == _CHUNKED else None}
            ),
            feed_forward=mixture if index in routed else dense,
        )
        for index, (rotates, kind) in enumerate(zip(rotary, kinds, strict=True))
    ]
    return rotary_decoder(fields, name, blocks, positions=4096 * 32)


def _rotary_layers(fields: Fields) -> list[bool]:
    """Return which layers have rotary positions: those where `no_rope_layers` has a 1.

    Without it all but every `no_rope_layer_interval`th.

    Raises:
        DocumentError: if the list is shorter than the layers.
    """
    count = layer_count(fields)
    given = fields.counts("no_rope_layers")
    if not given:
        interval = fields.size("no_rope_layer_interval", 4)
        return [(index + 1) % interval != 0 for index in range(count)]
    if len(given) < count:
        raise DocumentError(
            f"must say for each of the {count} layers whether it has rotary positions",
            field=fields.spelling("no_rope_layers"),
            value=f"{len(given)} entries",
            remedy="give a 1 or a 0 per layer, or leave it out",
        )
    return [bool(item) for item in given[:count]]


def _llama4_routed(fields: Fields) -> frozenset[int]:
    """Return the layers that route: `moe_layers`, else every `interleave_moe_layer_step`th."""
    if fields.is_list("moe_layers"):
        return fields.indices("moe_layers")
    step = fields.size("interleave_moe_layer_step", 1)
    return frozenset(range(step - 1, layer_count(fields), step))


def _llama4_mixture(fields: Fields) -> MixtureFeedForward:
    count = fields.size("num_local_experts", 16)
    chosen = fields.size("num_experts_per_tok", 1)
    require_at_most(
        "num_experts_per_tok",
        chosen,
        limit_name=fields.spelling("num_local_experts"),
        limit=count,
    )
    width = fields.size("intermediate_size")
    return MixtureFeedForward(
        expert_count=count, experts_per_token=chosen, expert_ffn_size=width, shared_ffn_size=width
    )
