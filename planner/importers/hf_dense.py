"""Dense decoders of Hugging Face: llama and its kin, mistral, phi3, qwen, gemma and gpt2.

Each reader states the defaults of its configuration class (`configuration_<type>.py` of
transformers 5.23) where they differ from llama's.
"""

from __future__ import annotations

from planner.errors import UnsupportedModelError
from planner.importers.fields import LAYER_LIMIT, POSITION_LIMIT, Fields, require_divides
from planner.importers.hf_attention import (
    Windows,
    grouped_query,
    late_windows,
    layer_count,
    uniform_windows,
)
from planner.importers.hf_decoder import rotary_decoder
from planner.schema.model import (
    Block,
    BlockRun,
    DenseFeedForward,
    GroupedQueryAttention,
    ModelGraph,
    Norm,
)

GPT2_ALIASES = {
    "hidden_size": "n_embd",
    "max_position_embeddings": "n_positions",
    "num_attention_heads": "n_head",
    "num_hidden_layers": "n_layer",
}


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


def gpt2(fields: Fields, name: str) -> ModelGraph:
    """Return a gpt2: LayerNorm, biases everywhere, learned positions, tied embeddings.

    Raises:
        UnsupportedModelError: if it attends to an encoder.
    """
    if fields.flag("add_cross_attention", False):
        raise UnsupportedModelError(
            "cross-attention cannot be priced",
            field="add_cross_attention",
            value=True,
            remedy="leave it out for a decoder alone",
        )
    hidden_size = fields.size("n_embd")
    head_count = fields.size("n_head")
    require_divides(fields.spelling("n_head"), head_count, fields.spelling("n_embd"), hidden_size)
    block = Block(
        attention=GroupedQueryAttention(
            head_count=head_count,
            key_value_head_count=head_count,
            head_size=hidden_size // head_count,
            query_key_value_bias=True,
            output_bias=True,
            rotary=False,
        ),
        feed_forward=DenseFeedForward(
            ffn_size=fields.size("n_inner", 4 * hidden_size), gated=False, bias=True
        ),
        norm=Norm.LAYER,
    )
    positions = fields.size("n_positions", 1024, limit=POSITION_LIMIT)
    return ModelGraph(
        name=name,
        architecture="gpt2",
        hidden_size=hidden_size,
        vocabulary_size=fields.size("vocab_size"),
        tied_embeddings=fields.flag("tie_word_embeddings", True),
        learned_position_count=positions,
        final_norm=Norm.LAYER,
        maximum_sequence_length=positions,
        runs=(BlockRun(block=block, block_count=fields.size("n_layer", limit=LAYER_LIMIT)),),
    )


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
