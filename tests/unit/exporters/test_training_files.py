"""What the files of trainers and of RL programs say of a plan, written out by hand."""

from __future__ import annotations

import ast
import json
import re
from typing import Any

import pytest
import yaml

from planner.errors import InputError
from planner.exporters.adapter_fields import ADAPTER_FIELDS
from planner.exporters.registry import export
from planner.schema.job import Adapters
from planner.schema.strategy import Strategy
from tests.unit.exporters.plans import plan_of

HSDP = {"data_parallel_shard_degree": 8, "data_parallel_replicate_degree": 2, "zero_stage": 3}
PIPELINED = {
    "tensor_parallel_degree": 4,
    "sequence_parallel": True,
    "pipeline_parallel_degree": 2,
    "data_parallel_shard_degree": 2,
    "zero_stage": 1,
}
BITSANDBYTES = {"axolotl", "axolotl-deepspeed", "llama-factory"}
# A value of each field of adapters that is not its default, and the words that say it.
OTHER_ADAPTERS: dict[str, Any] = {
    "targets": "attention",
    "trains_ends": True,
    "base_bits": 4,
    "base_format": "bnb",
    "whole_scales": True,
    "unpacking": "auto_gptq",
    "dropout": True,
}


def made(target: str, strategy: dict[str, Any], **job: Any) -> Any:
    """The export of a plan on 16 devices."""
    plan = plan_of(Strategy.model_validate(strategy), cluster="2x8xh100-sxm5-80gb", **job)
    return export(plan, target)


def fields(target: str, strategy: dict[str, Any], **job: Any) -> dict[str, Any]:
    """What the export's first file says, of YAML or of overrides."""
    text = made(target, strategy, **job).files[0].text
    if target.startswith("verl"):
        return {
            name: yaml.safe_load(value)
            for name, _, value in (line.partition("=") for line in text.splitlines())
        }
    found = yaml.safe_load(text)
    assert isinstance(found, dict)
    return found


def test_axolotl_shards_over_a_node_and_replicates_over_nodes() -> None:
    assert fields(
        "axolotl", {**HSDP, "activation_checkpointing": "full", "micro_batch_size": 2}
    ) == {
        "base_model": "llama-3-8b",
        "micro_batch_size": 2,
        "gradient_accumulation_steps": 2,
        "sequence_len": 8192,
        "bf16": True,
        "fp16": False,
        "optimizer": "adamw_torch_fused",
        "fsdp_version": 2,
        "fsdp_config": {
            "offload_params": False,
            "auto_wrap_policy": "TRANSFORMER_BASED_WRAP",
            "reshard_after_forward": True,
            "activation_checkpointing": True,
            "state_dict_type": "SHARDED_STATE_DICT",
            "transformer_layer_cls_to_wrap": "LlamaDecoderLayer",
        },
        "dp_shard_size": 8,
        "dp_replicate_size": 2,
        "tensor_parallel_size": 1,
        "context_parallel_size": 1,
    }


def test_axolotl_names_the_deepspeed_file_beside_it() -> None:
    found = made("axolotl-deepspeed", {"data_parallel_shard_degree": 16, "zero_stage": 2})
    said, deepspeed = found.files
    assert yaml.safe_load(said.text)["deepspeed"] == deepspeed.name
    assert json.loads(deepspeed.text)["zero_optimization"]["stage"] == 2


@pytest.mark.parametrize(("given", "told"), [({}, True), ({"states_in_16_bits": True}, False)])
def test_axolotl_trains_in_the_format_that_it_loads(given: dict[str, Any], told: bool) -> None:
    losses = made("axolotl", HSDP, **given).losses
    assert any("states in it" in loss for loss in losses) is told


def test_qlora_by_axolotl() -> None:
    adapters = {"rank": 16, "base_bits": 4, "dropout": True, "trains_ends": True}
    found = fields("axolotl", HSDP, adapters=adapters)
    wanted = {
        "adapter": "qlora",
        "lora_r": 16,
        "lora_target_linear": True,
        "lora_dropout": 0.05,
        "lora_modules_to_save": ["embed_tokens", "lm_head"],
        "load_in_4bit": True,
    }
    assert wanted.items() <= found.items()


