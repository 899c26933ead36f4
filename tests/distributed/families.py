"""Tiny models of transformers' families, built from a configuration."""

from __future__ import annotations

from typing import Any

from torch import nn
from transformers import AutoConfig, AutoModelForCausalLM, PretrainedConfig

from planner.importers.hugging_face.config_json import graph_from_huggingface
from planner.schema.model import ModelGraph
from tests.distributed.plans import FEWEST_BLOCKS, SEQUENCE_LENGTH

_ROTARY: dict[str, Any] = {
    "hidden_size": 32,
    "intermediate_size": 64,
    "num_attention_heads": 8,
    "num_key_value_heads": 4,
    "head_dim": 8,
    "vocab_size": 256,
    "max_position_embeddings": 128,
}
# Short enough that it masks what causal attention would see.
_WINDOW = SEQUENCE_LENGTH // 2

HUGGING_FACE_FIELDS: dict[str, dict[str, Any]] = {
    "llama": _ROTARY,
    "qwen2": {name: value for name, value in _ROTARY.items() if name != "head_dim"},
    "qwen3": _ROTARY,
    "mistral": {**_ROTARY, "sliding_window": _WINDOW},
    "mixtral": {**_ROTARY, "intermediate_size": 32, "num_local_experts": 8},
    "qwen3_moe": {
        **_ROTARY,
        "num_experts": 8,
        "num_experts_per_tok": 2,
        "moe_intermediate_size": 16,
        "norm_topk_prob": True,
        "mlp_only_layers": [0],
    },
    "gpt2": {
        "n_embd": 32,
        "n_head": 4,
        "n_positions": 64,
        "vocab_size": 256,
        "bos_token_id": 0,
        "eos_token_id": 0,
        "embd_pdrop": 0.0,
        "resid_pdrop": 0.0,
        "attn_pdrop": 0.0,
    },
}


def hugging_face_graph(family: str, *, tied: bool, block_count: int = FEWEST_BLOCKS) -> ModelGraph:
    """Return the graph of a family's model, as its config.json is planned."""
    config = _configuration(family, tied=tied, block_count=block_count)
    return graph_from_huggingface(config.to_dict(), name=family)


def hugging_face_model(
    family: str, *, tied: bool, block_count: int = FEWEST_BLOCKS, **changes: Any
) -> nn.Module:
    """Return a model with fresh weights, in fp32; `changes` are to the fields of its family."""
    config = _configuration(family, tied=tied, block_count=block_count, **changes)
    model: nn.Module = AutoModelForCausalLM.from_config(
        config, attn_implementation="sdpa", experts_implementation="eager"
    )
    return model


def _configuration(
    family: str, *, tied: bool, block_count: int, **changes: Any
) -> PretrainedConfig:
    depth = "n_layer" if family == "gpt2" else "num_hidden_layers"
    fields = {**HUGGING_FACE_FIELDS[family], depth: block_count, **changes}
    return AutoConfig.for_model(family, **fields, tie_word_embeddings=tied, use_cache=False)
