"""Models with a tower or an encoder equal transformers' classes: parameters, FLOPs, activations."""

from __future__ import annotations

from typing import Any

import pytest
import torch
from torch.utils.flop_counter import FlopCounterMode

from planner.importers.models import model_from_fields
from planner.workload.layer import ActivationElements, AttentionCore, LayerWorkload
from planner.workload.model import model_workload
from tests.golden.transformers_models import (
    reference_config,
    reference_model,
    reference_parameter_count,
)

TEXT = {
    "hidden_size": 128,
    "intermediate_size": 336,
    "num_hidden_layers": 2,
    "num_attention_heads": 8,
    "num_key_value_heads": 2,
    "vocab_size": 500,
    "head_dim": 16,
}
VISION = {
    "hidden_size": 64,
    "intermediate_size": 200,
    "num_hidden_layers": 3,
    "num_attention_heads": 4,
    "image_size": 32,
    "patch_size": 8,
}
T5 = {"d_model": 64, "d_kv": 24, "d_ff": 96, "num_layers": 3, "num_heads": 4, "vocab_size": 500}
WHISPER = {
    "model_type": "whisper",
    "d_model": 64,
    "encoder_layers": 3,
    "decoder_layers": 2,
    "encoder_attention_heads": 4,
    "decoder_attention_heads": 8,
    "encoder_ffn_dim": 96,
    "decoder_ffn_dim": 80,
    "vocab_size": 60_000,
}
EAGER = {"attn_implementation": "eager", "experts_implementation": "eager"}
CLIP = {"model_type": "clip_vision_model", **VISION}
SIGLIP = {"model_type": "siglip_vision_model", **VISION}
QWEN_VISION = {"depth": 3, "embed_dim": 64, "num_heads": 4, "hidden_size": 128}
LLAMA = {"model_type": "llama", **TEXT}
MISTRAL = {"model_type": "mistral", **TEXT}
PIXTRAL = {"model_type": "pixtral", **VISION, "image_size": 64}
QWEN3_VISION = {
    "depth": 3,
    "hidden_size": 64,
    "intermediate_size": 96,
    "num_heads": 4,
    "out_hidden_size": 128,
}
GEMMA4_VISION = {
    "hidden_size": 64,
    "intermediate_size": 96,
    "num_attention_heads": 4,
    "num_hidden_layers": 3,
    "head_dim": 16,
    "position_embedding_size": 40,
}
LLAMA4_VISION = {
    "hidden_size": 64,
    "intermediate_size": 256,  # four patches of 64
    "num_attention_heads": 4,
    "num_hidden_layers": 3,
    "image_size": 32,
    "patch_size": 4,
    "projector_input_dim": 96,
    "projector_output_dim": 96,
    "vision_output_dim": 96,
}
CASES: dict[str, dict[str, Any]] = {
    "t5": {"model_type": "t5", **T5},
    "t5_gated": {"model_type": "t5", **T5, "feed_forward_proj": "gated-gelu"},
    "t5_uneven": {"model_type": "t5", **T5, "num_decoder_layers": 5},
    "mt5": {"model_type": "mt5", **T5, "relative_attention_num_buckets": 8},
    "whisper": WHISPER,
    "whisper_128_bins": {**WHISPER, "num_mel_bins": 128, "max_source_positions": 40},
    "llava": {"model_type": "llava", "text_config": LLAMA, "vision_config": CLIP},
    "llava_full": {
        "model_type": "llava",
        "text_config": LLAMA,
        "vision_config": CLIP,
        "vision_feature_select_strategy": "full",
        "multimodal_projector_bias": False,
    },
    "llava_two_layers": {
        "model_type": "llava",
        "text_config": LLAMA,
        "vision_config": CLIP,
        "vision_feature_layer": [-2, -1],
    },
    "llava_siglip": {"model_type": "llava", "text_config": LLAMA, "vision_config": SIGLIP},
    "llava_mistral": {
        "model_type": "llava",
        "text_config": {**LLAMA, "model_type": "mistral"},
        "vision_config": CLIP,
    },
    "gemma3": {
        "model_type": "gemma3",
        "text_config": {**TEXT, "num_hidden_layers": 7},
        "vision_config": SIGLIP,
        "mm_tokens_per_image": 4,
    },
    "gemma3_headless": {
        "model_type": "gemma3",
        "text_config": TEXT,
        "vision_config": {**SIGLIP, "vision_use_head": False},
        "mm_tokens_per_image": 16,
    },
    "gemma3_as_released": {  # heads and vocabulary are left to the class
        "model_type": "gemma3",
        "text_config": {"hidden_size": 128, "intermediate_size": 336, "num_hidden_layers": 7},
        "vision_config": {**SIGLIP, "vision_use_head": False},
        "mm_tokens_per_image": 16,
    },
    "gemma4": {
        "model_type": "gemma4",
        "text_config": {**TEXT, "num_hidden_layers": 7, "num_kv_shared_layers": 1},
        "vision_config": {**GEMMA4_VISION, "num_key_value_heads": 2},
    },
    "gemma4_without_layer_inputs": {
        "model_type": "gemma4",
        "text_config": {**TEXT, "hidden_size_per_layer_input": 0},
        "vision_config": {**GEMMA4_VISION, "num_key_value_heads": 4},
    },
    "llama4": {
        "model_type": "llama4",
        "text_config": {**TEXT, "intermediate_size_mlp": 200},
        "vision_config": LLAMA4_VISION,
    },
    "mllama": {
        "model_type": "mllama",
        "text_config": {
            **{k: v for k, v in TEXT.items() if k != "head_dim"},
            "num_hidden_layers": 5,
            "cross_attention_layers": [1, 3],
            "pad_token_id": 0,
        },
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
    "qwen2_vl": {
        "model_type": "qwen2_vl",
        "text_config": {k: v for k, v in TEXT.items() if k != "head_dim"},
        "vision_config": QWEN_VISION,
    },
    "qwen2_5_vl": {
        "model_type": "qwen2_5_vl",
        "text_config": {k: v for k, v in TEXT.items() if k != "head_dim"},
        "vision_config": {
            "depth": 9,
            "hidden_size": 64,
            "intermediate_size": 90,
            "num_heads": 4,
            "out_hidden_size": 128,
        },
    },
    "qwen3_vl": {
        "model_type": "qwen3_vl",
        "text_config": TEXT,
        "vision_config": {**QWEN3_VISION, "deepstack_visual_indexes": [0, 2]},
    },
    "qwen3_vl_moe": {
        "model_type": "qwen3_vl_moe",
        "text_config": {**TEXT, "num_experts": 4, "num_experts_per_tok": 2},
        "vision_config": {**QWEN3_VISION, "depth": 9, "deepstack_visual_indexes": [8]},
        "tie_word_embeddings": False,
    },
    "qwen3_vl_moe_saved_again": {
        "model_type": "qwen3_vl_moe",
        "text_config": {
            **TEXT,
            "num_experts": 4,
            "num_experts_per_tok": 2,
            "tie_word_embeddings": True,
        },
        "vision_config": {**QWEN3_VISION, "deepstack_visual_indexes": [0, 2]},
        "tie_word_embeddings": False,
    },
    "gemma3_untied": {
        "model_type": "gemma3",
        "text_config": {**TEXT, "tie_word_embeddings": True},
        "vision_config": SIGLIP,
        "mm_tokens_per_image": 4,
        "tie_word_embeddings": False,
    },
    "mistral3": {"model_type": "mistral3", "text_config": MISTRAL, "vision_config": PIXTRAL},
    "mistral3_two_layers": {
        "model_type": "mistral3",
        "text_config": {**MISTRAL, "model_type": "ministral3", "tie_word_embeddings": True},
        "vision_config": {**PIXTRAL, "num_attention_heads": 2},
        "vision_feature_layer": [-2, -1],
        "spatial_merge_size": 4,
        "multimodal_projector_bias": True,
    },
    "qwen2_vl_flat": {
        "model_type": "qwen2_vl",
        **{k: v for k, v in TEXT.items() if k != "head_dim"},
        "vision_config": {**QWEN_VISION, "mlp_ratio": 3, "spatial_merge_size": 4},
        "tie_word_embeddings": True,
    },
}


@pytest.mark.parametrize("case", CASES)
def test_parameters_are_those_of_the_reference_class(case):
    fields = CASES[case]
    count = model_workload(model_from_fields(fields, name="it")).parameter_count
    assert count == reference_parameter_count(fields)


@pytest.mark.parametrize(
    "audio", [{}, {"hidden_size": 64, "num_hidden_layers": 2, "conv_kernel_size": 3}]
)
def test_what_a_gemma4_says_it_leaves_out_is_what_the_reference_class_has_more(audio):
    fields = {**CASES["gemma4"], "audio_config": {"subsampling_conv_channels": [16, 8], **audio}}
    graph = model_from_fields(fields, name="it")
    missing = reference_parameter_count(fields) - model_workload(graph).parameter_count
    assert any(f"its {missing:,} parameters" in said for said in graph.assumptions)


@pytest.mark.parametrize("case", CASES)
def test_tied_embeddings_are_those_of_the_reference_class(case):
    graph = model_from_fields(CASES[case], name="it")
    reference = reference_config(CASES[case])
    if case == "mllama":  # says it of its decoder alone
        reference = reference.get_text_config()
    assert graph.tied_embeddings == reference.tie_word_embeddings


def test_an_untied_t5_has_a_head_of_its_own():
    """The reference class ties whatever the field says; version 1.1 was trained untied."""
    fields = {**CASES["t5"], "tie_word_embeddings": False}
    count = model_workload(model_from_fields(fields, name="it")).parameter_count
    assert count == reference_parameter_count(fields) + 500 * 64


def counted_flop(fields: dict[str, Any], **inputs: torch.Tensor) -> float:
    """Return the FLOPs that torch counts in one forward; it counts attention un-causal."""
    torch.manual_seed(0)
    model = reference_model(fields, device="cpu", **EAGER)
    with FlopCounterMode(display=False) as counter, torch.no_grad():
        model(**inputs)
    return float(counter.get_total_flops())


def unmasked_flop(layer: LayerWorkload, sequence_length: int) -> float:
    """Return a layer's forward FLOPs of one sequence when every query sees every key."""
    tokens = layer.token_count(sequence_length)
    flop = tokens * sum(gemm.flop_per_token() for gemm in layer.gemms)
    flop += _core_flop(layer.attention, tokens, tokens)
    for source in layer.sources:
        keys = source.token_count(sequence_length)
        flop += keys * sum(gemm.flop_per_token() for gemm in source.gemms)
        flop += _core_flop(source.attention, tokens, keys)
    return flop


def _core_flop(core: AttentionCore | None, queries: int, keys: int) -> float:
    if core is None:
        return 0.0
    return 2.0 * core.head_count * (core.key_head_size + core.value_head_size) * queries * keys


def expected_flop(fields: dict[str, Any], sequence_length: int) -> float:
    """Return our forward FLOPs of one sequence with attention unmasked."""
    workload = model_workload(model_from_fields(fields, name="it"))
    layers = [*workload.runs, (workload.embedding, 1), (workload.head.layer, 1)]
    return sum(count * unmasked_flop(layer, sequence_length) for layer, count in layers)


@pytest.mark.parametrize("case", ["t5", "t5_gated", "t5_uneven"])
def test_flop_of_an_encoder_decoder_is_what_torch_counts(case):
    tokens = torch.arange(48)[None]
    counted = counted_flop(CASES[case], input_ids=tokens, decoder_input_ids=tokens)
    assert expected_flop(CASES[case], 48) == pytest.approx(counted, rel=0.01)


def test_flop_of_whisper_is_what_torch_counts():
    fields = {**WHISPER, "max_source_positions": 40}
    counted = counted_flop(
        fields, input_features=torch.randn(1, 80, 80), decoder_input_ids=torch.arange(24)[None]
    )
    assert expected_flop(fields, 24) == pytest.approx(counted, rel=0.01)


@pytest.mark.parametrize("case", ["llava", "llava_full"])
def test_flop_of_a_tower_and_its_decoder_is_what_torch_counts(case):
    """32 x 32 pixels in patches of 8: 16 tokens, 17 with the class token."""
    fields = {**CASES[case], "image_token_index": 7}
    images = 16 if case == "llava" else 17
    tokens = torch.cat([torch.full((images,), 7), torch.arange(100, 140)])[None]
    counted = counted_flop(fields, input_ids=tokens, pixel_values=torch.randn(1, 3, 32, 32))
    assert expected_flop(fields, images + 40) == pytest.approx(counted, rel=0.01)


def test_flop_of_a_llama4_is_what_torch_counts_but_for_idle_experts():
    """32 x 32 pixels in patches of 4: 64, and a class token; 16 after they are merged."""
    text = {**TEXT, "num_local_experts": 1, "intermediate_size_mlp": 200}
    fields = {**CASES["llama4"], "text_config": text, "image_token_index": 7}
    tokens = torch.cat([torch.full((16,), 7), torch.arange(100, 140)])[None]
    counted = counted_flop(fields, input_ids=tokens, pixel_values=torch.randn(1, 3, 32, 32))
    assert expected_flop(fields, 56) == pytest.approx(counted, rel=0.01)


def test_flop_of_a_mistral3_is_what_torch_counts():
    """64 x 64 pixels in patches of 8: 64, of which squares of four are merged into 16 tokens."""
    fields = {**CASES["mistral3"], "image_token_index": 7}
    tokens = torch.cat([torch.full((16,), 7), torch.arange(100, 140)])[None]
    counted = counted_flop(
        fields,
        input_ids=tokens,
        pixel_values=torch.randn(1, 3, 64, 64),
        image_sizes=torch.tensor([[64, 64]]),
    )
    assert expected_flop(fields, 56) == pytest.approx(counted, rel=0.01)


def test_flop_of_a_qwen3_vl_is_what_torch_counts():
    """448 x 448 pixels in patches of 32: 14 x 14, of which squares of four are merged into 49."""
    vision = {**CASES["qwen3_vl"]["vision_config"], "patch_size": 32}
    fields = {**CASES["qwen3_vl"], "vision_config": vision, "image_token_id": 7}
    fields["vision_start_token_id"] = 8
    tokens = torch.cat([torch.tensor([8]), torch.full((49,), 7), torch.arange(100, 140)])[None]
    counted = counted_flop(
        fields,
        input_ids=tokens,
        pixel_values=torch.randn(196, 3 * 2 * 32 * 32),
        image_grid_thw=torch.tensor([[1, 14, 14]]),
        mm_token_type_ids=(tokens == 7).long(),
    )
    assert expected_flop(fields, 90) == pytest.approx(counted, rel=0.01)


def saved_bytes(layer: torch.nn.Module, left_out: list[torch.Tensor], *args: Any) -> float:
    """Return the bytes that autograd saves while a layer runs, storages once."""
    saved: dict[int, torch.Tensor] = {}

    def keep(tensor: torch.Tensor) -> torch.Tensor:
        saved.setdefault(tensor.untyped_storage().data_ptr(), tensor)
        return tensor

    with torch.autograd.graph.saved_tensors_hooks(keep, lambda tensor: tensor):
        layer(*args)
    for tensor in [*layer.parameters(), *left_out]:
        saved.pop(tensor.untyped_storage().data_ptr(), None)
    return float(sum(tensor.untyped_storage().nbytes() for tensor in saved.values()))


def kept_bytes(kept: ActivationElements) -> float:
    """Return bytes per token without any parallelism, in 16 bits."""
    whole = kept.gathered + kept.replicated + kept.norm_copies + kept.routed
    divided = kept.sharded + kept.products + kept.row_copies
    return 2.0 * (whole + divided) + 4.0 * kept.float32


def test_a_block_of_a_tower_keeps_what_autograd_saves():
    fields = {**CASES["llava"], "vision_config": {**CLIP, "hidden_act": "gelu"}}
    model = reference_model(fields, device="cpu", attn_implementation="sdpa", dtype=torch.bfloat16)
    block = model.get_submodule("model.vision_tower.encoder.layers.0")
    rows = torch.randn(1, 17, 64, dtype=torch.bfloat16, requires_grad=True)
    layer, _ = model_workload(model_from_fields(fields, name="it")).runs[0]
    counted = 17 * kept_bytes(layer.activations.none)
    assert counted == pytest.approx(saved_bytes(block, [], rows, None), rel=0.01)


def test_a_reading_block_keeps_what_autograd_saves_but_for_two_copies():
    """Transformers copies both attentions' outputs (64 elements) before their products.

    The encoder's output itself, which all blocks share, is left out.
    """
    model = reference_model(WHISPER, device="cpu", attn_implementation="sdpa", dtype=torch.bfloat16)
    block = model.get_submodule("model.decoder.layers.0")
    rows = torch.randn(1, 128, 64, dtype=torch.bfloat16, requires_grad=True)
    read = torch.randn(1, 96, 64, dtype=torch.bfloat16, requires_grad=True)
    saved = saved_bytes(block, [read], rows, None, read) - 2 * 128 * 64 * 2
    fields = {**WHISPER, "max_source_positions": 96}
    layer, _ = model_workload(model_from_fields(fields, name="it")).runs[1]
    counted = 128 * kept_bytes(layer.activations.none)
    counted += 96 * kept_bytes(layer.sources[0].activations.none)
    assert counted == pytest.approx(saved, rel=0.01)
