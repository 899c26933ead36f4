"""Forward FLOPs equal those that torch counts while transformers' own classes run."""

from __future__ import annotations

from typing import Any

import pytest
import torch
from torch.utils.flop_counter import FlopCounterMode
from transformers import AutoModelForCausalLM

from planner.importers.models import model_from_fields
from planner.workload.layer import LayerWorkload
from planner.workload.model import model_workload
from tests.golden.transformers_models import reference_config

TOKENS = 64
DENSE = {
    "hidden_size": 128,
    "intermediate_size": 336,
    "num_hidden_layers": 2,
    "num_attention_heads": 8,
    "num_key_value_heads": 2,
    "vocab_size": 500,
}
ROUTED = {**DENSE, "num_experts_per_tok": 3, "moe_intermediate_size": 80}
LATENT = {
    **DENSE,
    "model_type": "deepseek_v3",
    "num_key_value_heads": 8,
    "q_lora_rank": 48,
    "kv_lora_rank": 40,
    "qk_nope_head_dim": 24,
    "qk_rope_head_dim": 8,
    "v_head_dim": 16,
}
CASES = {
    "llama": {**DENSE, "model_type": "llama"},
    "llama_wide_heads": {**DENSE, "model_type": "llama", "head_dim": 40},
    "qwen2": {**DENSE, "model_type": "qwen2"},
    "qwen3": {**DENSE, "model_type": "qwen3", "head_dim": 16},
    "gemma2": {**DENSE, "model_type": "gemma2", "head_dim": 32},
    "gemma3_text": {**DENSE, "model_type": "gemma3_text", "num_hidden_layers": 6},
    "olmo2": {**DENSE, "model_type": "olmo2"},
    "gpt_oss": {**ROUTED, "model_type": "gpt_oss", "num_local_experts": 6},
    "gpt2": {"model_type": "gpt2", "n_embd": 128, "n_layer": 2, "n_head": 8, "vocab_size": 500},
    "mixtral": {**ROUTED, "model_type": "mixtral", "num_local_experts": 6},
    "qwen3_moe": {**ROUTED, "model_type": "qwen3_moe", "num_experts": 8},
    "qwen2_moe": {**ROUTED, "model_type": "qwen2_moe", "num_experts": 8},
    "deepseek_v3_dense": {**LATENT, "first_k_dense_replace": 2},
    "deepseek_v3": {
        **LATENT,
        "first_k_dense_replace": 1,
        "n_routed_experts": 8,
        "num_experts_per_tok": 2,
        "moe_intermediate_size": 96,
        "n_group": 2,
        "topk_group": 1,
    },
    "deepseek_v3_whole_queries": {**LATENT, "first_k_dense_replace": 2, "q_lora_rank": None},
}


def counted_flop(fields: dict[str, Any], *, backward: bool = False) -> float:
    """Return the FLOPs that torch counts for one sequence; it counts attention un-causal."""
    torch.manual_seed(0)
    model = AutoModelForCausalLM.from_config(
        reference_config(fields), attn_implementation="eager", experts_implementation="eager"
    )
    with FlopCounterMode(display=False) as counter:
        logits = model(torch.arange(TOKENS)[None]).logits
        if backward:
            logits.sum().backward()
    return float(counter.get_total_flops())


def uncausal_flop(layer: LayerWorkload) -> float:
    """Return a layer's forward FLOPs of one sequence when every query sees every key."""
    flop = TOKENS * sum(gemm.flop_per_token() for gemm in layer.gemms)
    if layer.attention is None:
        return flop
    core = layer.attention
    width = core.head_count * (core.key_head_size + core.value_head_size)
    return flop + 2.0 * width * TOKENS * TOKENS


def expected_flop(fields: dict[str, Any]) -> float:
    """Return our forward FLOPs of one sequence with attention un-halved."""
    workload = model_workload(model_from_fields(fields, name="it"))
    layers = [*workload.runs, (workload.embedding, 1), (workload.head.layer, 1)]
    return sum(count * uncausal_flop(layer) for layer, count in layers)


@pytest.mark.parametrize("case", CASES)
def test_forward_flop_is_within_one_percent_of_what_torch_counts(case):
    assert expected_flop(CASES[case]) == pytest.approx(counted_flop(CASES[case]), rel=0.01)


@pytest.mark.parametrize("case", ["llama", "gpt2", "deepseek_v3_dense"])
def test_forward_and_backward_are_three_times_forward(case):
    """The convention of `model_flop_per_token`: backward counts twice forward."""
    counted = counted_flop(CASES[case], backward=True)
    assert 3.0 * expected_flop(CASES[case]) == pytest.approx(counted, rel=0.01)
