"""Transformers of diffusers: parameters as its own classes have them, and what is refused."""

from __future__ import annotations

from typing import Any

import pytest

from planner.errors import InputError
from planner.importers.diffusers_transformers import class_names
from planner.importers.models import model_from_fields
from planner.schema.model import ModelGraph
from planner.workload.model import model_workload

SD3_MEDIUM = {"num_layers": 24, "num_attention_heads": 24}
# Counted in diffusers 0.42.1's classes on torch's meta device.
COUNTED: list[tuple[str, dict[str, Any], int]] = [
    ("DiTTransformer2DModel", {"out_channels": 8}, 749_826_464),
    ("FluxTransformer2DModel", {}, 11_891_178_560),
    ("FluxTransformer2DModel", {"guidance_embeds": True}, 11_901_408_320),
    ("HunyuanVideoTransformer3DModel", {}, 12_821_012_544),
    ("SD3Transformer2DModel", SD3_MEDIUM, 2_028_328_000),
    (
        "SD3Transformer2DModel",
        {**SD3_MEDIUM, "qk_norm": "rms_norm", "dual_attention_layers": list(range(13))},
        2_243_171_520,
    ),
    (
        "SD3Transformer2DModel",
        {"num_layers": 38, "num_attention_heads": 38, "qk_norm": "rms_norm"},
        8_056_627_520,
    ),
    ("WanTransformer3DModel", {}, 14_288_491_584),
    (
        "WanTransformer3DModel",
        {"num_attention_heads": 12, "ffn_dim": 8960, "num_layers": 30},
        1_418_996_800,
    ),
]


def graph_of(class_name: str, **fields: Any) -> ModelGraph:
    """Return the graph of a configuration."""
    return model_from_fields({"_class_name": class_name, **fields}, name="it")


@pytest.mark.parametrize(("class_name", "fields", "count"), COUNTED)
def test_parameters_are_those_of_the_class(class_name, fields, count):
    assert model_workload(graph_of(class_name, **fields)).parameter_count == count


def test_every_class_that_is_read_is_counted():
    assert {class_name for class_name, _, _ in COUNTED} == set(class_names())


def test_tensor_parallel_ranks_split_the_weights_for_text_as_those_for_patches():
    """Of a Flux's first blocks: two sets of four squares of 3,072 and two products of 12,288."""
    (block, count), *_ = model_workload(graph_of("FluxTransformer2DModel")).runs
    weights = 2 * (4 * 3072**2 + 2 * 3072 * 12288)
    biases_of_the_first = 3 * 3072 + 12288  # others, norms and modulation are whole on each rank
    biases_and_norms_of_the_second = 4 * 3072 + 12288 + 3072 + 2 * 128
    sharded = weights + biases_of_the_first + biases_and_norms_of_the_second
    assert (count, block.parameters.sharded) == (19, sharded)


def test_a_flux_has_as_many_tokens_as_text_and_patches_of_a_picture():
    graph = graph_of("FluxTransformer2DModel")
    assert graph.maximum_sequence_length == 512 + 4096
    assert [run.block_count for run in graph.runs] == [19, 38]
    assert any("512 tokens of text" in said for said in graph.assumptions)


@pytest.mark.parametrize(
    ("class_name", "fields", "field"),
    [
        ("DiTTransformer2DModel", {"norm_type": "layer_norm"}, "norm_type"),
        ("FluxTransformer2DModel", {"num_layers": 0}, "num_layers"),
        ("HunyuanVideoTransformer3DModel", {"image_condition_type": "latent_concat"}, "image"),
        ("SD3Transformer2DModel", {"qk_norm": "layer_norm"}, "qk_norm"),
        ("WanTransformer3DModel", {"image_dim": 1280}, "image_dim"),
        ("WanTransformer3DModel", {"qk_norm": None}, "qk_norm"),
    ],
)
def test_what_cannot_be_read_is_named(class_name, fields, field):
    with pytest.raises(InputError) as caught:
        graph_of(class_name, **fields)
    assert field in caught.value.field
    assert caught.value.remedy
