"""Hugging Face models with towers and encoders: what is read, assumed, and refused by field."""

from __future__ import annotations

import copy
from typing import Any

import pytest
from hypothesis import HealthCheck, given, settings
from hypothesis import strategies as st

from planner.errors import InputError, UnsupportedModelError
from planner.importers.models import model_from_fields
from planner.schema.model import ModelGraph, RunPart
from planner.workload.model import model_workload

TEXT = {
    "hidden_size": 128,
    "intermediate_size": 336,
    "num_hidden_layers": 12,
    "num_attention_heads": 8,
    "num_key_value_heads": 2,
    "vocab_size": 500,
}
VISION = {
    "hidden_size": 64,
    "intermediate_size": 200,
    "num_hidden_layers": 3,
    "num_attention_heads": 4,
    "image_size": 32,
    "patch_size": 8,
}
CONFIGS: dict[str, dict[str, Any]] = {
    "gemma2": {**TEXT},
    "gemma3_text": {**TEXT},
    "gpt_oss": {**TEXT},
    "olmo2": {**TEXT},
    "t5": {"d_model": 64, "d_ff": 96, "num_layers": 3, "num_heads": 4, "vocab_size": 500},
    "whisper": {
        "d_model": 64,
        "encoder_layers": 3,
        "decoder_layers": 2,
        "encoder_attention_heads": 4,
        "decoder_attention_heads": 8,
        "encoder_ffn_dim": 96,
        "decoder_ffn_dim": 80,
        "vocab_size": 600,
    },
    "llava": {"text_config": {"model_type": "llama", **TEXT}, "vision_config": VISION},
    "gemma3": {"text_config": TEXT, "vision_config": VISION, "mm_tokens_per_image": 4},
    "mllama": {
        "text_config": {**TEXT, "cross_attention_layers": [3, 8]},
        "vision_config": {
            "hidden_size": 64,
            "intermediate_size": 96,
            "num_hidden_layers": 6,
            "num_global_layers": 2,
            "attention_heads": 4,
            "image_size": 28,
            "vision_output_dim": 192,
            "intermediate_layers_indices": [1, 3],
        },
    },
    "qwen2_5_vl": {
        "text_config": TEXT,
        "vision_config": {
            "depth": 10,
            "hidden_size": 64,
            "intermediate_size": 90,
            "num_heads": 4,
            "out_hidden_size": 128,
        },
    },
    "qwen2_vl": {
        **TEXT,
        "vision_config": {"depth": 3, "embed_dim": 64, "num_heads": 4, "hidden_size": 128},
    },
}


def graph_of(model_type: str, **changes: Any) -> ModelGraph:
    """The model of a type with some fields changed; `a__b` is field b of section a."""
    fields = copy.deepcopy({"model_type": model_type, **CONFIGS[model_type]})
    for name, value in changes.items():
        *sections, last = name.split("__")
        place = fields
        for section in sections:
            place = place[section]
        if value is ...:
            del place[last]
        else:
            place[last] = value
    return model_from_fields(fields, name="it")


def streams(graph: ModelGraph) -> list[tuple[RunPart, int | None, int]]:
    """Return part, tokens and width of each run."""
    return [(run.part, run.tokens_per_sequence, run.width(graph.hidden_size)) for run in graph.runs]


def test_every_second_layer_of_a_gemma2_slides():
    graph = graph_of("gemma2", sliding_window=16)
    windows = [run.block.attention.sliding_window_tokens for run in graph.runs]
    assert windows == [16, None] * 6


def test_every_sixth_layer_of_a_gemma3_sees_all():
    graph = graph_of("gemma3_text", sliding_window=16)
    windows = [(run.block.attention.sliding_window_tokens, run.block_count) for run in graph.runs]
    assert windows == [(16, 5), (None, 1), (16, 5), (None, 1)]


def test_a_gemma3_that_sees_both_sides_halves_its_window():
    """Its class turns 16 into 16 // 2 + 1, which counts the token itself."""
    graph = graph_of("gemma3_text", sliding_window=16, use_bidirectional_attention=True)
    attention = graph.runs[0].block.attention
    assert (attention.causal, attention.sliding_window_tokens) == (False, 9)


