"""Labels of models of transformers that no chain is made of are read as transformers does."""

from __future__ import annotations

import pytest

pytest.importorskip("torch", reason="no package torch")

import torch
from torch import nn
from transformers import OPTConfig, OPTForCausalLM, T5Config, T5ForConditionalGeneration

from executor.models.forward_inputs import ForwardInputs
from executor.models.huggingface_inputs import with_labels

LABELS = torch.tensor([[7, 8, -100]])


def inputs_of(model: nn.Module) -> ForwardInputs:
    """What a batch's names mean to `model`."""
    return with_labels(ForwardInputs.of_module(model), model)


def test_a_decoder_compares_with_the_next_label() -> None:
    with torch.device("meta"):
        model = OPTForCausalLM(OPTConfig(hidden_size=8, num_attention_heads=2, num_hidden_layers=1))
    inputs = inputs_of(model)
    given = {"input_ids": LABELS, "labels": LABELS}
    assert inputs.ignored_label == -100
    assert inputs.read(given, target_name="labels", field="loader").targets.tolist() == [
        [8, -100, -100]
    ]


def test_an_encoder_decoder_is_given_the_labels_before() -> None:
    sizes = {"vocab_size": 16, "d_model": 8, "num_layers": 1, "decoder_start_token_id": 3}
    with torch.device("meta"):
        model = T5ForConditionalGeneration(T5Config(**sizes, pad_token_id=0))
    inputs = inputs_of(model)
    given = {"input_ids": LABELS, "labels": LABELS}
    batch = inputs.complete(inputs.read(given, target_name="labels", field="loader"))
    assert inputs.ignored_label == -100
    assert batch.targets.tolist() == LABELS.tolist()
    assert batch.named["decoder_input_ids"].tolist() == [[3, 7, 8]]


def test_another_module_takes_labels_as_they_are() -> None:
    inputs = inputs_of(nn.Linear(2, 2))
    assert (inputs.ignored_label, inputs.labels_to_targets) == (None, None)
