"""Dense decoders of Hugging Face: llama and its kin, mistral, phi3, qwen, gemma and seed_oss.

Each reader states the defaults of its configuration class (`configuration_<type>.py` of
transformers 5.23) where they differ from llama's.
"""

from __future__ import annotations

from planner.importers.fields import Fields
from planner.importers.hugging_face.attention import (
    Windows,
    grouped_query,
    late_windows,
    layer_count,
    uniform_windows,
)
from planner.importers.hugging_face.decoder import rotary_decoder
from planner.schema.model import (
    Block,
    DenseFeedForward,
    GroupedQueryAttention,
    ModelGraph,
    Norm,
)


def llama(fields: Fields, name: str) -> ModelGraph:
    """Return a llama or granite; granite's multipliers change no shape."""
    bias = fields.flag("attention_bias", False)
    attention = grouped_query(fields).model_copy(
        update={"query_key_value_bias": bias, "output_bias": bias}
    )
    feed_forward = _gated(fields, bias=fields.flag("mlp_bias", False))
    block = Block(attention=attention, feed_forward=feed_forward)
    return rotary_decoder(fields, name, (block,) * layer_count(fields), positions=2048)


def gemma(fields: Fields, name: str) -> ModelGraph:
    """Return a gemma of the first generation: wide heads, tied embeddings."""
    bias = fields.flag("attention_bias", False)
    attention = grouped_query(fields, key_value_heads=16, head_size=256).model_copy(
        update={"query_key_value_bias": bias, "output_bias": bias}
    )
    block = Block(attention=attention, feed_forward=_gated(fields), norm=Norm.RMS_FLOAT32)
    blocks = (block,) * layer_count(fields)
    return rotary_decoder(fields, name, blocks, positions=8192, tied=True)


def mistral(fields: Fields, name: str) -> ModelGraph:
    """Return a mistral; it slides unless `sliding_window` is null, and knows no `layer_types`."""
    attention = grouped_query(fields, key_value_heads=8)
    blocks = _windowed(attention, _gated(fields), uniform_windows(fields, 4096))
    return rotary_decoder(fields, name, blocks, positions=4096 * 32)


def phi3(fields: Fields, name: str) -> ModelGraph:
    """Return a phi3; its fused projections have the shapes of separate ones."""
    blocks = _windowed(grouped_query(fields), _gated(fields), uniform_windows(fields))
    return rotary_decoder(fields, name, blocks, positions=4096)


def qwen2(fields: Fields, name: str) -> ModelGraph:
    """Return a qwen2: biases on queries, keys and values, none on the output."""
    attention = grouped_query(fields, key_value_heads=32).model_copy(
        update={"query_key_value_bias": True}
    )
    blocks = _windowed(attention, _gated(fields), late_windows(fields))
    return rotary_decoder(fields, name, blocks, positions=32768)


def qwen2_vl_text(fields: Fields, name: str) -> ModelGraph:
    """Return the decoder of a qwen2_vl: a qwen2 with eight key-value heads unless told."""
    attention = grouped_query(fields, key_value_heads=8).model_copy(
        update={"query_key_value_bias": True}
    )
    blocks = _windowed(attention, _gated(fields), late_windows(fields, first_default=80))
    return rotary_decoder(fields, name, blocks, positions=32768)


def qwen3(fields: Fields, name: str) -> ModelGraph:
    """Return a qwen3: heads of 128 unless told, queries and keys normed per head."""
    bias = fields.flag("attention_bias", False)
    attention = grouped_query(fields, key_value_heads=32, head_size=128).model_copy(
        update={"query_key_value_bias": bias, "output_bias": bias, "query_key_norm": True}
    )
    blocks = _windowed(attention, _gated(fields), late_windows(fields))
    return rotary_decoder(fields, name, blocks, positions=32768)


def seed_oss(fields: Fields, name: str) -> ModelGraph:
    """Return a seed_oss: biases on queries, keys and values, on the output where told."""
    attention = grouped_query(fields, key_value_heads=8, head_size=128).model_copy(
        update={
            "query_key_value_bias": fields.flag("attention_bias", True),
            "output_bias": fields.flag("attention_out_bias", False),
        }
    )
    feed_forward = _gated(fields, bias=fields.flag("mlp_bias", False))
    block = Block(attention=attention, feed_forward=feed_forward)
    return rotary_decoder(fields, name, (block,) * layer_count(fields), positions=524_288)


def ministral3(fields: Fields, name: str) -> ModelGraph:
    """Return a ministral3: a mistral that slides only where told, with heads of 128."""
    attention = grouped_query(fields, key_value_heads=8, head_size=128)
    blocks = _windowed(attention, _gated(fields), uniform_windows(fields))
    return rotary_decoder(fields, name, blocks, positions=262_144)


def _gated(fields: Fields, *, bias: bool = False) -> DenseFeedForward:
    return DenseFeedForward(ffn_size=fields.size("intermediate_size"), bias=bias)


def _windowed(
    attention: GroupedQueryAttention, feed_forward: DenseFeedForward, windows: Windows
) -> list[Block]:
    """Return one block per window."""
    return [
        Block(
            attention=attention.model_copy(update={"sliding_window_tokens": window}),
            feed_forward=feed_forward,
        )
        for window in windows
    ]
