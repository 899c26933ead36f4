"""Keys in sections that are passed over are named with their section; no made-up key is silent."""

from __future__ import annotations

import json

import pytest

from planner.errors import DocumentError
from planner.importers.fields import passed_over
from planner.importers.models import read_model
from planner.importers.training.config import Setting, TrainingConfig
from planner.importers.training.files import config_from_text
from planner.importers.training.format import Format, words_of
from planner.importers.training.formats.accelerate import PLUGIN_KEYS
from planner.importers.training.formats.deepspeed_keys import DEEPSPEED_KEYS
from planner.importers.training.formats.registry import FORMATS
from planner.importers.training.formats.torchtitan_keys import TORCHTITAN_KEYS

TABLES = (DEEPSPEED_KEYS, TORCHTITAN_KEYS, PLUGIN_KEYS, *FORMATS)
MADE_UP = "zz_made_up"
TITAN = """
[model]
flavor = "8B"
[training]
local_batch_size = 1
[metrics]
zz_made_up = 1
[optimizer]
name = "AdamW"
zz_made_up = 2
"""
TRL = "per_device_train_batch_size: 2\ngradient_accumulation_steps: 4\n"
BRIDGE = """
model: {tensor_model_parallel_size: 2, SIZE}
train: {global_batch_size: 64, micro_batch_size: 1}
ddp: {use_distributed_optimizer: true}
"""
VERL = """
actor_rollout_ref:
  actor: {strategy: fsdp, ppo_mini_batch_size: 64, freeze_vision_tower: true}
  model: {path: x}
trainer: {nnodes: 1, n_gpus_per_node: 8}
"""


def read(text: str, suffix: str, *, model: str = "llama-3-8b") -> TrainingConfig:
    """What the text says of a model on 8 devices."""
    setting = Setting(graph=read_model(model)[1], device_count=8)
    return config_from_text(text, setting, source=f"given{suffix}", suffix=suffix)


def nested(path: str) -> dict[str, object]:
    """The made-up key in the section under a path."""
    fields: object = {MADE_UP: 3}
    for name in reversed(path.split(".")):
        fields = {name: fields}
    assert isinstance(fields, dict)
    return fields


def sections() -> list[tuple[Format, str]]:
    """Each table with each path that it passes over, as a section, and one more."""
    return [
        (table, path)
        for table in TABLES
        for path in ("other", *(name.removesuffix(".*") for name in table.beside.split()))
        if path not in table.sets
    ]


def test_a_made_up_key_is_named_in_whatever_section_it_stands() -> None:
    assert len(sections()) > 2000
    silent = []
    for table, path in sections():
        try:
            said = " ".join(words_of(table, nested(path)).said)
        except DocumentError as error:
            said = f"{error.field} {error.remedy}"
        if MADE_UP not in said and path not in said:
            silent.append((table.title, path))
    assert not silent


def test_sections_of_deepspeed_are_named_with_their_keys() -> None:
    fields = {
        "train_micro_batch_size_per_gpu": 1,
        "zero_optimization": {"stage": 3},
        "optimizer": {"type": "AdamW", "params": {"lr": 1e-4, "zz_made_up": 3}},
        "scheduler": {"type": "WarmupLR"},
    }
    said = "ignored of DeepSpeed, as no price depends on it: optimizer.params (zz_made_up), "
    assert f"{said}scheduler (type)" in read(json.dumps(fields), ".json").assumptions


def test_sections_of_torchtitan_are_named_with_their_keys() -> None:
    said = "ignored of torchtitan, as no price depends on it: "
    sections = "metrics (zz_made_up), optimizer (zz_made_up)"
    assert f"{said}{sections}" in read(TITAN, ".toml").assumptions


def test_many_keys_of_a_section_are_counted() -> None:
    line = passed_over("verl", {"critic": [f"k{i}" for i in range(9)], "data": ["a", "b"]})
    assert line == "ignored of verl, as no price depends on it: critic (9 keys), data (a, b)"


