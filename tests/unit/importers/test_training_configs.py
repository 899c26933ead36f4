"""Training configurations of other software: what each says, and how bad ones are refused."""

from __future__ import annotations

import json
import random
from pathlib import Path

import pytest

from planner.errors import DocumentError, InputError
from planner.importers.models import read_model
from planner.importers.training.config import Setting
from planner.importers.training.files import config_from_text, strategy_from
from planner.schema.strategy import ActivationCheckpointing, Offload, PipelineSchedule

LLAMA = read_model("llama-3-8b")[1]
MIXTRAL = read_model("mixtral-8x7b")[1]
FULL = ActivationCheckpointing.FULL

MEGATRON = """#!/bin/bash
#SBATCH --nodes=2
TP=4
PP="2"   # stages
DISTRIBUTED_ARGS=(--nproc_per_node 8 --nnodes 2)
torchrun ${DISTRIBUTED_ARGS[@]} pretrain_gpt.py \\
    --tensor-model-parallel-size ${TP} --pipeline-model-parallel-size $PP \\
    --sequence-parallel --micro-batch-size 2 --global-batch-size=128 --seq-length 8192 \\
    --recompute-granularity full --recompute-method block --recompute-num-layers 3 \\
    --use-distributed-optimizer --bf16
"""
TORCHTITAN = """
[training]
local_batch_size = 8
seq_len = 4096

[parallelism]
data_parallel_shard_degree = -1
tensor_parallel_degree = 2
pipeline_parallel_degree = 4
pipeline_parallel_schedule = "Interleaved1F1B"

[activation_checkpoint]
mode = "full"
"""
DEEPSPEED = {
    "train_batch_size": 64,
    "train_micro_batch_size_per_gpu": 2,
    "gradient_accumulation_steps": 2,
    "bf16": {"enabled": True},
    "zero_optimization": {"stage": 3, "offload_param": {"device": "cpu"}},
}
BELOW_THREE = DEEPSPEED | {
    "zero_optimization": {"stage": 2, "offload_param": {"device": "cpu"}},
}
ACCELERATE = """
distributed_type: FSDP
mixed_precision: bf16
num_processes: 16
fsdp_config:
  fsdp_version: 2
  fsdp_reshard_after_forward: false
  fsdp_activation_checkpointing: true
parallelism_config:
  parallelism_config_dp_replicate_size: 2
  parallelism_config_dp_shard_size: 4
  parallelism_config_tp_size: 2
"""


def read(text, suffix, *, graph=LLAMA, devices=16):
    """The configuration that the text says."""
    setting = Setting(graph=graph, device_count=devices)
    return config_from_text(text, setting, source=f"given{suffix}", suffix=suffix)


def refused(text, suffix, **kwargs):
    """The error with which the text is refused."""
    with pytest.raises(InputError) as caught:
        read(text, suffix, **kwargs)
    assert caught.value.remedy
    return caught.value


def test_megatron_arguments_are_found_in_a_script_with_variables():
    found = read(MEGATRON, ".sh")
    strategy = found.strategy
    assert (strategy.tensor_parallel_degree, strategy.pipeline_parallel_degree) == (4, 2)
    assert (strategy.shard_degree, strategy.micro_batch_size) == (2, 2)
    assert strategy.sequence_parallel
    assert found.job["global_batch_size"] == 128
    assert found.job["stack"] == "megatron"
    assert [
        (g.block_count, g.activation_checkpointing.value) for g in strategy.stages[1].layers
    ] == [(3, "full"), (13, "none")]


def test_megatron_layout_gives_uneven_stages():
    words = "--pipeline-model-parallel-size 2 --micro-batch-size 1"
    text = f"{words} --pipeline-model-parallel-layout 'Et*7|(t*8|)*2t*9L'"
    counts = [s.block_count for s in read(text, ".txt").strategy.stages]
    assert counts == [7, 8, 8, 9]


