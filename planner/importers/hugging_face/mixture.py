"""Mixture-of-experts decoders of Hugging Face: mixtral, qwen2_moe, qwen3_moe, deepseek_v2 and v3.

Each reader states the defaults of its configuration class (`configuration_<type>.py` of
transformers 5.23).
"""

from __future__ import annotations

from collections.abc import Callable, Sequence

from planner.errors import UnsupportedModelError
from planner.importers.fields import Fields, require_at_most
from planner.importers.hugging_face.attention import (
    alternate_windows,
    grouped_query,
    latent,
    layer_count,
    switched_windows,
    uniform_windows,
)
from planner.importers.hugging_face.decoder import rotary_decoder
from planner.schema.model import (
    Block,
    DenseFeedForward,
    GroupedQueryAttention,
    MixtureFeedForward,
    ModelGraph,
)

MIXTRAL_ALIASES = {"num_experts": "num_local_experts"}
QWEN3_MOE_ALIASES = {"num_local_experts": "num_experts"}
DEEPSEEK_V2_ALIASES = {"num_experts": "n_routed_experts"}
DEEPSEEK_V3_ALIASES = {
    "num_local_experts": "n_routed_experts",
    "num_mtp_layers": "num_nextn_predict_layers",
}


def mixtral(fields: Fields, name: str) -> ModelGraph:
    """Return a mixtral: every layer routes, and its experts are `intermediate_size` wide."""
    mixture = routed_experts(
        fields,
        expert_count=("num_local_experts", 8),
        experts_per_token=2,
        expert_ffn_size=fields.size("intermediate_size"),
    )
    attention = grouped_query(fields, key_value_heads=8)
    blocks = [
        Block(attention=_windowed(attention, window), feed_forward=mixture)
        for window in uniform_windows(fields)
    ]
    return rotary_decoder(fields, name, blocks, positions=4096 * 32)


def qwen2_moe(fields: Fields, name: str) -> ModelGraph:
    """Return a qwen2_moe: a gated shared expert beside the routed ones."""
    mixture = routed_experts(
        fields,
        expert_count=("num_experts", 60),
        experts_per_token=4,
        expert_ffn_size=fields.size("moe_intermediate_size", 1408),
    ).model_copy(
        update={
            "shared_ffn_size": fields.size("shared_expert_intermediate_size", 5632, minimum=0),
            "shared_gate": True,
        }
    )
    attention = grouped_query(fields, key_value_heads=16).model_copy(
        update={"query_key_value_bias": fields.flag("qkv_bias", True)}
    )
    routes = _stepped_routes(fields)
    blocks = [
        Block(
            attention=_windowed(attention, window),
            feed_forward=mixture if routes(index) else _dense(fields),
        )
        for index, window in enumerate(alternate_windows(fields))
    ]
    return rotary_decoder(fields, name, blocks, positions=32768)


def qwen3_moe(fields: Fields, name: str) -> ModelGraph:
    """Return a qwen3_moe: queries and keys normed per head, no shared expert."""
    mixture = routed_experts(
        fields,
        expert_count=("num_experts", 128),
        experts_per_token=8,
        expert_ffn_size=fields.size("moe_intermediate_size", 768),
    )
    bias = fields.flag("attention_bias", False)
    attention = grouped_query(fields, key_value_heads=4).model_copy(
        update={"query_key_value_bias": bias, "output_bias": bias, "query_key_norm": True}
    )
    routes = _stepped_routes(fields)
    blocks = [
        Block(
            attention=_windowed(attention, window),
            feed_forward=mixture if routes(index) else _dense(fields),
        )
        for index, window in enumerate(switched_windows(fields))
    ]
    return rotary_decoder(fields, name, blocks, positions=32768)


