"""Further model types: parameters exactly those of transformers' classes, small and by default."""

from __future__ import annotations

from pathlib import Path
from typing import Any

import pytest
import torch
import transformers
from torch.utils.flop_counter import FlopCounterMode
from transformers import AutoConfig
from transformers.models.auto import modeling_auto

from planner.importers.hugging_face.readers import READERS
from planner.importers.models import model_from_fields
from planner.workload.model import model_workload
from tests.golden.further_types import (
    BART,
    CASES,
    HALVES,
    HEADS,
    LATENT,
    MANY,
    PICTURES,
    QWEN4,
    SIZES,
    SMALL_ROWS,
)
from tests.golden.read_types import sentence
from tests.golden.test_towers_and_encoders import expected_flop
from tests.golden.transformers_models import reference_model, reference_parameter_count

PATCHES_AND_CLASS = 17
BOTH_HALVES = {"input_ids": (2, 40), "decoder_input_ids": (2, 40)}

# Default configurations that the classes themselves cannot build.
UNBUILDABLE = {
    "aya_vision",
    "cohere_compass_text",
    "dbrx",
    "dots1",
    "esm",
    "hunyuan_v1_dense",
    "hunyuan_v1_moe",
    "lfm2_moe",
    "ministral",
    "nemotron",
    "roformer",
}
# Those whose parts do not fit one another, or that lack what no default can stand for.
UNFIT = {
    "cohere_compass",
    "glm_ocr",
    "ovis2",
    "qwen3_omni_moe_thinker",
    "shieldgemma2",
    "deepseek_v2",
    "exaone4_5",
    "gemma3",
    "glm4_moe",
    "glm4v_moe",
    "idefics3",
    "llama4",
    "qwen2_5_vl",
    "qwen2_vl",
    "qwen3_5",
    "qwen3_5_moe",
    "qwen3_vl",
    "qwen3_vl_moe",
    "qwen4_exp",
    "qwen4_exp_text",
    "smolvlm",
    "vision-encoder-decoder",
}
# Of these the decoder alone is read, and assumptions say so unless its own class is named.
HALF = {"dots3_note", "emu3", "gemma3n", "qwen4_exp"}
# Heads that no reader counts: assumptions name them, and price a head that predicts tokens.
TOLD = {
    "BertGenerationEncoder",
    "BlipModel",
    "LEDForQuestionAnswering",
    "BigBirdForQuestionAnswering",
    "BigBirdPegasusForQuestionAnswering",
    "BigBirdPegasusForSequenceClassification",
    "ViTMAEModel",
    *(
        f"{kind}ForSequenceClassification"
        for kind in ("Bart", "MBart", "MT5", "Mvp", "PLBart", "T5", "UMT5")
    ),
    *(f"{kind}ForQuestionAnswering" for kind in ("Bart", "MBart", "MT5", "Mvp", "T5", "UMT5")),
    *(f"{kind}ForTokenClassification" for kind in ("MT5", "T5", "UMT5")),
}
CLASSES = {
    (model_type, named if isinstance(named, str) else named[0])
    for mapping in (
        modeling_auto.MODEL_MAPPING_NAMES,
        modeling_auto.MODEL_FOR_SEQUENCE_CLASSIFICATION_MAPPING_NAMES,
        modeling_auto.MODEL_FOR_TOKEN_CLASSIFICATION_MAPPING_NAMES,
        modeling_auto.MODEL_FOR_QUESTION_ANSWERING_MAPPING_NAMES,
    )
    for model_type, named in mapping.items()
    if model_type in READERS
} | {(model_type, named) for model_type, named, _ in CASES + HEADS}
BY_DEFAULT = sorted(
    (model_type, named)
    for model_type, named in CLASSES
    if model_type not in UNBUILDABLE | UNFIT
    and (model_type not in HALF or named.endswith("ForCausalLM"))
)


def counted(fields: dict[str, Any]) -> int:
    """Return what we count."""
    return model_workload(model_from_fields(fields, name="it")).parameter_count


@pytest.mark.parametrize(
    ("model_type", "named", "sizes"),
    [pytest.param(*case, id=f"{case[0]}-{case[1]}-{i}") for i, case in enumerate(CASES + HEADS)],
)
def test_parameters_are_those_of_the_class_that_is_named(model_type, named, sizes):
    fields = {"model_type": model_type, "architectures": [named], **sizes}
    assert counted(fields) == reference_parameter_count(fields)


