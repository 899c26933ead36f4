"""Further model types: parameters exactly those of transformers' classes, small and by default."""

from __future__ import annotations

from typing import Any

import pytest
import torch
import transformers
from torch.utils.flop_counter import FlopCounterMode
from transformers import AutoConfig

from planner.importers.models import model_from_fields
from planner.workload.model import model_workload
from tests.golden.further_types import BART, CASES, HEADS, MANY, PICTURES, SIZES
from tests.golden.test_towers_and_encoders import expected_flop
from tests.golden.transformers_models import reference_model, reference_parameter_count

PATCHES_AND_CLASS = 17
BOTH_HALVES = {"input_ids": (2, 40), "decoder_input_ids": (2, 40)}

FIRST_OF_TYPE = {model_type: named for model_type, named, _ in reversed(CASES + HEADS)}
# Their default configurations cannot be built, or have parts that do not fit.
WITHOUT_DEFAULTS = {"dbrx", "esm", "exaone4_5", "roformer"}


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


@pytest.mark.parametrize("model_type", sorted(set(FIRST_OF_TYPE) - WITHOUT_DEFAULTS))
def test_parameters_of_a_default_configuration_are_those_of_the_class(model_type):
    """What the class itself writes out, every field of it."""
    fields = AutoConfig.for_model(model_type).to_dict()
    fields["architectures"] = [FIRST_OF_TYPE[model_type]]
    assert counted(fields) == reference_parameter_count(fields)


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
        ("bart", "BartForConditionalGeneration", BART, BOTH_HALVES),
        ("vit", "ViTForImageClassification", PICTURES, {"pixel_values": (2, 3, 32, 32)}),
        ("dinov3_vit", "DINOv3ViTModel", PICTURES, {"pixel_values": (2, 3, 32, 32)}),
    ],
)
def test_flop_of_a_forward_is_what_torch_counts(model_type, named, sizes, inputs):
    """Of two sequences, attention unmasked."""
    fields = {"model_type": model_type, "architectures": [named], **sizes}
    tokens = inputs.get("input_ids", (2, PATCHES_AND_CLASS))[1]
    model = reference_model(fields, attn_implementation="eager").eval()
    with torch.device("meta"):
        given = {
            name: torch.zeros(size, dtype=torch.float32 if "pixel" in name else torch.long)
            for name, size in inputs.items()
        }
        with FlopCounterMode(display=False) as counter, torch.no_grad():
            model(**given)
    expected = 2 * expected_flop(fields, tokens)
    assert expected == pytest.approx(float(counter.get_total_flops()), rel=0.01)