def deepseek_v2(fields: Fields, name: str) -> ModelGraph:
    """Return a deepseek_v2: every layer routes unless told, two shared experts.

    Raises:
        UnsupportedModelError: if its feed-forwards have biases, as no released one has.
    """
    if fields.flag("mlp_bias", False):
        raise UnsupportedModelError(
            "biases in experts cannot be priced",
            field="mlp_bias",
            value=True,
            remedy="set it to false or leave it out",
        )
    mixture = routed_experts(
        fields,
        expert_count=("n_routed_experts", 64),
        experts_per_token=None,
        expert_ffn_size=fields.size("moe_intermediate_size", 1407),
    )
    blocks = latent_blocks(
        fields,
        with_shared(mixture, fields.size("n_shared_experts", 2, minimum=0)),
        dense_count=fields.size("first_k_dense_replace", 0, minimum=0),
    )
    return rotary_decoder(fields, name, blocks, positions=2048)


def deepseek_v3(fields: Fields, name: str) -> ModelGraph:
    """Return a deepseek_v3: three dense layers first unless told, one shared expert.

    The router's correction bias is a buffer, no parameter. Multi-token prediction is left out, as
    transformers leaves it out, and said to be.
    """
    mixture = routed_experts(
        fields,
        expert_count=("n_routed_experts", 256),
        experts_per_token=8,
        expert_ffn_size=fields.size("moe_intermediate_size", 2048),
    )
    blocks = latent_blocks(
        fields,
        with_shared(mixture, fields.size("n_shared_experts", 1, minimum=0)),
        dense_count=fields.size("first_k_dense_replace", 3, minimum=0),
    )
    graph = rotary_decoder(fields, name, blocks, positions=4096)
    if not fields.size("num_nextn_predict_layers", 1, minimum=0):
        return graph
    return graph.model_copy(update={"assumptions": ("multi-token prediction layers are left out",)})


def kimi_k2(fields: Fields, name: str) -> ModelGraph:
    """Return a kimi_k2, whose configuration has the fields of a deepseek_v3.

    transformers has no class of that name, and the one that its repository brings is never run.
    """
    graph = deepseek_v3(fields, name)
    said = "read as a deepseek_v3, whose fields it has: the model's own code was not run"
    return graph.model_copy(update={"assumptions": (*graph.assumptions, said)})


def routed_experts(
    fields: Fields,
    *,
    expert_count: tuple[str, int | None],
    experts_per_token: int | None,
    expert_ffn_size: int,
) -> MixtureFeedForward:
    """Return routed experts; `expert_count` is the field's name and default.

    Raises:
        DocumentError: if a token is sent to more experts than there are.
    """
    name, default = expert_count
    count = fields.size(name, default)
    chosen = fields.size("num_experts_per_tok", experts_per_token)
    require_at_most("num_experts_per_tok", chosen, limit_name=fields.spelling(name), limit=count)
    return MixtureFeedForward(
        expert_count=count, experts_per_token=chosen, expert_ffn_size=expert_ffn_size
    )


def with_shared(mixture: MixtureFeedForward, count: int) -> MixtureFeedForward:
    """Return `mixture` with `count` shared experts, which DeepSeek runs as one wide one."""
    return mixture.model_copy(update={"shared_ffn_size": count * mixture.expert_ffn_size})


def _dense(fields: Fields) -> DenseFeedForward:
    return DenseFeedForward(ffn_size=fields.size("intermediate_size"))


def _windowed(attention: GroupedQueryAttention, window: int | None) -> GroupedQueryAttention:
    return attention.model_copy(update={"sliding_window_tokens": window})


def _stepped_routes(fields: Fields) -> Callable[[int], bool]:
    """Return which layers route: every `decoder_sparse_step`th but for `mlp_only_layers`."""
    dense_only = fields.indices("mlp_only_layers")
    step = fields.size("decoder_sparse_step", 1)
    return lambda index: index not in dense_only and (index + 1) % step == 0


def latent_blocks(
    fields: Fields, mixture: MixtureFeedForward, *, dense_count: int
) -> Sequence[Block]:
    """Return `dense_count` dense blocks, then routed ones."""
    attention = latent(fields)
    count = layer_count(fields)
    dense_count = min(dense_count, count)
    if not dense_count:
        return [Block(attention=attention, feed_forward=mixture)] * count
    dense = Block(attention=attention, feed_forward=_dense(fields))
    routed = Block(attention=attention, feed_forward=mixture)
    return [dense] * dense_count + [routed] * (count - dense_count)
