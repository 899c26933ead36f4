"""Configurations as users have them: scripts with variables, older names, plugins, `auto`."""

from __future__ import annotations

import json

import pytest

from planner.errors import DocumentError
from planner.importers.models import read_model
from planner.importers.training.config import Setting
from planner.importers.training.files import config_from_text
from planner.schema.strategy import Offload

LLAMA = read_model("llama-3-8b")[1]
QUOTED = """#!/bin/bash
NNODES=${NNODES:-"2"}
TP=${TP:-4}
PP=$((8 / TP))
MBS=2; GBS=$((MBS * 64))
GPT_ARGS="
    --tensor-model-parallel-size $TP \\
    --pipeline-model-parallel-size ${PP} \\
    --sequence-parallel --seq-length 8192 \\
    --micro-batch-size $MBS --global-batch-size=${GBS} --bf16
"
torchrun pretrain_gpt.py $GPT_ARGS --use-distributed-optimizer
"""
ARRAYS = """#!/bin/bash
MODEL_PARALLEL_ARGS=(
    --tensor-model-parallel-size 2   # within the node
    #--pipeline-model-parallel-size 4
    --pipeline-model-parallel-size 2
)
if [ "$USE_SP" = "1" ]; then
   MODEL_PARALLEL_ARGS+=(--sequence-parallel)
fi
torchrun pretrain_gpt.py ${MODEL_PARALLEL_ARGS[@]} --micro-batch-size 1 --global-batch-size 64
"""
HERE_DOCUMENT = """# don't run it
cat <<EOF > note
it isn't closed
EOF
python pretrain_gpt.py --tensor-model-parallel-size 8 --micro-batch-size 1
"""
BRANCHES = """if [ $SIZE = 7B ]; then
TP=2
else
TP=8
fi
python pretrain_gpt.py --tensor-model-parallel-size $TP --micro-batch-size 1
"""
RECIPE = """
ENV_VARS:
  CUDA_DEVICE_MAX_CONNECTIONS: 1
MODEL_ARGS:
  --tensor-model-parallel-size: 2
  --sequence-parallel: true
  --use-distributed-optimizer: false
  --micro-batch-size: 4
  --global-batch-size: 32
"""
OLDER = """
[training]
batch_size = 1
seq_len = 8192
compile = false
data_parallel_shard_degree = -1
tensor_parallel_degree = 2
[experimental]
pipeline_parallel_degree = 2
"""
AUTO = {
    "fp16": {"enabled": "auto"},
    "bf16": {"enabled": "auto"},
    "zero_optimization": {"stage": 3, "offload_optimizer": {"device": "none"}},
    "train_batch_size": "auto",
    "train_micro_batch_size_per_gpu": "auto",
    "gradient_accumulation_steps": "auto",
}
VERSION_ONE = """
distributed_type: FSDP
mixed_precision: bf16
num_machines: 2
num_processes: 16
fsdp_config:
  fsdp_auto_wrap_policy: TRANSFORMER_BASED_WRAP
  fsdp_sharding_strategy: {sharding}
"""
DEEPSPEED_PLUGIN = """
distributed_type: DEEPSPEED
mixed_precision: bf16
num_processes: 16
deepspeed_config:
  gradient_accumulation_steps: 4
  offload_optimizer_device: cpu
  offload_param_device: {parameters}
  zero_stage: 2
"""
MEGATRON_PLUGIN = """
distributed_type: MEGATRON_LM
mixed_precision: bf16
num_processes: 16
megatron_lm_config:
  megatron_lm_tp_degree: {tensor}
  megatron_lm_pp_degree: 2
  megatron_lm_num_micro_batches: 4
  megatron_lm_sequence_parallelism: true
  megatron_lm_use_distributed_optimizer: true
"""


def read(text, suffix):
    """What the text says of 16 devices."""
    setting = Setting(graph=LLAMA, device_count=16)
    return config_from_text(text, setting, source=f"given{suffix}", suffix=suffix)


def refused(text, suffix):
    """The error that the text is refused with."""
    with pytest.raises(DocumentError) as caught:
        read(text, suffix)
    assert caught.value.remedy
    return caught.value


def test_flags_are_found_in_a_quoted_string_with_arithmetic():
    found = read(QUOTED, ".sh")
    own = found.strategy
    assert (own.tensor_parallel_degree, own.pipeline_parallel_degree) == (4, 2)
    assert own.sequence_parallel
    assert (own.micro_batch_size, found.job["global_batch_size"]) == (2, 128)
    assert (found.job["precision"], found.job["sequence_length"]) == ("bf16", 8192)
    assert own.stages[0].layers[0].zero_stage == 1


