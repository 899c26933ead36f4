"""Decoders of Inkling of Hugging Face: inkling_text and inkling2_text.

Positions are a score for each head and distance, made of a row of each token's own; keys, values
and what both parts put out pass short convolutions. Those weights stand in `beside`; the scores by
distance and the convolutions have no FLOPs here, and both are said. Defaults are those of the
configuration classes (`configuration_<type>.py` of transformers 5.23).
"""

from __future__ import annotations

from dataclasses import dataclass

from planner.importers.fields import POSITION_LIMIT, Fields, require_divides
from planner.importers.hugging_face.attention import layer_count, layer_kinds
from planner.importers.hugging_face.decoder import rotary_decoder
from planner.importers.hugging_face.glm import PREDICTION_LEFT_OUT
from planner.importers.hugging_face.mixture import routed_experts
from planner.schema.model import (
    Block,
    DenseFeedForward,
    Entry,
    GroupedQueryAttention,
    MixtureFeedForward,
    ModelGraph,
    Norm,
    Product,
)

ALIASES = {
    "num_local_experts": "n_routed_experts",
    "sconv_kernel_size": "conv_kernel_size",
    "sliding_window": "sliding_window_size",
    "model_max_length": "max_position_embeddings",
}
SECOND_ALIASES = {**ALIASES, "intermediate_size": "moe_intermediate_size"}

_FULL, _SLIDING = "hybrid", "hybrid_sliding"
_DENSE, _SPARSE = "dense", "sparse"
_PERIOD = 6
_LEFT_OUT = "scores by distance and short convolutions are counted as parameters, not as work"


@dataclass(frozen=True, slots=True, kw_only=True)
class _Sizes:
    """What layers of one kind have: heads, what distances they know, their window."""

    attention: GroupedQueryAttention
    distances: int

    @property
    def key_value_width(self) -> int:
        """Return the width of all heads of keys, which is that of values."""
        return self.attention.key_value_head_count * self.attention.head_size


def inkling_text(fields: Fields, name: str) -> ModelGraph:
    """Return an inkling_text: queries and keys normed, shared experts that the router weighs."""
    width, count = fields.size("hidden_size"), layer_count(fields)
    rows, taps = fields.size("d_rel", 16), fields.size("conv_kernel_size", 4)
    kinds = _kinds(fields, count)
    shared = fields.size("n_shared_experts", 2, minimum=0)
    # files of before say the experts' width in the dense one's field
    older = fields.optional_size("dense_intermediate_size")
    dense_size = fields.size("intermediate_size") if older is None else older
    expert_size = fields.size("moe_intermediate_size", 3072)
    if older is not None:
        expert_size = fields.size("intermediate_size")
    mixture = routed_experts(
        fields,
        expert_count=("n_routed_experts", 256),
        experts_per_token=6,
        expert_ffn_size=expert_size,
    ).model_copy(update={"shared_ffn_size": shared * expert_size, "scale_elements": 1})
    dense = DenseFeedForward(ffn_size=dense_size, scale_elements=1)
    first = fields.size("dense_mlp_idx", 0, minimum=0)
    routes = layer_kinds(
        fields,
        [_DENSE if index < first else _SPARSE for index in range(count)],
        known=(_DENSE, _SPARSE),
        name="mlp_layer_types",
    )
    sizes = _layer_sizes(fields, heads=(64, 8), sliding=(64, 16), window=512)
    normed = {"query_key_norm": True}
    blocks = []
    for kind, route in zip(kinds, routes, strict=True):
        own = sizes[kind]
        products = [Product(inner_size=width, outer_size=own.attention.head_count * rows)]
        if route == _SPARSE and shared:
            products.append(Product(inner_size=width, outer_size=shared))
        tables = rows * own.distances + 2 * taps * (own.key_value_width + width)
        blocks.append(
            Block(
                attention=own.attention.model_copy(update=normed),
                feed_forward=dense if route == _DENSE else mixture,
                beside=Entry(products=tuple(products), table_elements=tables),
            )
        )
    said = [_LEFT_OUT]
    if fields.size("num_mtp_layers", 0, minimum=0):
        said.append(PREDICTION_LEFT_OUT)
    graph = rotary_decoder(
        fields.replaced({"tie_word_embeddings": False}), name, blocks, positions=131_072
    )
    return _with_normed_embedding(graph, said)


