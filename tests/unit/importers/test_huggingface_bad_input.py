"""Bad configurations: each is refused with the field, the value and what to do."""

from __future__ import annotations

from typing import Any

import pytest
from hypothesis import given
from hypothesis import strategies as st

from planner.errors import DocumentError, InputError, UnsupportedModelError
from planner.importers.hugging_face.config_json import model_types
from planner.importers.hugging_face.missing import MISSING
from planner.importers.models import model_from_fields
from planner.schema.model import ModelGraph

SIZES = {
    "hidden_size": 64,
    "intermediate_size": 128,
    "num_hidden_layers": 4,
    "num_attention_heads": 4,
    "num_key_value_heads": 2,
    "vocab_size": 256,
    "num_experts_per_tok": 2,
}
GPT2 = {"n_embd": 64, "n_head": 4, "n_layer": 2, "vocab_size": 256}
BAD_SIZES = [0, -1, 1.5, "64", "", True, [], {}, [64], float("nan"), float("inf"), 10**12, -(2**70)]


def fields_of(model_type: str) -> dict[str, Any]:
    """Return a small valid configuration."""
    return {"model_type": model_type, **(GPT2 if model_type == "gpt2" else SIZES)}


def refusal(model_type: str, **changes: Any) -> InputError:
    """Return how a configuration is refused; a value of `...` removes the key."""
    fields = {**fields_of(model_type), **changes}
    with pytest.raises(InputError) as caught:
        model_from_fields({k: v for k, v in fields.items() if v is not ...}, name="it")
    assert caught.value.remedy
    return caught.value


@pytest.mark.parametrize("value", BAD_SIZES, ids=str)
@pytest.mark.parametrize(
    "field", ["hidden_size", "num_attention_heads", "num_hidden_layers", "vocab_size"]
)
def test_bad_size_is_named_with_its_value(field, value):
    error = refusal("llama", **{field: value})
    assert error.field == field
    assert error.value is not None


@pytest.mark.parametrize(
    "field",
    [
        "hidden_size",
        "intermediate_size",
        "num_hidden_layers",
        "num_attention_heads",
        "vocab_size",
    ],
)
@pytest.mark.parametrize("absent", [..., None])
def test_absent_shape_is_required(field, absent):
    error = refusal("llama", **{field: absent})
    assert error.field == field
    assert error.problem == "is required"


@pytest.mark.parametrize("field", ["n_embd", "n_head", "n_layer", "vocab_size"])
def test_absent_shape_of_a_gpt2_is_required(field):
    assert refusal("gpt2", **{field: ...}).field == field


@pytest.mark.parametrize(
    ("model_type", "changes", "field"),
    [
        ("llama", {"num_attention_heads": 5, "num_key_value_heads": 5}, "num_attention_heads"),
        ("llama", {"num_key_value_heads": 3}, "num_key_value_heads"),
        ("llama", {"num_key_value_heads": 8}, "num_key_value_heads"),
        ("llama", {"num_key_value_heads": 0}, "num_key_value_heads"),
        ("llama", {"head_dim": 0}, "head_dim"),
        ("llama", {"attention_bias": "yes"}, "attention_bias"),
        ("llama", {"mlp_bias": 1}, "mlp_bias"),
        ("llama", {"tie_word_embeddings": "false"}, "tie_word_embeddings"),
        ("llama", {"max_position_embeddings": -1}, "max_position_embeddings"),
        ("mistral", {"sliding_window": 0}, "sliding_window"),
        ("mistral", {"num_key_value_heads": ...}, "num_key_value_heads"),
        ("qwen2", {"sliding_window": -4096, "use_sliding_window": True}, "sliding_window"),
        ("qwen2", {"layer_types": ["full_attention"]}, "layer_types"),
        ("qwen2", {"layer_types": ["linear_attention"] * 4}, "layer_types"),
        ("qwen2", {"layer_types": "full_attention"}, "layer_types"),
        ("qwen2", {"layer_types": [1, 2, 3, 4]}, "layer_types"),
        ("mixtral", {"num_experts_per_tok": 9}, "num_experts_per_tok"),
        ("mixtral", {"num_local_experts": 0}, "num_local_experts"),
        ("qwen3_moe", {"mlp_only_layers": [-1]}, "mlp_only_layers"),
        ("qwen3_moe", {"mlp_only_layers": 0}, "mlp_only_layers"),
        ("qwen3_moe", {"decoder_sparse_step": 0}, "decoder_sparse_step"),
        ("deepseek_v2", {"num_experts_per_tok": None}, "num_experts_per_tok"),
        ("deepseek_v2", {"mlp_bias": True}, "mlp_bias"),
        ("helium", {"head_dim": 24}, "head_dim"),
        ("olmoe", {"head_dim": 24}, "head_dim"),
        ("deepseek_v3", {"first_k_dense_replace": -1}, "first_k_dense_replace"),
        ("deepseek_v3", {"q_lora_rank": 0}, "q_lora_rank"),
        ("deepseek_v3", {"n_shared_experts": "1"}, "n_shared_experts"),
        ("gpt2", {"n_head": 5}, "n_head"),
        ("gpt2", {"n_inner": 0}, "n_inner"),
        ("gpt2", {"add_cross_attention": True}, "add_cross_attention"),
    ],
)
def test_bad_field_is_named(model_type, changes, field):
    error = refusal(model_type, **changes)
    assert error.field == field
    assert str(error).startswith(f"{field}: ")