def test_llama_factory_with_an_offloaded_zero_3() -> None:
    strategy = {
        "data_parallel_shard_degree": 16,
        "zero_stage": 3,
        "offload": ["optimizer", "parameters"],
        "activation_checkpointing": "full",
    }
    assert fields("llama-factory", strategy, optimizer="adafactor", gradient_clipping=True) == {
        "stage": "sft",
        "do_train": True,
        "finetuning_type": "full",
        "deepspeed": "deepspeed.json",
        "cutoff_len": 8192,
        "per_device_train_batch_size": 1,
        "gradient_accumulation_steps": 4,
        "bf16": True,
        "fp16": False,
        "disable_gradient_checkpointing": False,
        "optim": "adafactor",
        "max_grad_norm": 1.0,
    }


def test_llama_factory_shards_no_weights_of_8_bits() -> None:
    strategy = {"data_parallel_shard_degree": 16, "zero_stage": 3}
    with pytest.raises(InputError, match="none of 8"):
        made("llama-factory", strategy, adapters={"rank": 8, "base_bits": 8})


@pytest.mark.parametrize("target", ADAPTER_FIELDS)
@pytest.mark.parametrize("name", sorted(OTHER_ADAPTERS.keys() - {"whole_scales"}))
def test_a_field_of_adapters_is_written_or_told(target: str, name: str) -> None:
    strategy = {"data_parallel_shard_degree": 16, "zero_stage": 1}
    base = {"base_bits": 4} if name == "base_format" else {}
    changed = {name: OTHER_ADAPTERS[name]}
    if name == "base_bits" and target in BITSANDBYTES:
        changed["whole_scales"] = True
    usual = made(target, strategy, adapters={"rank": 8, **base})
    other = made(target, strategy, adapters={"rank": 8, **base, **changed})
    told = [loss for loss in other.losses if loss not in usual.losses]
    if name in ADAPTER_FIELDS[target]:
        assert told == []
        assert other.files != usual.files
    else:
        (loss,) = told
        assert f"no file says adapters.{name} " in loss


@pytest.mark.parametrize("whole", [False, True])
@pytest.mark.parametrize("target", ADAPTER_FIELDS)
def test_scales_are_told_that_a_program_holds_otherwise(target: str, whole: bool) -> None:
    """Programs of bitsandbytes hold them whole under ZeRO-3, and others unless they say so."""
    strategy = {"data_parallel_shard_degree": 16, "zero_stage": 1}
    adapters = {"rank": 8, "base_bits": 4, "whole_scales": whole}
    losses = made(target, strategy, adapters=adapters).losses
    said = f"no file says adapters.whole_scales {'true' if whole else 'false'}, "
    told = [loss.startswith(said) for loss in losses if "whole_scales" in loss]
    assert told == ([] if whole == (target in BITSANDBYTES) else [True])


def test_no_field_of_adapters_is_forgotten() -> None:
    assert {"rank", *OTHER_ADAPTERS} == set(Adapters.model_fields)


def calls(text: str) -> dict[str, dict[str, Any]]:
    """The literal keywords of each call in a module."""
    return {
        ast.unparse(node.func): {
            keyword.arg: ast.literal_eval(keyword.value)
            for keyword in node.keywords
            if keyword.arg and isinstance(keyword.value, ast.Constant)
        }
        for node in ast.walk(ast.parse(text))
        if isinstance(node, ast.Call)
    }


def test_lightning_shards_within_nodes() -> None:
    found = calls(made("lightning-trainer", {**HSDP, "micro_batch_size": 2}).files[0].text)
    assert found["FSDPStrategy"] == {"sharding_strategy": "HYBRID_SHARD", "cpu_offload": False}
    assert found["lightning.Trainer"] == {
        "devices": 8,
        "num_nodes": 2,
        "precision": "bf16-mixed",
        "accumulate_grad_batches": 2,
    }
    assert found["DataLoader"]["batch_size"] == 2


def test_lightning_shards_over_all_ranks_where_no_node_is_a_group() -> None:
    groups = {"data_parallel_shard_degree": 4, "data_parallel_replicate_degree": 4}
    found = made("lightning-trainer", {**groups, "zero_stage": 2})
    assert calls(found.files[0].text)["FSDPStrategy"]["sharding_strategy"] == "SHARD_GRAD_OP"
    assert any("over all 16 ranks" in loss for loss in found.losses)