def inkling2_text(fields: Fields, name: str) -> ModelGraph:
    """Return an inkling2_text: gated attention with sinks, parts that weigh outputs of before.

    Layers that see all make taps of their convolutions of each token, and norm what queries, keys
    and values read apart.
    """
    width, count = fields.size("hidden_size"), layer_count(fields)
    every = fields.size("n_layers_per_attn_res_block", 6)
    mixture = routed_experts(
        fields,
        expert_count=("n_routed_experts", 384),
        experts_per_token=8,
        expert_ffn_size=fields.size("moe_intermediate_size", 2304),
    )
    sizes = _layer_sizes(fields, heads=(48, 8), sliding=(48, 8), window=1024)
    kinds = _kinds(fields, count)
    blocks = [
        _block_of_2(fields, sizes[kind], mixture, sees_all=kind == _FULL, first=not index)
        for index, kind in enumerate(kinds)
    ]
    graph = rotary_decoder(
        fields.filled({"final_logit_softcapping": 30.0}).replaced({"tie_word_embeddings": False}),
        name,
        blocks,
        positions=2**20,
    )
    kept = -(-count // every) * width  # what every part reads of the blocks before
    runs = [run.model_copy(update={"carried_width": kept}) for run in graph.runs]
    graph = graph.model_copy(
        update={"runs": tuple(runs), "before_head": Entry(table_elements=width)}
    )
    said = "weighing the outputs of earlier blocks of layers is left out, what it reads is carried"
    return _with_normed_embedding(graph, [_LEFT_OUT, said])


def _block_of_2(
    fields: Fields, own: _Sizes, mixture: MixtureFeedForward, *, sees_all: bool, first: bool
) -> Block:
    width, heads = fields.size("hidden_size"), own.attention.head_count
    rows, taps = fields.size("d_rel", 16), fields.size("conv_kernel_size", 4)
    products = [
        Product(inner_size=width, outer_size=heads * rows),
        Product(inner_size=width, outer_size=heads),  # sinks
    ]
    if sees_all:
        made = own.attention.key_value_head_count * taps
        products += [Product(inner_size=width, outer_size=made)] * 2
    weighs = 1 + (0 if first else 3 if sees_all else 1)
    tables = heads * (own.attention.head_size + rows)  # scales of queries and of their rows
    tables += rows * own.distances + 2 * taps * (own.key_value_width + width) + weighs * width
    return Block(
        attention=own.attention.model_copy(update={"output_gate": True}),
        feed_forward=mixture,
        beside=Entry(
            products=tuple(products),
            norm=Norm.RMS,
            norm_widths=(width, width) if sees_all else (),
            table_elements=tables,
        ),
    )


def _kinds(fields: Fields, count: int) -> list[str]:
    """Return the kind of each layer: `layer_types`, else `local_layer_ids`, else by period."""
    local = fields.indices("local_layer_ids") if fields.is_list("local_layer_ids") else None
    default = [
        _SLIDING if ((i + 1) % _PERIOD if local is None else i in local) else _FULL
        for i in range(count)
    ]
    return list(layer_kinds(fields, default, known=(_FULL, _SLIDING)))


def _layer_sizes(
    fields: Fields, *, heads: tuple[int, int], sliding: tuple[int, int], window: int
) -> dict[str, _Sizes]:
    """Return what layers of each kind have; `heads` and `sliding` are those of queries and keys."""
    slides = fields.size("sliding_window_size", window, limit=POSITION_LIMIT)
    extent = fields.size("rel_extent", 1024, limit=POSITION_LIMIT)
    return {
        _FULL: _Sizes(attention=_attention(fields, "", heads, None), distances=extent),
        _SLIDING: _Sizes(attention=_attention(fields, "swa_", sliding, slides), distances=slides),
    }


def _attention(
    fields: Fields, prefix: str, heads: tuple[int, int], window: int | None
) -> GroupedQueryAttention:
    queries, keys = f"{prefix}num_attention_heads", f"{prefix}num_key_value_heads"
    query_heads = fields.size(queries, heads[0])
    key_heads = fields.size(keys, heads[1])
    require_divides(fields.spelling(keys), key_heads, fields.spelling(queries), query_heads)
    return GroupedQueryAttention(
        head_count=query_heads,
        key_value_head_count=key_heads,
        head_size=fields.size(f"{prefix}head_dim", 128),
        rotary=False,
        sliding_window_tokens=window,
    )


def _with_normed_embedding(graph: ModelGraph, said: list[str]) -> ModelGraph:
    first, *others = graph.runs
    entry = Entry(norm=Norm.RMS, norm_widths=(graph.hidden_size,))
    return graph.model_copy(
        update={
            "runs": (first.model_copy(update={"entry": entry}), *others),
            "assumptions": (*graph.assumptions, *said),
        }
    )
