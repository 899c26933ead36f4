"""Models with a CLIP, SigLIP, InternVL or GLM tower equal transformers' classes."""

from __future__ import annotations

from typing import Any

import pytest
import torch

from planner.importers.models import model_from_fields
from planner.workload.model import model_workload
from tests.golden.test_towers_and_encoders import (
    CLIP,
    LLAMA,
    MISTRAL,
    SIGLIP,
    TEXT,
    VISION,
    counted_flop,
    expected_flop,
    unmasked_flop,
)
from tests.golden.transformers_models import reference_config, reference_parameter_count

GEMMA = {**TEXT, "model_type": "gemma"}
QWEN2 = {**TEXT, "model_type": "qwen2"}
COHERE2 = {**TEXT, "model_type": "cohere2"}
HEADLESS = {**SIGLIP, "vision_use_head": False}
INTERN = {**VISION, "image_size": [32, 32], "patch_size": [8, 8]}
GLM = {
    "depth": 3,
    "hidden_size": 64,
    "num_heads": 4,
    "out_hidden_size": 128,
    "intermediate_size": 200,
    "patch_size": 32,
    "image_size": 64,
}
GLM_MOE = {**TEXT, "n_routed_experts": 8, "num_experts_per_tok": 8, "moe_intermediate_size": 32}
CASES: dict[str, dict[str, Any]] = {
    "paligemma": {
        "model_type": "paligemma",
        "text_config": GEMMA,
        "vision_config": HEADLESS,
        "projection_dim": 128,
    },
    "paligemma_2": {
        "model_type": "paligemma",
        "text_config": {**TEXT, "model_type": "gemma2"},
        "vision_config": SIGLIP,
        "projection_dim": 128,
    },
    "llava_next": {"model_type": "llava_next", "text_config": LLAMA, "vision_config": CLIP},
    "llava_next_full": {
        "model_type": "llava_next",
        "text_config": MISTRAL,
        "vision_config": CLIP,
        "vision_feature_select_strategy": "full",
        "vision_feature_layer": [-2, -1],
        "multimodal_projector_bias": False,
    },
    "llava_onevision": {
        "model_type": "llava_onevision",
        "text_config": QWEN2,
        "vision_config": HEADLESS,
    },
    "llava_onevision_tied": {
        "model_type": "llava_onevision",
        "text_config": {**QWEN2, "tie_word_embeddings": True},
        "vision_config": SIGLIP,
    },
    "internvl": {"model_type": "internvl", "text_config": QWEN2, "vision_config": INTERN},
    "internvl_6b": {  # the tower of the larger ones
        "model_type": "internvl",
        "text_config": LLAMA,
        "vision_config": {
            **INTERN,
            "attention_bias": True,
            "use_qk_norm": True,
            "norm_type": "rms_norm",
            "use_mean_pooling": False,
            "use_mask_token": True,
        },
        "tie_word_embeddings": False,
    },
    "idefics3": {"model_type": "idefics3", "text_config": LLAMA, "vision_config": VISION},
    "smolvlm": {
        "model_type": "smolvlm",
        "text_config": LLAMA,
        "vision_config": {"hidden_size": 96, "num_attention_heads": 12, "image_size": 128},
        "scale_factor": 4,
    },
    "glm4v": {"model_type": "glm4v", "text_config": TEXT, "vision_config": GLM},
    "glm4v_older": {  # said of the decoder by files before transformers 5
        "model_type": "glm4v",
        "text_config": {**TEXT, "tie_word_embeddings": True},
        "vision_config": {**GLM, "attention_bias": True},
    },
    "glm4v_moe": {"model_type": "glm4v_moe", "text_config": GLM_MOE, "vision_config": GLM},
    "aya_vision": {"model_type": "aya_vision", "text_config": COHERE2, "vision_config": HEADLESS},
    "aya_vision_wide": {
        "model_type": "aya_vision",
        "text_config": COHERE2,
        "vision_config": SIGLIP,
        "alignment_intermediate_size": 72,
        "downsample_factor": 4,
    },
    "cohere2_vision": {
        "model_type": "cohere2_vision",
        "text_config": COHERE2,
        "vision_config": HEADLESS,
        "alignment_intermediate_size": 72,
    },
}
# Released shapes, as far as they change one.
RELEASED: dict[str, tuple[dict[str, Any], int | None]] = {
    "paligemma-3b-224": (
        {
            "model_type": "paligemma",
            "text_config": {
                "model_type": "gemma",
                "hidden_size": 2048,
                "intermediate_size": 16384,
                "num_attention_heads": 8,
                "num_hidden_layers": 18,
                "num_key_value_heads": 1,
                "vocab_size": 257216,
            },
            "vision_config": {
                "model_type": "siglip_vision_model",
                "hidden_size": 1152,
                "intermediate_size": 4304,
                "num_attention_heads": 16,
                "num_hidden_layers": 27,
                "patch_size": 14,
                "vision_use_head": False,
            },
        },
        2_923_466_480,
    ),
    "llava-v1.6-mistral-7b": (
        {
            "model_type": "llava_next",
            "text_config": {"model_type": "mistral", "vocab_size": 32064},
            "vision_config": {
                "model_type": "clip_vision_model",
                "hidden_size": 1024,
                "image_size": 336,
                "intermediate_size": 4096,
                "num_attention_heads": 16,
                "num_hidden_layers": 24,
                "patch_size": 14,
            },
        },
        7_566_747_648,
    ),
    "smolvlm-500m": (
        {
            "model_type": "smolvlm",
            "text_config": {
                "model_type": "llama",
                "hidden_size": 960,
                "intermediate_size": 2560,
                "num_attention_heads": 15,
                "num_hidden_layers": 32,
                "num_key_value_heads": 5,
                "head_dim": 64,
                "vocab_size": 49280,
            },
            "vision_config": {
                "hidden_size": 768,
                "image_size": 512,
                "num_attention_heads": 12,
                "patch_size": 16,
            },
            "scale_factor": 4,
        },
        507_482_304,
    ),
}