def test_nemo_sets_the_strategy_and_the_model_of_a_recipe() -> None:
    text = made("nemo", {**PIPELINED, "activation_checkpointing": "full"}).files[0].text
    lines = {line.strip() for line in text.splitlines()}
    assert {
        "recipe.trainer.strategy.tensor_model_parallel_size = 4",
        "recipe.trainer.strategy.pipeline_model_parallel_size = 2",
        "recipe.trainer.strategy.sequence_parallel = True",
        "recipe.trainer.strategy.ddp.use_distributed_optimizer = True",
        "recipe.model.config.recompute_granularity = 'full'",
        "recipe.data.global_batch_size = 64",
        "recipe.trainer.num_nodes = 2",
    } <= lines
    ast.parse(text)


def test_verl_counts_ranks_that_share_a_sequence_in_its_groups() -> None:
    strategy = {
        "context_parallel_degree": 2,
        "context_parallel_kind": "all_to_all",
        "data_parallel_shard_degree": 4,
        "data_parallel_replicate_degree": 2,
        "zero_stage": 2,
    }
    found = fields("verl", strategy)
    assert found["actor_rollout_ref.actor.fsdp_config.fsdp_size"] == 8
    assert found["actor_rollout_ref.actor.ulysses_sequence_parallel_size"] == 2
    assert found["actor_rollout_ref.actor.fsdp_config.reshard_after_forward"] is False
    assert found["actor_rollout_ref.actor.ppo_mini_batch_size"] == 64
    assert found["actor_rollout_ref.model.enable_gradient_checkpointing"] is False


@pytest.mark.parametrize("target", ["verl", "verl-megatron"])
def test_verl_counts_prompts_which_is_told(target: str) -> None:
    losses = made(target, {"data_parallel_shard_degree": 16, "zero_stage": 1}).losses
    assert any("rollout.n" in loss for loss in losses)


def test_verls_megatron_actor() -> None:
    found = fields("verl-megatron", PIPELINED)
    actor = "actor_rollout_ref.actor"
    assert found[f"{actor}.strategy"] == "megatron"
    assert found[f"{actor}.megatron.tensor_model_parallel_size"] == 4
    assert found[f"{actor}.megatron.pipeline_model_parallel_size"] == 2
    assert found[f"{actor}.megatron.sequence_parallel"] is True
    recomputing = f"++{actor}.megatron.override_transformer_config.recompute_granularity"
    assert found[recomputing] is None


def test_nemo_rls_policy_on_dtensor() -> None:
    split = {
        "tensor_parallel_degree": 4,
        "sequence_parallel": True,
        "data_parallel_shard_degree": 4,
        "zero_stage": 3,
    }
    assert fields("nemo-rl", split) == {
        "policy": {
            "train_global_batch_size": 64,
            "train_micro_batch_size": 1,
            "max_total_sequence_length": 8192,
            "precision": "bfloat16",
            "dynamic_batching": {"enabled": False},
            "sequence_packing": {"enabled": False},
            "make_sequence_length_divisible_by": 4,
            "dtensor_cfg": {
                "_v2": True,
                "enabled": True,
                "tensor_parallel_size": 4,
                "context_parallel_size": 1,
                "dp_replicate_size": 1,
                "sequence_parallel": True,
                "activation_checkpointing": False,
                "cpu_offload": False,
                "defer_fsdp_grad_sync": False,
            },
            "megatron_cfg": {"enabled": False},
        },
        "cluster": {"gpus_per_node": 8, "num_nodes": 2},
    }


def test_nemo_rls_ranks_share_packed_sequences_on_megatron_alone() -> None:
    shared = {"context_parallel_degree": 2, "tensor_parallel_degree": 2, "zero_stage": 3}
    strategy = {**shared, "data_parallel_shard_degree": 4}
    assert fields("nemo-rl", strategy)["policy"]["sequence_packing"] == {"enabled": False}
    policy = fields("nemo-rl-megatron", {**strategy, "zero_stage": 1})["policy"]
    assert policy["sequence_packing"] == {"enabled": True}
    assert policy["make_sequence_length_divisible_by"] == 8


