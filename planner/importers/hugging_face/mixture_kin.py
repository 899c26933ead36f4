"""Decoders of Hugging Face that route, with the parts of those in `mixture` and `glm`.

aria_text, axk1, dbrx, dots1, flex_olmo, glm4_moe_lite, granitemoe, granitemoeshared, mistral4 and
solar_open; each reader states the defaults of its configuration class (`configuration_<type>.py` of
transformers 5.23).
"""

from __future__ import annotations

from collections.abc import Sequence

from planner.errors import UnsupportedModelError
from planner.importers.fields import POSITION_LIMIT, Fields, require_at_most
from planner.importers.hugging_face.alternating import wholly_normed
from planner.importers.hugging_face.attention import (
    grouped_query,
    late_layers,
    latent,
    layer_count,
    layer_kinds,
)
from planner.importers.hugging_face.decoder import rotary_decoder
from planner.importers.hugging_face.glm import PREDICTION_LEFT_OUT
from planner.importers.hugging_face.mixture import routed_experts, with_shared
from planner.schema.model import (
    Block,
    DenseFeedForward,
    GroupedQueryAttention,
    LatentAttention,
    MixtureFeedForward,
    ModelGraph,
    Norm,
    NormPlacement,
)

ROUTED_ALIASES = {"num_local_experts": "n_routed_experts"}
GLM4_MOE_LITE_ALIASES = {**ROUTED_ALIASES, "head_dim": "qk_rope_head_dim"}
DBRX_ALIASES = {
    "hidden_size": "d_model",
    "max_position_embeddings": "max_seq_len",
    "num_attention_heads": "n_heads",
    "num_hidden_layers": "n_layers",
}
FLEX_OLMO_ALIASES = {"num_local_experts": "num_experts"}

_DENSE, _SPARSE = "dense", "sparse"


def dots1(fields: Fields, name: str) -> ModelGraph:
    """Return a dots1: queries and keys normed per head, dense layers first, shared experts."""
    bias = fields.flag("attention_bias", False)
    attention = grouped_query(fields, key_value_heads=32).model_copy(
        update={"query_key_value_bias": bias, "output_bias": bias, "query_key_norm": True}
    )
    mixture = _with_shared_experts(
        fields, count=("n_routed_experts", None), chosen=None, width=1408, shared=None
    )
    dense = _dense_first(fields, 0)
    blocks = [
        Block(
            attention=attention.model_copy(update={"sliding_window_tokens": window}),
            feed_forward=_dense(fields) if index < dense else mixture,
        )
        for index, window in enumerate(late_layers(fields, window=4096, first=62))
    ]
    return rotary_decoder(fields, name, blocks, positions=2048)


def aria_text(fields: Fields, name: str) -> ModelGraph:
    """Return the decoder of an aria: every layer routes, beside shared experts of the same width.

    Raises:
        UnsupportedModelError: if its shared experts have biases, as no released one has.
    """
    if fields.flag("mlp_bias", False):
        raise UnsupportedModelError(
            "biases in shared experts cannot be priced",
            field=fields.spelling("mlp_bias"),
            value=True,
            remedy="set it to false or leave it out",
        )
    count, chosen = fields.size("moe_num_experts", 8), fields.size("moe_topk", 2)
    require_at_most(
        fields.spelling("moe_topk"),
        chosen,
        limit_name=fields.spelling("moe_num_experts"),
        limit=count,
    )
    width, bias = fields.size("intermediate_size"), fields.flag("attention_bias", False)
    mixture = MixtureFeedForward(
        expert_count=count,
        experts_per_token=chosen,
        expert_ffn_size=width,
        shared_ffn_size=width * fields.size("moe_num_shared_experts", 2, minimum=0),
    )
    attention = grouped_query(fields).model_copy(
        update={"query_key_value_bias": bias, "output_bias": bias}
    )
    block = Block(attention=attention, feed_forward=mixture)
    return rotary_decoder(fields, name, (block,) * layer_count(fields), positions=2048)


