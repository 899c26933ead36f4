"""Activations equal the bytes that autograd keeps of transformers' own layers in bf16.

Every tensor that backward will read is caught as it is saved, storages once, parameters and rotary
tables left out. Flash attention for CPU runs, so that no scores are kept.
"""

from __future__ import annotations

from typing import Any

import pytest
import torch
from transformers import AutoModelForCausalLM

from planner.importers.models import model_from_fields
from planner.workload.layer import ActivationElements
from planner.workload.model import model_workload
from tests.golden.transformers_models import reference_config

TOKENS = 128
DENSE = {
    "hidden_size": 128,
    "intermediate_size": 320,
    "num_hidden_layers": 1,
    "num_attention_heads": 8,
    "num_key_value_heads": 4,
    "vocab_size": 64,
}
LATENT = {
    **DENSE,
    "model_type": "deepseek_v3",
    "num_key_value_heads": 8,
    "q_lora_rank": 48,
    "kv_lora_rank": 32,
    # flash attention for CPU wants keys and values equally wide
    "qk_nope_head_dim": 8,
    "qk_rope_head_dim": 8,
    "v_head_dim": 16,
    "n_routed_experts": 8,
    "num_experts_per_tok": 2,
    "moe_intermediate_size": 96,
    "n_group": 1,
    "topk_group": 1,
}
GPT2 = {
    "model_type": "gpt2",
    "n_embd": 128,
    "n_layer": 1,
    "n_head": 8,
    "vocab_size": 64,
    "activation_function": "gelu",
    "resid_pdrop": 0.0,
    "attn_pdrop": 0.0,
}
CASES = {
    "llama": {**DENSE, "model_type": "llama"},
    "qwen2": {**DENSE, "model_type": "qwen2"},
    "qwen3": {**DENSE, "model_type": "qwen3", "head_dim": 16},
    "gemma": {**DENSE, "model_type": "gemma", "head_dim": 16},
    "gemma3_text": {**DENSE, "model_type": "gemma3_text", "head_dim": 16},
    "olmo2": {**DENSE, "model_type": "olmo2"},
    "gpt2": GPT2,
    "gpt2 with GELU written out": {**GPT2, "activation_function": "gelu_new"},
    "mixtral": {**DENSE, "model_type": "mixtral", "num_local_experts": 4},
    "qwen3_moe": {
        **DENSE,
        "model_type": "qwen3_moe",
        "num_experts": 8,
        "num_experts_per_tok": 2,
        "moe_intermediate_size": 96,
    },
}


def saved_bytes_per_token(fields: dict[str, Any]) -> float:
    """Return the bytes per token that autograd saves while the first layer runs."""
    torch.manual_seed(0)
    model = AutoModelForCausalLM.from_config(
        reference_config(fields), attn_implementation="sdpa", dtype=torch.bfloat16
    )
    hidden = torch.randn(1, TOKENS, model.config.hidden_size, dtype=torch.bfloat16)
    options: dict[str, Any] = {}
    if fields["model_type"] == "gpt2":
        layer = model.transformer.h[0]
    else:
        layer = model.model.layers[0]
        kinds = ("sliding_attention",) if fields["model_type"] == "gemma3_text" else ()
        tables = model.model.rotary_emb(hidden, torch.arange(TOKENS)[None], *kinds)
        options = {"position_embeddings": tables, "attention_mask": None}
    left_out = [*model.parameters(), *options.get("position_embeddings", ())]
    saved: dict[int, torch.Tensor] = {}

    def keep(tensor: torch.Tensor) -> torch.Tensor:
        saved.setdefault(tensor.untyped_storage().data_ptr(), tensor)
        return tensor

    with torch.autograd.graph.saved_tensors_hooks(keep, lambda tensor: tensor):
        layer(hidden.requires_grad_(), **options)
    for tensor in left_out:
        saved.pop(tensor.untyped_storage().data_ptr(), None)
    return sum(tensor.untyped_storage().nbytes() for tensor in saved.values()) / TOKENS


def counted_bytes_per_token(fields: dict[str, Any]) -> float:
    """Return what we count for the first layer on one device, in 16 bits."""
    layer, _ = model_workload(model_from_fields(fields, name="it")).runs[0]
    return bytes_of(layer.activations.none)


def bytes_of(kept: ActivationElements) -> float:
    """Return bytes per token without any parallelism."""
    whole = kept.gathered + kept.replicated + kept.norm_copies + kept.routed
    divided = kept.sharded + kept.products + kept.row_copies + kept.step_copies
    return 2.0 * (whole + divided) + 4.0 * kept.float32


@pytest.mark.parametrize("case", CASES)
def test_kept_bytes_are_within_one_percent_of_what_autograd_saves(case):
    fields = CASES[case]
    assert counted_bytes_per_token(fields) == pytest.approx(saved_bytes_per_token(fields), rel=0.01)


def test_latent_attention_keeps_what_autograd_saves_but_for_one_copy():
    """Transformers copies the output (8 heads of 16) before its product; other stacks do not."""
    fields = {**LATENT, "first_k_dense_replace": 1}
    saved = saved_bytes_per_token(fields) - 2 * 8 * 16
    assert counted_bytes_per_token(fields) == pytest.approx(saved, rel=0.01)


def test_deepseek_experts_keep_what_autograd_saves_but_for_the_router_s_wide_copy():
    """Beside the output's copy, transformers' router reads all 128 elements in fp32."""
    fields = {**LATENT, "first_k_dense_replace": 0}
    saved = saved_bytes_per_token(fields) - 2 * 8 * 16 - 4 * 128
    assert counted_bytes_per_token(fields) == pytest.approx(saved, rel=0.02)
