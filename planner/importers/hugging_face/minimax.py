"""MiniMax of Hugging Face: Text-01 and M1 by lightning attention, M3 by an index of keys.

Defaults are those of `configuration_minimax.py` and `configuration_minimax_m3_vl.py` of
transformers 5.23.
"""

from __future__ import annotations

from collections.abc import Sequence

from planner.errors import DocumentError
from planner.importers.fields import Fields
from planner.importers.hugging_face.attention import grouped_query, layer_count, layer_kinds
from planner.importers.hugging_face.decoder import rotary_decoder
from planner.importers.hugging_face.mixture import routed_experts
from planner.schema.model import (
    Block,
    DenseFeedForward,
    Entry,
    LinearAttentionMixer,
    ModelGraph,
    NoAttention,
    Norm,
    Product,
)

ALIASES = {"num_experts": "num_local_experts"}

_FULL, _LINEAR, _SPARSE_KEYS = "full_attention", "linear_attention", "minimax_m3_sparse"
_DENSE, _SPARSE = "dense", "sparse"
_OLDER = {
    "index_n_heads": "sparse_num_index_heads",
    "index_head_dim": "sparse_index_dim",
    "index_block_size": "sparse_block_size",
    "index_topk_blocks": "sparse_topk_blocks",
    "index_local_blocks": "sparse_local_block",
}
_SIZES = {
    "index_n_heads": 4,
    "index_head_dim": 128,
    "index_block_size": 128,
    "index_topk_blocks": 16,
    "index_local_blocks": 1,
}


def minimax(fields: Fields, name: str) -> ModelGraph:
    """Return a minimax (Text-01): lightning attention in every second layer unless told, experts.

    A window is that of layers with softmax attention.
    """
    count = layer_count(fields)
    default = [_FULL if (index + 1) % 2 else _LINEAR for index in range(count)]
    return _lightning(fields, name, layer_kinds(fields, default, known=(_FULL, _LINEAR)))


def minimax_m1(fields: Fields, name: str) -> ModelGraph:
    """Return a MiniMax-M1 or MiniMax-Text-01 by the fields that its own repository has.

    transformers has a class for these fields' successors, and their own code is never run.

    Raises:
        DocumentError: if a layer's kind is not said, or a shared expert is, which the class lacks.
    """
    count = layer_count(fields)
    given = fields.counts("attn_type_list")
    if fields.texts("layer_types") is None:
        _require_each(fields.spelling("attn_type_list"), len(given), count)
    kinds = layer_kinds(
        fields, [_FULL if each else _LINEAR for each in given], known=(_FULL, _LINEAR)
    )
    if fields.size("shared_intermediate_size", 0, minimum=0):
        raise DocumentError(
            "a shared expert beside lightning attention is not read",
            field=fields.spelling("shared_intermediate_size"),
            value=fields.size("shared_intermediate_size"),
            remedy="set it to 0, as every released file does, or describe the model as a graph",
        )
    graph = _lightning(fields, name, kinds)
    said = "read as a minimax, whose parts it has: the model's own code was not run"
    return graph.model_copy(update={"assumptions": (*graph.assumptions, said)})


def _lightning(fields: Fields, name: str, kinds: Sequence[str]) -> ModelGraph:
    attention = grouped_query(fields, key_value_heads=8).model_copy(
        update={"sliding_window_tokens": fields.optional_size("sliding_window")}
    )
    mixer = LinearAttentionMixer(
        head_count=attention.head_count,
        head_size=attention.head_size,
        chunk_tokens=fields.size("block_size", 256),
    )
    mixture = routed_experts(
        fields,
        expert_count=("num_local_experts", 8),
        experts_per_token=2,
        expert_ffn_size=fields.size("intermediate_size"),
    )
    blocks = {
        _FULL: Block(attention=attention, feed_forward=mixture),
        _LINEAR: Block(attention=NoAttention(), mixer=mixer, feed_forward=mixture),
    }
    return rotary_decoder(fields, name, [blocks[kind] for kind in kinds], positions=4096 * 32)


