"""Later encoders of Hugging Face: modernbert, the decoder of its kind, and eurobert.

Each reader states the defaults of its configuration class (`configuration_<type>.py` of
transformers 5.23).
"""

from __future__ import annotations

from planner.importers.fields import POSITION_LIMIT, Fields
from planner.importers.hugging_face.attention import (
    grouped_query,
    layer_count,
    layer_kinds,
    multi_head,
)
from planner.importers.hugging_face.decoder import rotary_decoder
from planner.importers.hugging_face.heads import named_class, with_class_head
from planner.schema.model import (
    Block,
    DenseFeedForward,
    Entry,
    ModelGraph,
    Norm,
    Product,
)

_FULL, _SLIDING = "full_attention", "sliding_attention"
_PERIOD = 3  # the first layer of three sees all


def modernbert(fields: Fields, name: str) -> ModelGraph:
    """Return a modernbert: two layers of three see 64 tokens to either side, gated, no biases."""
    side = fields.size("local_attention", 128, limit=POSITION_LIMIT) // 2
    return _modern(fields, name, causal=False, window=side + 1)


def modernbert_decoder(fields: Fields, name: str) -> ModelGraph:
    """Return a modernbert-decoder: the same from the left alone, 64 tokens with the own."""
    side = fields.size("local_attention", 128, limit=POSITION_LIMIT) // 2
    return _modern(fields, name, causal=True, window=side)


def eurobert(fields: Fields, name: str) -> ModelGraph:
    """Return a eurobert: a llama that sees both sides."""
    bias, mlp_bias = fields.flag("attention_bias", False), fields.flag("mlp_bias", False)
    attention = grouped_query(fields).model_copy(
        update={"query_key_value_bias": bias, "output_bias": bias, "causal": False}
    )
    feed_forward = DenseFeedForward(ffn_size=fields.size("intermediate_size"), bias=mlp_bias)
    block = Block(attention=attention, feed_forward=feed_forward)
    graph = rotary_decoder(fields, name, (block,) * layer_count(fields), positions=8192)
    graph = graph.model_copy(update={"head_bias": mlp_bias})
    named = named_class(fields) or ""
    before = None
    if named.endswith("ForSequenceClassification"):
        width = graph.hidden_size
        before = Entry(products=(Product(inner_size=width, outer_size=width, bias=True),))
    return with_class_head(graph, fields, before=before, bias=True)


def _modern(fields: Fields, name: str, *, causal: bool, window: int) -> ModelGraph:
    """Return blocks of which the first has no norm before attention: embeddings have theirs."""
    bias = fields.flag("attention_bias", False)
    attention = multi_head(fields).model_copy(
        update={"query_key_value_bias": bias, "output_bias": bias, "causal": causal}
    )
    norm = Norm.LAYER if fields.flag("norm_bias", False) else Norm.RMS_FLOAT32
    feed_forward = DenseFeedForward(
        ffn_size=fields.size("intermediate_size"), bias=fields.flag("mlp_bias", False)
    )
    period = fields.size("global_attn_every_n_layers", _PERIOD)
    default = [_SLIDING if index % period else _FULL for index in range(layer_count(fields))]
    sizes = {_FULL: None, _SLIDING: max(window, 1)}
    blocks = [
        Block(
            attention=attention.model_copy(update={"sliding_window_tokens": sizes[kind]}),
            feed_forward=feed_forward,
            norm=norm,
        )
        for kind in layer_kinds(fields, default, known=(_FULL, _SLIDING))
    ]
    graph = rotary_decoder(fields, name, blocks, positions=8192, tied=True)
    graph = graph.model_copy(update={"head_bias": fields.flag("decoder_bias", True)})
    width, head_bias = graph.hidden_size, fields.flag("classifier_bias", False)
    transform = Product(inner_size=width, outer_size=width, bias=head_bias)
    before = Entry(products=(transform,), norm=norm, norm_widths=(width,))
    return with_class_head(graph, fields, before=before, bias=head_bias or not causal)