def test_megatron_recomputing_of_attention_alone_is_none():
    text = "--recompute-granularity selective --micro-batch-size 1"
    found = read(text, "")
    assert found.strategy.stages[0].layers[0].activation_checkpointing.value == "none"
    assert any("core_attn" in words for words in found.assumptions)


def test_torchtitan_makes_its_own_stages_where_none_are_written():
    found = read(TORCHTITAN, ".toml")
    strategy = found.strategy
    assert strategy.pipeline_schedule is PipelineSchedule.INTERLEAVED
    assert strategy.shard_degree == 2
    # 32 blocks and one each for embedding and head over 8 stages: 34 = 2 x 5 + 6 x 4
    assert [s.block_count for s in strategy.stages] == [4, 5, 4, 4, 4, 4, 4, 3]
    assert strategy.stages[0].layers[0].activation_checkpointing is FULL
    assert strategy.stages[0].layers[0].zero_stage == 1
    assert found.job["global_batch_size"] == 16


def test_torchtitan_python_is_read_by_the_function_that_is_named(tmp_path):
    file = tmp_path / "registry.py"
    file.write_text(
        "import os\n"
        "def small():\n    return Trainer.Config(parallelism=ParallelismConfig(), "
        "training=TrainingConfig(local_batch_size=4))\n"
        "def large():\n    config = small()\n"
        "    config.parallelism.tensor_parallel_degree = 8\n"
        "    config.activation_checkpoint = SelectiveAC.Config()\n    return config\n"
    )
    setting = Setting(graph=LLAMA, device_count=16)
    found = strategy_from(Path(f"{file}:large"), setting).strategy
    assert found.tensor_parallel_degree == 8
    assert found.stages[0].layers[0].activation_checkpointing.value == "selective"
    with pytest.raises(DocumentError, match="several functions"):
        strategy_from(file, setting)


def test_deepspeed_offloads_parameters_in_stage_three():
    found = read(json.dumps(DEEPSPEED), ".json")
    assert found.strategy.zero_stage == 3
    assert found.strategy.offload == (Offload.PARAMETERS,)
    assert found.job["global_batch_size"] == 64
    assert found.job["precision"] == "bf16"


def test_accelerate_shards_within_replicas():
    strategy = read(ACCELERATE, ".yaml").strategy
    assert (strategy.replicate_degree, strategy.shard_degree) == (2, 4)
    assert strategy.tensor_parallel_degree == 2
    assert strategy.zero_stage == 2
    assert strategy.activation_checkpointing is FULL


def test_bridge_overrides_are_megatrons_arguments():
    text = "model.tensor_model_parallel_size=4 train.micro_batch_size=2 train.global_batch_size=64"
    found = read(text, "")
    assert found.format == "megatron-bridge"
    assert (found.strategy.tensor_parallel_degree, found.strategy.micro_batch_size) == (4, 2)