def axk1(fields: Fields, name: str) -> ModelGraph:
    """Return an axk1 (A.X K1): a deepseek_v3 with a norm after what routes, one dense layer first.

    Raises:
        DocumentError: if queries have no rank, as its class needs one.
    """
    mixture = _with_shared_experts(
        fields, count=("n_routed_experts", 192), chosen=8, width=2048, shared=1
    )
    mixture = mixture.model_copy(update={"scale_elements": fields.size("hidden_size")})
    first, step = _dense_first(fields, 1), fields.size("moe_layer_freq", 1)
    default = [
        _SPARSE if index >= first and index % step == 0 else _DENSE
        for index in range(layer_count(fields))
    ]
    kinds = layer_kinds(fields, default, known=(_DENSE, _SPARSE), name="mlp_layer_types")
    dense = [kind == _DENSE for kind in kinds]
    fields.size("q_lora_rank", 1536)
    blocks = _blocks(fields, latent(fields), mixture, dense)
    return rotary_decoder(fields, name, blocks, positions=32768)


def dbrx(fields: Fields, name: str) -> ModelGraph:
    """Return a dbrx: every layer routes, norms have a mean and no bias."""
    width = fields.size("d_model")
    own, routed = fields.section("attn_config"), fields.section("ffn_config")
    attention = grouped_query(
        Fields(
            {
                "hidden_size": width,
                "num_attention_heads": fields.size("n_heads"),
                "num_key_value_heads": own.size("kv_n_heads", 1),
            }
        )
    )
    count, chosen = routed.size("moe_num_experts", 4), routed.size("moe_top_k", 1)
    require_at_most(
        routed.spelling("moe_top_k"),
        chosen,
        limit_name=routed.spelling("moe_num_experts"),
        limit=count,
    )
    mixture = MixtureFeedForward(
        expert_count=count,
        experts_per_token=chosen,
        expert_ffn_size=routed.size("ffn_hidden_size", 3584),
    )
    block = Block(attention=attention, feed_forward=mixture, norm=Norm.RMS_FLOAT32)
    blocks = (block,) * layer_count(fields, "n_layers")
    graph = rotary_decoder(fields, name, blocks, positions=2048, width="d_model")
    longest = fields.size("max_seq_len", 2048, limit=POSITION_LIMIT)
    return graph.model_copy(update={"maximum_sequence_length": longest})


def solar_open(fields: Fields, name: str) -> ModelGraph:
    """Return a solar_open: every layer routes, one shared expert, heads of 128."""
    attention = grouped_query(fields, key_value_heads=8, head_size=128).model_copy(
        update={"query_key_value_bias": fields.flag("attention_bias", False)}
    )
    mixture = _with_shared_experts(
        fields, count=("n_routed_experts", 128), chosen=8, width=1280, shared=1
    )
    block = Block(attention=attention, feed_forward=mixture)
    return rotary_decoder(fields, name, (block,) * layer_count(fields), positions=131_072)


def granitemoe(fields: Fields, name: str) -> ModelGraph:
    """Return a granitemoe: every layer routes; its multipliers change no shape."""
    return _granite(fields, name, shared_ffn_size=0)


def granitemoeshared(fields: Fields, name: str) -> ModelGraph:
    """Return a granitemoeshared: one shared expert beside the routed ones, where it has a width."""
    width = fields.size("shared_intermediate_size", 0, minimum=0)
    return _granite(fields, name, shared_ffn_size=width)


def flex_olmo(fields: Fields, name: str) -> ModelGraph:
    """Return a flex_olmo: an olmoe whose norms stand after each part."""
    mixture = routed_experts(
        fields,
        expert_count=("num_experts", 7),
        experts_per_token=5,
        expert_ffn_size=fields.size("intermediate_size"),
    )
    block = Block(
        attention=wholly_normed(fields),
        feed_forward=mixture,
        norm=Norm.RMS_FLOAT32,
        norm_placement=NormPlacement.AFTER,
    )
    return rotary_decoder(fields, name, (block,) * layer_count(fields), positions=4096)


