"""Hugging Face configurations: what becomes of their fields."""

from __future__ import annotations

from typing import Any

import pytest

from planner.errors import DocumentError, InputError, UnsupportedModelError
from planner.importers.hugging_face.config_json import model_types
from planner.importers.models import model_from_fields
from planner.schema.model import (
    Activation,
    Block,
    DenseFeedForward,
    GroupedQueryAttention,
    LatentAttention,
    MixtureFeedForward,
    ModelGraph,
    Norm,
)
from planner.workload.model import model_workload

SIZES = {
    "hidden_size": 64,
    "intermediate_size": 128,
    "num_hidden_layers": 4,
    "num_attention_heads": 4,
    "num_key_value_heads": 2,
    "vocab_size": 256,
}
GPT2 = {"model_type": "gpt2", "n_embd": 64, "n_head": 4, "n_layer": 2, "vocab_size": 256}


def graph_of(model_type: str, **changes: Any) -> ModelGraph:
    """Return the graph of a small configuration."""
    return model_from_fields({"model_type": model_type, **SIZES, **changes}, name="it")


def only_block(graph: ModelGraph) -> Block:
    """Return the block of a graph whose blocks are all equal."""
    (run,) = graph.runs
    return run.block


def run_windows(graph: ModelGraph) -> list[tuple[int | None, int]]:
    """Return window and length of each run."""
    return [(run.block.attention.sliding_window_tokens, run.block_count) for run in graph.runs]


@pytest.mark.parametrize("model_type", ["llama", "mistral", "mixtral", "qwen2", "qwen3_moe"])
def test_architecture_is_the_model_type(model_type):
    assert graph_of(model_type).architecture == model_type


def test_required_types_can_be_read():
    required = {"llama", "mistral", "qwen2", "qwen3", "gpt2", "mixtral", "qwen3_moe", "deepseek_v3"}
    assert required <= set(model_types())


def test_llama_block_has_the_stated_shape():
    assert only_block(graph_of("llama")) == Block(
        attention=GroupedQueryAttention(head_count=4, key_value_head_count=2, head_size=16),
        feed_forward=DenseFeedForward(ffn_size=128),
    )


def test_llama_biases_are_on_all_four_projections_or_all_three_matrices():
    block = only_block(graph_of("llama", attention_bias=True, mlp_bias=True))
    assert block.attention.query_key_value_bias
    assert block.attention.output_bias
    assert block.feed_forward.bias


def test_llama_without_key_value_heads_has_as_many_as_heads():
    assert only_block(graph_of("llama", num_key_value_heads=None)).attention == (
        GroupedQueryAttention(head_count=4, key_value_head_count=4, head_size=16)
    )


def test_head_size_may_differ_from_hidden_size_over_heads():
    assert only_block(graph_of("llama", head_dim=24)).attention.head_size == 24


def test_stated_head_size_lets_heads_divide_nothing():
    block = only_block(graph_of("llama", hidden_size=70, head_dim=16))
    assert block.attention.head_size == 16


def test_qwen2_has_biases_on_queries_keys_and_values_alone():
    attention = only_block(graph_of("qwen2")).attention
    assert attention.query_key_value_bias
    assert not attention.output_bias


def test_qwen3_norms_queries_and_keys_and_has_heads_of_128():
    attention = only_block(graph_of("qwen3")).attention
    assert attention.query_key_norm
    assert attention.head_size == 128


def test_mistral_slides_over_4096_tokens_unless_told():
    assert run_windows(graph_of("mistral")) == [(4096, 4)]


def test_mistral_with_null_window_sees_everything():
    assert run_windows(graph_of("mistral", sliding_window=None)) == [(None, 4)]


def test_mixtral_slides_only_when_told():
    assert run_windows(graph_of("mixtral")) == [(None, 4)]
    assert run_windows(graph_of("mixtral", sliding_window=32)) == [(32, 4)]


def test_qwen2_slides_from_max_window_layers_on_when_switched_on():
    graph = graph_of("qwen2", use_sliding_window=True, sliding_window=32, max_window_layers=3)
    assert run_windows(graph) == [(None, 3), (32, 1)]


def test_qwen2_window_is_idle_while_switched_off():
    graph = graph_of("qwen2", sliding_window=32, max_window_layers=0)
    assert run_windows(graph) == [(None, 4)]


