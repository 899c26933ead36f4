"""Decoders of Hugging Face with latent attention: minicpm3, youtu, and three with an index.

axk2, deepseek_v32 and glm_moe_dsa have an index in their attention, which picks keys. Each reader
states the defaults of its configuration class (`configuration_<type>.py` of transformers 5.23).
"""

from __future__ import annotations

from collections.abc import Sequence

from planner.errors import DocumentError
from planner.importers.fields import Fields
from planner.importers.hugging_face.attention import latent, layer_count, layer_kinds
from planner.importers.hugging_face.decoder import rotary_decoder
from planner.importers.hugging_face.glm import PREDICTION_LEFT_OUT
from planner.importers.hugging_face.mixture import routed_experts, with_shared
from planner.schema.compressed import KeyIndex
from planner.schema.model import (
    Block,
    DenseFeedForward,
    Entry,
    LatentAttention,
    MixtureFeedForward,
    ModelGraph,
    Product,
)

SPARSE_ALIASES = {"num_local_experts": "n_routed_experts"}

_DENSE, _SPARSE = "dense", "sparse"
_PICKS, _TAKES = "full", "shared"
_LETTERS = {"F": _PICKS, "S": _TAKES}
_FIRST_TAKEN = 2


def youtu(fields: Fields, name: str) -> ModelGraph:
    """Return a youtu: latent attention, a dense feed-forward in every layer, tied."""
    dense = DenseFeedForward(ffn_size=fields.size("intermediate_size"))
    block = Block(attention=latent(fields), feed_forward=dense)
    blocks = (block,) * layer_count(fields)
    return rotary_decoder(fields, name, blocks, positions=131_072, tied=True)


