"""Parameters equal those of transformers' own classes, exactly."""

from __future__ import annotations

import json
from pathlib import Path
from typing import Any

import pytest
from hypothesis import HealthCheck, given, settings
from hypothesis import strategies as st

from planner.importers.hugging_face.config_json import model_types
from planner.importers.models import model_from_fields, model_names, read_model
from planner.workload.model import model_workload
from tests.draws import of_drawn
from tests.golden.further_types import CASES, HEADS
from tests.golden.transformers_models import reference_config, reference_parameter_count

SHAPES = Path(__file__).parents[2] / "profiles" / "models"
SIZES = {
    "hidden_size": 256,
    "intermediate_size": 96,
    "num_hidden_layers": 4,
    "num_attention_heads": 32,
    "vocab_size": 200_100,  # above every type's special tokens
}
GPT2_SIZES = {"n_embd": 64, "n_head": 4, "n_layer": 3, "vocab_size": 128}
# helium's own default of 20 heads of 128, each with keys of its own, fits no other width.
HELIUM_SIZES = {**SIZES, "hidden_size": 2560, "num_attention_heads": 20}
MAMBA2_SIZES = {"hidden_size": 64, "num_heads": 8, "head_dim": 16, "num_hidden_layers": 3}
SIZES_OF = {
    "gpt2": GPT2_SIZES,
    "gpt_bigcode": GPT2_SIZES,
    "gpt_neo": {"hidden_size": 64, "num_heads": 4, "num_layers": 24, "vocab_size": 128},
    "gptj": GPT2_SIZES,
    "helium": HELIUM_SIZES,
    "mamba2": {**MAMBA2_SIZES, "vocab_size": 128},
    "mpt": {"d_model": 64, "n_heads": 4, "n_layers": 3, "vocab_size": 128},
}
FULL, SLIDING, LINEAR = "full_attention", "sliding_attention", "linear_attention"
# These have parts of their own: `test_towers_and_encoders.py`, `test_image_models.py`.
WITH_TOWERS = {
    "aya_vision",
    "cohere2_vision",
    "gemma3",
    "gemma4",
    "glm4v",
    "glm4v_moe",
    "idefics3",
    "internvl",
    "llama4",
    "llava",
    "llava_next",
    "llava_onevision",
    "mistral3",
    "mllama",
    "mt5",
    "paligemma",
    "qwen2_5_vl",
    "qwen2_vl",
    "qwen3_5",
    "qwen3_5_moe",
    "qwen3_vl",
    "qwen3_vl_moe",
    "smolvlm",
    "t5",
    "whisper",
}
# Of a gemma3n the decoder alone is read, whose type is gemma3n_text.
WITHOUT_A_CLASS = {"gemma3n", "internvl_chat", "kimi_k2", "minimax_m1"}
# Those of `further_types.py` are compared in `test_further_types.py`.
FURTHER = {model_type for model_type, _, _ in CASES + HEADS}
DECODERS = sorted(set(model_types()) - WITH_TOWERS - WITHOUT_A_CLASS - FURTHER)
# Without these the reference class itself raises (it computes with the None that it has for
# them), or has a default that goes with no small model.
NEEDED = {
    "deepseek_v2": {"num_experts_per_tok": 2},
    "dots1": {"n_routed_experts": 16, "n_shared_experts": 1, "num_experts_per_tok": 2},
    "hunyuan_v1_dense": {"head_dim": 8},
    "hunyuan_v1_moe": {"head_dim": 8, "num_experts": 16},
    "internlm3": {"attention_bias": False, "mlp_bias": False},
    "jamba": {"attn_layer_period": 3, "attn_layer_offset": 1},
    "lfm2_moe": {"layer_types": ["conv", "full_attention", "conv", "conv"]},
    "mamba2": {"n_groups": 4},
    "ministral": {"head_dim": 8},
    "nemotron": {"num_key_value_heads": 4},
    "opt": {"ffn_dim": 96},
}
# falcon's class raises where it is given; olmoe's norm and its heads then differ in width.
WITHOUT_HEAD_DIM = {"falcon", "olmoe"}
WITHOUT_POSITIONS = {"bloom", "falcon_mamba", "mamba", "mamba2", "mpt"}
GPT_SIZES = {"n_inner": st.sampled_from([None, 48, 200]), "n_positions": st.just(16)}
MAMBA_SIZES = {
    "expand": st.sampled_from([1, 3]),
    "state_size": st.just(8),
    "time_step_rank": st.sampled_from(["auto", 5]),
    "conv_kernel": st.just(3),
    "use_bias": st.booleans(),
    "use_conv_bias": st.booleans(),
}
# Their fields have names of their own, and none of those that others share.
OWN_ALONE: dict[str, dict[str, st.SearchStrategy[Any]]] = {
    "falcon_mamba": MAMBA_SIZES,
    "gpt2": GPT_SIZES,
    "gpt_bigcode": {**GPT_SIZES, "multi_query": st.booleans()},
    "gpt_neo": {
        "intermediate_size": st.sampled_from([None, 48]),
        "attention_types": st.just([[["global"], 20], [["local", "global"], 2]]),
        "max_position_embeddings": st.just(16),
    },
    "gptj": GPT_SIZES,
    "mamba": MAMBA_SIZES,
    "mamba2": {
        "state_size": st.just(8),
        "n_groups": st.sampled_from([1, 8]),
        "conv_kernel": st.just(3),
        "use_bias": st.booleans(),
        "use_conv_bias": st.booleans(),
    },
    "mpt": {"max_seq_len": st.just(16), "expansion_ratio": st.just(2)},
}
DENSE_OR_SPARSE = st.just(["dense", "sparse", "sparse", "dense"])
INDEX = {
    "index_n_heads": st.just(4),
    "index_head_dim": st.just(24),
    "q_lora_rank": st.just(24),
    "n_routed_experts": st.just(16),
    "mlp_layer_types": DENSE_OR_SPARSE,
}
OWN: dict[str, dict[str, st.SearchStrategy[Any]]] = {
    "afmoe": {
        "num_dense_layers": st.sampled_from([0, 2]),
        "num_shared_experts": st.sampled_from([1, 2]),
        "layer_types": st.just([FULL, SLIDING, SLIDING, FULL]),
        "attention_bias": st.just(False),  # refused otherwise
    },
    "bamba": {"attn_layer_indices": st.sampled_from([None, [1], [0, 3]])},
    "deepseek_v32": INDEX,
    "exaone_moe": {
        "num_shared_experts": st.just(2),
        "mlp_layer_types": DENSE_OR_SPARSE,
    },
    "glm_moe_dsa": {
        **INDEX,
        "index_topk_freq": st.sampled_from([1, 2, 3]),
        "index_skip_topk_offset": st.sampled_from([1, 2]),
        "index_topk_pattern": st.sampled_from([None, "FSSF", "FFSS"]),
    },
    "hunyuan_v1_moe": {"moe_topk": st.sampled_from([2, [2, 2, 2, 2]])},
    "hy_v3": {
        "mlp_layer_types": DENSE_OR_SPARSE,
        "mlp_bias": st.just(False),
        "num_shared_experts": st.sampled_from([0, 2]),
    },
    "internlm3": {"attention_bias": st.just(True), "mlp_bias": st.just(True)},
    "jamba": {
        "attn_layer_period": st.just(3),
        "attn_layer_offset": st.sampled_from([0, 2]),
        "expert_layer_period": st.just(2),
        "expert_layer_offset": st.sampled_from([0, 1]),
        "mamba_dt_rank": st.sampled_from(["auto", 5]),
        "mamba_expand": st.just(3),
    },
    "lfm2": {
        "full_attn_idxs": st.sampled_from([[1], [0, 3]]),
        "conv_bias": st.booleans(),
        "conv_L_cache": st.just(4),
        "block_ff_dim": st.just(777),
        "block_ffn_dim_multiplier": st.sampled_from([1.0, 1.3]),
        "block_auto_adjust_ff_dim": st.booleans(),
        "tie_embedding": st.booleans(),
    },
    "lfm2_moe": {"num_dense_layers": st.sampled_from([0, 1]), "conv_bias": st.booleans()},
    "phimoe": {"lm_head_bias": st.booleans()},
    "ernie4_5_moe": {
        "moe_k": st.sampled_from([1, 3]),
        "moe_layer_start_index": st.sampled_from([0, 2]),
        "moe_layer_end_index": st.sampled_from([-1, 2]),
        "moe_layer_interval": st.sampled_from([1, 2]),
        "moe_num_shared_experts": st.sampled_from([0, 1]),
    },
    "falcon": {
        "bias": st.booleans(),
        "multi_query": st.booleans(),
        "new_decoder_architecture": st.booleans(),
        "num_kv_heads": st.sampled_from([4, 8]),
        "num_ln_in_parallel_attn": st.sampled_from([None, 1, 2]),
        "parallel_attn": st.booleans(),
    },
    "cohere": {"use_qk_norm": st.booleans()},
    "helium": {"head_dim": st.just(128), "num_key_value_heads": st.sampled_from([1, 4, 20])},
    "kimi_linear": {
        "linear_num_heads": st.sampled_from([2, 4]),
        "linear_head_dim": st.just(16),
        "mlp_layer_types": st.just(["dense", "sparse", "dense", "sparse"]),
        "layer_types": st.just([LINEAR, FULL, FULL, LINEAR]),
    },
    "opt": {"enable_bias": st.booleans(), "max_position_embeddings": st.just(16)},
    "seed_oss": {"attention_out_bias": st.booleans()},
}


