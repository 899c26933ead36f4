"""Older decoders of Hugging Face after GPT-2 and GPT-3: gpt_bigcode, gpt_neo, gptj and mpt.

Each reader states the defaults of its configuration class (`configuration_<type>.py` of
transformers 5.23).
"""

from __future__ import annotations

from collections.abc import Sequence

from planner.errors import DocumentError, UnsupportedModelError
from planner.importers.fields import LAYER_LIMIT, POSITION_LIMIT, Fields
from planner.importers.hugging_face.attention import layer_count, multi_head
from planner.importers.hugging_face.decoder import rotary_decoder
from planner.schema.model import Block, DenseFeedForward, ModelGraph, Norm, NormPlacement

GPT_BIGCODE_ALIASES = {
    "hidden_size": "n_embd",
    "max_position_embeddings": "n_positions",
    "num_attention_heads": "n_head",
    "num_hidden_layers": "n_layer",
}
GPTJ_ALIASES = GPT_BIGCODE_ALIASES
GPT_NEO_ALIASES = {"num_attention_heads": "num_heads", "num_hidden_layers": "num_layers"}
MPT_ALIASES = {
    "hidden_size": "d_model",
    "num_attention_heads": "n_heads",
    "num_hidden_layers": "n_layers",
}

_FULL, _LOCAL = "global", "local"
_WIDENED = 4


def gpt_bigcode(fields: Fields, name: str) -> ModelGraph:
    """Return a gpt_bigcode (StarCoder): a gpt2 whose heads share one key and value, unless told.

    Raises:
        UnsupportedModelError: if it attends to an encoder.
    """
    if fields.flag("add_cross_attention", False):
        raise UnsupportedModelError(
            "cross-attention cannot be priced",
            field=fields.spelling("add_cross_attention"),
            value=True,
            remedy="leave it out, or trace the model with `meshwright trace`",
        )
    attention = multi_head(fields, "n_head", "n_embd")
    shares = fields.flag("multi_query", True)
    attention = attention.model_copy(
        update={
            "key_value_head_count": 1 if shares else attention.head_count,
            "query_key_value_bias": True,
            "output_bias": True,
            "rotary": False,
        }
    )
    block = Block(attention=attention, feed_forward=_plain(fields, "n_embd"), norm=Norm.LAYER)
    positions = fields.size("n_positions", 1024, limit=POSITION_LIMIT)
    blocks = (block,) * layer_count(fields, "n_layer")
    graph = rotary_decoder(fields, name, blocks, positions=positions, tied=True, width="n_embd")
    return graph.model_copy(
        update={"learned_position_count": positions, "maximum_sequence_length": positions}
    )


def gptj(fields: Fields, name: str) -> ModelGraph:
    """Return a gptj: halves side by side behind one norm, rotary, a head with biases."""
    block = Block(
        attention=multi_head(fields, "n_head", "n_embd"),
        feed_forward=_plain(fields, "n_embd"),
        norm=Norm.LAYER,
        norm_placement=NormPlacement.SHARED,
    )
    positions = fields.size("n_positions", 2048, limit=POSITION_LIMIT)
    blocks = (block,) * layer_count(fields, "n_layer")
    graph = rotary_decoder(fields, name, blocks, positions=positions, width="n_embd")
    return graph.model_copy(update={"head_bias": True, "maximum_sequence_length": positions})


def gpt_neo(fields: Fields, name: str) -> ModelGraph:
    """Return a gpt_neo: learned positions, every second layer sees a window unless told."""
    window = fields.size("window_size", 256, limit=POSITION_LIMIT)
    attention = multi_head(fields, "num_heads").model_copy(
        update={"output_bias": True, "rotary": False}
    )
    local = attention.model_copy(update={"sliding_window_tokens": window})
    feed_forward = _plain(fields, "hidden_size", "intermediate_size")
    blocks = [
        Block(
            attention=local if kind == _LOCAL else attention,
            feed_forward=feed_forward,
            norm=Norm.LAYER,
        )
        for kind in _neo_kinds(fields)
    ]
    graph = rotary_decoder(fields, name, blocks, positions=2048, tied=True)
    return graph.model_copy(update={"learned_position_count": graph.maximum_sequence_length})


def mpt(fields: Fields, name: str) -> ModelGraph:
    """Return an mpt: no biases, positions by distance, tied; its class reads no other attention."""
    width = fields.size("d_model")
    block = Block(
        attention=multi_head(fields, "n_heads", "d_model").model_copy(update={"rotary": False}),
        feed_forward=DenseFeedForward(ffn_size=_WIDENED * width, gated=False),
        norm=Norm.RMS_FLOAT32,  # a mean and no bias, as cohere's
    )
    blocks = (block,) * layer_count(fields, "n_layers")
    positions = fields.size("max_seq_len", 2048, limit=POSITION_LIMIT)
    return rotary_decoder(fields, name, blocks, positions=positions, tied=True, width="d_model")


def _neo_kinds(fields: Fields) -> Sequence[str]:
    """Return the kind of each layer, of `attention_types`: pairs of kinds and how often they come.

    Raises:
        DocumentError: if it is written otherwise or names another number of layers.
    """
    count = layer_count(fields, "num_layers")
    given = fields.pairs("attention_types")
    kinds = [
        kind for words, times in given for _ in range(min(times, LAYER_LIMIT)) for kind in words
    ]
    if not given:
        kinds = [_LOCAL if index % 2 else _FULL for index in range(count)]
    if len(kinds) != count or not set(kinds) <= {_FULL, _LOCAL}:
        raise DocumentError(
            f"must name each of the {count} layers, global or local",
            field=fields.spelling("attention_types"),
            value=f"{len(kinds)} layers",
            remedy='write [[["global", "local"], N]] with N half the layers',
        )
    return kinds


def _plain(fields: Fields, width: str, ffn_size: str = "n_inner") -> DenseFeedForward:
    size = fields.size(ffn_size, _WIDENED * fields.size(width))
    return DenseFeedForward(ffn_size=size, gated=False, bias=True)