def test_alias_is_named_as_it_was_written():
    fields = {"model_type": "gpt2", "hidden_size": 0, "n_head": 4, "n_layer": 2, "vocab_size": 9}
    with pytest.raises(InputError, match="hidden_size"):
        model_from_fields(fields, name="it")


def test_number_too_long_to_write_is_told_by_its_length():
    assert refusal("llama", hidden_size=1 << 20_000).value == "a number of 20001 bits"


def test_more_runs_than_a_document_holds_are_refused():
    kinds = ["full_attention", "sliding_attention"] * 1024
    error = refusal("qwen2", num_hidden_layers=2048, use_sliding_window=True, layer_types=kinds)
    assert error.field == "runs"


def test_unknown_model_type_names_neighbours_and_where_all_types_are_listed():
    error = refusal("lama")
    assert isinstance(error, UnsupportedModelError)
    assert error.field == "model_type"
    assert error.value == "lama"
    assert "did you mean llama" in error.remedy
    assert f"`meshwright models` lists the {len(model_types())} types" in error.remedy
    assert "`meshwright trace --transformers config.json`" in error.remedy


def test_a_type_of_its_own_code_is_told_that_it_is_never_run():
    fields = {**SIZES, "model_type": "own", "auto_map": {"AutoModel": "modeling.Own"}}
    with pytest.raises(UnsupportedModelError, match="the code that auto_map names is never run"):
        model_from_fields(fields, name="it")


@pytest.mark.parametrize(
    ("fields", "what", "remedy"),
    [
        ({"dim": 4096, "n_layers": 32, "n_heads": 32, "norm_eps": 1e-5}, "params.json", "config"),
        ({"peft_type": "LORA", "r": 16}, "adapter_config.json", "base_model_name_or_path"),
        ({"_class_name": "UNet2DConditionModel"}, "diffusers", "meshwright trace"),
        ({"metadata": {"total_size": 1}, "weight_map": {}}, "index", "config.json"),
        ({"zero_optimization": {"stage": 3}}, "DeepSpeed", "as the strategy"),
        ({}, "is required", "config.json"),
    ],
)
def test_a_file_that_is_no_model_is_told_what_it_seems_to_be(
    fields: dict[str, object], what: str, remedy: str
) -> None:
    with pytest.raises(DocumentError) as caught:
        model_from_fields(fields, name="it")
    assert caught.value.field == "model_type"
    assert what in str(caught.value)
    assert remedy in caught.value.remedy


@pytest.mark.parametrize("model_type", ["", None, 7, [], {"llama": 1}, "L" * 10_000_000])
def test_model_type_that_is_none_is_refused(model_type):
    with pytest.raises(UnsupportedModelError) as caught:
        model_from_fields({**SIZES, "model_type": model_type}, name="it")
    assert len(str(caught.value)) < 1000


anything = st.recursive(
    st.none() | st.booleans() | st.integers() | st.floats() | st.text(max_size=8),
    lambda items: st.lists(items, max_size=3) | st.dictionaries(st.text(max_size=4), items),
    max_leaves=5,
)


