"""Decoders of Hugging Face that route and most of whose layers see a window.

beam, cohere2_moe, flint, kolibri1, laguna, mellum and mimo_v2_flash. Each reader states the
defaults of its configuration class (`configuration_<type>.py` of transformers 5.23).
"""

from __future__ import annotations

from collections.abc import Sequence

from planner.errors import DocumentError, UnsupportedModelError
from planner.importers.fields import POSITION_LIMIT, Fields, require_divides
from planner.importers.hugging_face.alternating import GEMMA2_CAP
from planner.importers.hugging_face.attention import grouped_query, layer_count, layer_kinds
from planner.importers.hugging_face.decoder import rotary_decoder
from planner.importers.hugging_face.mixture import routed_experts
from planner.schema.model import (
    Block,
    DenseFeedForward,
    Entry,
    GroupedQueryAttention,
    MixtureFeedForward,
    ModelGraph,
    Norm,
    NormPlacement,
    Product,
)

KOLIBRI1_ALIASES = {
    "num_local_experts": "num_experts",
}
MIMO_ALIASES = {"num_local_experts": "n_routed_experts"}
MELLUM_ALIASES = {
    "num_local_experts": "num_experts",
    "num_mtp_layers": "num_nextn_predict_layers",
}

_FULL, _SLIDING = "full_attention", "sliding_attention"
_DENSE, _SPARSE = "dense", "sparse"
_KOLIBRI1_PERIOD = 5
_MIMO_PERIOD = 6
_BEAM_PERIOD = 6
_FLINT_PERIOD = 4
_COHERE2_PERIOD = 4


def kolibri1(fields: Fields, name: str) -> ModelGraph:
    """Return a kolibri1: four layers of five slide, all route, norms before and after each part.

    Sliding layers alone know positions.
    """
    attention = grouped_query(fields, key_value_heads=4, head_size=128).model_copy(
        update={"query_key_norm": True}
    )
    mixture = _mixture(fields, experts=384, chosen=6, width=512, shared=512)
    count = layer_count(fields)
    default = [_SLIDING if (i + 1) % _KOLIBRI1_PERIOD else _FULL for i in range(count)]
    kinds = layer_kinds(fields, default, known=(_FULL, _SLIDING))
    blocks = [
        Block(
            attention=_windowed(fields, attention, kind, 513).model_copy(
                update={"rotary": kind == _SLIDING}
            ),
            feed_forward=mixture,
            norm_placement=NormPlacement.BOTH,
        )
        for kind in kinds
    ]
    return rotary_decoder(fields, name, blocks, positions=262_144)


def beam(fields: Fields, name: str) -> ModelGraph:
    """Return a beam: five layers of six slide, attention is gated, three dense layers first.

    Norms stand before and after each part.

    Raises:
        UnsupportedModelError: if attention has biases, which its gate has not.
    """
    if fields.flag("attention_bias", False):
        raise UnsupportedModelError(
            "biases beside a gate without one cannot be priced",
            field=fields.spelling("attention_bias"),
            value=True,
            remedy="set it to false or leave it out",
        )
    attention = grouped_query(fields, key_value_heads=8, head_size=128).model_copy(
        update={"query_key_norm": True, "output_gate": True}
    )
    mixture = _mixture(fields, experts=256, chosen=8, width=2560, shared=0)
    count = layer_count(fields)
    default = [_SLIDING if (i + 1) % _BEAM_PERIOD else _FULL for i in range(count)]
    default[-1] = _FULL
    kinds = layer_kinds(fields, default, known=(_FULL, _SLIDING))
    blocks = [
        Block(
            attention=_windowed(fields, attention, kind, 512),
            feed_forward=part,
            norm=Norm.RMS_FLOAT32,
            norm_placement=NormPlacement.BOTH,
            beside=Entry(table_elements=attention.head_count),  # a bias of each head's gate
        )
        for kind, part in zip(kinds, _parts(fields, mixture, dense_first=3), strict=True)
    ]
    return rotary_decoder(fields.filled(GEMMA2_CAP), name, blocks, positions=8192)


