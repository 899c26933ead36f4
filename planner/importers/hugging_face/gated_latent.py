"""Decoders of Hugging Face whose latent attention is gated: dots3_note_text and hy_v4.

The gate stands beside attention, whole on every rank. Defaults are those of the configuration
classes (`configuration_<type>.py` of transformers 5.23).
"""

from __future__ import annotations

from collections.abc import Sequence

from planner.errors import UnsupportedModelError
from planner.importers.fields import POSITION_LIMIT, Fields
from planner.importers.hugging_face.attention import latent, layer_count, layer_kinds
from planner.importers.hugging_face.decoder import rotary_decoder
from planner.importers.hugging_face.latent import picking
from planner.importers.hugging_face.mixture import routed_experts
from planner.schema.model import (
    Block,
    DenseFeedForward,
    Entry,
    LatentAttention,
    MixtureFeedForward,
    ModelGraph,
    Norm,
    Product,
)

ALIASES = {"num_local_experts": "n_routed_experts"}

_FULL, _INDEXED, _SLIDING = "full_attention", "indexed_attention", "sliding_attention"
_DENSE, _SPARSE = "dense", "sparse"
_PICKS, _TAKES = "full", "shared"
_STREAM_LIMIT = 64
_PERIOD = 4
# Of layers that slide in a dots3_note_text: the field, without its prefix `swa_`, and its default.
_SLIDING_SIZES = {
    "num_attention_heads": 64,
    "q_lora_rank": 1024,
    "kv_lora_rank": 1024,
    "qk_nope_head_dim": 192,
    "v_head_dim": 128,
}


def dots3_note_text(fields: Fields, name: str) -> ModelGraph:
    """Return a dots3_note_text: layers that slide have heads and ranks of their own.

    A gate for each head stands after attention, and a norm over what of keys is rotary.

    Raises:
        UnsupportedModelError: if single layers are written out that are not of these two kinds.
    """
    width, count = fields.size("hidden_size"), layer_count(fields)
    fields = fields.filled({"q_lora_rank": 1024})
    attentions = {
        _FULL: latent(fields),
        _INDEXED: picking(fields, heads=64),
        _SLIDING: _sliding(fields),
    }
    kinds = _kinds(fields, count)
    _require_alike(fields, kinds)
    mixture = routed_experts(
        fields,
        expert_count=("n_routed_experts", 256),
        experts_per_token=8,
        expert_ffn_size=fields.size("moe_intermediate_size", 1536),
    ).model_copy(update={"shared_ffn_size": _shared_width(fields)})
    parts = _parts(fields, mixture)
    blocks = [
        Block(
            attention=attentions[kind],
            feed_forward=part,
            beside=_head_gate(width, attentions[kind]),
        )
        for kind, part in zip(kinds, parts, strict=True)
    ]
    return rotary_decoder(fields, name, blocks, positions=524_288)


def _kinds(fields: Fields, count: int) -> Sequence[str]:
    """Return the kind of each layer; `use_dsa` says which of two those have that see all."""
    indexed = fields.flag("use_dsa", True)
    sees_all = _INDEXED if indexed else _FULL
    slides = fields.flag("use_sliding_window", True)
    default = [
        sees_all if not slides or index < 2 or index % _PERIOD == 1 else _SLIDING
        for index in range(count)
    ]
    kinds = layer_kinds(fields, default, known=(_FULL, _INDEXED, _SLIDING))
    if "use_dsa" not in fields and "per_layer_config" in fields:
        return kinds
    return [kind if kind == _SLIDING else sees_all for kind in kinds]


def _written_layers(fields: Fields) -> Fields:
    """Return `per_layer_config`, which the class writes for layers that slide, perhaps empty."""
    given = fields.is_mapping("per_layer_config")
    return fields.section("per_layer_config") if given else Fields({})


def _require_alike(fields: Fields, kinds: Sequence[str]) -> None:
    """Raise unless `per_layer_config`, where it is there, says one thing of all layers that slide.

    Raises:
        UnsupportedModelError: if it says different things, or something of another layer.
    """
    written = _written_layers(fields)
    slides = {index for index, kind in enumerate(kinds) if kind == _SLIDING}
    names = written.names()
    layers = [written.section(name).values() for name in names]
    numbers = {int(name) for name in names if str(name).isdecimal()}
    if names and (numbers != slides or any(layer != layers[0] for layer in layers)):
        raise UnsupportedModelError(
            "must say the same of every layer that slides, and nothing of others",
            field=fields.spelling("per_layer_config"),
            value=f"{len(names)} layers",
            remedy="trace the model with `meshwright trace --transformers config.json`",
        )