@pytest.mark.parametrize("tensor", [1, 2])
def test_nemo_rls_kernels_of_lora_split_no_tensors(tensor: int) -> None:
    strategy = {
        "tensor_parallel_degree": tensor,
        "data_parallel_shard_degree": 16 // tensor,
        "zero_stage": 3,
    }
    policy = fields("nemo-rl", strategy, adapters={"rank": 8})["policy"]
    assert policy["dtensor_cfg"]["lora_cfg"]["use_triton"] is (tensor == 1)


@pytest.mark.parametrize("target", ["megatron-bridge", "nemo", "verl-megatron", "nemo-rl-megatron"])
def test_an_optimizer_on_the_host_is_there_whole(target: str) -> None:
    strategy = {"data_parallel_shard_degree": 16, "zero_stage": 1, "offload": ["optimizer"]}
    assert re.search(
        r"optimizer_offload_fraction\b[ :=]+1\.0", made(target, strategy).files[0].text
    )


def test_what_nemo_rl_has_among_its_own_keys_is_not_overridden_in_the_model() -> None:
    strategy = {"expert_parallel_degree": 8, "data_parallel_shard_degree": 16, "zero_stage": 1}
    policy = fields("nemo-rl-megatron", strategy, model="mixtral-8x7b", deduplicated_dispatch=True)
    megatron = policy["policy"]["megatron_cfg"]
    assert megatron["moe_flex_dispatcher_backend"] == "deepep"
    assert "moe_flex_dispatcher_backend" not in megatron["model_overrides"]


def test_nemo_rls_policy_on_megatron_has_virtual_stages_among_the_models_own() -> None:
    interleaved = {"virtual_pipeline_degree": 2, "pipeline_schedule": "interleaved_1f1b"}
    policy = fields("nemo-rl-megatron", {**PIPELINED, **interleaved}, gradient_clipping=False)
    megatron = policy["policy"]["megatron_cfg"]
    assert megatron["pipeline_model_parallel_size"] == 2
    assert megatron["model_overrides"] == {
        "virtual_pipeline_model_parallel_size": 2,
        "attention_dropout": 0.0,
        "hidden_dropout": 0.0,
    }
    assert megatron["optimizer"] == {"use_distributed_optimizer": True, "clip_grad": 0.0}
    assert policy["policy"]["dtensor_cfg"] == {"enabled": False}


@pytest.mark.parametrize(
    "target", ["megatron-lm", "megatron-bridge", "nemo", "verl-megatron", "nemo-rl-megatron"]
)
def test_a_jobs_dropout_is_said_to_what_stands_on_megatron(target: str) -> None:
    exported = export(plan_of(Strategy(data_parallel_shard_degree=8), dropout=True), target)
    text = exported.files[0].text.replace("-", "_")
    assert re.search(r"attention_dropout\b[ :=]+0\.1", text)
    assert re.search(r"hidden_dropout\b[ :=]+0\.1", text)
    assert not [loss for loss in exported.losses if "dropout" in loss]


def test_nanotrons_sections() -> None:
    assert fields("nanotron", {**PIPELINED, "activation_checkpointing": "full"}) == {
        "parallelism": {
            "dp": 2,
            "pp": 2,
            "tp": 4,
            "context_parallel_size": 1,
            "pp_engine": "1f1b",
            "tp_mode": "REDUCE_SCATTER",
            "tp_recompute_allgather": False,
            "recompute_layer": True,
        },
        "tokens": {
            "micro_batch_size": 1,
            "batch_accumulation_per_replica": 32,
            "sequence_length": 8192,
        },
        "optimizer": {
            "zero_stage": 1,
            "accumulate_grad_in_fp32": True,
            "optimizer_factory": {"name": "adamW"},
        },
        "model": {"dtype": "bfloat16"},
    }


@pytest.mark.parametrize(
    ("job", "wide"),
    [({}, True), ({"states_in_16_bits": True}, False), ({"precision": "fp32"}, False)],
)
def test_nanotron_keeps_states_in_32_bits_by_the_accumulation_of_gradients(
    job: dict[str, Any], wide: bool
) -> None:
    found = fields("nanotron", {"data_parallel_shard_degree": 16, "zero_stage": 1}, **job)
    assert found["optimizer"]["accumulate_grad_in_fp32"] is wide