def least_fields(model_type: str) -> dict[str, Any]:
    """Return a configuration that leaves out all that has a default."""
    sizes = SIZES_OF.get(model_type, SIZES)
    return {"model_type": model_type, **sizes, **NEEDED.get(model_type, {})}


def parameter_count(fields: dict[str, Any]) -> int:
    """Return what we count."""
    return model_workload(model_from_fields(fields, name="it")).parameter_count


@pytest.mark.parametrize(
    ("name", "count"),
    [
        ("llama-3-8b", 8_030_261_248),
        ("qwen3-30b-a3b", 30_532_122_624),
        ("deepseek-v3", 671_026_404_352),
        ("gpt2", 124_439_808),
        ("mixtral-8x7b", 46_702_792_704),
        ("llama-3.1-405b", 405_853_388_800),
        ("gemma-3-27b", 27_432_406_640),
        ("llama-3.2-11b-vision", 10_670_220_835),
        ("gpt-oss-120b", 116_829_156_672),
        ("qwen2-vl-7b", 8_291_375_616),
        ("whisper-large-v3", 1_543_490_560),
    ],
)
def test_known_model_has_its_published_parameters(name, count):
    assert model_workload(read_model(name)[1]).parameter_count == count


@pytest.mark.slow
@pytest.mark.parametrize("name", model_names())
def test_shipped_shape_has_the_parameters_of_the_reference_class(name):
    """The reference class ties every t5; flan-t5-xxl was trained and released untied."""
    fields = json.loads((SHAPES / f"{name}.json").read_text())
    untied = fields["vocab_size"] * fields["d_model"] if name == "flan-t5-xxl" else 0
    assert parameter_count(fields) == reference_parameter_count(fields) + untied


