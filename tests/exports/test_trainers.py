"""Axolotl, LLaMA-Factory, verl and MaxText read what is exported for them, by their own parsers."""

from __future__ import annotations

import json
import os
import subprocess
import sys
from pathlib import Path
from typing import Any

import pytest

from planner.exporters.canonical import layer_groups
from planner.exporters.draft import zero_stages
from planner.exporters.registry import export
from planner.schema.strategy import Strategy
from tests.exports.conftest import needed, unpacked
from tests.unit.exporters.plans import plan_of

needed("hydra")
PARSER = Path(__file__).with_name("trainer_parsers.py")
LORA = {"adapters": {"rank": 16, "base_bits": 4, "dropout": True}}
DENSE = (("llama-3-8b", 1),)


def read(name: str, requests: list[dict[str, Any]]) -> list[dict[str, Any]]:
    """What the trainer makes of each request."""
    done = subprocess.run(
        [sys.executable, str(PARSER), name, str(unpacked(name))],
        input=json.dumps(requests), capture_output=True, text=True, check=False, timeout=600,
        env={**os.environ, "DISABLE_VERSION_CHECK": "1", "CUDA_VISIBLE_DEVICES": ""},
    )  # fmt: skip
    assert done.returncode == 0, done.stderr[-3000:]
    found = json.loads(done.stdout.splitlines()[-1])
    assert not [one for one in found if "error" in one], found
    return found


def of(made: list[Any], **others: str) -> list[dict[str, Any]]:
    """The first file of each export and those beside it, with what else the parser is told."""
    return [
        {
            "text": one.files[0].text,
            "beside": {file.name: file.text for file in one.files[1:]},
            **others,
        }
        for one, _ in made
    ]


@pytest.mark.parametrize("target", ["axolotl", "axolotl-deepspeed"])
def test_axolotl_reads_what_the_plan_says(exports_to: Any, target: str) -> None:
    made = exports_to(target, count=8, models=DENSE)
    for (one, plan), said in zip(made, read("axolotl", of(made)), strict=True):
        own = one.strategy
        assert said["unknown"] == []
        assert said["micro_batch_size"] == own.micro_batch_size
        assert said["gradient_accumulation_steps"] == own.micro_batch_count
        assert said["sequence_len"] == plan.job.resolved.sequence_length
        assert (said.get("tensor_parallel_size") or 1) == own.tensor_parallel_degree
        if said.get("fsdp_config"):
            assert said["fsdp_config"]["reshard_after_forward"] is (zero_stages(own) == {3})
            assert said["dp_shard_size"] == own.shard_degree


def test_axolotl_and_llama_factory_read_the_adapters_of_a_plan() -> None:
    plan = plan_of(Strategy(data_parallel_shard_degree=8, zero_stage=1), **LORA)
    for name, target, keys in (
        ("axolotl", "axolotl", {"adapter": "qlora", "lora_r": 16, "load_in_4bit": True}),
        ("llamafactory", "llama-factory", {"lora_rank": 16, "quantization_bit": 4}),
    ):
        (said,) = read(name, of([(export(plan, target), plan)]))
        assert {key: said[key] for key in keys} == keys


def test_axolotl_reads_a_reward_model() -> None:
    plan = plan_of(Strategy(data_parallel_shard_degree=8, zero_stage=3))
    graph = plan.model.resolved.model_copy(update={"head_size": 1})
    plan = plan.model_copy(update={"model": plan.model.model_copy(update={"resolved": graph})})
    (said,) = read("axolotl", of([(export(plan, "axolotl"), plan)]))
    assert (said["reward_model"], said["num_labels"], said["unknown"]) == (True, 1, [])


def test_llama_factory_reads_what_the_plan_says(exports_to: Any) -> None:
    made = exports_to("llama-factory", count=8, models=DENSE)
    for (one, plan), said in zip(made, read("llamafactory", of(made)), strict=True):
        own = one.strategy
        assert said["per_device_train_batch_size"] == own.micro_batch_size
        assert said["gradient_accumulation_steps"] == own.micro_batch_count
        assert said["cutoff_len"] == plan.job.resolved.sequence_length
        kept = next(layer_groups(own)).activation_checkpointing.value
        assert said["disable_gradient_checkpointing"] is (kept == "none")


def test_verl_reads_what_the_plan_says(exports_to: Any) -> None:
    made = exports_to("verl", count=8, models=DENSE)
    for (one, _), said in zip(made, read("verl", of(made, config="ppo_trainer")), strict=True):
        own = one.strategy
        assert said["strategy"] == "fsdp2"
        assert said["ppo_micro_batch_size_per_gpu"] == own.micro_batch_size
        assert said["ulysses_sequence_parallel_size"] == own.context_parallel_degree
        ranks = own.shard_degree * own.context_parallel_degree
        assert said["fsdp_config"]["fsdp_size"] == ranks


def test_verl_reads_what_the_plan_says_of_megatron(exports_to: Any) -> None:
    made = exports_to("verl-megatron", count=8)
    requests = of(made, config="ppo_megatron_trainer")
    for (one, _), said in zip(made, read("verl", requests), strict=True):
        own, megatron = one.strategy, said["megatron"]
        assert said["strategy"] == "megatron"
        assert megatron["tensor_model_parallel_size"] == own.tensor_parallel_degree
        assert megatron["pipeline_model_parallel_size"] == own.pipeline_parallel_degree
        assert megatron["context_parallel_size"] == own.context_parallel_degree
        assert megatron["expert_model_parallel_size"] == own.expert_parallel_degree


def test_maxtext_has_every_key_that_is_exported(exports_to: Any) -> None:
    made = exports_to("maxtext", count=8, models=DENSE)
    for (one, plan), said in zip(made, read("maxtext", of(made)), strict=True):
        own = one.strategy
        stages, job = own.pipeline_parallel_degree, plan.job.resolved
        assert said["ici_pipeline_parallelism"] * said["dcn_pipeline_parallelism"] == stages
        at_once = said["num_pipeline_microbatches"] if stages > 1 else 1
        assert said["gradient_accumulation_steps"] * at_once == own.micro_batch_count
        sequences = said["per_device_batch_size"] * own.world_size
        assert sequences * said["gradient_accumulation_steps"] == job.global_batch_size
        assert said["max_target_length"] == job.sequence_length
        tensor = said["ici_tensor_parallelism"] * said["dcn_tensor_parallelism"]
        assert tensor == own.tensor_parallel_degree