def test_a_made_up_flag_of_megatron_is_named_however_it_begins() -> None:
    flags = "--micro-batch-size 1 --bf16 --log-made-up 1 --lr-made-up 2 --log-interval 1"
    said = "not read of Megatron-LM, and not priced: --log-made-up, --lr-made-up"
    assert said in read(flags, ".sh").assumptions


@pytest.mark.parametrize(
    ("more", "narrow"),
    [
        ("torch_dtype: bfloat16\nbf16: true", True),
        ("dtype: bfloat16\nbf16: true", True),
        ("model_init_kwargs: {torch_dtype: bfloat16}\nbf16: true", True),
        ("torch_dtype: float32\nbf16: true", False),
        ("bf16: true", False),
        ("torch_dtype: bfloat16\nbf16: true\nfsdp: full_shard", False),
        ("torch_dtype: bfloat16\nfsdp: full_shard", True),
    ],
)
def test_weights_that_trl_loads_in_16_bits_stay_so_but_under_fsdp_with_mixed_precision(
    more: str, narrow: bool
) -> None:
    config = read(TRL + more, ".yaml")
    assert config.job["precision"] == "bf16"
    assert config.job.get("states_in_16_bits", False) is narrow
    told = "torch_dtype: Accelerate keeps trained weights in 32 bits under FSDP and mixed precision"
    assert (told in config.assumptions) is ("full_shard" in more and not narrow)


@pytest.mark.parametrize(
    ("more", "precision", "kept", "length"),
    [
        ("use_peft: false", "bf16", "full", 1024),
        ("use_peft: false\nfp16: true", "fp16", "full", 1024),
        ("max_length: 2048\nbf16: false", "fp32", "full", 2048),
        ("max_length: 2048\ngradient_checkpointing: false", "bf16", "none", 2048),
        ("max_prompt_length: 512\nmax_completion_length: 256", "bf16", "full", 768),
        ("max_prompt_length: 512", "bf16", "full", None),
    ],
)
def test_trl_checkpoints_in_bf16_where_its_file_says_nothing(
    more: str, precision: str, kept: str, length: int | None
) -> None:
    config = read(TRL + more, ".yaml")
    assert config.format == "trl"
    assert config.job["precision"] == precision
    assert config.job.get("sequence_length") == length
    checkpointing = config.strategy.activation_checkpointing
    assert checkpointing is not None
    assert checkpointing.value == kept


@pytest.mark.parametrize(
    ("size", "own"),
    [
        ("num_attention_heads: 64", 32),
        ("num_query_groups: 4", 8),
        ("ffn_hidden_size: 28672", 14336),
        ("num_moe_experts: 8", 0),
    ],
)
def test_sizes_in_yaml_are_held_against_the_model(size: str, own: int) -> None:
    with pytest.raises(DocumentError, match=f"is not the model's, {own}") as refused:
        read(BRIDGE.replace("SIZE", size), ".yaml")
    assert refused.value.field == f"model.{size.partition(':')[0]}"


def test_sizes_in_yaml_that_are_the_models_pass() -> None:
    size = "num_attention_heads: 32, num_query_groups: 8, cross_entropy_loss_fusion: true"
    config = read(BRIDGE.replace("SIZE", size), ".yaml")
    assert config.strategy.tensor_parallel_degree == 2
    assert config.job["fused_loss"] is True


def test_a_frozen_tower_is_told() -> None:
    said = "actor_rollout_ref.actor.freeze_vision_tower: the tower is priced as trained"
    assert said in read(VERL, ".yaml", model="qwen2-vl-7b").assumptions
    assert said not in read(VERL, ".yaml").assumptions


@pytest.mark.parametrize("stage", [1, 2, 3])
def test_deepspeeds_overlap_is_read_and_left_to_it_where_nothing_is_said(stage: int) -> None:
    zero: dict[str, object] = {"stage": stage}
    fields = {"train_micro_batch_size_per_gpu": 1, "zero_optimization": zero}
    assert "overlapped_gradients" not in read(json.dumps(fields), ".json").job
    for overlaps in (True, False):
        zero["overlap_comm"] = overlaps
        assert read(json.dumps(fields), ".json").job["overlapped_gradients"] is overlaps