def test_an_encoder_of_a_t5_reads_as_many_tokens_as_its_decoder_writes():
    graph = graph_of("t5")
    assert streams(graph) == [(RunPart.ENCODER, None, 64), (RunPart.DECODER, None, 64)]
    assert not graph.runs[0].block.attention.causal
    assert graph.runs[1].block.cross_attention.source_width == 64
    assert any("sequence_length" in text for text in graph.assumptions)


def test_a_whisper_encodes_its_positions_whatever_the_job_s_length():
    graph = graph_of("whisper", max_source_positions=40)
    assert streams(graph) == [(RunPart.ENCODER, 40, 64), (RunPart.DECODER, None, 64)]
    assert [product.tokens_per_sequence for product in graph.runs[0].entry.products] == [80, None]


@pytest.mark.parametrize(("strategy", "tokens"), [("default", 16), ("full", 17)])
def test_a_clip_tower_runs_on_its_class_token_and_its_decoder_may_not_read_it(strategy, tokens):
    graph = graph_of("llava", vision_feature_select_strategy=strategy)
    assert streams(graph)[0] == (RunPart.ENCODER, 17, 64)
    assert graph.runs[0].output(128) == (tokens, 128)
    assert any(f"{tokens} of its tokens" in text for text in graph.assumptions)


def test_a_released_llava_leaves_its_llama_s_sizes_to_their_defaults():
    graph = graph_of("llava", text_config={"model_type": "llama", "vocab_size": 32064})
    assert (graph.hidden_size, graph.vocabulary_size, graph.block_count) == (4096, 32064, 35)


def test_a_gemma3_pools_its_patches():
    graph = graph_of("gemma3")
    assert streams(graph)[0] == (RunPart.ENCODER, 16, 64)
    assert graph.runs[0].output(128) == (4, 128)


def test_a_qwen2_vl_takes_an_image_of_1024_patches_and_makes_256_tokens_of_them():
    graph = graph_of("qwen2_vl")
    assert streams(graph)[0] == (RunPart.ENCODER, 1024, 64)
    assert graph.runs[0].output(128) == (256, 128)
    assert any("448 pixels (1024 patches)" in text for text in graph.assumptions)


def test_an_mllama_s_decoder_alternates_between_text_and_its_tower():
    """28 pixels in patches of 14 are 4 tokens and a class token, padded to 8, in 4 tiles."""
    graph = graph_of("mllama")
    tower = [run for run in graph.runs if run.part is RunPart.ENCODER]
    assert [(run.block_count, run.carried_width) for run in tower] == [(2, 0), (2, 64), (4, 128)]
    assert {run.tokens_per_sequence for run in tower} == {4 * 8}
    decoder = [(run.block.attention.kind, run.block_count) for run in graph.runs[len(tower) :]]
    own, cross = "grouped_query", "cross"
    assert decoder == [(own, 3), (cross, 1), (own, 4), (cross, 1), (own, 3)]
    assert graph.runs[3].entry.table_elements == 8 * 128 + 2 * 2
    assert tower[-1].output(128) == (4 * 5, 128)


def test_a_qwen2_5_vl_tower_alternates_between_windows_of_64_patches_and_the_image():
    """112 pixels in patches of 14 are 8 x 8; block 7 of ten sees all."""
    tower = graph_of("qwen2_5_vl").runs[:-1]
    seen = [(run.block.attention.chunk_tokens, run.block_count) for run in tower]
    assert seen == [(64, 7), (None, 1), (64, 2)]
    every = graph_of("qwen2_5_vl", vision_config__fullatt_block_indexes=list(range(10)))
    assert [run.block.attention.chunk_tokens for run in every.runs[:-1]] == [None]


def test_an_internvl_chat_is_read_as_the_internvl_whose_parts_it_has():
    """InternVL3-8B, whose checkpoint has 7,944,373,760 parameters."""
    fields = {
        "model_type": "internvl_chat",
        "force_image_size": 448,
        "downsample_ratio": 0.5,
        "llm_config": {
            "model_type": "qwen2",
            "hidden_size": 3584,
            "intermediate_size": 18944,
            "num_hidden_layers": 28,
            "num_attention_heads": 28,
            "num_key_value_heads": 4,
            "vocab_size": 151674,
        },
        "vision_config": {
            "model_type": "intern_vit_6b",
            "hidden_size": 1024,
            "intermediate_size": 4096,
            "num_hidden_layers": 24,
            "num_attention_heads": 16,
            "image_size": 448,
            "patch_size": 14,
            "qkv_bias": True,
            "qk_normalization": False,
            "norm_type": "layer_norm",
        },
    }
    graph = model_from_fields(fields, name="it")
    assert model_workload(graph).parameter_count == 7_944_373_760
    assert any("the model's own code was not run" in said for said in graph.assumptions)


