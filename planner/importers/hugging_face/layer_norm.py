"""Decoders of Hugging Face with LayerNorm, one half after the other: gpt2, opt, bloom, starcoder2.

Each reader states the defaults of its configuration class (`configuration_<type>.py` of
transformers 5.23).
"""

from __future__ import annotations

from planner.errors import UnsupportedModelError
from planner.importers.fields import POSITION_LIMIT, Fields
from planner.importers.hugging_face.attention import (
    grouped_query,
    layer_count,
    multi_head,
    uniform_windows,
)
from planner.importers.hugging_face.decoder import rotary_decoder
from planner.schema.model import Block, DenseFeedForward, Entry, ModelGraph, Norm

BLOOM_ALIASES = {
    "n_embed": "hidden_size",
    "num_attention_heads": "n_head",
    "num_hidden_layers": "n_layer",
}
GPT2_ALIASES = {
    "hidden_size": "n_embd",
    "max_position_embeddings": "n_positions",
    "num_attention_heads": "n_head",
    "num_hidden_layers": "n_layer",
}
_OPT_FIRST_POSITION = 2


def gpt2(fields: Fields, name: str) -> ModelGraph:
    """Return a gpt2: learned positions, biases everywhere, tied embeddings.

    Raises:
        UnsupportedModelError: if it attends to an encoder.
    """
    if fields.flag("add_cross_attention", False):
        raise _unpriced(fields, "add_cross_attention", True, "cross-attention")
    width = fields.size("n_embd")
    block = _block(fields, "n_head", "n_embd", ffn_size=fields.size("n_inner", 4 * width))
    positions = fields.size("n_positions", 1024, limit=POSITION_LIMIT)
    return _learned(
        rotary_decoder(
            fields,
            name,
            (block,) * layer_count(fields, "n_layer"),
            positions=positions,
            tied=True,
            width="n_embd",
        ),
        positions,
    )


def opt(fields: Fields, name: str) -> ModelGraph:
    """Return an opt: learned positions of which two stay unused, biases everywhere.

    Raises:
        UnsupportedModelError: if norms come after the halves, or embeddings are narrower than the
            model (the 350m alone has both), or norms have no weights.
    """
    width = fields.size("hidden_size")
    if fields.size("word_embed_proj_dim", width) != width:
        given = fields.size("word_embed_proj_dim")
        raise _unpriced(
            fields, "word_embed_proj_dim", given, "an embedding narrower than the model"
        )
    for field, usual, what in (
        ("do_layer_norm_before", True, "a decoder without a final norm"),
        ("layer_norm_elementwise_affine", True, "norms without weights"),
        ("_remove_final_layer_norm", False, "a decoder without a final norm"),
    ):
        if fields.flag(field, usual) is not usual:
            raise _unpriced(fields, field, not usual, what)
    bias = fields.flag("enable_bias", True)
    block = _block(
        fields, "num_attention_heads", "hidden_size", ffn_size=fields.size("ffn_dim"), bias=bias
    )
    blocks = (block,) * layer_count(fields)
    graph = rotary_decoder(fields, name, blocks, positions=2048, tied=True)
    return _learned(graph, graph.maximum_sequence_length + _OPT_FIRST_POSITION)


def bloom(fields: Fields, name: str) -> ModelGraph:
    """Return a bloom: a norm after the embedding, no positions, biases everywhere.

    Its biases of attention by distance cost nothing, as in a fused kernel. What it was trained for
    stands in `seq_length`.
    """
    width = fields.size("hidden_size")
    block = _block(fields, "n_head", "hidden_size", ffn_size=4 * width)
    blocks = (block,) * layer_count(fields, "n_layer")
    positions = fields.size("seq_length", 2048, limit=POSITION_LIMIT)
    graph = rotary_decoder(fields, name, blocks, positions=positions, tied=True)
    run = graph.runs[0].model_copy(update={"entry": Entry(norm_widths=(width,))})
    return graph.model_copy(update={"runs": (run,)})


def starcoder2(fields: Fields, name: str) -> ModelGraph:
    """Return a starcoder2: grouped queries, rotary positions, biases unless told, tied."""
    bias = fields.flag("use_bias", True)
    attention = grouped_query(fields, key_value_heads=2).model_copy(
        update={"query_key_value_bias": bias, "output_bias": bias}
    )
    feed_forward = DenseFeedForward(
        ffn_size=fields.size("intermediate_size"), gated=False, bias=bias
    )
    blocks = [
        Block(
            attention=attention.model_copy(update={"sliding_window_tokens": window}),
            feed_forward=feed_forward,
            norm=Norm.LAYER,
        )
        for window in uniform_windows(fields)
    ]
    return rotary_decoder(fields, name, blocks, positions=4096, tied=True)


def _block(fields: Fields, heads: str, width: str, *, ffn_size: int, bias: bool = True) -> Block:
    attention = multi_head(fields, heads, width).model_copy(
        update={"query_key_value_bias": bias, "output_bias": bias, "rotary": False}
    )
    return Block(
        attention=attention,
        feed_forward=DenseFeedForward(ffn_size=ffn_size, gated=False, bias=bias),
        norm=Norm.LAYER,
    )


def _learned(graph: ModelGraph, positions: int) -> ModelGraph:
    return graph.model_copy(update={"learned_position_count": positions})


def _unpriced(fields: Fields, name: str, value: object, what: str) -> UnsupportedModelError:
    return UnsupportedModelError(
        f"{what} cannot be priced",
        field=fields.spelling(name),
        value=value,
        remedy="leave it out, or trace the model with `meshwright trace`",
    )
