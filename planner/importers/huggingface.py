"""Hugging Face config.json -> model graph, one reader per `model_type`.

Defaults are those of the configuration classes of transformers 5 (`configuration_<type>.py`), since
a config.json leaves out what equals them. No code of the model's repository is ever run.
"""

from __future__ import annotations

from collections.abc import Callable, Mapping
from difflib import get_close_matches
from itertools import groupby
from typing import Any

from planner.errors import UnsupportedModelError
from planner.importers.fields import Fields, require_divides
from planner.schema.model import (
    Block,
    BlockRun,
    DenseFeedForward,
    GroupedQueryAttention,
    LatentAttention,
    MixtureFeedForward,
    ModelGraph,
    Norm,
)


def graph_from_huggingface(config: Mapping[str, Any], *, name: str) -> ModelGraph:
    """Return the model graph that a config.json describes.

    Raises:
        UnsupportedModelError: if `model_type` is unknown.
        DocumentError: if a field is missing or has a bad value.
    """
    model_type = config.get("model_type")
    reader = _READERS.get(model_type) if isinstance(model_type, str) else None
    if reader is None:
        near = get_close_matches(str(model_type), _READERS, n=3)
        hint = f"did you mean {', '.join(near)}? " if near else ""
        raise UnsupportedModelError(
            "is not a model type that can be read",
            field="model_type",
            value=model_type,
            remedy=f"{hint}known types are {', '.join(sorted(_READERS))}; or describe the model "
            "as a model graph",
        )
    return reader(Fields(config), name)


def _decoder(
    fields: Fields, name: str, blocks: list[Block], *, architecture: str, tied: bool, maximum: int
) -> ModelGraph:
    """Return a rotary RMSNorm decoder of `blocks`."""
    return ModelGraph(
        name=name,
        architecture=architecture,
        hidden_size=fields.size("hidden_size"),
        vocabulary_size=fields.size("vocab_size"),
        tied_embeddings=fields.flag("tie_word_embeddings", tied),
        maximum_sequence_length=fields.size("max_position_embeddings", maximum),
        runs=_runs(blocks),
    )


def _runs(blocks: list[Block]) -> tuple[BlockRun, ...]:
    """Return consecutive equal blocks as runs."""
    return tuple(
        BlockRun(block=block, block_count=len(list(same))) for block, same in groupby(blocks)
    )


def _head_counts(fields: Fields, *, head_size: int | None = None) -> dict[str, int]:
    """Return head counts and head size with Hugging Face's defaults.

    `head_size` is the type's default where it has one; else hidden_size / num_attention_heads.
    """
    hidden_size = fields.size("hidden_size")
    head_count = fields.size("num_attention_heads")
    key_value_head_count = fields.size("num_key_value_heads", head_count)
    require_divides("num_key_value_heads", key_value_head_count, "num_attention_heads", head_count)
    explicit = fields.optional_size("head_dim") or head_size
    if explicit is None:
        require_divides("num_attention_heads", head_count, "hidden_size", hidden_size)
        explicit = hidden_size // head_count
    return {
        "head_count": head_count,
        "key_value_head_count": key_value_head_count,
        "head_size": explicit,
    }


def _windows(fields: Fields, *, active: bool) -> list[int | None]:
    """Return each layer's attention window, None for full attention.

    `layer_types` decides where given; else layers from `max_window_layers` on slide.
    """
    layer_count = fields.size("num_hidden_layers")
    window = fields.optional_size("sliding_window") if active else None
    types = fields.texts("layer_types")
    if types is not None:
        if len(types) != layer_count:
            raise UnsupportedModelError(
                f"must name each of the {layer_count} layers",
                field="layer_types",
                value=f"{len(types)} entries",
                remedy="give one entry per layer",
            )
        return [window if kind == "sliding_attention" else None for kind in types]
    return [window] * layer_count


