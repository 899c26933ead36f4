"""Decoders of Hugging Face with norms or windows of their own: gemma2 and 3, gpt_oss, the olmos.

Each reader states the defaults of its configuration class (`configuration_<type>.py` of
transformers 5.23).
"""

from __future__ import annotations

from planner.importers.fields import Fields, require_at_most
from planner.importers.hugging_face.attention import (
    Windows,
    grouped_query,
    layer_count,
    periodic_windows,
    require_as_wide_as_the_model,
)
from planner.importers.hugging_face.decoder import rotary_decoder
from planner.schema.model import (
    Block,
    DenseFeedForward,
    GroupedQueryAttention,
    MixtureFeedForward,
    ModelGraph,
    Norm,
    NormPlacement,
)

GPT_OSS_ALIASES = {"num_experts": "num_local_experts"}
OLMOE_ALIASES = {"num_local_experts": "num_experts"}

GEMMA2_CAP = {"final_logit_softcapping": 30.0}
_GEMMA3_PERIOD = 6  # five layers slide, the sixth sees all
_OLMO3_PERIOD = 4


def gemma2(fields: Fields, name: str) -> ModelGraph:
    """Return a gemma2: every second layer slides, norms before and after each part."""
    blocks = _gemma_blocks(fields, window_period=2)
    return rotary_decoder(fields.filled(GEMMA2_CAP), name, blocks, positions=8192, tied=True)


def gemma3_text(fields: Fields, name: str) -> ModelGraph:
    """Return a gemma3_text: five layers of six slide, queries and keys normed per head.

    `sliding_window_pattern` is an older spelling of the period. Where attention sees both sides,
    the window is halved, as its class does.
    """
    period = fields.size("sliding_window_pattern", _GEMMA3_PERIOD)
    blocks = _gemma_blocks(fields, window_period=period, halved=True, query_key_norm=True)
    return rotary_decoder(fields, name, blocks, positions=131_072, tied=True)


def olmo2(fields: Fields, name: str) -> ModelGraph:
    """Return an olmo2: norms after each part alone, queries and keys normed over all heads."""
    return _olmo(fields, name, [None] * layer_count(fields))


def olmo3(fields: Fields, name: str) -> ModelGraph:
    """Return an olmo3: an olmo2 whose layers slide, three of four."""
    return _olmo(fields, name, periodic_windows(fields, window=4096, period=_OLMO3_PERIOD))


def _olmo(fields: Fields, name: str, windows: Windows) -> ModelGraph:
    attention = wholly_normed(fields)
    feed_forward = DenseFeedForward(ffn_size=fields.size("intermediate_size"))
    blocks = [
        Block(
            attention=_windowed(attention, window),
            feed_forward=feed_forward,
            norm=Norm.RMS_FLOAT32,
            norm_placement=NormPlacement.AFTER,
        )
        for window in windows
    ]
    return rotary_decoder(fields, name, blocks, positions=2048)


def olmoe(fields: Fields, name: str) -> ModelGraph:
    """Return an olmoe: every layer routes, queries and keys normed over all heads.

    Raises:
        DocumentError: if its heads together are not as wide as the model, as their norm needs.
    """
    attention = wholly_normed(fields)
    require_as_wide_as_the_model(fields, attention)
    count = fields.size("num_experts", 64)
    chosen = fields.size("num_experts_per_tok", 8)
    require_at_most(
        "num_experts_per_tok", chosen, limit_name=fields.spelling("num_experts"), limit=count
    )
    block = Block(
        attention=attention,
        feed_forward=MixtureFeedForward(
            expert_count=count,
            experts_per_token=chosen,
            expert_ffn_size=fields.size("intermediate_size"),
        ),
    )
    return rotary_decoder(fields, name, (block,) * layer_count(fields), positions=4096)


def gpt_oss(fields: Fields, name: str) -> ModelGraph:
    """Return a gpt_oss: every second layer slides, sinks in attention, biases in the experts."""
    count = fields.size("num_local_experts", 128)
    chosen = fields.size("num_experts_per_tok", 4)
    require_at_most(
        fields.spelling("num_experts_per_tok"),
        chosen,
        limit_name=fields.spelling("num_local_experts"),
        limit=count,
    )
    mixture = MixtureFeedForward(
        expert_count=count,
        experts_per_token=chosen,
        expert_ffn_size=fields.size("intermediate_size"),
        expert_bias=True,
        router_bias=True,
    )
    bias = fields.flag("attention_bias", True)
    attention = grouped_query(fields, key_value_heads=8, head_size=64).model_copy(
        update={"query_key_value_bias": bias, "output_bias": bias, "sink": True}
    )
    blocks = [
        Block(attention=_windowed(attention, window), feed_forward=mixture)
        for window in periodic_windows(fields, window=128, period=2)
    ]
    return rotary_decoder(fields, name, blocks, positions=131_072)


def wholly_normed(fields: Fields) -> GroupedQueryAttention:
    """Return attention that norms the row of all heads of queries, and that of keys."""
    bias = fields.flag("attention_bias", False)
    return grouped_query(fields).model_copy(
        update={
            "query_key_value_bias": bias,
            "output_bias": bias,
            "query_key_norm": True,
            "query_key_norm_spans_heads": True,
        }
    )


def _gemma_blocks(
    fields: Fields, *, window_period: int, halved: bool = False, query_key_norm: bool = False
) -> list[Block]:
    bias = fields.flag("attention_bias", False)
    both_sides = fields.flag("use_bidirectional_attention", False)
    attention = grouped_query(fields, key_value_heads=4, head_size=256).model_copy(
        update={
            "query_key_value_bias": bias,
            "output_bias": bias,
            "query_key_norm": query_key_norm,
            "causal": not both_sides,
        }
    )
    feed_forward = DenseFeedForward(ffn_size=fields.size("intermediate_size"))
    windows = periodic_windows(fields, window=4096, period=window_period)
    if both_sides and halved:
        windows = [None if window is None else window // 2 + 1 for window in windows]
    return [
        Block(
            attention=_windowed(attention, window),
            feed_forward=feed_forward,
            norm=Norm.RMS_FLOAT32,
            norm_placement=NormPlacement.BOTH,
        )
        for window in windows
    ]


def _windowed(attention: GroupedQueryAttention, window: int | None) -> GroupedQueryAttention:
    return attention.model_copy(update={"sliding_window_tokens": window})
