"""Keys that users' files have beside the usual ones: DeepSpeed's older and rarer, NeMo's YAML."""

from __future__ import annotations

import json

import pytest

from planner.errors import DocumentError
from planner.importers.models import read_model
from planner.importers.training import config_from_text
from planner.importers.training_config import Setting
from planner.schema.strategy import Offload

LLAMA = read_model("llama-3-8b")[1]
NEMO = """
trainer: {num_nodes: 2, devices: 8, precision: PRECISION}
model:
  micro_batch_size: 2
  global_batch_size: 256
  tensor_model_parallel_size: 4
  pipeline_model_parallel_size: 2
  virtual_pipeline_model_parallel_size: null
  encoder_seq_length: 2048
  max_position_embeddings: ${.encoder_seq_length}
  sequence_parallel: true
  activations_checkpoint_granularity: full
  activations_checkpoint_method: uniform
  activations_checkpoint_num_layers: 1
  optim: {name: distributed_fused_adam}
"""


def read(text, suffix):
    """What the text says of 16 devices."""
    setting = Setting(graph=LLAMA, device_count=16)
    return config_from_text(text, setting, source=f"given{suffix}", suffix=suffix)


def deepspeed(zero, **more):
    """What DeepSpeed's configuration with this section says."""
    fields = {"train_micro_batch_size_per_gpu": 1, "zero_optimization": zero, **more}
    return read(json.dumps(fields), ".json")


def test_deepspeeds_older_switches_offload_as_the_newer_sections_do():
    assert deepspeed({"stage": 2, "cpu_offload": True}).strategy.offload == (Offload.OPTIMIZER,)
    both = deepspeed({"stage": 3, "cpu_offload": True, "cpu_offload_params": True}).strategy
    assert both.offload == (Offload.OPTIMIZER, Offload.PARAMETERS)


def test_mics_shards_within_groups():
    strategy = deepspeed({"stage": 3, "mics_shard_size": 8}).strategy
    assert strategy.data_parallel_replicate_degree == 2
    assert strategy.data_parallel_shard_degree == 8


@pytest.mark.parametrize(("stage", "size"), [(2, 8), (3, 7)])
def test_mics_of_another_stage_or_of_a_group_that_does_not_divide_is_refused(stage, size):
    with pytest.raises(DocumentError, match="mics_shard_size"):
        deepspeed({"stage": stage, "mics_shard_size": size})


def test_bfloat16_is_deepspeeds_older_name_of_bf16():
    assert deepspeed({}, bfloat16={"enabled": True}).job["precision"] == "bf16"


@pytest.mark.parametrize(
    ("given", "priced"), [("AdamW", "adamw"), ("Muon", "muon"), ("SGD", "sgd"), ("Lion", "adamw")]
)
def test_the_optimizer_is_the_files(given, priced):
    config = deepspeed({}, optimizer={"type": given})
    assert config.job["optimizer"] == priced
    assert any(given in said for said in config.assumptions) == (given == "Lion")


@pytest.mark.parametrize(
    ("zero", "said"),
    [
        ({"offload_optimizer": {"device": "cpu", "ratio": 0.3}}, "ratio 0.3 is priced as 1"),
        ({"offload_optimizer": {"device": "cpu", "super_offload": True}}, "super_offload"),
        ({"zero_quantized_weights": True}, "zero_quantized_weights"),
        ({"zenflow": {"topk_ratio": 0.05}}, "zenflow"),
    ],
)
def test_what_is_not_priced_of_zero_is_said(zero, said):
    assert any(said in one for one in deepspeed({"stage": 3, **zero}).assumptions)


def test_nemos_recipe_has_megatrons_settings_as_keys():
    config = read(NEMO.replace("PRECISION", "bf16-mixed"), ".yaml")
    strategy = config.strategy
    assert (strategy.tensor_parallel_degree, strategy.pipeline_parallel_degree) == (4, 2)
    assert strategy.sequence_parallel
    assert strategy.micro_batch_size == 2
    layers = [group for stage in strategy.stages for group in stage.layers]
    assert {group.zero_stage for group in layers} == {1}
    assert {group.activation_checkpointing for group in layers} == {"full"}
    assert config.job["sequence_length"] == 2048
    assert config.job["precision"] == "bf16"


def test_megatrons_own_yaml_has_the_same_keys_elsewhere():
    text = "model_parallel:\n  tensor_model_parallel_size: 2\nmicro_batch_size: 1\nbf16: true\n"
    config = read(text + "global_batch_size: 64\n", ".yaml")
    assert config.strategy.tensor_parallel_degree == 2
    assert config.job["global_batch_size"] == 64


@pytest.mark.parametrize(
    ("old", "new", "field"),
    [
        ("tensor_model_parallel_size: 4", "tensor_model_paralel_size: 4", "paralel"),
        ("pipeline_model_parallel_size: 2", "pipeline_model_parallel_size: ${x}", "pipeline"),
        ("tensor_model_parallel_size: 4", "tensor_model_parallel_size: 7", "tensor"),
    ],
)
def test_a_bad_key_of_nemos_is_named_with_its_path(old, new, field):
    with pytest.raises(DocumentError) as caught:
        read(NEMO.replace(old, new), ".yaml")
    assert field in caught.value.field
    assert caught.value.remedy