def _llama(fields: Fields, name: str) -> ModelGraph:
    bias = fields.flag("attention_bias", False)
    attention = GroupedQueryAttention(
        **_head_counts(fields), query_key_value_bias=bias, output_bias=bias
    )
    ffn = DenseFeedForward(
        ffn_size=fields.size("intermediate_size"), bias=fields.flag("mlp_bias", False)
    )
    blocks = [Block(attention=attention, feed_forward=ffn)] * fields.size("num_hidden_layers")
    return _decoder(fields, name, blocks, architecture="llama", tied=False, maximum=2048)


def _mistral(fields: Fields, name: str) -> ModelGraph:
    counts = _head_counts(fields)
    ffn = DenseFeedForward(ffn_size=fields.size("intermediate_size"))
    blocks = [
        Block(
            attention=GroupedQueryAttention(**counts, sliding_window_tokens=window),
            feed_forward=ffn,
        )
        for window in _windows(fields, active=True)
    ]
    return _decoder(fields, name, blocks, architecture="mistral", tied=False, maximum=4096 * 32)


def _qwen2(fields: Fields, name: str) -> ModelGraph:
    counts = _head_counts(fields)
    ffn = DenseFeedForward(ffn_size=fields.size("intermediate_size"))
    blocks = [
        Block(
            attention=GroupedQueryAttention(
                **counts, query_key_value_bias=True, sliding_window_tokens=window
            ),
            feed_forward=ffn,
        )
        for window in _qwen_windows(fields)
    ]
    return _decoder(fields, name, blocks, architecture="qwen2", tied=False, maximum=32768)


def _qwen_windows(fields: Fields) -> list[int | None]:
    """Return each layer's window: layers from `max_window_layers` (28) on, when switched on."""
    active = fields.flag("use_sliding_window", False)
    windows = _windows(fields, active=active)
    if fields.texts("layer_types") is None and active:
        first = fields.size("max_window_layers", 28, minimum=0)
        windows = [None if index < first else window for index, window in enumerate(windows)]
    return windows


def _qwen3(fields: Fields, name: str) -> ModelGraph:
    counts = _head_counts(fields, head_size=128)
    bias = fields.flag("attention_bias", False)
    ffn = DenseFeedForward(ffn_size=fields.size("intermediate_size"))
    blocks = [
        Block(attention=_normed_attention(counts, bias=bias, window=window), feed_forward=ffn)
        for window in _qwen_windows(fields)
    ]
    return _decoder(fields, name, blocks, architecture="qwen3", tied=False, maximum=32768)


def _normed_attention(
    counts: dict[str, int], *, bias: bool, window: int | None
) -> GroupedQueryAttention:
    return GroupedQueryAttention(
        **counts,
        query_key_value_bias=bias,
        output_bias=bias,
        query_key_norm=True,
        sliding_window_tokens=window,
    )


def _qwen3_moe(fields: Fields, name: str) -> ModelGraph:
    counts = _head_counts(fields)
    bias = fields.flag("attention_bias", False)
    mixture = _mixture(
        fields, expert_count=fields.size("num_experts", 128), experts_per_token=8, expert_size=768
    )
    dense_only = fields.indices("mlp_only_layers")
    sparse_step = fields.size("decoder_sparse_step", 1)
    blocks = []
    for index, window in enumerate(_qwen_windows(fields)):
        sparse = index not in dense_only and (index + 1) % sparse_step == 0
        ffn = mixture if sparse else DenseFeedForward(ffn_size=fields.size("intermediate_size"))
        attention = _normed_attention(counts, bias=bias, window=window)
        blocks.append(Block(attention=attention, feed_forward=ffn))
    return _decoder(fields, name, blocks, architecture="qwen3_moe", tied=False, maximum=32768)


def _mixture(
    fields: Fields, *, expert_count: int, experts_per_token: int, expert_size: int
) -> MixtureFeedForward:
    chosen = fields.size("num_experts_per_tok", experts_per_token)
    _require_enough_experts(chosen, expert_count)
    return MixtureFeedForward(
        expert_count=expert_count,
        experts_per_token=chosen,
        expert_ffn_size=fields.size("moe_intermediate_size", expert_size),
    )


