"""Decoders of Hugging Face that route by softmax or sigmoid: hunyuan_v1_moe, hy_v3 and phimoe.

Each reader states the defaults of its configuration class (`configuration_<type>.py` of
transformers 5.23).
"""

from __future__ import annotations

from planner.errors import UnsupportedModelError
from planner.importers.fields import Fields, require_at_most
from planner.importers.hugging_face.attention import (
    grouped_query,
    layer_count,
    layer_kinds,
    uniform_windows,
)
from planner.importers.hugging_face.decoder import rotary_decoder
from planner.importers.hugging_face.mixture import routed_experts, with_shared
from planner.schema.model import (
    Block,
    DenseFeedForward,
    GroupedQueryAttention,
    MixtureFeedForward,
    ModelGraph,
    Norm,
)

HUNYUAN_ALIASES = {"num_experts_per_tok": "moe_topk", "num_local_experts": "num_experts"}
HY_V3_ALIASES = {"num_local_experts": "num_experts"}

_DENSE, _SPARSE = "dense", "sparse"


def phimoe(fields: Fields, name: str) -> ModelGraph:
    """Return a phimoe (Phi-3.5-MoE): a mixtral with norms that have biases."""
    mixture = routed_experts(
        fields,
        expert_count=("num_local_experts", 16),
        experts_per_token=2,
        expert_ffn_size=fields.size("intermediate_size"),
    )
    attention = _biased(fields, grouped_query(fields, key_value_heads=8))
    blocks = [
        Block(
            attention=attention.model_copy(update={"sliding_window_tokens": window}),
            feed_forward=mixture,
            norm=Norm.LAYER,
        )
        for window in uniform_windows(fields)
    ]
    graph = rotary_decoder(fields, name, blocks, positions=4096 * 32)
    return graph.model_copy(update={"head_bias": fields.flag("lm_head_bias", False)})


def hunyuan_v1_moe(fields: Fields, name: str) -> ModelGraph:
    """Return a hunyuan_v1_moe: every layer routes, beside a shared expert of the same width.

    Raises:
        UnsupportedModelError: if layers differ in how many experts a token goes to.
    """
    if fields.is_list("moe_topk") and len(set(fields.counts("moe_topk"))) != 1:
        raise UnsupportedModelError(
            "must be one number: layers that choose differently cannot be read",
            field=fields.spelling("moe_topk"),
            value=f"{fields.length('moe_topk')} entries",
            remedy="describe the model as a model graph",
        )
    chosen = fields.counts("moe_topk")[0] if fields.is_list("moe_topk") else None
    count = fields.size("num_experts", 1)
    chosen = fields.size("moe_topk", 1) if chosen is None else max(chosen, 1)
    require_at_most(
        fields.spelling("moe_topk"),
        chosen,
        limit_name=fields.spelling("num_experts"),
        limit=count,
    )
    width = fields.size("intermediate_size")
    mixture = MixtureFeedForward(
        expert_count=count, experts_per_token=chosen, expert_ffn_size=width, shared_ffn_size=width
    )
    attention = _biased(fields, grouped_query(fields)).model_copy(update={"query_key_norm": True})
    block = Block(attention=attention, feed_forward=mixture)
    return rotary_decoder(fields, name, (block,) * layer_count(fields), positions=2048)


def hy_v3(fields: Fields, name: str) -> ModelGraph:
    """Return a hy_v3: queries and keys normed per head, all layers but the first route.

    Raises:
        UnsupportedModelError: if its shared expert has biases, as no released one has.
    """
    bias = fields.flag("mlp_bias", False)
    width = fields.size("moe_intermediate_size", 1536)
    mixture = with_shared(
        routed_experts(
            fields,
            expert_count=("num_experts", 192),
            experts_per_token=8,
            expert_ffn_size=width,
        ),
        fields.size("num_shared_experts", 1, minimum=0),
    )
    dense = DenseFeedForward(ffn_size=fields.size("intermediate_size"), bias=bias)
    if not mixture.shared_ffn_size:  # its class has one all the same, as wide as a dense layer
        mixture = mixture.model_copy(update={"shared_ffn_size": dense.ffn_size})
    default = [_SPARSE if index else _DENSE for index in range(layer_count(fields))]
    kinds = layer_kinds(fields, default, known=(_DENSE, _SPARSE), name="mlp_layer_types")
    if bias and _SPARSE in kinds:
        raise UnsupportedModelError(
            "biases in a shared expert cannot be priced",
            field=fields.spelling("mlp_bias"),
            value=True,
            remedy="set it to false or leave it out",
        )
    attention = _biased(fields, grouped_query(fields, key_value_heads=8, head_size=128))
    attention = attention.model_copy(update={"query_key_norm": True})
    blocks = [
        Block(attention=attention, feed_forward=dense if kind == _DENSE else mixture)
        for kind in kinds
    ]
    return rotary_decoder(fields, name, blocks, positions=131_072)


def _biased(fields: Fields, attention: GroupedQueryAttention) -> GroupedQueryAttention:
    bias = fields.flag("attention_bias", False)
    return attention.model_copy(update={"query_key_value_bias": bias, "output_bias": bias})