def test_maxtext_has_experts_on_an_axis_of_the_ranks_that_share_states() -> None:
    strategy = {"expert_parallel_degree": 4, "data_parallel_shard_degree": 16, "zero_stage": 3}
    found = fields("maxtext", strategy, model="mixtral-8x7b")
    axes = {name: value for name, value in found.items() if value != 1 and "_parallelism" in name}
    assert axes == {
        "ici_expert_parallelism": 4,
        "ici_fsdp_parallelism": 2,
        "dcn_fsdp_parallelism": 2,
    }


def test_maxtext_passes_all_micro_batches_of_a_step_through_its_pipeline_at_once() -> None:
    strategy = {
        "pipeline_parallel_degree": 4,
        "pipeline_schedule": "gpipe",
        "data_parallel_shard_degree": 4,
        "zero_stage": 3,
        "activation_checkpointing": "full",
    }
    found = fields("maxtext", strategy)
    wanted = {
        "per_device_batch_size": 4,
        "gradient_accumulation_steps": 1,
        "num_pipeline_microbatches": 16,
        "num_layers_per_pipeline_stage": 8,
        "ici_pipeline_parallelism": 2,
        "dcn_pipeline_parallelism": 2,
        "remat_policy": "full",
    }
    assert wanted.items() <= found.items()


def test_maxtexts_stages_have_as_many_blocks_each_which_is_told() -> None:
    counts = (10, 8, 8, 6)
    stages = [
        {
            "stage": i,
            "layers": [{"first_block": sum(counts[:i]), "block_count": n, "zero_stage": 3}],
        }
        for i, n in enumerate(counts)
    ]
    strategy = {"pipeline_parallel_degree": 4, "pipeline_schedule": "gpipe", "stages": stages}
    exported = made("maxtext", {**strategy, "data_parallel_shard_degree": 4})
    assert yaml.safe_load(exported.files[0].text)["num_layers_per_pipeline_stage"] == 8
    assert any("where the plan's have 10, 8, 8, 6" in loss for loss in exported.losses)


@pytest.mark.parametrize(
    ("model", "changes", "field"),
    [
        ("llama-3-8b", {"pipeline_schedule": "1f1b"}, "strategy.pipeline_schedule"),
        ("llama-3-8b", {"micro_batch_size": 8}, "strategy.micro_batch_count"),
        ("deepseek-v3", {}, "strategy.pipeline_parallel_degree"),
    ],
)
def test_maxtext_has_no_other_pipelines(model: str, changes: dict[str, Any], field: str) -> None:
    strategy = {"pipeline_parallel_degree": 4, "pipeline_schedule": "gpipe", "zero_stage": 3}
    plan = plan_of(
        Strategy.model_validate({**strategy, "data_parallel_shard_degree": 4, **changes}),
        model=model,
        cluster="2x8xh100-sxm5-80gb",
    )
    with pytest.raises(InputError) as refused:
        export(plan, "maxtext")
    assert refused.value.field == field


def test_maxtext_counts_devices_that_split_a_sequence() -> None:
    strategy = {
        "tensor_parallel_degree": 4,
        "data_parallel_shard_degree": 2,
        "data_parallel_replicate_degree": 2,
        "zero_stage": 3,
    }
    found = fields("maxtext", strategy)
    assert found["per_device_batch_size"] == 0.25
    assert found["gradient_accumulation_steps"] == 16
    axes = {name: value for name, value in found.items() if value != 1 and "_parallelism" in name}
    assert axes == {
        "ici_tensor_parallelism": 4,
        "ici_fsdp_parallelism": 2,
        "dcn_data_parallelism": 2,
    }


@pytest.mark.parametrize(
    ("stage", "overlaps", "written"),
    [(1, None, False), (2, None, False), (3, None, True), (1, True, True), (3, False, False)],
)
def test_deepspeed_overlaps_where_the_job_says_so_or_by_its_own_default(
    stage: int, overlaps: bool | None, written: bool
) -> None:
    strategy = {"data_parallel_shard_degree": 16, "zero_stage": stage}
    job = {} if overlaps is None else {"overlapped_gradients": overlaps}
    zero = fields("deepspeed", strategy, stack="deepspeed", **job)["zero_optimization"]
    assert zero["overlap_comm"] is written