def _require_enough_experts(chosen: int, expert_count: int) -> None:
    if chosen > expert_count:
        raise UnsupportedModelError(
            f"exceeds the {expert_count} experts",
            field="num_experts_per_tok",
            value=chosen,
            remedy=f"use at most {expert_count}",
        )


def _mixtral(fields: Fields, name: str) -> ModelGraph:
    counts = _head_counts(fields)
    expert_count = fields.size("num_local_experts", 8)
    chosen = fields.size("num_experts_per_tok", 2)
    _require_enough_experts(chosen, expert_count)
    mixture = MixtureFeedForward(
        expert_count=expert_count,
        experts_per_token=chosen,
        expert_ffn_size=fields.size("intermediate_size"),
    )
    blocks = [
        Block(
            attention=GroupedQueryAttention(**counts, sliding_window_tokens=window),
            feed_forward=mixture,
        )
        for window in _windows(fields, active=True)
    ]
    return _decoder(fields, name, blocks, architecture="mixtral", tied=False, maximum=4096 * 32)


def _deepseek_v3(fields: Fields, name: str) -> ModelGraph:
    attention = LatentAttention(
        head_count=fields.size("num_attention_heads"),
        query_rank=fields.optional_size("q_lora_rank"),
        key_value_rank=fields.size("kv_lora_rank", 512),
        no_position_head_size=fields.size("qk_nope_head_dim", 128),
        rotary_head_size=fields.size("qk_rope_head_dim", 64),
        value_head_size=fields.size("v_head_dim", 128),
        bias=fields.flag("attention_bias", False),
    )
    expert_count = fields.size("n_routed_experts", 256)
    mixture = _mixture(fields, expert_count=expert_count, experts_per_token=8, expert_size=2048)
    shared = fields.size("n_shared_experts", 1, minimum=0)
    mixture = mixture.model_copy(update={"shared_ffn_size": shared * mixture.expert_ffn_size})
    dense_count = fields.size("first_k_dense_replace", 3, minimum=0)
    dense = DenseFeedForward(ffn_size=fields.size("intermediate_size"))
    blocks = [
        Block(attention=attention, feed_forward=dense if index < dense_count else mixture)
        for index in range(fields.size("num_hidden_layers"))
    ]
    graph = _decoder(fields, name, blocks, architecture="deepseek_v3", tied=False, maximum=4096)
    return graph.model_copy(
        update={"assumptions": ("multi-token prediction layers are left out",)}
        if fields.size("num_nextn_predict_layers", 0, minimum=0)
        else {}
    )


def _gpt2(fields: Fields, name: str) -> ModelGraph:
    hidden_size = fields.size("n_embd", 768)
    head_count = fields.size("n_head", 12)
    require_divides("n_head", head_count, "n_embd", hidden_size)
    block = Block(
        attention=GroupedQueryAttention(
            head_count=head_count,
            key_value_head_count=head_count,
            head_size=hidden_size // head_count,
            query_key_value_bias=True,
            output_bias=True,
            rotary=False,
        ),
        feed_forward=DenseFeedForward(
            ffn_size=fields.size("n_inner", 4 * hidden_size), gated=False, bias=True
        ),
        norm=Norm.LAYER,
    )
    positions = fields.size("n_positions", 1024)
    return ModelGraph(
        name=name,
        architecture="gpt2",
        hidden_size=hidden_size,
        vocabulary_size=fields.size("vocab_size", 50257),
        tied_embeddings=fields.flag("tie_word_embeddings", True),
        learned_position_count=positions,
        final_norm=Norm.LAYER,
        maximum_sequence_length=positions,
        runs=(BlockRun(block=block, block_count=fields.size("n_layer", 12)),),
    )


_READERS: Mapping[str, Callable[[Fields, str], ModelGraph]] = {
    "deepseek_v3": _deepseek_v3,
    "gpt2": _gpt2,
    "llama": _llama,
    "mistral": _mistral,
    "mixtral": _mixtral,
    "qwen2": _qwen2,
    "qwen3": _qwen3,
    "qwen3_moe": _qwen3_moe,
}