@pytest.mark.parametrize("name", model_names())
def test_shipped_shape_has_the_parameters_that_its_source_note_states(name):
    rows = (SHAPES / "SOURCES.md").read_text().splitlines()
    stated = next(row for row in rows if row.startswith(f"| `{name}` |")).split("|")[-2]
    assert model_workload(read_model(name)[1]).parameter_count == int(stated.replace(",", ""))


@pytest.mark.parametrize("model_type", DECODERS)
def test_absent_keys_take_the_defaults_of_the_reference_class(model_type):
    fields = least_fields(model_type)
    graph = model_from_fields(fields, name="it")
    reference = reference_config(fields)
    assert parameter_count(fields) == reference_parameter_count(fields)
    if model_type not in WITHOUT_POSITIONS:
        assert graph.maximum_sequence_length == reference.max_position_embeddings
    assert graph.tied_embeddings == reference.tie_word_embeddings


@pytest.mark.parametrize("model_type", ["mistral", "mixtral", "phi3"])
@pytest.mark.parametrize("given_window", [{}, {"sliding_window": None}, {"sliding_window": 64}])
def test_window_is_the_reference_class_s_in_every_layer(model_type, given_window):
    fields = {**least_fields(model_type), **given_window}
    graph = model_from_fields(fields, name="it")
    windows = {run.block.attention.sliding_window_tokens for run in graph.runs}
    assert windows == {reference_config(fields).sliding_window}


@pytest.mark.parametrize(
    "model_type", ["qwen2", "qwen3", "qwen2_moe", "gemma2", "gemma3_text", "gpt_oss"]
)
@pytest.mark.parametrize(
    "changes",
    [
        {},
        {"num_hidden_layers": 13},
        {"num_hidden_layers": 13, "sliding_window_pattern": 3, "sliding_window": 16},
        {"use_sliding_window": True},
        {"use_sliding_window": True, "max_window_layers": 2, "sliding_window": 32},
        {"use_sliding_window": True, "layer_types": [FULL, SLIDING, SLIDING, FULL]},
        {"use_sliding_window": False, "layer_types": [FULL, SLIDING, SLIDING, FULL]},
    ],
)
def test_window_per_layer_is_the_reference_class_s(model_type, changes):
    fields = {**least_fields(model_type), **changes}
    graph = model_from_fields(fields, name="it")
    windows = [
        run.block.attention.sliding_window_tokens
        for run in graph.runs
        for _ in range(run.block_count)
    ]
    reference = reference_config(fields)
    window = reference.sliding_window or None
    assert windows == [window if kind == SLIDING else None for kind in reference.layer_types]