def test_layer_types_split_the_blocks_into_runs():
    kinds = ["full_attention", "sliding_attention", "sliding_attention", "full_attention"]
    graph = graph_of("qwen2", use_sliding_window=True, sliding_window=32, layer_types=kinds)
    assert run_windows(graph) == [(None, 1), (32, 2), (None, 1)]


def test_qwen3_moe_slides_in_every_layer_when_switched_on():
    assert run_windows(graph_of("qwen3_moe", use_sliding_window=True)) == [(4096, 4)]


def test_qwen3_moe_layers_off_the_step_or_listed_are_dense():
    graph = graph_of("qwen3_moe", decoder_sparse_step=2, mlp_only_layers=[3])
    kinds = [(run.block.feed_forward.kind, run.block_count) for run in graph.runs]
    assert kinds == [("dense", 1), ("mixture", 1), ("dense", 2)]


def test_qwen2_moe_has_a_gated_shared_expert_of_its_own_width():
    mixture = only_block(graph_of("qwen2_moe", shared_expert_intermediate_size=48)).feed_forward
    assert mixture == MixtureFeedForward(
        expert_count=60,
        experts_per_token=4,
        expert_ffn_size=1408,
        shared_ffn_size=48,
        shared_gate=True,
    )


def test_mixtral_experts_are_as_wide_as_intermediate_size():
    assert only_block(graph_of("mixtral")).feed_forward == MixtureFeedForward(
        expert_count=8, experts_per_token=2, expert_ffn_size=128
    )


def test_deepseek_v3_begins_dense_and_goes_on_routed():
    graph = graph_of("deepseek_v3", first_k_dense_replace=1)
    kinds = [(run.block.feed_forward.kind, run.block_count) for run in graph.runs]
    assert kinds == [("dense", 1), ("mixture", 3)]


def test_deepseek_v3_with_more_dense_layers_than_layers_is_dense():
    assert only_block(graph_of("deepseek_v3", first_k_dense_replace=9)).feed_forward.kind == "dense"


def test_deepseek_v3_shared_experts_are_one_wide_one():
    graph = graph_of(
        "deepseek_v3", first_k_dense_replace=0, n_shared_experts=3, moe_intermediate_size=10
    )
    assert only_block(graph).feed_forward.shared_ffn_size == 30


def test_deepseek_v3_attention_defaults_to_its_published_ranks():
    attention = graph_of("deepseek_v3").runs[0].block.attention
    assert attention == LatentAttention(
        head_count=4,
        query_rank=1536,
        key_value_rank=512,
        no_position_head_size=128,
        rotary_head_size=64,
        value_head_size=128,
    )


def test_deepseek_v3_with_null_query_rank_projects_queries_whole():
    assert graph_of("deepseek_v3", q_lora_rank=None).runs[0].block.attention.query_rank is None


def test_left_out_prediction_layers_are_said_to_be():
    own = {"num_key_value_heads": None}
    left_out = ("multi-token prediction layers are left out",)
    assert graph_of("deepseek_v3", **own).assumptions == left_out
    assert graph_of("deepseek_v3", num_nextn_predict_layers=0, **own).assumptions == ()


def test_gpt2_has_layer_norms_biases_learned_positions_and_tied_embeddings():
    graph = model_from_fields(GPT2, name="it")
    block = only_block(graph)
    assert block.norm is graph.final_norm is Norm.LAYER
    assert block.feed_forward == DenseFeedForward(
        ffn_size=256, gated=False, bias=True, activation=Activation.GELU_STEPS
    )
    assert not block.attention.rotary
    assert graph.learned_position_count == graph.maximum_sequence_length == 1024
    assert graph.tied_embeddings


def test_gpt2_inner_width_may_be_stated():
    block = only_block(model_from_fields({**GPT2, "n_inner": 100}, name="it"))
    assert block.feed_forward.ffn_size == 100


def test_gpt2_may_spell_its_sizes_as_others_do():
    common = {
        "model_type": "gpt2",
        "hidden_size": 64,
        "num_attention_heads": 4,
        "num_hidden_layers": 2,
        "vocab_size": 256,
    }
    assert model_from_fields(common, name="it") == model_from_fields(GPT2, name="it")