@pytest.mark.parametrize(
    ("text", "suffix", "field"),
    [
        ("--tensor-model-parallel-size 3", ".sh", "--tensor-model-parallel-size"),
        ("--tensor-model-parallel-size eight", ".sh", "--tensor-model-parallel-size"),
        ("--tensor-model-parallel-size $TP", ".sh", "--tensor-model-parallel-size"),
        ("--tensor-model-paralel-size 2", ".sh", "--tensor-model-paralel-size"),
        ("--micro-batch-size", ".sh", "--micro-batch-size"),
        ("--micro-batch-size 99999999999999", ".sh", "--micro-batch-size"),
        ("--cp-comm-type tcp", ".sh", "--cp-comm-type"),
        (
            "--pipeline-model-parallel-size 2 --pipeline-model-parallel-layout 'Et|tL'",
            ".sh",
            "--pipeline-model-parallel-layout",
        ),
        (
            "--pipeline-model-parallel-size 2 --pipeline-model-parallel-layout 'Ex|tL'",
            ".sh",
            "--pipeline-model-parallel-layout",
        ),
        (
            "--pipeline-model-parallel-layout '((((t*9999)*9999)*9999)*9999)*9999'",
            ".sh",
            "--pipeline-model-parallel-layout",
        ),
        ("--x 'open", ".sh", "given.sh"),
        ("model.tensor_model_parallel_size=3", "", "model.tensor_model_parallel_size"),
        ("model.tensor_model_parallel_size=2\nmodel.sequence_parallel=maybe", "",
         "model.sequence_parallel"),
        ("[parallelism]\ntensor_parallel_degree = 'two'", ".toml",
         "parallelism.tensor_parallel_degree"),
        ("[parallelism]\ndata_parallel_shard_degree = 5", ".toml",
         "parallelism.data_parallel_shard_degree"),
        ("[parallelism]\npipeline_parallel_degree = 2\npipeline_parallel_schedule = 'fast'",
         ".toml", "parallelism.pipeline_parallel_schedule"),
        ("parallelism = 3", ".toml", "parallelism"),
        ("[training]\nlocal_batch_size = 3\nglobal_batch_size = 64", ".toml",
         "training.global_batch_size"),
        ("not toml", ".toml", "given.toml"),
        ("def f(:", ".py", "given.py"),
        ("x = 1", ".py", "given.py"),
        ("def f():\n    ParallelismConfig(tensor_parallel_degree=degree())", ".py",
         "parallelism.tensor_parallel_degree"),
        (json.dumps(DEEPSPEED | {"train_batch_size": 63}), ".json", "train_batch_size"),
        ('{"train_batch_size": "auto", "zero_optimization": {}}', ".json",
         "train_micro_batch_size_per_gpu"),
        (json.dumps(BELOW_THREE), ".json", "zero_optimization.offload_param"),
        ('{"train_micro_batch_size_per_gpu": 1, "zero_optimisation": {"stage": 3}}', ".json",
         "zero_optimisation"),
        ('{"train_micro_batch_size_per_gpu": 1, "zero_optimization": []}', ".json",
         "zero_optimization"),
        ("distributed_type: TPU", ".yaml", "distributed_type"),
        ("distributed_type: FSDP\nnum_processes: 8", ".yaml", "num_processes"),
        ("distributed_type: FSDP\nparallelism_config:\n  parallelism_config_dp_shard_size: 3",
         ".yaml", "parallelism_config.parallelism_config_dp_shard_size"),
        ('{"per_device_train_batch_size": 1, "deepspeed": "ds.json"}', ".json", "deepspeed"),
        ("nothing", "", "given"),
    ],
)  # fmt: skip
def test_what_is_wrong_is_said_by_the_files_own_field(text, suffix, field):
    assert refused(text, suffix).field == field


def test_a_layout_of_multi_token_prediction_is_refused():
    words = "--pipeline-model-parallel-size 2 --pipeline-model-parallel-layout 'Et*16|t*16mL'"
    assert "multi-token" in refused(words, ".sh").problem


@pytest.mark.parametrize("suffix", [".toml", ".py", ".json", ".yaml", ".sh", ""])
def test_damaged_files_are_refused_or_read_and_never_break(suffix):
    rng = random.Random(7)  # noqa: S311
    sources = [MEGATRON, TORCHTITAN, json.dumps(DEEPSPEED), ACCELERATE]
    for _ in range(60):
        text = list(rng.choice(sources))
        for _ in range(rng.randint(1, 12)):
            place = rng.randrange(len(text))
            text[place : place + rng.randint(0, 3)] = rng.choice("0-9\x00{}[]'\"=:\n*|x\u202e")
        try:
            found = read("".join(text), suffix)
        except InputError as error:
            assert error.remedy  # noqa: PT017 - most are refused, some are whole
        else:
            assert found.strategy.micro_batch_size >= 1


@pytest.mark.parametrize("number", ["9" * 5000, "-" + "9" * 5000])
def test_number_of_thousands_of_digits_in_toml_is_refused(number):
    text = f"[parallelism]\ntensor_parallel_degree = {number}\n"
    with pytest.raises(DocumentError, match="more digits"):
        config_from_text(
            text, Setting(graph=LLAMA, device_count=16), source="run.toml", suffix=".toml"
        )
