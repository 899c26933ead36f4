"""Decoders of Hugging Face most of whose layers see a window.

afmoe, exaone_moe, vaultgemma, and granite_swa and granitemoe_swa, which have a sink per head. Each
reader states the defaults of its configuration class (`configuration_<type>.py` of transformers
5.23).
"""

from __future__ import annotations

from collections.abc import Sequence

from planner.errors import UnsupportedModelError
from planner.importers.fields import POSITION_LIMIT, Fields
from planner.importers.hugging_face.alternating import GEMMA2_CAP
from planner.importers.hugging_face.attention import grouped_query, layer_count, layer_kinds
from planner.importers.hugging_face.decoder import rotary_decoder
from planner.importers.hugging_face.mixture import routed_experts, with_shared
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
_DENSE, _SPARSE = "dense", "sparse"
_PERIOD = 4


def granite_swa(fields: Fields, name: str) -> ModelGraph:
    """Return a granite_swa: the first layer of every four sees all; sinks; tied."""
    dense = DenseFeedForward(
        ffn_size=fields.size("intermediate_size"), bias=fields.flag("mlp_bias", False)
    )
    attention = _granite_attention(fields, key_value_heads=4)
    blocks = _granite_blocks(fields, attention, dense)
    return rotary_decoder(fields, name, blocks, positions=8192, tied=True)


def granitemoe_swa(fields: Fields, name: str) -> ModelGraph:
    """Return a granitemoe_swa: routed experts, and shared ones where they have a width."""
    mixture = routed_experts(
        fields,
        expert_count=("num_local_experts", 8),
        experts_per_token=2,
        expert_ffn_size=fields.size("intermediate_size"),
    ).model_copy(update={"shared_ffn_size": fields.size("shared_intermediate_size", 0, minimum=0)})
    blocks = _granite_blocks(fields, _granite_attention(fields), mixture)
    return rotary_decoder(fields, name, blocks, positions=2048)


def vaultgemma(fields: Fields, name: str) -> ModelGraph:
    """Return a vaultgemma: a gemma2 without norms after its parts."""
    bias = fields.flag("attention_bias", False)
    attention = grouped_query(fields, key_value_heads=4, head_size=256).model_copy(
        update={"query_key_value_bias": bias, "output_bias": bias}
    )
    feed_forward = DenseFeedForward(ffn_size=fields.size("intermediate_size"))
    default = [_FULL if index % 2 else _SLIDING for index in range(layer_count(fields))]
    blocks = [
        Block(
            attention=_windowed(fields, attention, kind, 4096),
            feed_forward=feed_forward,
            norm=Norm.RMS_FLOAT32,
        )
        for kind in layer_kinds(fields, default, known=(_FULL, _SLIDING))
    ]
    return rotary_decoder(fields.filled(GEMMA2_CAP), name, blocks, positions=8192, tied=True)


def exaone_moe(fields: Fields, name: str) -> ModelGraph:
    """Return an exaone_moe: three layers of four slide, all but the first route.

    Where any slides, only those that do know positions.
    """
    attention = grouped_query(fields, key_value_heads=32).model_copy(
        update={"query_key_norm": True}
    )
    mixture = _with_shared(fields, experts=64, chosen=8, width=1024, shared=1)
    period = fields.size("sliding_window_pattern", _PERIOD, minimum=0)
    if "sliding_window" in fields and fields.optional_size("sliding_window") is None:
        period = 0  # no layer slides then, nor does the class know which would
    count = layer_count(fields)
    default = [_SLIDING if period and (i + 1) % period else _FULL for i in range(count)]
    windows = layer_kinds(fields, default, known=(_FULL, _SLIDING))
    slides = _SLIDING in windows
    blocks = [
        Block(
            attention=_windowed(fields, attention, kind, 4096).model_copy(
                update={"rotary": kind == _SLIDING or not slides}
            ),
            feed_forward=part,
        )
        for kind, part in zip(windows, _parts(fields, mixture, first=1), strict=True)
    ]
    return rotary_decoder(fields, name, blocks, positions=2048)