@pytest.mark.parametrize(
    ("model_type", "changes", "field"),
    [
        ("gemma2", {"num_key_value_heads": 3}, "num_key_value_heads"),
        ("gemma2", {"layer_types": ["chunked_attention"] * 12}, "layer_types"),
        ("gemma3_text", {"sliding_window_pattern": 0}, "sliding_window_pattern"),
        ("gpt_oss", {"num_experts_per_tok": 129}, "num_experts_per_tok"),
        ("t5", {"d_model": ...}, "d_model"),
        ("t5", {"num_decoder_layers": 0}, "num_decoder_layers"),
        ("t5", {"feed_forward_proj": "wide-gelu"}, "feed_forward_proj"),
        ("t5", {"feed_forward_proj": "gated-very-gelu"}, "feed_forward_proj"),
        ("t5", {"num_heads": 2**24, "relative_attention_num_buckets": 2**24}, "table_elements"),
        ("whisper", {"decoder_attention_heads": 5}, "decoder_attention_heads"),
        ("whisper", {"max_source_positions": 2**31}, "tokens_per_sequence"),
        ("llava", {"text_config": ...}, "text_config"),
        ("llava", {"vision_config": None}, "vision_config"),
        ("llava", {"vision_config": [1]}, "vision_config"),
        ("llava", {"text_config__hidden_size": 0}, "text_config.hidden_size"),
        ("llava", {"text_config__num_attention_heads": 7}, "text_config.num_key_value_heads"),
        ("llava", {"text_config__model_type": "bert"}, "text_config.model_type"),
        ("llava", {"vision_config__model_type": "vit"}, "vision_config.model_type"),
        ("llava", {"vision_config__patch_size": 64}, "vision_config.patch_size"),
        ("llava", {"vision_config__num_attention_heads": 5}, "vision_config.num_attention_heads"),
        ("gemma3", {"mm_tokens_per_image": 5}, "mm_tokens_per_image"),
        ("gemma3", {"mm_tokens_per_image": 9}, "mm_tokens_per_image"),
        ("qwen2_vl", {"vision_config__hidden_size": 96}, "vision_config.hidden_size"),
        ("qwen2_vl", {"vision_config__num_heads": 3}, "vision_config.num_heads"),
        ("qwen2_vl", {"hidden_size": ...}, "hidden_size"),
        ("qwen2_5_vl", {"vision_config__out_hidden_size": 96}, "vision_config.out_hidden_size"),
        ("qwen2_5_vl", {"vision_config__fullatt_block_indexes": 7}, "fullatt_block_indexes"),
    ],
)
def test_bad_field_is_named_with_its_section(model_type, changes, field):
    with pytest.raises(InputError) as caught:
        graph_of(model_type, **changes)
    assert caught.value.field.split("runs.")[-1].endswith(field)
    assert caught.value.remedy


def test_a_tower_of_another_type_lists_those_that_can_be_read():
    with pytest.raises(
        UnsupportedModelError, match=r"clip_vision_model, idefics3, .*, siglip_vision_model"
    ):
        graph_of("llava", vision_config__model_type="vit")


hostile = st.sampled_from(
    [None, -1, 0, 1, 2**24, 2**31, 2**70, 1.5, "x", True, [], [1], {}, {"model_type": "llama"}]
)


@pytest.mark.parametrize("model_type", CONFIGS)
def test_hostile_fields_give_a_graph_or_one_clear_error(model_type):
    names = sorted(CONFIGS[model_type])
    sections = [name for name in names if isinstance(CONFIGS[model_type][name], dict)]
    paths = names + [f"{s}__{n}" for s in sections for n in sorted(CONFIGS[model_type][s])]
    extra = ["layer_types", "sliding_window", "head_dim", "tie_word_embeddings", "d_kv"]

    @settings(
        max_examples=40, deadline=None, derandomize=True, suppress_health_check=list(HealthCheck)
    )
    @given(name=st.sampled_from(paths + extra), value=hostile)
    def check(name, value):
        try:
            answer = graph_of(model_type, **{name: value}).block_count > 0
        except InputError as error:
            answer = bool(error.field and error.remedy)
        assert answer

    check()
