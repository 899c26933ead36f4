"""Values as users write them: numbers and truth as text, references, arithmetic, contradictions."""

from __future__ import annotations

import json
from pathlib import Path

import pytest

from planner.errors import DocumentError
from planner.importers.models import read_model
from planner.importers.training.config import Setting, TrainingConfig
from planner.importers.training.files import config_from_text
from planner.importers.training.format import UNPRICED_ANYWHERE
from planner.importers.training.formats.registry import FORMATS
from planner.schema.strategy import ActivationCheckpointing, Offload, PipelineSchedule

LLAMA = read_model("llama-2-7b")[1]
NEOX = """
pipe-parallel-size: "2"
model_parallel_size: 2
train_micro_batch_size_per_gpu: 4
gradient_accumulation_steps: "8"
checkpoint-activations: "true"
"""
AXOLOTL = """
base_model: it
datasets: [{path: it}]
sequence_len: 4_096
micro_batch_size: "2"
gradient_accumulation_steps: 4
adapter: lora
lora_target_modules: TARGETS
fsdp: [full_shard]
fsdp_config: {fsdp_offload_params: "false"}
"""
MAXTEXT = """
per_device_batch_size: 2
max_target_length: 4096
ici_fsdp_parallelism: -1
ici_tensor_parallelism: 2
ici_pipeline_parallelism: 4
"""
TRAINER = """
model_name_or_path: it
per_device_train_batch_size: MICRO
gradient_accumulation_steps: 8
bf16: true
deepspeed: zero.json
"""


def read(text: str, suffix: str = ".yaml", folder: Path | None = None) -> TrainingConfig:
    """What a file says of 32 devices."""
    setting = Setting(graph=LLAMA, device_count=32, folder=folder)
    return config_from_text(text, setting, source=f"given{suffix}", suffix=suffix)


def test_numbers_and_truth_values_that_are_text_count_as_what_they_say():
    config = read(NEOX)
    assert config.strategy.pipeline_parallel_degree == 2
    assert config.job["global_batch_size"] == 4 * 8 * 8
    assert config.strategy.activation_checkpointing is ActivationCheckpointing.FULL


def test_deepspeeds_stage_and_switches_may_be_text():
    zero = {"stage": "3", "cpu_offload": "true"}
    fields = {
        "train_micro_batch_size_per_gpu": "2",
        "zero_optimization": zero,
        "bf16": {"enabled": "true"},
    }
    config = read(json.dumps(fields), ".json")
    assert config.strategy.zero_stage == 3
    assert config.strategy.offload == (Offload.OPTIMIZER,)
    assert config.job["precision"] == "bf16"


def test_a_switch_that_is_off_as_text_moves_nothing():
    config = read(AXOLOTL.replace("TARGETS", "[q_proj]"))
    assert config.strategy.offload == ()
    assert config.job["sequence_length"] == 4096


@pytest.mark.parametrize(
    ("targets", "priced", "said"),
    [
        ("[q_proj, v_proj]", "attention", "every product of attention"),
        ("[q_proj, k_proj, v_proj, o_proj]", "attention", None),
        ("[q_proj, up_proj]", "all", "every product"),
        ("[q_proj, k_proj, v_proj, o_proj, gate_proj, up_proj, down_proj]", "all", None),
        ("all-linear", "all", None),
    ],
)
def test_adapters_on_some_products_are_priced_on_their_kind_and_that_is_said(targets, priced, said):
    config = read(AXOLOTL.replace("TARGETS", targets))
    assert config.job["adapters"]["targets"] == priced
    lines = [one for one in config.assumptions if one.startswith("lora_target_modules names")]
    assert lines == (
        [f"lora_target_modules names some products: adapters on {said} are priced"] if said else []
    )


def test_a_default_that_shells_and_primus_read_in_two_ways_is_refused():
    text = AXOLOTL.replace('"2"', "${BATCH:-4}").replace("TARGETS", "[q_proj]")
    with pytest.raises(DocumentError, match="refers to what the file does not say") as caught:
        read(text)
    assert caught.value.field == "micro_batch_size"