def flint(fields: Fields, name: str) -> ModelGraph:
    """Return a flint: one layer of four sees all, sinks, a shared expert, two dense layers first.

    Sliding layers alone know positions.
    """
    attention = grouped_query(fields, key_value_heads=4, head_size=128)
    bias = fields.flag("attention_bias", False)
    attention = attention.model_copy(
        update={
            "query_key_norm": True,
            "sink": True,
            "query_key_value_bias": bias,
            "output_bias": bias,
        }
    )
    mixture = _mixture(fields, experts=256, chosen=6, width=512, shared=1024)
    dense = DenseFeedForward(ffn_size=fields.size("intermediate_size"))
    count = layer_count(fields)
    last = count - 1
    default = [
        _FULL if i < 2 or i % _FLINT_PERIOD == 1 or i == last else _SLIDING for i in range(count)
    ]
    kept_dense = fields.indices("mlp_only_layers") if fields.is_list("mlp_only_layers") else {0, 1}
    step = fields.size("decoder_sparse_step", 1)
    blocks = [
        Block(
            attention=_windowed(fields, attention, kind, 513).model_copy(
                update={"rotary": kind == _SLIDING}
            ),
            feed_forward=dense if index in kept_dense or (index + 1) % step else mixture,
        )
        for index, kind in enumerate(layer_kinds(fields, default, known=(_FULL, _SLIDING)))
    ]
    return rotary_decoder(fields, name, blocks, positions=262_144)


def mellum(fields: Fields, name: str) -> ModelGraph:
    """Return a mellum: a qwen3_moe whose layers slide where `layer_types` says."""
    bias = fields.flag("attention_bias", False)
    attention = grouped_query(fields, key_value_heads=4, head_size=128).model_copy(
        update={"query_key_norm": True, "query_key_value_bias": bias, "output_bias": bias}
    )
    mixture = _mixture(fields, experts=64, chosen=8, width=896, shared=0)
    parts = _parts(fields, mixture, dense_first=0)
    kinds = layer_kinds(fields, [_FULL] * layer_count(fields), known=(_FULL, _SLIDING))
    blocks = [
        Block(attention=_windowed(fields, attention, kind, 1024), feed_forward=part)
        for kind, part in zip(kinds, parts, strict=True)
    ]
    return rotary_decoder(fields, name, blocks, positions=131_072)


def laguna(fields: Fields, name: str) -> ModelGraph:
    """Return a laguna: a gate for each head's output, heads that may differ from layer to layer.

    The router's correction of each expert is a parameter here.
    """
    mixture = _mixture(fields, experts=256, chosen=8, width=512, shared=512)
    mixture = mixture.model_copy(update={"scale_elements": mixture.expert_count})
    parts = _parts(fields, mixture, dense_first=1)
    count = layer_count(fields)
    kinds = layer_kinds(fields, [_FULL] * count, known=(_FULL, _SLIDING))
    heads = _heads_by_layer(fields, count)
    width, bias = fields.size("hidden_size"), fields.flag("attention_bias", False)
    base = grouped_query(fields, key_value_heads=8, head_size=128).model_copy(
        update={"query_key_norm": True, "query_key_value_bias": bias, "output_bias": bias}
    )
    whole = fields.text("gating") not in {None, "per-head"}
    blocks = []
    for kind, part, head_count in zip(kinds, parts, heads, strict=True):
        gate = head_count * (base.head_size if whole else 1)
        blocks.append(
            Block(
                attention=_windowed(fields, base, kind, 512).model_copy(
                    update={"head_count": head_count}
                ),
                feed_forward=part,
                beside=Entry(products=(Product(inner_size=width, outer_size=gate),)),
            )
        )
    return rotary_decoder(fields, name, blocks, positions=131_072)


def mimo_v2_flash(fields: Fields, name: str) -> ModelGraph:
    """Return a mimo_v2_flash: heads of values smaller than those of keys, five of six layers slide.

    Those have twice as many keys, and sinks; the first layer is dense. `sliding_window_size` counts
    the keys before a token, `sliding_window` the token itself as well.
    """
    mixture = routed_experts(
        fields,
        expert_count=("n_routed_experts", 256),
        experts_per_token=8,
        expert_ffn_size=fields.size("moe_intermediate_size", 2048),
    )
    parts = _parts(fields, mixture, dense_first=1)
    full = grouped_query(fields, key_value_heads=4, head_size=192).model_copy(
        update={
            "value_head_size": fields.size("v_head_dim", 128),
            "query_key_value_bias": fields.flag("attention_bias", False),
        }
    )
    before = fields.optional_size("sliding_window_size", limit=POSITION_LIMIT)
    window = fields.size("sliding_window", 129, limit=POSITION_LIMIT)
    slides = full.model_copy(
        update={
            "key_value_head_count": 2 * full.key_value_head_count,
            "sink": True,
            "sliding_window_tokens": window if before is None else before + 1,
        }
    )
    require_divides(
        fields.spelling("num_key_value_heads"),
        slides.key_value_head_count,
        "num_attention_heads",
        full.head_count,
    )
    count = layer_count(fields)
    default = [_SLIDING if i and (i + 1) % _MIMO_PERIOD else _FULL for i in range(count)]
    kinds = layer_kinds(fields, default, known=(_FULL, _SLIDING))
    blocks = [
        Block(attention=full if kind == _FULL else slides, feed_forward=part)
        for kind, part in zip(kinds, parts, strict=True)
    ]
    return rotary_decoder(fields, name, blocks, positions=131_072)