def varied(model_type: str) -> st.SearchStrategy[dict[str, Any]]:
    """Return configurations of a type that state some of what they could leave out."""
    if model_type in OWN_ALONE:
        own = {**OWN_ALONE[model_type], "tie_word_embeddings": st.booleans()}
        least = least_fields(model_type)
        return st.fixed_dictionaries(
            {key: own.pop(key, st.just(value)) for key, value in least.items()}, optional=own
        )
    flags = ["attention_bias", "tie_word_embeddings"]
    if model_type != "internlm3":  # another name of attention_bias there
        flags.append("qkv_bias")
    if model_type not in {"deepseek_v2", "deepseek_v4", "nemotron_h"}:  # refused there
        flags.append("mlp_bias")
    optional: dict[str, st.SearchStrategy[Any]] = {flag: st.booleans() for flag in flags}
    optional["num_key_value_heads"] = st.sampled_from([1, 4, 32])
    if model_type not in {"ernie4_5_moe", "hunyuan_v1_moe"}:  # drawn there by another name
        optional["num_experts_per_tok"] = st.sampled_from([1, 3])
    optional["moe_intermediate_size"] = st.sampled_from([8, 24])
    optional["decoder_sparse_step"] = st.sampled_from([1, 2])
    optional["mlp_only_layers"] = st.sampled_from([None, [], [0], [1, 3]])
    optional["first_k_dense_replace"] = st.sampled_from([0, 2, 9])
    optional["q_lora_rank"] = st.sampled_from([24] if model_type == "deepseek_v4" else [None, 24])
    optional["kv_lora_rank"] = st.just(40)
    optional["v_head_dim"] = st.just(24)
    optional["shared_expert_intermediate_size"] = st.just(56)
    optional["n_shared_experts"] = st.sampled_from([1, 3])
    if model_type not in WITHOUT_HEAD_DIM:
        optional["head_dim"] = st.sampled_from([8, 16])
    experts = {
        "mixtral": "num_local_experts",
        "deepseek_v3": "n_routed_experts",
        "dots1": "n_routed_experts",
        "glm4_moe_lite": "n_routed_experts",
        "granitemoe": "num_local_experts",
        "granitemoeshared": "num_local_experts",
        "mistral4": "n_routed_experts",
        "solar_open": "n_routed_experts",
        "deepseek_v4": "n_routed_experts",
        "glm4_moe": "n_routed_experts",
        "ernie4_5_moe": "moe_num_experts",
        "granitemoehybrid": "num_local_experts",
        "llama4_text": "num_local_experts",
        "minimax_m2": "num_local_experts",
        "nemotron_h": "n_routed_experts",
        "granitemoe_swa": "num_local_experts",
        "phimoe": "num_local_experts",
    }
    optional["mamba_n_groups"] = st.sampled_from([1, 4])
    optional["mamba_d_state"] = st.just(16)
    optional["mamba_conv_bias"] = st.booleans()
    optional["mamba_proj_bias"] = st.booleans()
    optional["mamba_rms_norm"] = st.booleans()
    optional["projectors_bias"] = st.booleans()
    if model_type != "ernie4_5_moe":  # refused there
        optional["use_bias"] = st.booleans()
    optional["linear_num_key_heads"] = st.sampled_from([2, 4])
    optional["use_qk_norm"] = st.booleans()
    optional["no_rope_layers"] = st.just([1, 0, 0, 1])
    optional["moe_layers"] = st.sampled_from([[1], [0, 2, 3]])
    optional["hidden_size_per_layer_input"] = st.sampled_from([0, 8])
    optional["attention_k_eq_v"] = st.booleans()
    optional["num_global_key_value_heads"] = st.sampled_from([1, 2])
    optional[experts.get(model_type, "num_experts")] = st.sampled_from([16, 24])
    optional.update(OWN.get(model_type, {}))
    least = least_fields(model_type)
    return st.fixed_dictionaries(
        {key: optional.get(key, st.just(value)) for key, value in least.items()},
        optional={key: values for key, values in optional.items() if key not in least},
    )


@pytest.mark.parametrize("model_type", DECODERS)
def test_any_configuration_has_the_parameters_of_the_reference_class(model_type):
    @settings(
        max_examples=of_drawn(8, one_of=2), deadline=None, suppress_health_check=list(HealthCheck)
    )
    @given(fields=varied(model_type))
    def check(fields):
        assert parameter_count(fields) == reference_parameter_count(fields)

    check()
