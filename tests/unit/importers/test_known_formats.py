"""Files that look like a framework's that is not read are refused by its name; keys are named."""

from __future__ import annotations

import json
from typing import Any

import pytest

from planner.errors import DocumentError
from planner.importers.training.config import Setting
from planner.importers.training.files import config_from_text
from tests.unit.exporters.plans import resolved_model

SETTING = Setting(graph=resolved_model("llama-3-8b").resolved, device_count=8)
LOOK_ALIKES = {
    "Oumi": "model: {model_name: x}\ntraining: {trainer_type: TRL_SFT}\nfsdp: {enable_fsdp: true}",
    "torchforge": "trainer: {training: {seq_len: 8}, parallelism: {tensor_parallel_degree: 2}}",
    "Ray Train": "scaling_config: {num_workers: 8, use_gpu: true}\nrun_config: {name: x}",
    "Unsloth": "use_gradient_checkpointing: unsloth\nper_device_train_batch_size: 2\nr: 16",
}


@pytest.mark.parametrize("name", LOOK_ALIKES)
def test_a_framework_that_is_not_read_is_named(name: str) -> None:
    with pytest.raises(DocumentError, match=f"looks like a configuration of {name}"):
        config_from_text(LOOK_ALIKES[name], SETTING, source="it.yaml", suffix=".yaml")


@pytest.mark.parametrize(
    ("key", "value"),
    [
        ("data_types.grad_accum_dtype", "fp32"),
        ("communication_data_type", "fp32"),
        ("curriculum_learning.enabled", True),
        ("elasticity.enabled", True),
        ("sparse_attention.mode", "fixed"),
        ("activation_checkpointing.partition_activations", True),
        ("compression_training.weight_quantization.shared_parameters.enabled", True),
    ],
)
def test_what_deepspeeds_keys_cost_otherwise_than_priced_is_told(key: str, value: Any) -> None:
    fields: dict[str, Any] = {
        "zero_optimization": {"stage": 3},
        "train_micro_batch_size_per_gpu": 1,
        "bf16": {"enabled": True},
    }
    usual = config_from_text(json.dumps(fields), SETTING, source="d.json", suffix=".json")
    section = fields
    *sections, name = key.split(".")
    for one in sections:
        section = section.setdefault(one, {})
    section[name] = value
    made = config_from_text(json.dumps(fields), SETTING, source="d.json", suffix=".json")
    told = [line for line in made.assumptions if line not in usual.assumptions]
    assert [line.partition(":")[0] for line in told] == [key]
