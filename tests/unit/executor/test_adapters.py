"""Which adapters are trained, and which are refused by name."""

from __future__ import annotations

from typing import Any

import pytest

pytest.importorskip("torch", reason="no package torch")
pytest.importorskip("peft", reason="no package peft")

import peft
import torch
from torch import nn

from executor.errors import ModelMismatchError, UnsupportedPlanError
from executor.models.adapters import (
    Adapters,
    check_planned_adapters,
    check_split_adapters,
    with_adapter_values,
    without_wrapper,
)
from tests.builders import a_job


class Pair(nn.Module):
    """An embedding and a linear."""

    def __init__(self) -> None:
        super().__init__()
        self.embed, self.linear = nn.Embedding(7, 4), nn.Linear(4, 6)

    def forward(self, tokens: torch.Tensor) -> torch.Tensor:
        """Return the linear's outputs."""
        return self.linear(self.embed(tokens))


def wrapped(**fields: Any) -> nn.Module:
    """The pair as PEFT wraps it."""
    config = peft.LoraConfig(**{"r": 2, "target_modules": ["linear"], **fields})
    with torch.device("meta"):
        return peft.get_peft_model(Pair(), config)


def adapters(**fields: Any) -> Adapters:
    """The pair's adapters."""
    found = without_wrapper(wrapped(**fields))[1]
    assert found is not None
    return found


def test_a_model_without_adapters_is_left_as_it_is() -> None:
    model = Pair()
    assert without_wrapper(model) == (model, None)


REFUSED: dict[str, tuple[dict[str, Any], str]] = {
    "dora": ({"use_dora": True}, "use_dora"),
    "bias": ({"bias": "all"}, "bias"),
    "begins otherwise": ({"init_lora_weights": "gaussian"}, "init_lora_weights.*gaussian"),
    "embedding": ({"target_modules": ["embed"]}, "target_modules.*embed, a Embedding"),
    "whole copies": ({"modules_to_save": ["embed"]}, "modules_to_save"),
    "of no linear": (
        {"target_parameters": ["linear.weight"], "target_modules": []},
        "target_parameters.*in place of 'all-linear'",
    ),
}


@pytest.mark.parametrize("case", REFUSED)
def test_other_adapters_are_refused(case: str) -> None:
    fields, message = REFUSED[case]
    with pytest.raises(UnsupportedPlanError, match=message):
        without_wrapper(wrapped(**fields))


def test_adapters_of_a_weight_that_two_modules_share_are_refused() -> None:
    with torch.device("meta"):
        pair = Pair()
        pair.linear = nn.Linear(4, 7)
        pair.linear.weight = pair.embed.weight
        model = peft.get_peft_model(pair, peft.LoraConfig(r=2, target_modules=["linear"]))
    said = r"target_modules.*linear, whose weight is embed\.weight and linear\.base_layer\.weight"
    with pytest.raises(UnsupportedPlanError, match=f"{said}.*with a weight of their own"):
        without_wrapper(model)


def test_other_methods_of_peft_are_refused() -> None:
    config = peft.IA3Config(target_modules=["linear"], feedforward_modules=[])
    with pytest.raises(UnsupportedPlanError, match="IA3"):
        without_wrapper(peft.get_peft_model(Pair(), config))


@pytest.mark.parametrize(
    ("planned", "built", "message"),
    [
        ({"rank": 8}, adapters, "adapters of rank 8 were planned.*got adapters of rank 2"),
        ({"rank": 2}, lambda: None, "got no adapters"),
        (None, adapters, "the plan has no adapters"),
    ],
)
def test_adapters_are_those_of_the_plan(planned: Any, built: Any, message: str) -> None:
    with pytest.raises(ModelMismatchError, match=message):
        check_planned_adapters(built(), Pair(), a_job(adapters=planned))


def test_frozen_weights_have_the_bits_of_the_plan() -> None:
    """Those of torch's linears are whole, which are 16 in compute."""
    job = a_job(adapters={"rank": 2, "base_bits": 4})
    said = r"in 4 bits were planned.*got linears in 16 bits.*replace_with_bnb_linear"
    with pytest.raises(ModelMismatchError, match=said):
        check_planned_adapters(adapters(), Pair(), job)


def test_dropout_is_refused_where_ranks_share_a_layer() -> None:
    check_split_adapters(adapters(lora_dropout=0.1), 1)
    with pytest.raises(UnsupportedPlanError, match=r"lora_dropout.*got 0\.1"):
        check_split_adapters(adapters(lora_dropout=0.1), 2)


def test_adapters_begin_as_peft_has_them() -> None:
    """Uniform within 1 / sqrt(4 inputs), and zeros."""
    model, _ = without_wrapper(wrapped())
    value = with_adapter_values(lambda _name, shape, _generator: torch.ones(shape), model)
    generator = torch.Generator().manual_seed(0)
    first = value("linear.lora_A.default.weight", torch.Size((50, 4)), generator)
    assert 0.45 < first.abs().max() <= 0.5
    assert abs(float(first.mean())) < 0.1
    second = value("linear.lora_B.default.weight", torch.Size((6, 2)), generator)
    assert torch.equal(second, torch.zeros(6, 2))
    base = value("linear.base_layer.weight", torch.Size((6, 4)), generator)
    assert torch.equal(base, torch.ones(6, 4))


def test_merged_weights_do_what_linear_and_adapters_do() -> None:
    torch.manual_seed(0)
    model = peft.get_peft_model(Pair(), peft.LoraConfig(r=2, target_modules=["linear"]))
    base, found = without_wrapper(model)
    assert found is not None
    layer = base.linear
    nn.init.normal_(layer.lora_B.default.weight)
    inputs = torch.randn(3, 4)
    weight = found.merged(
        "linear",
        layer.base_layer.weight,
        layer.lora_A.default.weight,
        layer.lora_B.default.weight,
    )
    outputs = nn.functional.linear(inputs, weight, layer.base_layer.bias)
    torch.testing.assert_close(outputs, layer(inputs))
