"""Second names of fields are those that transformers' classes take, and no others."""

from __future__ import annotations

import pytest
from transformers.models.auto.configuration_auto import CONFIG_MAPPING

from planner.importers.hugging_face.readers import READERS
from planner.importers.models import model_from_fields
from planner.workload.model import model_workload
from tests.golden.transformers_models import reference_parameter_count

# The classes take these in `__post_init__`, beside their `attribute_map`.
TAKEN_ELSEWHERE = {
    "bloom": {"n_embed": "hidden_size"},
    "falcon": {"n_embed": "hidden_size"},
    "nemotron_h": {
        "mamba_n_groups": "n_groups",
        "mamba_d_conv": "conv_kernel",
        "mamba_conv_bias": "use_conv_bias",
        "mamba_chunk_size": "chunk_size",
    },
}
# None of these changes a shape, but for deepseek_v4's, which its reader reads itself.
UNREAD = {
    "bailing_hybrid": {"n_group", "norm_topk_prob"},
    "led": {"attention_probs_dropout_prob"},
    "lfm3": {"rms_norm_eps"},
    "bigbird_pegasus": {"attention_probs_dropout_prob"},
    "deepseek_v4": {"intermediate_size"},
    "falcon_h1": {"layer_types"},
    "inkling_text": {"embedding_multiplier"},
    "inkling2_text": {"routed_scaling_factor"},
    "kimi_linear": {"n_group", "norm_topk_prob"},
    "whisper": {"num_key_value_heads"},
}
TOKENS = {
    "audio_token_id",
    "boi_token_id",
    "bos_index",
    "eos_index",
    "pad_index",
    "eoi_token_id",
    "image_token_id",
    "initializer_range",
    "video_token_id",
}
WITHOUT_A_CLASS = {"internvl_chat", "kimi_k2", "minimax_m1"}
SIZES = {
    "hidden_size": 64,
    "intermediate_size": 96,
    "num_hidden_layers": 4,
    "num_attention_heads": 4,
    "num_key_value_heads": 2,
    "vocab_size": 500,
    "pad_token_id": 0,
}


@pytest.mark.parametrize("model_type", sorted(set(READERS) - WITHOUT_A_CLASS))
def test_second_names_are_those_of_the_reference_class(model_type):
    passed_over = TOKENS | UNREAD.get(model_type, set())
    taken = {
        frozenset(pair)
        for pair in CONFIG_MAPPING[model_type].attribute_map.items()
        if pair[0] not in passed_over
    }
    elsewhere = {frozenset(pair) for pair in TAKEN_ELSEWHERE.get(model_type, {}).items()}
    assert {frozenset(pair) for pair in READERS[model_type].aliases.items()} == taken | elsewhere


@pytest.mark.parametrize(
    ("model_type", "name"),
    [
        ("deepseek_v2", "num_local_experts"),
        ("deepseek_v3", "num_experts"),
        ("granitemoe", "num_experts"),
        ("llama4_text", "num_experts"),
        ("solar_open", "num_experts"),
    ],
)
def test_name_that_the_class_passes_over_counts_for_nothing(model_type, name):
    fields = {"model_type": model_type, **SIZES, "num_experts_per_tok": 1, name: 4}
    counted = model_workload(model_from_fields(fields, name="it")).parameter_count
    assert counted == reference_parameter_count(fields)
