"""Small mixtures of experts: one of transformers, and one of the reference decoder."""

from __future__ import annotations

from typing import Any

from torch import nn
from transformers import AutoConfig, AutoModelForCausalLM

from planner.schema.model import (
    Block,
    BlockRun,
    DenseFeedForward,
    GroupedQueryAttention,
    MixtureFeedForward,
    ModelGraph,
)
from tests.builders import a_model

EXPERTS_PER_TOKEN = 2

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


def small_mixture(*, tied: bool, block_count: int) -> ModelGraph:
    """A dense block, then others that send each token to two of eight experts and a shared one."""
    attention = GroupedQueryAttention(head_count=8, key_value_head_count=4, head_size=8)
    experts = MixtureFeedForward(
        expert_count=8,
        experts_per_token=EXPERTS_PER_TOKEN,
        expert_ffn_size=16,
        shared_ffn_size=16,
        shared_gate=True,
        router_bias=True,
    )
    dense = Block(attention=attention, feed_forward=DenseFeedForward(ffn_size=64))
    mixed = Block(attention=attention, feed_forward=experts)
    return a_model(
        hidden_size=32,
        tied_embeddings=tied,
        runs=(
            BlockRun(block=dense, block_count=1),
            BlockRun(block=mixed, block_count=block_count - 1),
        ),
    )