@pytest.mark.parametrize(
    ("model_type", "named", "sizes"),
    [
        pytest.param(*case, id=case[0])
        for case in HEADS
        if case[1].endswith(("ForMaskedLM", "WithLMHeadModel", "GenerationDecoder"))
    ],
)
def test_a_head_that_is_not_tied_has_as_many_biases_as_its_class(model_type, named, sizes):
    fields = {"model_type": model_type, "architectures": [named], **sizes}
    fields["tie_word_embeddings"] = False
    assert counted(fields) == reference_parameter_count(fields)


@pytest.mark.parametrize(("model_type", "named"), BY_DEFAULT)
def test_a_default_configuration_has_the_parameters_of_the_class_or_says_that_it_has_others(
    model_type, named
):
    """What the class itself writes out, every field of it, whatever head it has."""
    fields = AutoConfig.for_model(model_type).to_dict()
    fields["architectures"] = [named]
    graph = model_from_fields(fields, name="it")
    told = any(f"architectures names {named}" in said for said in graph.assumptions)
    assert told is (named in TOLD)
    assert told or model_workload(graph).parameter_count == reference_parameter_count(fields)


@pytest.mark.parametrize("named", ["ForConditionalGeneration", "ForCausalLM"])
@pytest.mark.parametrize(
    ("model_type", "sizes"),
    [("dots3_note", LATENT), ("emu3", SIZES), ("gemma3n", SMALL_ROWS), ("qwen4_exp", QWEN4)],
)
def test_what_is_left_out_beside_a_decoder_is_said_unless_its_class_is_named(
    model_type, sizes, named
):
    fields = {"model_type": model_type, "architectures": [f"It{named}"], "text_config": sizes}
    said = model_from_fields(fields, name="it").assumptions
    assert any("neither memory nor work" in one for one in said) is (named != "ForCausalLM")


def test_the_page_counts_the_types_of_automatic_classes_that_are_read():
    page = (Path(__file__).parents[2] / "docs" / "model-graph.md").read_text(encoding="utf-8")
    assert f"types that are read so: {sentence()} (`python" in " ".join(page.split())


def test_every_class_that_is_compared_is_one_of_transformers():
    assert all(hasattr(transformers, named) for _, named, _ in CASES + HEADS)


@pytest.mark.parametrize(
    ("model_type", "named", "sizes", "inputs"),
    [
        ("bert", "BertForMaskedLM", MANY, {"input_ids": (2, 48)}),
        ("bert", "BertForSequenceClassification", MANY, {"input_ids": (2, 48)}),
        ("modernbert", "ModernBertForMaskedLM", MANY, {"input_ids": (2, 48)}),
        (
            "laguna",
            "LagunaForCausalLM",
            {**SIZES, "num_hidden_layers": 1},
            {"input_ids": (2, 48)},
        ),
        (
            "mimo_v2_flash",
            "MiMoV2FlashForCausalLM",
            {**SIZES, "num_hidden_layers": 1, "head_dim": 24, "v_head_dim": 16},
            {"input_ids": (2, 48)},
        ),
        ("bart", "BartForConditionalGeneration", BART, BOTH_HALVES),
        ("beam", "BeamForCausalLM", {**SIZES, "num_hidden_layers": 1}, {"input_ids": (2, 48)}),
        ("roc_bert", "RoCBertForMaskedLM", MANY, {"input_ids": (2, 48)}),
        ("diffllama", "DiffLlamaForCausalLM", SIZES, {"input_ids": (2, 48)}),
        (
            "minimax",
            "MiniMaxForCausalLM",
            {**SIZES, "num_hidden_layers": 2, "block_size": 16},
            {"input_ids": (2, 48)},
        ),
        ("trocr", "TrOCRForCausalLM", HALVES["decoder"], {"input_ids": (2, 40)}),
        ("vit", "ViTForImageClassification", PICTURES, {"pixel_values": (2, 3, 32, 32)}),
        ("dinov3_vit", "DINOv3ViTModel", PICTURES, {"pixel_values": (2, 3, 32, 32)}),
    ],
)
def test_flop_of_a_forward_is_what_torch_counts(model_type, named, sizes, inputs):
    """Of two sequences, attention unmasked."""
    fields = {"model_type": model_type, "architectures": [named], **sizes}
    tokens = inputs.get("input_ids", (2, PATCHES_AND_CLASS))[1]
    options = {"attn_implementation": "eager", "experts_implementation": "batched_mm"}
    model = reference_model(fields, **options).eval()
    with torch.device("meta"):
        given = {
            name: torch.zeros(size, dtype=torch.float32 if "pixel" in name else torch.long)
            for name, size in inputs.items()
        }
        with FlopCounterMode(display=False) as counter, torch.no_grad():
            model(**given)
    expected = 2 * expected_flop(fields, tokens)
    assert expected == pytest.approx(float(counter.get_total_flops()), rel=0.01)
