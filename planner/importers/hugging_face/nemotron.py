"""Nemotron-H of Hugging Face: layers of one part each, state space, attention or feed-forward.

Each layer has a norm and a residual of its own, so that a mixing layer and the feed-forward after
it are one block. Defaults are those of `configuration_nemotron_h.py` of transformers 5.23.
"""

from __future__ import annotations

from itertools import pairwise

from planner.errors import DocumentError, UnsupportedModelError
from planner.importers.fields import LAYER_LIMIT, Fields, require_at_most, require_divides
from planner.importers.hugging_face.attention import grouped_query
from planner.importers.hugging_face.decoder import rotary_decoder
from planner.importers.hugging_face.glm import PREDICTION_LEFT_OUT
from planner.schema.model import (
    Attention,
    Block,
    DenseFeedForward,
    FeedForward,
    MixtureFeedForward,
    ModelGraph,
    NoAttention,
    NoFeedForward,
    Norm,
    StateSpaceMixer,
)

NEMOTRON_ALIASES = {
    "layer_types": "layers_block_type",
    "num_local_experts": "n_routed_experts",
    "mamba_n_groups": "n_groups",
    "mamba_d_conv": "conv_kernel",
    "mamba_conv_bias": "use_conv_bias",
    "mamba_chunk_size": "chunk_size",
}
_LETTERS = {"M": "linear_attention", "E": "moe", "*": "full_attention", "-": "mlp"}
_WORDS = {**{word: word for word in _LETTERS.values()}, "mamba": "linear_attention"}
_WORDS["attention"] = "full_attention"
_FEED_FORWARDS = frozenset({"moe", "mlp"})
_DEFAULT_KINDS = ("linear_attention", "moe", "full_attention", "mlp")


def nemotron_h(fields: Fields, name: str) -> ModelGraph:
    """Return a nemotron_h, its layers paired into blocks; its class never ties embeddings."""
    kinds = _kinds(fields)
    blocks = []
    for kind, following in pairwise((*kinds, "")):
        if kind not in _FEED_FORWARDS:
            blocks.append(_block(fields, kind, following))
    graph = rotary_decoder(fields, name, blocks, positions=4096)
    graph = graph.model_copy(update={"tied_embeddings": False})
    if not fields.size("num_nextn_predict_layers", 0, minimum=0):
        return graph
    return graph.model_copy(update={"assumptions": (PREDICTION_LEFT_OUT,)})


def _kinds(fields: Fields) -> tuple[str, ...]:
    """Return the kind of each layer, by `layers_block_type` or by the letters of the pattern.

    Raises:
        DocumentError: if a letter or word is unknown, or there are none or too many.
        UnsupportedModelError: if a feed-forward does not follow attention or state space.
    """
    given = fields.texts("layers_block_type")
    where, known = "layers_block_type", _WORDS
    if given is None:
        pattern = fields.text("hybrid_override_pattern")
        if pattern is None:
            return _DEFAULT_KINDS
        given, where, known = tuple(pattern), "hybrid_override_pattern", _LETTERS
    if not 1 <= len(given) <= LAYER_LIMIT:
        raise DocumentError(
            f"must name between 1 and {LAYER_LIMIT} layers",
            field=fields.spelling(where),
            value=len(given),
            remedy="name every layer once",
        )
    for item in given:
        if item not in known:
            raise DocumentError(
                "is not a kind of layer that can be read",
                field=fields.spelling(where),
                value=item[:40],
                remedy=f"known kinds are {', '.join(known)}",
            )
    stated = fields.optional_size("num_hidden_layers")
    if stated not in {None, len(given)}:
        raise DocumentError(
            f"is not the number of layers that {fields.spelling(where)} names, {len(given)}",
            field=fields.spelling("num_hidden_layers"),
            value=stated,
            remedy="leave it out, or name every layer once",
        )
    kinds = tuple(known[item] for item in given)
    _require_paired(fields, where, kinds)
    return kinds


def _require_paired(fields: Fields, where: str, kinds: tuple[str, ...]) -> None:
    for index, (before, kind) in enumerate(pairwise(("mlp", *kinds))):
        if kind in _FEED_FORWARDS and before in _FEED_FORWARDS:
            raise UnsupportedModelError(
                f"has a feed-forward at layer {index} that follows no attention or state space, "
                "which no block can be made of",
                field=fields.spelling(where),
                value=kind,
                remedy="describe the model as a model graph",
            )


def _block(fields: Fields, kind: str, following: str) -> Block:
    attention: Attention = NoAttention()
    mixer = None
    if kind == "full_attention":
        attention = grouped_query(fields, key_value_heads=8, head_size=128).model_copy(
            update={"rotary": False}
        )
    else:
        mixer = _mixer(fields)
    return Block(
        attention=attention,
        mixer=mixer,
        feed_forward=_feed_forward(fields, following),
        norm=Norm.RMS_FLOAT32,
    )


def _mixer(fields: Fields) -> StateSpaceMixer:
    heads, groups = fields.size("mamba_num_heads", 128), fields.size("n_groups", 8)
    require_divides(fields.spelling("n_groups"), groups, "mamba_num_heads", heads)
    bias = fields.flag("use_bias", False)
    return StateSpaceMixer(
        head_count=heads,
        head_size=fields.size("mamba_head_dim", 64),
        group_count=groups,
        state_size=fields.size("ssm_state_size", 128),
        convolution_width=fields.size("conv_kernel", 4),
        chunk_tokens=fields.size("chunk_size", 128),
        convolution_bias=fields.flag("use_conv_bias", True),
        input_bias=bias,
        output_bias=bias,
    )


def _feed_forward(fields: Fields, kind: str) -> FeedForward:
    """Return what follows in the block: a feed-forward without gate, routed or not, or none."""
    if kind not in _FEED_FORWARDS:
        return NoFeedForward()
    bias = fields.flag("mlp_bias", False)
    if kind == "mlp":
        size = fields.size("intermediate_size", 21504)
        return DenseFeedForward(ffn_size=size, gated=False, bias=bias)
    for field, refused in (("mlp_bias", bias), ("moe_latent_size", _has_latent(fields))):
        if refused:
            raise UnsupportedModelError(
                "cannot be priced in routed experts",
                field=fields.spelling(field),
                value=True if field == "mlp_bias" else fields.size(field),
                remedy="leave it out, or describe the model as a model graph",
            )
    count = fields.size("n_routed_experts", 8)
    chosen = fields.size("num_experts_per_tok", 2)
    require_at_most("num_experts_per_tok", chosen, limit_name="n_routed_experts", limit=count)
    return MixtureFeedForward(
        expert_count=count,
        experts_per_token=chosen,
        expert_ffn_size=fields.size("moe_intermediate_size", 7688),
        shared_ffn_size=fields.size("moe_shared_expert_intermediate_size", 7688),
        gated=False,
    )


def _has_latent(fields: Fields) -> bool:
    return fields.optional_size("moe_latent_size") is not None