@pytest.mark.parametrize(
    ("arithmetic", "found"),
    [
        ("$(expr 8192 / 2)", 4096),
        ("`expr 512 \\* 4`", 2048),
        ("$((2**12))", 4096),
        ("$((1<<11))", 2048),
        ("$((2 ** (8 + 2) * 3))", 3072),
    ],
)
def test_powers_and_shifts_of_the_shell_are_done(arithmetic, found):
    script = f"SEQ={arithmetic}\npython pretrain_gpt.py --micro-batch-size 1 --seq-length $SEQ\n"
    assert read(script, ".sh").job["sequence_length"] == found


@pytest.mark.parametrize("power", ["1<<99999999", "9**9**9", f"{'(' * 8}9{'**63)' * 8}"])
def test_a_power_beyond_all_numbers_ends_at_once(power):
    script = f"python pretrain_gpt.py --micro-batch-size 1 --seq-length $(({power}))\n"
    with pytest.raises(DocumentError, match="--seq-length"):
        read(script, ".sh")


@pytest.mark.parametrize("micro", [1, 2])
def test_batches_of_a_trainer_and_of_its_deepspeed_file_have_to_agree(tmp_path, micro):
    fields = {"train_micro_batch_size_per_gpu": 2, "zero_optimization": {"stage": 2}}
    (tmp_path / "zero.json").write_text(json.dumps(fields), encoding="utf-8")
    text = TRAINER.replace("MICRO", str(micro))
    if micro == 2:
        assert read(text, folder=tmp_path).strategy.micro_batch_size == 2
        return
    with pytest.raises(DocumentError, match="contradicts train_micro_batch_size_per_gpu") as caught:
        read(text, folder=tmp_path)
    assert caught.value.field == "per_device_train_batch_size"


@pytest.mark.parametrize(
    ("more", "micro", "batch"),
    [
        ("num_layers_per_pipeline_stage: 8", 4, 64),
        ("num_layers_per_pipeline_stage: 8\nnum_pipeline_microbatches: 8", 2, 64),
        ("num_layers_per_pipeline_stage: 8\ngradient_accumulation_steps: 2", 4, 128),
    ],
)
def test_maxtexts_pipelines_divide_what_is_accumulated_once(more, micro, batch):
    """32 devices of 2 sequences: 64 over 4 data-parallel ranks are 16 each, in 4 or 8 parts."""
    config = read(MAXTEXT + more)
    assert config.strategy.pipeline_schedule is PipelineSchedule.GPIPE
    assert config.strategy.micro_batch_size == micro
    assert config.job["global_batch_size"] == batch


@pytest.mark.parametrize(
    ("more", "field"),
    [
        ("", "num_layers_per_pipeline_stage"),
        ("num_layers_per_pipeline_stage: 4", "num_layers_per_pipeline_stage"),
        (
            "num_layers_per_pipeline_stage: 8\nnum_pipeline_microbatches: 6",
            "num_pipeline_microbatches",
        ),
        (
            "num_layers_per_pipeline_stage: 8\npipeline_parallel_layers: 24",
            "pipeline_parallel_layers",
        ),
    ],
)
def test_maxtexts_pipelines_in_circles_or_of_some_layers_are_refused(more, field):
    with pytest.raises(DocumentError) as caught:
        read(MAXTEXT + more)
    assert caught.value.field == field


@pytest.mark.parametrize("name", sorted(UNPRICED_ANYWHERE))
@pytest.mark.parametrize("table", FORMATS, ids=lambda table: table.name)
def test_no_table_passes_over_what_is_said_everywhere(table, name):
    assert all(key.rpartition(".")[2] != name for key in (*table.sets, *table.beside.split()))


def test_parts_of_a_step_in_a_section_that_is_passed_over_are_told():
    text = "[training]\nlocal_batch_size=1\n[optimizer]\nimplementation='for-loop'\nlr=1e-4\n"
    (said,) = [one for one in read(text, ".toml").assumptions if one.startswith("not read")]
    assert said == "not read of torchtitan, and not priced: optimizer.implementation"
