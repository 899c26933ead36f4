"""DeepSeek-V4 of Hugging Face: compressed attention, rows of residual side by side, experts.

Defaults are those of `configuration_deepseek_v4.py` of transformers 5.23. Older files say
`compress_ratios`, `compress_rate_csa` and `compress_rate_hca`, which are read as well. Layers that
choose experts by a table of tokens have the shape of those that choose by scores.
"""

from __future__ import annotations

from collections.abc import Sequence

from planner.errors import UnsupportedModelError
from planner.importers.fields import Fields, require_at_most, require_divides
from planner.importers.hugging_face.attention import layer_count, layer_kinds
from planner.importers.hugging_face.decoder import rotary_decoder
from planner.schema.model import (
    Block,
    CompressedAttention,
    KeyCompression,
    KeyIndex,
    MixtureFeedForward,
    ModelGraph,
)

DEEPSEEK_V4_ALIASES = {"num_local_experts": "n_routed_experts"}
_SLIDING = "sliding_attention"
_SPARSE = "compressed_sparse_attention"
_HEAVY = "heavily_compressed_attention"
_STREAM_LIMIT = 64
_FIRST_HEAVY = 2  # the first layers, then every second
_KINDS_OF_RATIOS = {0: _SLIDING, 4: _SPARSE, 128: _HEAVY}


def deepseek_v4(fields: Fields, name: str) -> ModelGraph:
    """Return a deepseek_v4; multi-token prediction is left out, as transformers leaves it out."""
    attentions = {kind: _attention(fields, kind) for kind in _KINDS_OF_RATIOS.values()}
    streams = fields.size("hc_mult", 4, minimum=2, limit=_STREAM_LIMIT)
    mixture = _mixture(fields)
    blocks = [
        Block(attention=attentions[kind], feed_forward=mixture, residual_stream_count=streams)
        for kind in _kinds(fields)
    ]
    said = []
    if fields.size("num_nextn_predict_layers", 1, minimum=0):
        said.append("multi-token prediction layers are left out")
    if fields.size("n_shared_experts", 1, minimum=0) != 1:
        said.append("one shared expert was read, as its class has whatever n_shared_experts says")
    graph = rotary_decoder(fields, name, blocks, positions=2**20)
    return graph.model_copy(update={"assumptions": tuple(said)})


def _kinds(fields: Fields) -> Sequence[str]:
    """Return the kind of each layer: `layer_types`, else `compress_ratios`, else alternating.

    Raises:
        UnsupportedModelError: if a ratio stands for no kind.
    """
    count = layer_count(fields)
    default = [
        _HEAVY if index < _FIRST_HEAVY or index % 2 == 0 else _SPARSE for index in range(count)
    ]
    ratios = fields.counts("compress_ratios")
    if fields.texts("layer_types") is not None or not ratios:
        return layer_kinds(fields, default, known=tuple(_KINDS_OF_RATIOS.values()))
    unknown = [ratio for ratio in ratios if ratio not in _KINDS_OF_RATIOS]
    if unknown or len(ratios) < count:
        raise UnsupportedModelError(
            f"must have 0, 4 or 128 for each of the {count} layers of num_hidden_layers",
            field=fields.spelling("compress_ratios"),
            value=unknown[0] if unknown else f"{len(ratios)} entries",
            remedy="give layer_types, or leave both out",
        )
    return [_KINDS_OF_RATIOS[ratio] for ratio in ratios[:count]]


def _attention(fields: Fields, kind: str) -> CompressedAttention:
    """Return the attention of layers of a kind."""
    heads, size = fields.size("num_attention_heads", 64), fields.size("head_dim", 512)
    groups = fields.size("o_groups", 8)
    require_divides(
        fields.spelling("o_groups"), groups, fields.spelling("num_attention_heads"), heads
    )
    return CompressedAttention(
        head_count=heads,
        head_size=size,
        query_rank=fields.size("q_lora_rank", 1024),
        output_group_count=groups,
        output_rank=fields.size("o_lora_rank", 1024),
        sliding_window_tokens=fields.size("sliding_window", 128),
        compression=_compression(fields, kind),
    )


def _compression(fields: Fields, kind: str) -> KeyCompression | None:
    if kind == _SLIDING:
        return None
    if kind == _HEAVY:
        return KeyCompression(tokens=_rate(fields, kind, "compress_rate_hca", 128))
    return KeyCompression(
        tokens=_rate(fields, kind, "compress_rate_csa", 4),
        overlap=True,
        index=KeyIndex(
            head_count=fields.size("index_n_heads", 64),
            head_size=fields.size("index_head_dim", 128),
            entries_per_token=fields.size("index_topk", 512),
        ),
    )


def _rate(fields: Fields, kind: str, older: str, default: int) -> int:
    """Return how many tokens one compressed key stands for; the older field wins."""
    if fields.is_mapping("compress_rates"):
        default = fields.section("compress_rates").size(kind, default)
    return fields.size(older, default)


def _mixture(fields: Fields) -> MixtureFeedForward:
    """Return the experts and the one shared expert that its class has, whatever is said.

    Raises:
        UnsupportedModelError: if its shared expert has biases, as no released one has.
    """
    if fields.flag("mlp_bias", False):
        raise UnsupportedModelError(
            "biases in a shared expert cannot be priced",
            field=fields.spelling("mlp_bias"),
            value=True,
            remedy="set it to false or leave it out",
        )
    count, chosen = fields.size("n_routed_experts", 256), fields.size("num_experts_per_tok", 6)
    require_at_most(
        "num_experts_per_tok",
        chosen,
        limit_name=fields.spelling("n_routed_experts"),
        limit=count,
    )
    other = "intermediate_size"  # its class takes it for the same, and rather
    width = fields.size(other if other in fields else "moe_intermediate_size", 2048)
    return MixtureFeedForward(
        expert_count=count, experts_per_token=chosen, expert_ffn_size=width, shared_ffn_size=width
    )