def test_expert_count_may_be_spelled_as_another_type_spells_it():
    assert graph_of("mixtral", num_experts=4) == graph_of("mixtral", num_local_experts=4)


def test_keys_that_change_no_shape_are_passed_over():
    noise = {
        "architectures": ["LlamaForCausalLM"],
        "auto_map": {"AutoModel": "evil.Model"},
        "rope_scaling": {"type": "yarn", "factor": 4.0},
        "torch_dtype": "bfloat16",
        "pretraining_tp": 1,
        "n_group": "not for llama",
    }
    assert graph_of("llama", **noise) == graph_of("llama")


def test_whole_float_is_a_whole_number():
    assert graph_of("llama", hidden_size=64.0) == graph_of("llama")


def test_layers_of_a_nemotron_are_paired_into_blocks():
    """M, then M with its feed-forward, then attention with its experts."""
    graph = model_from_fields(
        {
            "model_type": "nemotron_h",
            "hidden_size": 64,
            "vocab_size": 128,
            "num_attention_heads": 8,
            "hybrid_override_pattern": "MM-*E",
        },
        name="it",
    )
    kinds = [(run.block.attention.kind, run.block.feed_forward.kind) for run in graph.runs]
    assert kinds == [("none", "none"), ("none", "dense"), ("grouped_query", "mixture")]


def test_a_nemotron_with_two_feed_forwards_in_a_row_is_refused():
    fields = {"model_type": "nemotron_h", "hidden_size": 64, "vocab_size": 128}
    with pytest.raises(UnsupportedModelError, match="feed-forward at layer 2"):
        model_from_fields(
            {**fields, "num_attention_heads": 8, "hybrid_override_pattern": "M--"}, name="it"
        )


GEMMA4 = {
    "model_type": "gemma4_text",
    "hidden_size": 64,
    "intermediate_size": 96,
    "vocab_size": 128,
    "num_hidden_layers": 12,
    "num_attention_heads": 8,
}


def test_the_last_layers_of_a_gemma4_read_keys_of_earlier_ones():
    """Two rows of 12 x 256 inputs; of either kind four key and value heads, of 256 and of 512."""
    graph = model_from_fields({**GEMMA4, "num_kv_shared_layers": 6}, name="it")
    shares = [(run.block.attention.shares_keys, run.block_count) for run in graph.runs]
    assert shares == [(False, 5), (False, 1), (True, 5), (True, 1)]
    assert {run.carried_width for run in graph.runs} == {12 * 256 + 2 * 4 * (256 + 512)}


def test_a_gemma4_needs_a_layer_of_each_kind_whose_keys_are_read():
    with pytest.raises(DocumentError, match="num_kv_shared_layers"):
        model_from_fields({**GEMMA4, "num_kv_shared_layers": 7}, name="it")


DEEPSEEK_V4 = {
    "model_type": "deepseek_v4",
    "hidden_size": 64,
    "num_hidden_layers": 4,
    "vocab_size": 128,
}


@pytest.mark.parametrize(
    ("changes", "tokens"),
    [
        ({}, [128, 128, 128, 4]),
        ({"compress_ratios": [0, 128, 4, 0, 4]}, [None, 128, 4, None]),
        ({"compress_rate_csa": 8, "compress_rate_hca": 32}, [32, 32, 32, 8]),
        ({"compress_rates": {"compressed_sparse_attention": 16}}, [128, 128, 128, 16]),
    ],
)
def test_layers_of_a_deepseek_v4_compress_as_their_kind_says(changes, tokens):
    graph = model_from_fields({**DEEPSEEK_V4, **changes}, name="it")
    compressions = [
        run.block.attention.compression for run in graph.runs for _ in range(run.block_count)
    ]
    assert [None if one is None else one.tokens for one in compressions] == tokens


@pytest.mark.parametrize(
    ("changes", "field"),
    [
        ({"compress_ratios": [0, 64, 4, 0]}, "compress_ratios"),
        ({"compress_ratios": [4]}, "compress_ratios"),
        ({"layer_types": ["full_attention"] * 4}, "layer_types"),
        ({"o_groups": 7}, "o_groups"),
        ({"hc_mult": 0}, "hc_mult"),
        ({"mlp_bias": True}, "mlp_bias"),
        ({"compress_rates": {"heavily_compressed_attention": "128"}}, "compress_rates"),
    ],
)
def test_a_bad_field_of_a_deepseek_v4_is_named(changes, field):
    with pytest.raises(InputError, match=field):
        model_from_fields({**DEEPSEEK_V4, **changes}, name="it")