def minimax_m3_vl_text(fields: Fields, name: str) -> ModelGraph:
    """Return a minimax_m3_vl_text: a shared expert beside the routed, in some layers an index.

    An index picks blocks of keys, which are counted as a window of as many keys; its own scores are
    left out, and both are said.
    """
    attention = grouped_query(fields, key_value_heads=4, head_size=128).model_copy(
        update={"query_key_norm": True}
    )
    width, count = fields.size("hidden_size"), layer_count(fields)
    sizes = _index_sizes(fields)
    index = sizes["index_head_dim"]
    keys = (sizes["index_topk_blocks"] + sizes["index_local_blocks"]) * sizes["index_block_size"]
    mixture = routed_experts(
        fields,
        expert_count=("num_local_experts", 128),
        experts_per_token=4,
        expert_ffn_size=fields.size("intermediate_size"),
    ).model_copy(update={"shared_ffn_size": fields.size("shared_intermediate_size", 3072)})
    parts = {
        _DENSE: DenseFeedForward(ffn_size=fields.size("dense_intermediate_size", 12288)),
        _SPARSE: mixture,
    }
    attentions = {
        _FULL: attention,
        _SPARSE_KEYS: attention.model_copy(update={"sliding_window_tokens": keys}),
    }
    picks = Entry(
        products=(
            Product(inner_size=width, outer_size=sizes["index_n_heads"] * index),
            Product(inner_size=width, outer_size=index),
        ),
        norm=Norm.RMS,
        norm_widths=(index, index),
    )
    kinds, routes = _kinds(fields, count), _routes(fields, count)
    blocks = [
        Block(
            attention=attentions[kind],
            feed_forward=parts[route],
            norm=Norm.RMS_FLOAT32,
            beside=picks if kind == _SPARSE_KEYS else None,
        )
        for kind, route in zip(kinds, routes, strict=True)
    ]
    graph = rotary_decoder(fields, name, blocks, positions=524_288)
    if _SPARSE_KEYS not in kinds:
        return graph
    said = f"blocks of keys that an index picks are counted as a window of {keys} keys"
    left = "the index's own scores are left out"
    return graph.model_copy(update={"assumptions": (said, left)})


def _index_sizes(fields: Fields) -> dict[str, int]:
    """Return the index's sizes, which released files have in `sparse_attention_config`."""
    older = fields.section("sparse_attention_config") if _is_older(fields) else Fields({})
    return {
        name: older.size(_OLDER[name], fields.size(name, default), minimum=0)
        if name == "index_local_blocks"
        else older.size(_OLDER[name], fields.size(name, default))
        for name, default in _SIZES.items()
    }


def _is_older(fields: Fields) -> bool:
    return fields.is_mapping("sparse_attention_config")


def _kinds(fields: Fields, count: int) -> list[str]:
    default = [_FULL] * count
    if _is_older(fields):
        section = fields.section("sparse_attention_config")
        given = section.counts("sparse_attention_freq")
        if given:
            _require_each(section.spelling("sparse_attention_freq"), len(given), count)
            default = [_SPARSE_KEYS if each else _FULL for each in given]
    return list(layer_kinds(fields, default, known=(_FULL, _SPARSE_KEYS)))


def _routes(fields: Fields, count: int) -> list[str]:
    given = fields.counts("moe_layer_freq")
    default = [_SPARSE] * count
    if given:
        _require_each(fields.spelling("moe_layer_freq"), len(given), count)
        default = [_SPARSE if each else _DENSE for each in given]
    return list(layer_kinds(fields, default, known=(_DENSE, _SPARSE), name="mlp_layer_types"))


def _require_each(field: str, given: int, count: int) -> None:
    if given != count:
        raise DocumentError(
            f"must say it of each of the {count} layers",
            field=field,
            value=f"{given} entries",
            remedy="give one number per layer, or leave it out",
        )