def _sliding(fields: Fields) -> LatentAttention:
    """Return the attention of layers that slide, by `per_layer_config`, else by `swa_*`."""
    written = _written_layers(fields)
    own = written.section(written.names()[0]) if written.names() else written
    sizes = {
        field: own.size(field, fields.size(f"swa_{field}", default))
        for field, default in _SLIDING_SIZES.items()
    }
    whole = own.size("head_dim", fields.size("swa_head_dim", 256))
    rest = max(whole - sizes["qk_nope_head_dim"], 1)
    rotary = own.size("qk_rope_head_dim", fields.size("swa_qk_rope_head_dim", rest))
    older = fields.size("sliding_window_size", 512, limit=POSITION_LIMIT)
    window = fields.size("sliding_window", older, limit=POSITION_LIMIT)
    attention = latent(fields.replaced({**sizes, "qk_rope_head_dim": rotary}))
    return attention.model_copy(update={"sliding_window_tokens": window})


def _head_gate(width: int, attention: LatentAttention) -> Entry:
    return Entry(
        products=(Product(inner_size=width, outer_size=attention.head_count),),
        norm=Norm.RMS,
        norm_widths=(attention.rotary_head_size,),
    )


def _shared_width(fields: Fields) -> int:
    older = fields.size("moe_shared_expert_intermediate_size", 1536)
    each = fields.size("shared_experts_intermediate_size", older)
    return each * fields.size("n_shared_experts", 1, minimum=0)


def _parts(
    fields: Fields, mixture: MixtureFeedForward
) -> list[DenseFeedForward | MixtureFeedForward]:
    """Return each layer's feed-forward: `mlp_layer_types`, else the first are dense."""
    first = fields.size("first_k_dense_replace", 1, minimum=0)
    count = layer_count(fields)
    if fields.is_list("moe_layer_freq"):
        listed = fields.counts("moe_layer_freq")
        routes = [bool(each) for each in listed[:count]] + [True] * (count - len(listed))
    else:
        step = fields.size("moe_layer_freq", 1)
        routes = [index % step == 0 for index in range(count)]
    default = [_SPARSE if index >= first and routes[index] else _DENSE for index in range(count)]
    kinds = layer_kinds(fields, default, known=(_DENSE, _SPARSE), name="mlp_layer_types")
    dense = DenseFeedForward(ffn_size=fields.size("intermediate_size"))
    return [dense if kind == _DENSE else mixture for kind in kinds]


def hy_v4(fields: Fields, name: str) -> ModelGraph:
    """Return a hy_v4: rows of residual that are not mixed, gated attention with sinks and an index.

    One layer of four picks keys, which those after it take; the first layer is dense.
    """
    sizes = {"qk_nope_head_dim": 192, "v_head_dim": 256}
    fields = fields.filled(sizes)
    width, count = fields.size("hidden_size"), layer_count(fields)
    picks = picking(fields, heads=16)
    takes = picks.model_copy(update={"picks_again": False})
    layer_kinds(fields, [_INDEXED] * count, known=(_INDEXED,))
    modes = layer_kinds(
        fields,
        [_PICKS if not i or (i - 1) % _PERIOD == 0 else _TAKES for i in range(count)],
        known=(_PICKS, _TAKES),
        name="indexer_types",
    )
    gate = Entry(
        products=(Product(inner_size=width, outer_size=picks.head_count * picks.value_head_size),),
        table_elements=picks.head_count,  # sinks
    )
    mixture = routed_experts(
        fields,
        expert_count=("n_routed_experts", 256),
        experts_per_token=8,
        expert_ffn_size=fields.size("moe_intermediate_size", 768),
    )
    shared = fields.size("n_shared_experts", 1, minimum=0) * mixture.expert_ffn_size
    mixture = mixture.model_copy(update={"shared_ffn_size": shared})
    dense = DenseFeedForward(ffn_size=fields.size("intermediate_size"))
    routes = layer_kinds(
        fields,
        [_SPARSE if index else _DENSE for index in range(count)],
        known=(_DENSE, _SPARSE),
        name="mlp_layer_types",
    )
    blocks = [
        Block(
            attention=picks if mode == _PICKS else takes,
            feed_forward=dense if route == _DENSE else mixture,
            beside=gate,
            residual_stream_count=fields.size("hc_mult", 4, minimum=2, limit=_STREAM_LIMIT),
            residual_mixing=False,
        )
        for mode, route in zip(modes, routes, strict=True)
    ]
    return rotary_decoder(fields, name, blocks, positions=262_144)