def afmoe(fields: Fields, name: str) -> ModelGraph:
    """Return an afmoe (Trinity): gated attention, norms before and after each part.

    Sliding layers alone know positions. The router's correction of each expert is a parameter here.

    Raises:
        UnsupportedModelError: if attention has biases, which its gate has not.
    """
    if fields.flag("attention_bias", False):
        raise UnsupportedModelError(
            "biases of attention beside a gate without one cannot be priced",
            field=fields.spelling("attention_bias"),
            value=True,
            remedy="set it to false or leave it out",
        )
    attention = grouped_query(fields, head_size=128).model_copy(
        update={"query_key_norm": True, "output_gate": True}
    )
    mixture = _with_shared(fields, experts=64, chosen=6, width=1408, shared=2)
    mixture = mixture.model_copy(update={"scale_elements": mixture.expert_count})
    period = fields.size("global_attn_every_n_layers", _PERIOD)
    default = [_SLIDING if (i + 1) % period else _FULL for i in range(layer_count(fields))]
    first = fields.size("num_dense_layers", 1, minimum=0)
    dense = DenseFeedForward(ffn_size=fields.size("intermediate_size"))
    blocks = [
        Block(
            attention=_windowed(fields, attention, kind, 1024).model_copy(
                update={"rotary": kind == _SLIDING}
            ),
            feed_forward=dense if index < first else mixture,
            norm_placement=NormPlacement.BOTH,
        )
        for index, kind in enumerate(layer_kinds(fields, default, known=(_FULL, _SLIDING)))
    ]
    return rotary_decoder(fields, name, blocks, positions=16384)


def _granite_attention(
    fields: Fields, *, key_value_heads: int | None = None
) -> GroupedQueryAttention:
    bias = fields.flag("attention_bias", False)
    return grouped_query(fields, key_value_heads=key_value_heads).model_copy(
        update={"query_key_value_bias": bias, "output_bias": bias, "sink": True}
    )


def _granite_blocks(
    fields: Fields, attention: GroupedQueryAttention, feed_forward: FeedForward
) -> list[Block]:
    default = [_SLIDING if index % _PERIOD else _FULL for index in range(layer_count(fields))]
    return [
        Block(attention=_windowed(fields, attention, kind, 128), feed_forward=feed_forward)
        for kind in layer_kinds(fields, default, known=(_FULL, _SLIDING))
    ]


def _windowed(
    fields: Fields, attention: GroupedQueryAttention, kind: str, default: int
) -> GroupedQueryAttention:
    """Return the attention of a layer of a kind; `default` is the type's window."""
    if kind == _FULL:
        return attention
    window = fields.optional_size("sliding_window", default, limit=POSITION_LIMIT)
    return attention.model_copy(update={"sliding_window_tokens": window})


def _with_shared(
    fields: Fields, *, experts: int, chosen: int, width: int, shared: int
) -> MixtureFeedForward:
    """Return routed experts with as many shared ones of the same width as the type has."""
    mixture = routed_experts(
        fields,
        expert_count=("num_experts", experts),
        experts_per_token=chosen,
        expert_ffn_size=fields.size("moe_intermediate_size", width),
    )
    return with_shared(mixture, fields.size("num_shared_experts", shared, minimum=0))


def _parts(fields: Fields, mixture: FeedForward, *, first: int) -> Sequence[FeedForward]:
    """Return each layer's feed-forward, by `mlp_layer_types` or by how many are dense first."""
    dense = DenseFeedForward(ffn_size=fields.size("intermediate_size"))
    dense_count = fields.size("first_k_dense_replace", first, minimum=0)
    default = [_DENSE if index < dense_count else _SPARSE for index in range(layer_count(fields))]
    kinds = layer_kinds(fields, default, known=(_DENSE, _SPARSE), name="mlp_layer_types")
    return [dense if kind == _DENSE else mixture for kind in kinds]