def test_a_flag_under_a_condition_is_taken_and_said():
    found = read(ARRAYS, ".sh")
    assert found.strategy.pipeline_parallel_degree == 2
    assert found.strategy.sequence_parallel
    assert "--sequence-parallel stands under a condition of the script: taken as given" in (
        found.assumptions
    )
    assert not any("--tensor-model-parallel-size stands" in one for one in found.assumptions)


def test_apostrophes_in_here_documents_and_comments_open_no_quote():
    assert read(HERE_DOCUMENT, ".sh").strategy.tensor_parallel_degree == 8


def test_a_variable_with_several_values_is_said():
    found = read(BRANCHES, ".sh")
    assert found.strategy.tensor_parallel_degree == 8
    assert "TP is set several times (2, 8): 8" in found.assumptions


def test_a_division_by_zero_is_left_in_the_flags_value():
    error = refused("N=0\nrun --micro-batch-size $((4 / N))", ".sh")
    assert error.field == "--micro-batch-size"


def test_variables_that_name_each_other_end():
    error = refused("A=$B$B$B\nB=$A$A$A\nrun --micro-batch-size $A", ".sh")
    assert error.field == "--micro-batch-size"


def test_megatrons_yaml_has_flags_for_keys():
    found = read(RECIPE, ".yaml")
    assert found.strategy.tensor_parallel_degree == 2
    assert found.strategy.sequence_parallel
    assert found.strategy.stages[0].layers[0].zero_stage == 0
    assert found.job["global_batch_size"] == 32


def test_older_torchtitan_files_have_degrees_elsewhere():
    found = read(OLDER, ".toml")
    own = found.strategy
    assert (own.tensor_parallel_degree, own.pipeline_parallel_degree) == (2, 2)
    assert (own.shard_degree, own.micro_batch_size) == (4, 1)
    assert "training.batch_size is read as training.local_batch_size" in found.assumptions


def test_a_misspelled_field_of_torchtitan_is_named():
    error = refused("[parallelism]\ntensor_paralel_degree = 2\n", ".toml")
    assert error.field == "parallelism.tensor_paralel_degree"
    assert "tensor_parallel_degree" in error.remedy


def test_what_deepspeed_leaves_to_the_program_is_said():
    found = read(json.dumps(AUTO), ".json")
    assert (found.strategy.micro_batch_size, found.job["precision"]) == (1, "bf16")
    assert sum("which the training program fills in" in one for one in found.assumptions) == 2


def test_a_list_for_a_batch_is_refused():
    assert refused(json.dumps(AUTO | {"train_batch_size": [1]}), ".json").field == (
        "train_batch_size"
    )


@pytest.mark.parametrize(
    ("sharding", "replicas", "stage"),
    [("FULL_SHARD", 1, 3), ("SHARD_GRAD_OP", 1, 2), ("HYBRID_SHARD", 2, 3),
     ("HYBRID_SHARD_ZERO2", 2, 2)],
)  # fmt: skip
def test_accelerates_first_fsdp_shards_within_nodes_in_hybrids(sharding, replicas, stage):
    own = read(VERSION_ONE.format(sharding=sharding), ".yaml").strategy
    assert (own.replicate_degree, own.zero_stage) == (replicas, stage)
    assert own.shard_degree == 16 // replicas


def test_accelerates_deepspeed_plugin_is_deepspeed():
    found = read(DEEPSPEED_PLUGIN.format(parameters="none"), ".yaml")
    assert (found.strategy.zero_stage, found.strategy.offload) == (2, (Offload.OPTIMIZER,))
    assert (found.job["stack"], found.job["global_batch_size"]) == ("deepspeed", 64)
    error = refused(DEEPSPEED_PLUGIN.format(parameters="cpu"), ".yaml")
    assert error.field == "deepspeed_config.offload_param_device"


def test_accelerates_megatron_plugin_is_megatron():
    found = read(MEGATRON_PLUGIN.format(tensor=2), ".yaml")
    own = found.strategy
    assert (own.tensor_parallel_degree, own.pipeline_parallel_degree) == (2, 2)
    assert (found.job["stack"], found.job["global_batch_size"]) == ("megatron", 16)
    assert refused(MEGATRON_PLUGIN.format(tensor=3), ".yaml").field.endswith("tp_degree")


def test_a_plugins_own_file_is_asked_for():
    text = "distributed_type: DEEPSPEED\ndeepspeed_config: {deepspeed_config_file: ds.json}\n"
    error = refused(text, ".yaml")
    assert error.field == "deepspeed_config.deepspeed_config_file"
    assert "give that DeepSpeed configuration" in error.remedy
