"""A config.json of transformers is traced by its class: exact, and what is not known is said."""

from __future__ import annotations

import json
from pathlib import Path
from typing import Any

import pytest

pytest.importorskip("torch", reason="no package torch")
pytest.importorskip("transformers", reason="no package transformers")

from executor import trace_command
from executor.errors import LaunchError
from executor.transformers_class import transformers_model
from planner.schema.model import ModelGraph
from planner.workload.model import model_workload
from tests.golden.further_types import BART, MANY, PICTURES, SIZES
from tests.golden.transformers_models import reference_parameter_count

LLAVA: dict[str, Any] = {
    "text_config": {"model_type": "llama", **SIZES},
    "vision_config": {"model_type": "clip_vision_model", **PICTURES},
}
UNRECOGNISED = "no fused attention of whole sequences was recognised in 4 of 4 blocks"
CASES = {
    "deberta-v2": ("DebertaV2ForMaskedLM", MANY, 4, UNRECOGNISED),
    "albert": ("AlbertForMaskedLM", MANY, 1, "no list of blocks was found"),
    "vit": ("ViTForImageClassification", PICTURES, 3, "traced with pixel_values"),
    "bart": ("BartForConditionalGeneration", BART, 2, "not cut into blocks: model.encoder.layers"),
    "wav2vec2": ("Wav2Vec2ForCTC", MANY, 7, "traced as in evaluation"),
    "llava": (
        "LlavaForConditionalGeneration",
        LLAVA,
        4,
        "not used by this forward: model.vision_tower, model.multi_modal_projector",
    ),
}


def traced(folder: Path, fields: dict[str, Any], *words: str) -> ModelGraph:
    """Return what the command makes of a config.json."""
    config, out = folder / "config.json", folder / "graph.json"
    config.write_text(json.dumps(fields), encoding="utf-8")
    arguments = ["--transformers", str(config), "--sequence-length", "32", "--out", str(out)]
    assert trace_command.main([*arguments, *words]) == 0
    return ModelGraph.read(out)


@pytest.mark.parametrize("model_type", CASES)
def test_a_class_is_traced_with_all_its_parameters(tmp_path, model_type):
    named, sizes, blocks, said = CASES[model_type]
    fields = {"model_type": model_type, "architectures": [named], **sizes}
    graph = traced(tmp_path, fields)
    assert model_workload(graph).parameter_count == reference_parameter_count(fields)
    assert graph.block_count == blocks
    assert any(said in line for line in graph.assumptions)


def test_experts_are_among_the_products_of_a_traced_mixture(tmp_path):
    """Of a token in a block: queries and output, keys and values, router, two experts of three.

    Attention adds to each token 32 keys of four heads of 16, twice.
    """
    graph = traced(tmp_path, {"model_type": "mixtral", **SIZES})
    dense = 2 * 64 * 64 + 2 * 64 * 32 + 64 * 8 + 2 * 3 * 64 * 96
    products = [
        run.block_count * product.rows_per_token * product.inner_size * product.outer_size
        for run in graph.runs
        for product in run.measured.products
    ]
    assert sum(products) == 4 * dense


@pytest.mark.parametrize("padding", [{}, {"pad_token_id": None}, {"pad_token_id": 3}])
def test_another_class_is_traced_where_it_is_named(tmp_path, padding):
    fields = {"model_type": "llama", "architectures": ["LlamaForCausalLM"], **SIZES, **padding}
    graph = traced(tmp_path, fields, "--class", "LlamaForSequenceClassification")
    named = {**fields, "architectures": ["LlamaForSequenceClassification"]}
    assert model_workload(graph).parameter_count == reference_parameter_count(named)


@pytest.mark.parametrize(
    ("fields", "field", "problem"),
    [
        ({"model_type": "own", "auto_map": {"AutoModel": "m.M"}}, "model_type", "is never run"),
        ({"model_type": "llama", "architectures": ["Evil"]}, "architectures", "no such model"),
        ({"model_type": "llama", "architectures": ["LlamaConfig"]}, "architectures", "no such"),
        ({"model_type": "llama", "hidden_size": "wide"}, "config.json", "refuses it"),
    ],
)
def test_what_transformers_does_not_have_is_refused_by_name(tmp_path, fields, field, problem):
    path = tmp_path / "config.json"
    path.write_text(json.dumps(fields), encoding="utf-8")
    with pytest.raises(LaunchError, match=problem) as caught:
        transformers_model(path)
    assert caught.value.field == field
    assert caught.value.remedy
