"""Accelerate's launcher and the Trainer's arguments read what is exported for them."""

# ruff: noqa: PLC0415 - the frameworks are imported where they are known to be there

from __future__ import annotations

import json

import pytest

from tests.exports.conftest import imports_again, needed

needed("accelerate")
LLAMA = (("llama-3-8b", 1),)
SIZES = ("dp_replicate_size", "dp_shard_size", "tp_size", "cp_size")


@pytest.fixture
def quiet_environment(monkeypatch):
    """An environment without what launchers leave in it."""
    monkeypatch.setenv("ACCELERATE_USE_CPU", "true")
    return monkeypatch


def sizes_of(strategy):
    """What a ParallelismConfig has to say."""
    return [
        strategy.replicate_degree,
        strategy.shard_degree,
        strategy.tensor_parallel_degree,
        strategy.context_parallel_degree,
    ]


def test_accelerate_reads_what_the_plan_says(quiet_environment, tmp_path, exports_to):
    from accelerate.commands.config.config_args import load_config_from_file
    from accelerate.commands.launch import _validate_launch_command, launch_command_parser
    from accelerate.parallelism_config import ParallelismConfig
    from accelerate.utils.launch import prepare_multi_gpu_env

    for made, plan in exports_to("accelerate", count=15, models=LLAMA):
        file = tmp_path / "accelerate.yaml"
        file.write_text(made.files[0].text)
        config = load_config_from_file(str(file))
        assert config.num_processes == 16
        words = ["--config_file", str(file), "train.py"]
        args, _, _ = _validate_launch_command(launch_command_parser().parse_args(words))
        own = made.strategy
        if config.parallelism_config:
            environment = prepare_multi_gpu_env(args)
            for name, value in environment.items():
                if name.startswith("PARALLELISM_CONFIG_"):
                    quiet_environment.setenv(name, value)
            said = ParallelismConfig()
            assert [getattr(said, name) for name in SIZES] == sizes_of(own)
            assert args.fsdp_version == 2
            resharded = own.stages[0].layers[0].zero_stage == 3
            assert (str(args.fsdp_reshard_after_forward).lower() == "true") == resharded
        assert imports_again(made, plan, ".yaml")


@pytest.mark.filterwarnings("ignore:`gradient_checkpointing` is deprecated:FutureWarning")
@pytest.mark.usefixtures("quiet_environment")
def test_trainer_takes_the_arguments(tmp_path, exports_to):
    from accelerate.parallelism_config import ParallelismConfig
    from transformers import TrainingArguments

    for made, plan in exports_to("hf-trainer", count=15, models=LLAMA):
        fields = json.loads(made.files[0].text)
        sizes = fields.pop("parallelism_config", None)
        if sizes is not None:
            fields["parallelism_config"] = ParallelismConfig(**sizes)
            assert [sizes[name] for name in SIZES] == sizes_of(made.strategy)
        said = TrainingArguments(output_dir=str(tmp_path), use_cpu=True, **fields)
        assert said.per_device_train_batch_size == made.strategy.micro_batch_size
        assert said.gradient_accumulation_steps == made.strategy.micro_batch_count
        assert bool(said.fsdp) == (sizes is not None and sizes["tp_size"] == 1)
        assert imports_again(made, plan, ".json")