def cohere2_moe(fields: Fields, name: str) -> ModelGraph:
    """Return a cohere2_moe: a cohere2 that routes after its first dense layers.

    Sliding layers know positions, and dense ones where they all see everything.
    """
    bias = fields.flag("attention_bias", False)
    attention = grouped_query(fields, head_size=128).model_copy(
        update={"query_key_value_bias": bias, "output_bias": bias}
    )
    mixture = routed_experts(
        fields,
        expert_count=("num_experts", 8),
        experts_per_token=2,
        expert_ffn_size=fields.size("intermediate_size"),
    )
    shared = fields.size("num_shared_experts", 0, minimum=0) * mixture.expert_ffn_size
    mixture = mixture.model_copy(update={"shared_ffn_size": shared})
    count, first = layer_count(fields), fields.size("first_k_dense_replace", 0, minimum=0)
    before = fields.size("prefix_dense_sliding_window_pattern", 1)
    after = fields.size("sliding_window_pattern", _COHERE2_PERIOD)
    default = [_SLIDING if (i + 1) % before else _FULL for i in range(min(first, count))] + [
        _SLIDING if (i + 1) % after else _FULL for i in range(max(count - first, 0))
    ]
    kinds = layer_kinds(fields, default, known=(_FULL, _SLIDING))
    sparse = layer_kinds(
        fields,
        [_DENSE if i < first else _SPARSE for i in range(count)],
        known=(_DENSE, _SPARSE),
        name="mlp_layer_types",
    )
    widths = {"intermediate_size": fields.size("intermediate_size")}
    dense_size = fields.size("prefix_dense_intermediate_size", widths["intermediate_size"])
    dense = DenseFeedForward(ffn_size=dense_size)
    window = fields.optional_size("sliding_window", 4096, limit=POSITION_LIMIT)
    blocks = [
        Block(
            attention=attention.model_copy(
                update={
                    "sliding_window_tokens": window if kind == _SLIDING else None,
                    "rotary": (kind == _SLIDING and window is not None)
                    or (part == _DENSE and before == 1),
                }
            ),
            feed_forward=dense if part == _DENSE else mixture,
            norm=Norm.RMS_FLOAT32 if fields.optional_number("rms_norm_eps") is None else Norm.RMS,
            norm_placement=NormPlacement.SHARED,
        )
        for kind, part in zip(kinds, sparse, strict=True)
    ]
    return rotary_decoder(fields, name, blocks, positions=8192, tied=True)


def _mixture(
    fields: Fields, *, experts: int, chosen: int, width: int, shared: int
) -> MixtureFeedForward:
    """Return routed experts beside a shared one of `shared_expert_intermediate_size`."""
    return routed_experts(
        fields,
        expert_count=("num_experts", experts),
        experts_per_token=chosen,
        expert_ffn_size=fields.size("moe_intermediate_size", width),
    ).model_copy(
        update={
            "shared_ffn_size": fields.size("shared_expert_intermediate_size", shared, minimum=0)
            if shared
            else 0
        }
    )


def _parts(
    fields: Fields, mixture: MixtureFeedForward, *, dense_first: int
) -> Sequence[DenseFeedForward | MixtureFeedForward]:
    """Return each layer's feed-forward by `mlp_layer_types`, else `dense_first` dense ones."""
    dense = DenseFeedForward(ffn_size=fields.size("intermediate_size"))
    default = [_DENSE if i < dense_first else _SPARSE for i in range(layer_count(fields))]
    kinds = layer_kinds(fields, default, known=(_DENSE, _SPARSE), name="mlp_layer_types")
    return [dense if kind == _DENSE else mixture for kind in kinds]


def _heads_by_layer(fields: Fields, count: int) -> Sequence[int]:
    """Return the heads of each layer.

    Raises:
        DocumentError: if another number of layers is listed.
    """
    field = "num_attention_heads_per_layer"
    heads = fields.counts(field) or (fields.size("num_attention_heads"),) * count
    if len(heads) != count:
        raise DocumentError(
            f"must name each of the {count} layers",
            field=fields.spelling(field),
            value=f"{len(heads)} entries",
            remedy="give one number per layer, or leave it out",
        )
    for each in heads:
        require_divides(
            fields.spelling("num_key_value_heads"),
            fields.size("num_key_value_heads", 8),
            field,
            max(each, 1),
        )
    return heads


def _windowed(
    fields: Fields, attention: GroupedQueryAttention, kind: str, default: int
) -> GroupedQueryAttention:
    """Return the attention of a layer of a kind; `default` is the type's window."""
    if kind == _FULL:
        return attention
    window = fields.optional_size("sliding_window", default, limit=POSITION_LIMIT)
    return attention.model_copy(update={"sliding_window_tokens": window})
