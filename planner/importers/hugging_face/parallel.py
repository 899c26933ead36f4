"""Decoders of Hugging Face whose halves go side by side: falcon, gpt_neox, phi, cohere, cohere2.

Attention and feed-forward read one norm's row, or a norm's each, and their sum is the residual.
They are priced one after the other, as they run. Each reader states the defaults of its
configuration class (`configuration_<type>.py` of transformers 5.23).
"""

from __future__ import annotations

from planner.errors import UnsupportedModelError
from planner.importers.fields import POSITION_LIMIT, Fields, require_divides
from planner.importers.hugging_face.attention import (
    grouped_query,
    layer_count,
    layer_kinds,
    multi_head,
)
from planner.importers.hugging_face.decoder import rotary_decoder
from planner.schema.model import (
    Block,
    DenseFeedForward,
    GroupedQueryAttention,
    ModelGraph,
    Norm,
    NormPlacement,
)

FALCON_ALIASES = {"n_embed": "hidden_size"}

_FULL, _SLIDING = "full_attention", "sliding_attention"
_COHERE2_PERIOD = 4  # three layers slide, the fourth sees all and knows no positions
_NORMS_OF_BOTH = 2


def falcon(fields: Fields, name: str) -> ModelGraph:
    """Return a falcon: one key-value head of the 7b, eight of the 40b, as many as heads of the rw.

    Its biases of attention by distance (`alibi`) cost nothing, as in a fused kernel.
    """
    bias = fields.flag("bias", False)
    attention = multi_head(fields).model_copy(
        update={
            "key_value_head_count": _falcon_key_value_heads(fields),
            "query_key_value_bias": bias,
            "output_bias": bias,
            "rotary": not fields.flag("alibi", False),
        }
    )
    ffn_size = fields.size("ffn_hidden_size", 4 * fields.size("hidden_size"))
    newer = fields.flag("new_decoder_architecture", False)
    norms = fields.size("num_ln_in_parallel_attn", _NORMS_OF_BOTH if newer else 1)
    shared = fields.flag("parallel_attn", True) and norms != _NORMS_OF_BOTH
    block = Block(
        attention=attention,
        feed_forward=DenseFeedForward(ffn_size=ffn_size, gated=False, bias=bias),
        norm=Norm.LAYER,
        norm_placement=NormPlacement.SHARED if shared else NormPlacement.BEFORE,
    )
    blocks = (block,) * layer_count(fields)
    return rotary_decoder(fields, name, blocks, positions=2048, tied=True)


def _falcon_key_value_heads(fields: Fields) -> int:
    heads = fields.size("num_attention_heads")
    if fields.flag("new_decoder_architecture", False):
        count = fields.size("num_kv_heads", heads)
        require_divides(fields.spelling("num_kv_heads"), count, "num_attention_heads", heads)
        return count
    return 1 if fields.flag("multi_query", True) else heads


def gpt_neox(fields: Fields, name: str) -> ModelGraph:
    """Return a gpt_neox (Pythia): a norm for each half, biases everywhere."""
    bias = fields.flag("attention_bias", True)
    block = Block(
        attention=multi_head(fields).model_copy(
            update={"query_key_value_bias": bias, "output_bias": bias}
        ),
        feed_forward=_plain(fields),
        norm=Norm.LAYER,
    )
    return rotary_decoder(fields, name, (block,) * layer_count(fields), positions=2048)


def phi(fields: Fields, name: str) -> ModelGraph:
    """Return a phi (1.5, 2): one norm, biases everywhere, the head's too.

    Raises:
        UnsupportedModelError: if queries and keys pass norms with biases, as no released one has.
    """
    if fields.flag("qk_layernorm", False):
        raise UnsupportedModelError(
            "norms with biases of queries and keys cannot be priced",
            field="qk_layernorm",
            value=True,
            remedy="set it to false or leave it out",
        )
    block = Block(
        attention=grouped_query(fields).model_copy(
            update={"query_key_value_bias": True, "output_bias": True}
        ),
        feed_forward=_plain(fields),
        norm=Norm.LAYER,
        norm_placement=NormPlacement.SHARED,
    )
    graph = rotary_decoder(fields, name, (block,) * layer_count(fields), positions=2048)
    return graph.model_copy(update={"head_bias": True})


def cohere(fields: Fields, name: str) -> ModelGraph:
    """Return a cohere (Command R): one norm without bias, tied embeddings."""
    norm = fields.flag("use_qk_norm", False)
    attention = _cohere_attention(fields, grouped_query(fields)).model_copy(
        update={"query_key_norm": norm, "query_key_norm_spans_heads": norm}
    )
    blocks = [_cohere_block(fields, attention)] * layer_count(fields)
    return rotary_decoder(fields, name, blocks, positions=8192, tied=True)


def cohere2(fields: Fields, name: str) -> ModelGraph:
    """Return a cohere2 (Command A): three layers of four slide, the fourth knows no positions."""
    period = fields.size("sliding_window_pattern", _COHERE2_PERIOD)
    default = [_SLIDING if (index + 1) % period else _FULL for index in range(layer_count(fields))]
    window = fields.optional_size("sliding_window", 4096, limit=POSITION_LIMIT)
    attention = _cohere_attention(fields, grouped_query(fields))
    blocks = [
        _cohere_block(
            fields,
            attention.model_copy(
                update={
                    "rotary": kind == _SLIDING and window is not None,
                    "sliding_window_tokens": window if kind == _SLIDING else None,
                }
            ),
        )
        for kind in layer_kinds(fields, default, known=(_FULL, _SLIDING))
    ]
    return rotary_decoder(fields, name, blocks, positions=8192, tied=True)


def cohere_compass_text(fields: Fields, name: str) -> ModelGraph:
    """Return a cohere_compass_text: a cohere2 all of whose layers see all, and know positions."""
    kinds = layer_kinds(fields, [_FULL] * layer_count(fields), known=(_FULL, _SLIDING))
    window = fields.optional_size("sliding_window", 4096, limit=POSITION_LIMIT)
    attention = _cohere_attention(fields, grouped_query(fields))
    blocks = {
        _FULL: _cohere_block(fields, attention),
        _SLIDING: _cohere_block(
            fields, attention.model_copy(update={"sliding_window_tokens": window})
        ),
    }
    return rotary_decoder(fields, name, [blocks[kind] for kind in kinds], positions=8192, tied=True)


def _cohere_attention(fields: Fields, attention: GroupedQueryAttention) -> GroupedQueryAttention:
    bias = fields.flag("attention_bias", False)
    return attention.model_copy(update={"query_key_value_bias": bias, "output_bias": bias})


def _cohere_block(fields: Fields, attention: GroupedQueryAttention) -> Block:
    """Return a block; its norm has a mean but no bias, and costs what an rms in fp32 does."""
    return Block(
        attention=attention,
        feed_forward=DenseFeedForward(ffn_size=fields.size("intermediate_size")),
        norm=Norm.RMS_FLOAT32,
        norm_placement=NormPlacement.SHARED,
    )


def _plain(fields: Fields) -> DenseFeedForward:
    return DenseFeedForward(ffn_size=fields.size("intermediate_size"), gated=False, bias=True)
