"""Kimi Linear of Hugging Face: three layers of four are delta nets whose channels decay each alone.

Defaults are those of `configuration_kimi_linear.py` of transformers 5.23. Released files say the
layers in `linear_attn_config`, counted from 1.
"""

from __future__ import annotations

from planner.errors import DocumentError
from planner.importers.fields import Fields, require_at_most
from planner.importers.hugging_face.attention import latent, layer_count, layer_kinds
from planner.importers.hugging_face.decoder import rotary_decoder
from planner.schema.model import (
    Block,
    DenseFeedForward,
    GatedDeltaMixer,
    MixtureFeedForward,
    ModelGraph,
    NoAttention,
)

KIMI_LINEAR_ALIASES = {
    "model_max_length": "max_position_embeddings",
    "num_experts": "num_local_experts",
    "num_experts_per_token": "num_experts_per_tok",
    "num_shared_experts": "n_shared_experts",
}

_FULL, _LINEAR = "full_attention", "linear_attention"
_DENSE, _SPARSE = "dense", "sparse"
_PERIOD = 4


def kimi_linear(fields: Fields, name: str) -> ModelGraph:
    """Return a kimi_linear; its latent attention, which knows no positions, is priced as rotary.

    Its class never ties embeddings, whatever `tie_word_embeddings` says.
    """
    attention = latent(fields).model_copy(
        update={"query_rank": fields.optional_size("q_lora_rank")}
    )
    mixer, mixture = _mixer(fields), _mixture(fields)
    dense = DenseFeedForward(ffn_size=fields.size("intermediate_size"))
    blocks = [
        Block(
            attention=attention if kind == _FULL else NoAttention(),
            mixer=mixer if kind == _LINEAR else None,
            feed_forward=mixture if part == _SPARSE else dense,
        )
        for kind, part in zip(_kinds(fields), _feed_forwards(fields), strict=True)
    ]
    graph = rotary_decoder(fields, name, blocks, positions=1_048_576)
    return graph.model_copy(update={"tied_embeddings": False})


def _kinds(fields: Fields) -> list[str]:
    """Return the kind of each layer: as the released section lists them, else by `layer_types`.

    Raises:
        DocumentError: if the section's lists leave a layer out.
    """
    count = layer_count(fields)
    default = [_FULL if index and not index % _PERIOD else _LINEAR for index in range(count)]
    if "layer_types" in fields or not fields.is_mapping("linear_attn_config"):
        return list(layer_kinds(fields, default, known=(_FULL, _LINEAR)))
    section = fields.section("linear_attn_config")
    full, linear = section.indices("full_attn_layers"), section.indices("kda_layers")
    if not full and not linear:
        return default
    kinds = dict.fromkeys(full, _FULL) | dict.fromkeys(linear, _LINEAR)
    missing = [index for index in range(1, count + 1) if index not in kinds]
    if missing:
        raise DocumentError(
            f"must name each of the {count} layers of num_hidden_layers, counted from 1",
            field=f"{section.spelling('full_attn_layers')} and kda_layers",
            value=f"layer {missing[0]} is in neither",
            remedy="name every layer in one of them, or leave both out",
        )
    return [kinds[index] for index in range(1, count + 1)]


def _feed_forwards(fields: Fields) -> list[str]:
    """Return which layers route: as `mlp_layer_types` says, else all but the first."""
    first = fields.size("first_k_dense_replace", 1, minimum=0)
    default = [_DENSE if index < first else _SPARSE for index in range(layer_count(fields))]
    known = (_DENSE, _SPARSE)
    return list(layer_kinds(fields, default, known=known, name="mlp_layer_types"))


def _mixer(fields: Fields) -> GatedDeltaMixer:
    """Return the delta net; decay and output gate come by way of a row as wide as a head."""
    heads, size = fields.size("linear_num_heads", 32), fields.size("linear_head_dim", 128)
    width = fields.size("linear_conv_kernel_dim", 4)
    if fields.is_mapping("linear_attn_config"):
        section = fields.section("linear_attn_config")
        heads, size = section.size("num_heads", heads), section.size("head_dim", size)
        width = section.size("short_conv_kernel_size", width)
    return GatedDeltaMixer(
        key_head_count=heads,
        value_head_count=heads,
        key_head_size=size,
        value_head_size=size,
        convolution_width=width,
        gate_rank=size,
    )


def _mixture(fields: Fields) -> MixtureFeedForward:
    count, chosen = fields.size("num_local_experts", 256), fields.size("num_experts_per_tok", 8)
    require_at_most(
        fields.spelling("num_experts_per_tok"),
        chosen,
        limit_name=fields.spelling("num_local_experts"),
        limit=count,
    )
    width = fields.size("moe_intermediate_size", 1024)
    return MixtureFeedForward(
        expert_count=count,
        experts_per_token=chosen,
        expert_ffn_size=width,
        shared_ffn_size=width * fields.size("n_shared_experts", 1, minimum=0),
    )
