"""A small mixture of experts of transformers, and the planner's reading of its configuration."""

from __future__ import annotations

from typing import Any

from torch import nn
from transformers import AutoConfig, AutoModelForCausalLM

FIELDS: dict[str, Any] = {
    "model_type": "qwen3_moe",
    "hidden_size": 128,
    "intermediate_size": 320,
    "num_hidden_layers": 6,
    "num_attention_heads": 8,
    "num_key_value_heads": 8,
    "head_dim": 16,
    "num_experts": 8,
    "num_experts_per_tok": 2,
    "moe_intermediate_size": 160,
    "vocab_size": 1024,
    "max_position_embeddings": 256,
}


def mixture_model() -> nn.Module:
    """Return the model with fresh weights, in fp32."""
    fields = {name: value for name, value in FIELDS.items() if name != "model_type"}
    config = AutoConfig.for_model(FIELDS["model_type"], **fields, use_cache=False)
    model: nn.Module = AutoModelForCausalLM.from_config(config, attn_implementation="sdpa")
    return model