@given(data=st.data(), model_type=st.sampled_from(model_types()))
def test_any_value_in_any_field_gives_a_graph_or_an_input_error(data, model_type):
    fields = fields_of(model_type)
    optional = ["head_dim", "sliding_window", "layer_types", "mlp_only_layers", "q_lora_rank"]
    optional += ["use_sliding_window", "n_shared_experts", "tie_word_embeddings", "attention_bias"]
    changed = data.draw(st.dictionaries(st.sampled_from([*fields, *optional]), anything))
    outcome = graph_or_refusal({**fields, **changed, "model_type": model_type})
    assert isinstance(outcome, ModelGraph) or (outcome.field and outcome.remedy)


def graph_or_refusal(fields: dict[str, Any]) -> ModelGraph | InputError:
    """Return the graph, or how it was refused; anything else escapes."""
    try:
        return model_from_fields(fields, name="it")
    except InputError as error:
        return error


@pytest.mark.parametrize(
    ("model_type", "what"),
    [
        ("gemma4_assistant", "keys and values of the model that it drafts for"),
        ("zamba2", "blocks that share their weights"),
        ("granite_speech", "blocks with two feed-forwards around attention"),
        ("deberta-v2", "scores of attention by relative position"),
    ],
)
def test_type_that_is_known_and_cannot_be_read_is_refused_with_what_is_missing(model_type, what):
    with pytest.raises(UnsupportedModelError, match=f"a model graph has no part for {what}"):
        model_from_fields({"model_type": model_type, **SIZES}, name="it")


def test_no_type_that_can_be_read_is_said_to_miss_a_part():
    assert not set(MISSING) & set(model_types())


def test_pattern_of_an_index_that_takes_before_any_layer_picked_is_refused():
    error = refusal(
        "glm_moe_dsa", num_experts_per_tok=2, n_routed_experts=8, index_topk_pattern="SFFF"
    )
    assert error.field == "index_topk_pattern"


def test_scan_is_said_not_to_have_been_measured():
    graph = model_from_fields(fields_of("jamba"), name="it")
    assert any("none was measured" in said for said in graph.assumptions)


def test_scan_s_layers_must_lie_within_their_period():
    assert refusal("jamba", attn_layer_offset=9).field == "attn_layer_offset"


def test_layers_of_a_gpt_neo_must_all_be_named():
    sizes = {"num_layers": 4, "num_heads": 4, "num_hidden_layers": ..., "num_attention_heads": ...}
    types = [[["global", "local"], 3]]
    assert refusal("gpt_neo", **sizes, attention_types=types).field == "attention_types"


def test_pairs_of_another_shape_are_refused():
    sizes = {"num_layers": 4, "num_heads": 4, "num_hidden_layers": ..., "num_attention_heads": ...}
    assert refusal("gpt_neo", **sizes, attention_types=[["global", 3]]).field == "attention_types"


@pytest.mark.parametrize("nested", [False, True])
def test_weights_that_are_stored_in_fewer_bits_are_told(nested):
    stored = {"quantization_config": {"quant_method": "gptq", "bits": 4}}
    fields = {**fields_of("llama"), **({} if nested else stored)}
    if nested:
        vision = {"model_type": "clip_vision_model", **SIZES, "image_size": 32, "patch_size": 8}
        fields = {
            "model_type": "llava",
            "text_config": {**fields, **stored},
            "vision_config": vision,
        }
    said = model_from_fields(fields, name="it").assumptions
    assert any(one.startswith("quantization_config (gptq) is how") for one in said)


@pytest.mark.parametrize(
    ("model_type", "given", "named"),
    [
        ("llama", {"num_experts_per_tok": 2, "moe_intermediate_size": 64}, True),
        ("llama", {"num_experts_per_tok": None, "rms_norm_eps": 1e-5}, False),
        ("deepseek_v3", {"num_key_value_heads": 8}, True),
    ],
)
def test_a_size_that_no_reader_of_the_type_looks_at_is_told(model_type, given, named):
    said = model_from_fields({**fields_of(model_type), **given}, name="it").assumptions
    told = [one for one in said if one.startswith(f"not read of a {model_type} config.json, ")]
    assert [one.rpartition(": ")[2] for one in told] == ([", ".join(given)] if named else [])


def test_pruned_heads_are_refused_and_none_are_not():
    assert refusal("llama", pruned_heads={"0": [1]}).field == "pruned_heads"
    whole = {**fields_of("llama"), "pruned_heads": {}, "num_experts_per_tok": None}
    assert not model_from_fields(whole, name="it").assumptions
