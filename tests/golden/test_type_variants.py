"""Less common settings of many model types: parameters exactly those of transformers' classes.

Nulls, second names and switches that no released shape uses, each of which was once read otherwise.
"""

from __future__ import annotations

from typing import Any

import pytest

from planner.importers.models import model_from_fields
from planner.workload.model import model_workload
from tests.golden.transformers_models import reference_parameter_count

SIZES = {
    "hidden_size": 64,
    "intermediate_size": 96,
    "num_hidden_layers": 4,
    "num_attention_heads": 4,
    "num_key_value_heads": 2,
    "vocab_size": 500,
    "pad_token_id": 0,
}
WINDOWS = ["sliding_attention", "full_attention"] * 2
ROUTED = {
    "n_routed_experts": 8,
    "n_shared_experts": 2,
    "num_experts_per_tok": 2,
    "moe_intermediate_size": 48,
}
VARIANTS: list[tuple[str, dict[str, Any]]] = [
    ("seed_oss", {"head_dim": None}),
    ("ernie4_5", {"head_dim": None}),
    ("cohere2", {"head_dim": 32}),
    ("falcon", {"multi_query": None}),
    ("llama4_text", {"moe_layers": [], "head_dim": 16, "intermediate_size_mlp": 80}),
    ("qwen2_moe", {"sliding_window": 0, "use_sliding_window": False, "num_experts": 8}),
    ("arcee", {"head_dim": 32, "attention_bias": True, "mlp_bias": True}),
    ("cwm", {"head_dim": 32, "mlp_bias": True, "layer_types": WINDOWS}),
    ("dots1", {**ROUTED, "first_k_dense_replace": 2, "max_window_layers": 3}),
    ("dots1", {**ROUTED, "attention_bias": True, "layer_types": WINDOWS}),
    ("exaone4", {"sliding_window": None, "layer_types": ["full_attention"] * 4}),
    ("exaone4", {"sliding_window_pattern": "LLLG", "layer_types": WINDOWS, "head_dim": 32}),
    ("flex_olmo", {"num_experts": 4, "num_experts_per_tok": 2, "attention_bias": True}),
    ("glm", {"attention_bias": False, "head_dim": 32}),
    ("glm4_moe_lite", {**ROUTED, "q_lora_rank": None, "mlp_bias": True}),
    ("glm4_moe_lite", {**ROUTED, "mlp_layer_types": ["dense", "sparse", "dense", "sparse"]}),
    ("granitemoe", {"attention_bias": True, "num_local_experts": 4}),
    ("granitemoeshared", {"shared_intermediate_size": 40, "num_local_experts": 4}),
    ("helium", {"head_dim": 16, "attention_bias": True, "mlp_bias": True}),
    ("hunyuan_v1_dense", {"head_dim": 32, "attention_bias": True, "mlp_bias": True}),
    ("ministral", {"head_dim": 32, "sliding_window": None, "mlp_bias": True}),
    ("mistral4", ROUTED),
    ("mistral4", {**ROUTED, "first_k_dense_replace": 2}),
    ("mistral4", {**ROUTED, "q_lora_rank": None, "attention_bias": True}),
    ("nemotron", {"head_dim": 32, "attention_bias": True, "mlp_bias": True}),
    ("solar_open", {**ROUTED, "attention_bias": True, "head_dim": 32}),
    ("stablelm", {"use_parallel_residual": True, "use_qkv_bias": True}),
]


def counted(fields: dict[str, Any]) -> int:
    """Return what we count."""
    return model_workload(model_from_fields(fields, name="it")).parameter_count


@pytest.mark.parametrize(("model_type", "changes"), VARIANTS)
def test_parameters_of_a_variant_are_those_of_the_reference_class(model_type, changes):
    fields = {"model_type": model_type, **SIZES, **changes}
    assert counted(fields) == reference_parameter_count(fields)