def parameter_count(fields: dict[str, Any]) -> int:
    """Return what we count."""
    return model_workload(model_from_fields(fields, name="it")).parameter_count


@pytest.mark.parametrize("case", CASES)
def test_parameters_are_those_of_the_reference_class(case):
    assert parameter_count(CASES[case]) == reference_parameter_count(CASES[case])


@pytest.mark.parametrize("case", CASES)
def test_tied_embeddings_are_those_of_the_reference_class(case):
    graph = model_from_fields(CASES[case], name="it")
    assert graph.tied_embeddings == reference_config(CASES[case]).tie_word_embeddings


@pytest.mark.parametrize("name", RELEASED)
def test_released_model_has_the_parameters_of_the_reference_class_and_of_its_checkpoint(name):
    fields, published = RELEASED[name]
    assert parameter_count(fields) == reference_parameter_count(fields) == published


def sequence(image_tokens: int) -> torch.Tensor:
    """Return one sequence of an image and forty words; 7 stands for the image's."""
    return torch.cat([torch.full((image_tokens,), 7), torch.arange(100, 140)])[None]


@pytest.mark.parametrize(
    ("case", "image_tokens"),
    [("paligemma", 16), ("internvl", 4), ("idefics3", 4), ("aya_vision", 4), ("cohere2_vision", 4)],
)
def test_flop_of_a_tower_and_its_decoder_is_what_torch_counts(case, image_tokens):
    """32 x 32 pixels in patches of 8: 16 tokens, or 4 where squares of four are merged."""
    fields = {**CASES[case], "image_token_id": 7}
    shape = (1, 1, 3, 32, 32) if case == "idefics3" else (1, 3, 32, 32)
    inputs: dict[str, torch.Tensor] = {"pixel_values": torch.randn(*shape)}
    if case == "paligemma":
        inputs["token_type_ids"] = torch.zeros(1, 56, dtype=torch.long)
    counted = counted_flop(fields, input_ids=sequence(image_tokens), **inputs)
    assert expected_flop(fields, image_tokens + 40) == pytest.approx(counted, rel=0.01)


@pytest.mark.parametrize("case", ["llava_next", "llava_onevision"])
def test_flop_of_tiles_is_that_of_as_many_images(case):
    """An image of one tile comes as two, small and whole: 16 tokens each, and four line ends."""
    fields = {**CASES[case], "image_token_id": 7, "image_grid_pinpoints": [[32, 32]]}
    counted = counted_flop(
        fields,
        input_ids=sequence(36),
        pixel_values=torch.randn(1, 2, 3, 32, 32),
        image_sizes=torch.tensor([[32, 32]]),
    )
    workload = model_workload(model_from_fields(fields, name="it"))
    tower, count = workload.runs[0]
    again = count * unmasked_flop(tower, 76) + unmasked_flop(workload.embedding, 76)
    assert expected_flop(fields, 76) + again == pytest.approx(counted, rel=0.01)


@pytest.mark.parametrize(("case", "rotated"), [("glm4v", [4, 2, 2]), ("glm4v_moe", [2, 1, 1])])
def test_flop_of_a_glm4v_is_what_torch_counts(case, rotated):
    """448 x 448 pixels in patches of 32: 14 x 14, of which squares of four are merged into 49."""
    rotary = {"rope_type": "default", "rope_theta": 10000.0, "mrope_section": rotated}
    text = {**CASES[case]["text_config"], "rope_parameters": rotary}
    fields = {**CASES[case], "text_config": text, "image_token_id": 7}
    tokens = sequence(49)
    counted = counted_flop(
        fields,
        input_ids=tokens,
        pixel_values=torch.randn(196, 3 * 2 * 32 * 32),
        image_grid_thw=torch.tensor([[1, 14, 14]]),
        mm_token_type_ids=(tokens == 7).long(),
    )
    assert expected_flop(fields, 89) == pytest.approx(counted, rel=0.01)