def test_a_kimi_says_as_what_it_was_read():
    graph = model_from_fields(
        {
            "model_type": "kimi_k2",
            "hidden_size": 64,
            "intermediate_size": 96,
            "num_hidden_layers": 4,
            "num_attention_heads": 8,
            "vocab_size": 128,
            "auto_map": {"AutoConfig": "configuration_deepseek.DeepseekV3Config"},
        },
        name="it",
    )
    assert any("read as a deepseek_v3" in said for said in graph.assumptions)


def test_null_stands_for_no_head_size_and_absence_for_the_types_own():
    assert only_block(graph_of("seed_oss")).attention.head_size == 128
    assert only_block(graph_of("seed_oss", head_dim=None)).attention.head_size == 16


def test_null_is_false_where_the_types_default_is_true():
    assert only_block(graph_of("gpt_neox")).attention.output_bias
    assert not only_block(graph_of("gpt_neox", attention_bias=None)).attention.output_bias


def test_cohere2_has_heads_of_the_size_that_is_told():
    assert graph_of("cohere2", head_dim=32).runs[0].block.attention.head_size == 32


def test_an_empty_list_of_layers_that_route_is_none_of_them():
    graph = graph_of("llama4_text", moe_layers=[])
    assert all(isinstance(run.block.feed_forward, DenseFeedForward) for run in graph.runs)


def test_a_window_of_nothing_that_is_switched_off_is_no_window():
    graph = graph_of("qwen2_moe", sliding_window=0, use_sliding_window=False)
    assert run_windows(graph) == [(None, 4)]


def test_two_names_of_one_field_have_to_agree():
    assert graph_of("qwen3_moe", num_experts=16, num_local_experts=16).architecture == "qwen3_moe"
    with pytest.raises(DocumentError, match="num_local_experts: contradicts num_experts"):
        graph_of("qwen3_moe", num_experts=16, num_local_experts=8)


@pytest.mark.parametrize(
    ("named", "columns", "bias"),
    [
        (["LlamaForSequenceClassification"], 2, False),
        (["LlamaForTokenClassification", "LlamaForCausalLM"], 2, True),
        (["LlamaForQuestionAnswering"], 2, True),
        (["LlamaModel"], 0, False),
        (["LlamaForCausalLM"], 256, False),
        (["GPT2LMHeadModel"], 256, False),
        (["InternVLChatModel"], 256, False),
        ([], 256, False),
        ("LlamaModel", 256, False),
        ([7], 256, False),
    ],
)
def test_a_head_is_that_of_the_class_that_architectures_names(named, columns, bias):
    graph = graph_of("llama", architectures=named)
    assert (graph.logit_count, graph.head_bias) == (columns, bias)
    assert not graph.assumptions


@pytest.mark.parametrize("named", ["LlamaForRewardModeling", "GPT2DoubleHeadsModel"])
def test_a_head_that_is_not_known_is_told(named):
    graph = graph_of("llama", architectures=[named])
    assert graph.logit_count == 256
    assert any(f"{named}, which may have another head" in said for said in graph.assumptions)


@pytest.mark.parametrize(
    ("labels", "count"),
    [({"num_labels": 1}, 1), ({"id2label": {"0": "bad", "1": "fair", "2": "good"}}, 3)],
)
def test_a_classifier_has_as_many_columns_as_labels(labels, count):
    graph = graph_of("llama", architectures=["LlamaForSequenceClassification"], **labels)
    assert graph.head_size == count


def test_a_classifying_llama_3_has_the_parameters_of_its_blocks_and_one_column():
    """8,030,261,248 less 128,256 x 4,096 of the head, and 4,096."""
    fields = {
        "model_type": "llama",
        "architectures": ["LlamaForSequenceClassification"],
        "num_labels": 1,
        "hidden_size": 4096,
        "intermediate_size": 14336,
        "num_hidden_layers": 32,
        "num_attention_heads": 32,
        "num_key_value_heads": 8,
        "vocab_size": 128256,
    }
    graph = model_from_fields(fields, name="it")
    assert model_workload(graph).parameter_count == 7_504_928_768
