"""Decoders of Hugging Face of GLM and MiniMax: glm4, glm4_moe and minimax_m2.

Each reader states the defaults of its configuration class (`configuration_<type>.py` of
transformers 5.23).
"""

from __future__ import annotations

from planner.importers.fields import Fields, require_at_most
from planner.importers.hugging_face.attention import grouped_query, layer_count
from planner.importers.hugging_face.decoder import rotary_decoder
from planner.schema.model import (
    Block,
    DenseFeedForward,
    MixtureFeedForward,
    ModelGraph,
    NormPlacement,
)

GLM4_MOE_ALIASES = {
    "num_local_experts": "n_routed_experts",
    "num_mtp_layers": "num_nextn_predict_layers",
}
MINIMAX_M2_ALIASES = {"num_experts": "num_local_experts"}

PREDICTION_LEFT_OUT = "multi-token prediction layers are left out"


def glm4(fields: Fields, name: str) -> ModelGraph:
    """Return a glm4: norms before and after each part, biases on queries, keys and values."""
    attention = grouped_query(fields, key_value_heads=2, head_size=128).model_copy(
        update={"query_key_value_bias": fields.flag("attention_bias", True)}
    )
    block = Block(
        attention=attention,
        feed_forward=DenseFeedForward(ffn_size=fields.size("intermediate_size")),
        norm_placement=NormPlacement.BOTH,
    )
    return rotary_decoder(fields, name, (block,) * layer_count(fields), positions=131_072)


def glm4_moe(fields: Fields, name: str) -> ModelGraph:
    """Return a glm4_moe: dense layers first, then routed ones with shared experts.

    Multi-token prediction is left out, as transformers leaves it out, and said to be.
    """
    attention = grouped_query(fields, key_value_heads=8).model_copy(
        update={
            "query_key_value_bias": fields.flag("attention_bias", False),
            "query_key_norm": fields.flag("use_qk_norm", False),
        }
    )
    mixture = _mixture(fields, ("n_routed_experts", 128))
    mixture = mixture.model_copy(
        update={
            "expert_ffn_size": fields.size("moe_intermediate_size", 1408),
            "shared_ffn_size": fields.size("n_shared_experts", 1, minimum=0)
            * fields.size("moe_intermediate_size", 1408),
        }
    )
    count = layer_count(fields)
    dense_count = min(fields.size("first_k_dense_replace", 1, minimum=0), count)
    routed = Block(attention=attention, feed_forward=mixture)
    blocks = [routed] * count
    if dense_count:
        dense = DenseFeedForward(ffn_size=fields.size("intermediate_size"))
        first = Block(attention=attention, feed_forward=dense)
        blocks = [first] * dense_count + [routed] * (count - dense_count)
    graph = rotary_decoder(fields, name, blocks, positions=131_072)
    if not fields.size("num_nextn_predict_layers", 1, minimum=0):
        return graph
    return graph.model_copy(update={"assumptions": (PREDICTION_LEFT_OUT,)})


def minimax_m2(fields: Fields, name: str) -> ModelGraph:
    """Return a minimax_m2: every layer routes, queries and keys normed over all heads."""
    attention = grouped_query(fields, key_value_heads=8, head_size=128).model_copy(
        update={"query_key_norm": True, "query_key_norm_spans_heads": True}
    )
    mixture = _mixture(fields, ("num_local_experts", 256))
    block = Block(attention=attention, feed_forward=mixture)
    return rotary_decoder(fields, name, (block,) * layer_count(fields), positions=196_608)


def _mixture(fields: Fields, expert_count: tuple[str, int]) -> MixtureFeedForward:
    """Return routed experts as wide as `intermediate_size`, eight of them chosen unless told."""
    name, default = expert_count
    count = fields.size(name, default)
    chosen = fields.size("num_experts_per_tok", 8)
    require_at_most("num_experts_per_tok", chosen, limit_name=fields.spelling(name), limit=count)
    return MixtureFeedForward(
        expert_count=count,
        experts_per_token=chosen,
        expert_ffn_size=fields.size("intermediate_size"),
    )