def glm4_moe_lite(fields: Fields, name: str) -> ModelGraph:
    """Return a glm4_moe_lite (GLM-4.7-Flash): latent attention, the first layer dense.

    Multi-token prediction is left out, as transformers leaves it out, and said to be.
    """
    fields = fields.filled(
        {"q_lora_rank": 768, "kv_lora_rank": 512, "qk_nope_head_dim": 192, "v_head_dim": 256}
    )
    mixture = _with_shared_experts(
        fields, count=("n_routed_experts", 64), chosen=4, width=1536, shared=1
    )
    count = layer_count(fields)
    kinds = fields.texts("mlp_layer_types") or (_DENSE, *(_SPARSE,) * (count - 1))
    dense = [kind == _DENSE for kind in kinds[:count]]
    blocks = _blocks(fields, latent(fields), mixture, [*dense, *[False] * (count - len(dense))])
    graph = rotary_decoder(fields, name, blocks, positions=202_752)
    if not fields.size("num_nextn_predict_layers", 0, minimum=0):
        return graph
    return graph.model_copy(update={"assumptions": (PREDICTION_LEFT_OUT,)})


def mistral4(fields: Fields, name: str) -> ModelGraph:
    """Return a mistral4: latent attention, every layer routes unless told, one shared expert."""
    fields = fields.filled(
        {"q_lora_rank": 1024, "kv_lora_rank": 256, "qk_nope_head_dim": 64, "v_head_dim": 128}
    )
    mixture = _with_shared_experts(
        fields, count=("n_routed_experts", 128), chosen=4, width=2048, shared=1
    )
    first = _dense_first(fields, 0)
    dense = [index < first for index in range(layer_count(fields))]
    blocks = _blocks(fields, latent(fields), mixture, dense)
    return rotary_decoder(fields, name, blocks, positions=2**20)


def _granite(fields: Fields, name: str, *, shared_ffn_size: int) -> ModelGraph:
    bias = fields.flag("attention_bias", False)
    attention = grouped_query(fields).model_copy(
        update={"query_key_value_bias": bias, "output_bias": bias}
    )
    mixture = routed_experts(
        fields,
        expert_count=("num_local_experts", 8),
        experts_per_token=2,
        expert_ffn_size=fields.size("intermediate_size"),
    ).model_copy(update={"shared_ffn_size": shared_ffn_size})
    block = Block(attention=attention, feed_forward=mixture)
    return rotary_decoder(fields, name, (block,) * layer_count(fields), positions=2048)


def _with_shared_experts(
    fields: Fields,
    *,
    count: tuple[str, int | None],
    chosen: int | None,
    width: int,
    shared: int | None,
) -> MixtureFeedForward:
    """Return routed experts and as many shared ones of the same width as the type has."""
    mixture = routed_experts(
        fields,
        expert_count=count,
        experts_per_token=chosen,
        expert_ffn_size=fields.size("moe_intermediate_size", width),
    )
    return with_shared(mixture, fields.size("n_shared_experts", shared, minimum=0))


def _dense_first(fields: Fields, default: int) -> int:
    return fields.size("first_k_dense_replace", default, minimum=0)


def _dense(fields: Fields) -> DenseFeedForward:
    return DenseFeedForward(ffn_size=fields.size("intermediate_size"))


def _blocks(
    fields: Fields,
    attention: GroupedQueryAttention | LatentAttention,
    mixture: MixtureFeedForward,
    dense: Sequence[bool],
) -> list[Block]:
    return [
        Block(attention=attention, feed_forward=_dense(fields) if is_dense else mixture)
        for is_dense in dense
    ]
