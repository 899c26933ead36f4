"""Decoders of Hugging Face most of whose layers are delta nets: olmo_hybrid and bailing_hybrid.

Each reader states the defaults of its configuration class (`configuration_<type>.py` of
transformers 5.23).
"""

from __future__ import annotations

from planner.importers.fields import Fields, require_divides
from planner.importers.hugging_face.alternating import wholly_normed
from planner.importers.hugging_face.attention import latent, layer_count, layer_kinds
from planner.importers.hugging_face.decoder import rotary_decoder
from planner.importers.hugging_face.glm import PREDICTION_LEFT_OUT
from planner.importers.hugging_face.mixture import routed_experts, with_shared
from planner.schema.model import (
    Block,
    DenseFeedForward,
    Entry,
    GatedDeltaMixer,
    ModelGraph,
    NoAttention,
    Norm,
    NormPlacement,
    Product,
)

BAILING_ALIASES = {
    "max_position_embeddings": "model_max_length",
    "num_local_experts": "num_experts",
    "num_experts_per_tok": "num_experts_per_token",
    "n_shared_experts": "num_shared_experts",
    "num_mtp_layers": "num_nextn_predict_layers",
}

_FULL, _LINEAR = "full_attention", "linear_attention"
_DENSE, _SPARSE = "dense", "sparse"
_OLMO_PERIOD = 4


def olmo_hybrid(fields: Fields, name: str) -> ModelGraph:
    """Return an olmo_hybrid: three layers of four are gated delta nets, the fourth an olmo3's.

    Delta nets have their norms before each part, attention after it.
    """
    heads = fields.size("num_attention_heads")
    count = layer_count(fields)
    default = [_LINEAR if (index + 1) % _OLMO_PERIOD else _FULL for index in range(count)]
    if _FULL not in default:
        default[-1] = _FULL
    keys = fields.size("linear_num_key_heads", heads)
    values = fields.size("linear_num_value_heads", heads)
    require_divides("linear_num_key_heads", keys, "linear_num_value_heads", values)
    size = fields.size("linear_key_head_dim", max(3 * fields.size("hidden_size") // (4 * keys), 1))
    mixer = GatedDeltaMixer(
        key_head_count=keys,
        value_head_count=values,
        key_head_size=size,
        value_head_size=fields.size("linear_value_head_dim", 2 * size),
        convolution_width=fields.size("linear_conv_kernel_dim", 4),
    )
    rotary = fields.is_mapping("rope_parameters") or "rope_theta" in fields
    feed_forward = DenseFeedForward(ffn_size=fields.size("intermediate_size"))
    blocks = {
        _FULL: Block(
            attention=wholly_normed(fields).model_copy(update={"rotary": rotary}),
            feed_forward=feed_forward,
            norm=Norm.RMS_FLOAT32,
            norm_placement=NormPlacement.AFTER,
        ),
        _LINEAR: Block(
            attention=NoAttention(),
            mixer=mixer,
            feed_forward=feed_forward,
            norm=Norm.RMS_FLOAT32,
        ),
    }
    kinds = layer_kinds(fields, default, known=(_FULL, _LINEAR))
    return rotary_decoder(fields, name, [blocks[kind] for kind in kinds], positions=65536)


def bailing_hybrid(fields: Fields, name: str) -> ModelGraph:
    """Return a bailing_hybrid (Ling 3): five layers of six are delta nets, the sixth latent.

    The channels of a key each decay alone, by a product of their own; a gate for each head stands
    after latent attention. Both are priced beside their parts, whole on every rank. Multi-token
    prediction is left out, as transformers leaves it out, and said to be.
    """
    width, heads = fields.size("hidden_size"), fields.size("num_attention_heads")
    count = layer_count(fields)
    mixer = _bailing_mixer(fields, heads)
    # a decay for each channel, where the mixer counts one for each head
    more = mixer.value_head_count * (mixer.key_head_size - 1)
    decay = Entry(
        products=(Product(inner_size=width, outer_size=more),) if more else (),
        table_elements=more,
    )
    mixture = with_shared(
        routed_experts(
            fields,
            expert_count=("num_experts", 512),
            experts_per_token=8,
            expert_ffn_size=fields.size("moe_intermediate_size", 768),
        ),
        fields.size("num_shared_experts", 1, minimum=0),
    )
    parts = {
        _DENSE: DenseFeedForward(ffn_size=fields.size("intermediate_size")),
        _SPARSE: mixture,
    }
    attention = latent(fields).model_copy(update={"query_rank": None})
    gate = Entry(products=(Product(inner_size=width, outer_size=heads),))
    first = fields.size("first_k_dense_replace", 2, minimum=0)
    period = fields.size("layer_group_size", 6)
    kinds = layer_kinds(
        fields,
        [_LINEAR if (index + 1) % period else _FULL for index in range(count)],
        known=(_FULL, _LINEAR),
    )
    routes = layer_kinds(
        fields,
        [_DENSE if index < first else _SPARSE for index in range(count)],
        known=(_DENSE, _SPARSE),
        name="mlp_layer_types",
    )
    blocks = [
        Block(
            attention=attention if kind == _FULL else NoAttention(),
            mixer=mixer if kind == _LINEAR else None,
            beside=gate if kind == _FULL else decay,
            feed_forward=parts[route],
        )
        for kind, route in zip(kinds, routes, strict=True)
    ]
    graph = rotary_decoder(fields, name, blocks, positions=262_144)
    if not fields.size("num_nextn_predict_layers", 1, minimum=0):
        return graph
    return graph.model_copy(update={"assumptions": (PREDICTION_LEFT_OUT,)})


def _bailing_mixer(fields: Fields, heads: int) -> GatedDeltaMixer:
    """Return the delta net of a bailing_hybrid, whose fields what its class writes stand before."""
    count = fields.size("linear_num_heads", heads)
    size = fields.size("linear_head_dim", fields.size("head_dim", 128))
    taps = fields.size("linear_conv_kernel_dim", fields.size("short_conv_kernel_size", 4))
    return GatedDeltaMixer(
        key_head_count=count,
        value_head_count=count,
        key_head_size=size,
        value_head_size=size,
        convolution_width=taps,
    )