def minicpm3(fields: Fields, name: str) -> ModelGraph:
    """Return a minicpm3: narrow latent attention, tied; values as wide as the heads unless told."""
    width, heads = fields.size("hidden_size"), fields.size("num_attention_heads")
    if fields.optional_size("v_head_dim") is None and width % heads:
        raise DocumentError(
            f"must divide hidden_size {width} where v_head_dim is left out",
            field=fields.spelling("num_attention_heads"),
            value=heads,
            remedy="give v_head_dim",
        )
    attention = LatentAttention(
        head_count=heads,
        query_rank=fields.optional_size("q_lora_rank", 768),
        key_value_rank=fields.size("kv_lora_rank", 256),
        no_position_head_size=fields.size("qk_nope_head_dim", 64),
        rotary_head_size=fields.size("qk_rope_head_dim", 32),
        value_head_size=fields.size("v_head_dim", max(width // heads, 1)),
        bias=fields.flag("attention_bias", False),
    )
    dense = DenseFeedForward(
        ffn_size=fields.size("intermediate_size"), bias=fields.flag("mlp_bias", False)
    )
    blocks = (Block(attention=attention, feed_forward=dense),) * layer_count(fields)
    return rotary_decoder(fields, name, blocks, positions=32768, tied=True)


def deepseek_v32(fields: Fields, name: str) -> ModelGraph:
    """Return a deepseek_v32: a deepseek_v3 each of whose layers picks the keys it attends to."""
    attention = picking(fields, heads=64)
    attentions = (attention,) * layer_count(fields)
    return _sparse(fields, name, attentions, positions=163_840)


def glm_moe_dsa(fields: Fields, name: str) -> ModelGraph:
    """Return a glm_moe_dsa (GLM-5): some layers take the keys that a layer before has picked."""
    sizes = {"q_lora_rank": 2048, "qk_nope_head_dim": 192, "v_head_dim": 256}
    fields = fields.filled(sizes)
    picks = picking(fields, heads=32)
    takes = picks.model_copy(update={"picks_again": False})
    attentions = [picks if mode == _PICKS else takes for mode in _modes(fields)]
    return _sparse(fields, name, attentions, positions=202_752)


def axk2(fields: Fields, name: str) -> ModelGraph:
    """Return an axk2 (A.X K2): a deepseek_v32 whose attention, and most of whose norms, are gated.

    The gate of attention comes of the queries' row before and after its norm, as queries do. Both
    gates are priced beside their parts, whole on every rank.
    """
    sizes = {
        "q_lora_rank": 384,
        "kv_lora_rank": 128,
        "qk_nope_head_dim": 64,
        "qk_rope_head_dim": 32,
        "v_head_dim": 64,
    }
    fields = fields.filled(sizes)
    attention = picking(fields, heads=16)
    width, rank = fields.size("hidden_size"), fields.size("q_lora_rank")
    inner = fields.size("gated_norm_rank", 16)
    queries = attention.no_position_head_size + attention.rotary_head_size
    gates = (
        Product(inner_size=rank, outer_size=attention.head_count * queries),
        Product(inner_size=2 * rank, outer_size=attention.head_count * attention.value_head_size),
    )
    normed = (
        Product(inner_size=width, outer_size=inner),
        Product(inner_size=inner, outer_size=width),
    )
    step = fields.size("moe_layer_freq", 1)
    first = fields.size("first_k_dense_replace", 1, minimum=0)
    default = [
        _SPARSE if index >= first and index % step == 0 else _DENSE
        for index in range(layer_count(fields))
    ]
    kinds = layer_kinds(fields, default, known=(_DENSE, _SPARSE), name="mlp_layer_types")
    dense = DenseFeedForward(ffn_size=fields.size("intermediate_size"))
    mixture = _shared_mixture(fields, experts=128, width=512)
    blocks = [
        Block(
            attention=attention,
            feed_forward=dense if kind == _DENSE else mixture,
            beside=Entry(products=(*gates, *normed, *(() if kind == _DENSE else normed))),
        )
        for kind in kinds
    ]
    return rotary_decoder(fields, name, blocks, positions=131_072)


def picking(fields: Fields, *, heads: int) -> LatentAttention:
    """Return latent attention with its index, whose number of heads is the type's unless told.

    Raises:
        DocumentError: if queries are not compressed, which its class knows no way without.
    """
    index = KeyIndex(
        head_count=fields.size("index_n_heads", heads),
        head_size=fields.size("index_head_dim", 128),
        entries_per_token=fields.size("index_topk", 2048),
    )
    attention = latent(fields)
    if attention.query_rank is None:
        raise DocumentError(
            "is needed by the index, whose queries come of it",
            field=fields.spelling("q_lora_rank"),
            value=None,
            remedy="give a q_lora_rank; a model without an index is a deepseek_v3",
        )
    return attention.model_copy(update={"index": index})


def _modes(fields: Fields) -> Sequence[str]:
    """Return which layers pick keys: by `indexer_types`, the letters of a pattern, or a period.

    Raises:
        DocumentError: if the first takes what none before it picked, or a letter is unknown.
    """
    period = max(fields.size("index_topk_freq", 1, minimum=0), 1)
    first = fields.size("index_skip_topk_offset", _FIRST_TAKEN, minimum=0)
    count = layer_count(fields)
    default = [_TAKES if max(i - first + 1, 0) % period else _PICKS for i in range(count)]
    pattern = fields.text("index_topk_pattern")
    where = "indexer_types"
    if pattern is not None and fields.texts(where) is None:
        where = "index_topk_pattern"
        modes: Sequence[str] = [_LETTERS.get(letter, letter) for letter in pattern[:count]]
        known = len(modes) == count and set(modes) <= {_PICKS, _TAKES}
    else:
        modes = layer_kinds(fields, default, known=(_PICKS, _TAKES), name=where)
        known = True
    if not known or modes[0] != _PICKS:
        raise DocumentError(
            f"must say of all {count} layers whether they pick (F) or take (S), the first F",
            field=fields.spelling(where),
            value=(pattern or modes[0])[:40],
            remedy="correct it, or leave it out",
        )
    return modes


def _sparse(
    fields: Fields, name: str, attentions: Sequence[LatentAttention], *, positions: int
) -> ModelGraph:
    """Return dense layers, then routed ones with a shared expert, unless told of each.

    Multi-token prediction is left out, as transformers leaves it out, and said to be.
    """
    mixture = _shared_mixture(fields, experts=256, width=2048)
    dense = DenseFeedForward(ffn_size=fields.size("intermediate_size"))
    first = fields.size("first_k_dense_replace", 3, minimum=0)
    default = [_DENSE if index < first else _SPARSE for index in range(len(attentions))]
    kinds = layer_kinds(fields, default, known=(_DENSE, _SPARSE), name="mlp_layer_types")
    blocks = [
        Block(attention=attention, feed_forward=dense if kind == _DENSE else mixture)
        for attention, kind in zip(attentions, kinds, strict=True)
    ]
    graph = rotary_decoder(fields, name, blocks, positions=positions)
    if not fields.size("num_nextn_predict_layers", 0, minimum=0):
        return graph
    return graph.model_copy(update={"assumptions": (PREDICTION_LEFT_OUT,)})


def _shared_mixture(fields: Fields, *, experts: int, width: int) -> MixtureFeedForward:
    """Return routed experts beside a shared one, by the type's sizes unless told."""
    older = "num_experts"  # the classes take it for the same, and rather
    count = older if fields.optional_size(older) is not None else "n_routed_experts"
    mixture = routed_experts(
        fields,
        expert_count=(count, experts),
        experts_per_token=8,
        expert_ffn_size=fields.size("moe_intermediate_size", width),
    )
    return with_shared(mixture, fields.size("n_shared_experts", 1, minimum=0))
