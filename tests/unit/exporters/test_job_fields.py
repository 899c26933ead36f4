"""Every field of a job is written by a target, told as lost, refused, or of no file at all."""

from __future__ import annotations

from typing import Any

import pytest

from planner.errors import InputError
from planner.exporters.job_fields import OF_NO_FILE, WITHOUT_ADAPTERS, WRITTEN, job_losses
from planner.exporters.registry import TARGETS, export
from planner.schema.job import Job, OffloadStore, Stack
from planner.schema.strategy import Strategy
from tests.unit.exporters.plans import plan_of

STRATEGY = Strategy(data_parallel_shard_degree=8, zero_stage=3)
WITH_ZERO_1 = Strategy(data_parallel_shard_degree=8, zero_stage=1)
SHARD_THE_OPTIMIZER = {"nemo", "verl-megatron", "nemo-rl-megatron", "nanotron"}
WITH_THE_PLAN = {"torchrun", "slurm", "kubeflow", "skypilot"}
PROGRAMS = [target for target in TARGETS if target not in WITH_THE_PLAN]
# A value of each field that is not its default.
OTHERS: dict[str, Any] = {
    "global_batch_size": 128,
    "precision": "fp16",
    "optimizer": "adafactor",
    "fused_attention": False,
    "fused_loss": True,
    "loss_chunk_count": 8,
    "fused_linear_loss": True,
    "shifted_logits": True,
    "vocabulary_parallel_loss": False,
    "stage_buffers": False,
    "dropout": True,
    "gradients_in_16_bits": True,
    "gradient_clipping": False,
    "foreach_optimizer": True,
    "offload_to": "nvme",
    "offloaded_gradients": True,
    "paged_states": True,
    "steps_in_backward": True,
    "overlapped_offload": True,
    "ends_stay_gathered": True,
    "overlapped_gradients": False,
    "parameter_broadcasts": True,
    "summed_gradients": True,
    "cuda_graphs": True,
    "attention_graphs": True,
    "blocking_launches": True,
    "overlapped_experts": True,
    "fixed_expert_tokens": True,
    "fused_elementwise": True,
    "fused_norms": True,
    "softmax": "steps",
    "regathered_rows": True,
    "flash_attention_generation": 2,
    "deduplicated_dispatch": True,
    "overlapped_tensor_parallel": True,
    "copied_rows": False,
    "row_scaled_fp8": True,
    "copies_in_8_bits": True,
    "gathered_in_8_bits": True,
    "states_in_16_bits": True,
    "tensor_float_32": True,
    "adapters": {"rank": 16},
}
# What the file of a target that makes LoRA says of rank 16.
ADAPTER_WORDS = {
    "axolotl": "adapter: lora\nlora_r: 16\n",
    "axolotl-deepspeed": "adapter: lora\nlora_r: 16\n",
    "llama-factory": "finetuning_type: lora\nlora_rank: 16\nlora_target: all\n",
    "nemo": "run.Config(LoRA, dim=16, ",
    "verl": "actor_rollout_ref.model.lora_rank=16\n",
    "nemo-rl": "lora_cfg:\n      enabled: true\n      dim: 16\n",
    "nemo-rl-megatron": "peft:\n      enabled: true\n      dim: 16\n",
}
CLIP_NOTHING = {"accelerate", "lightning-trainer"}
WITHOUT_FP16 = {"torchtitan", "torchtitan-0.2", "maxtext"}
APART = {
    "adapters",
    "copies_in_8_bits",
    "gathered_in_8_bits",
    "offload_to",
    "overlapped_tensor_parallel",
    "precision",
    "softmax",
    "tensor_float_32",
}
WITHOUT_FP32 = {"verl", "verl-megatron"}


def exported(target: str, **fields: Any) -> Any:
    """An export of the plan with these fields of its job."""
    named = {"batch": fields.pop("global_batch_size", 64)}
    strategy = WITH_ZERO_1 if target in SHARD_THE_OPTIMIZER else STRATEGY
    return export(plan_of(strategy, **named, **fields), target)


def test_no_field_of_a_job_is_forgotten() -> None:
    assert set(OTHERS) | OF_NO_FILE == set(Job.model_fields)
    assert not set(OTHERS) & OF_NO_FILE
    assert set(WRITTEN) - {"lightning"} == set(PROGRAMS)


@pytest.mark.parametrize("name", sorted(OTHERS.keys() - APART))
@pytest.mark.parametrize("target", PROGRAMS)
def test_a_field_is_written_or_told(target: str, name: str) -> None:
    # Some clip nothing unless the program does.
    value = OTHERS[name] or (name == "gradient_clipping" and target in CLIP_NOTHING)
    usual, made = exported(target), exported(target, **{name: value})
    told = [loss for loss in made.losses if loss not in usual.losses]
    if name in WRITTEN[target]:
        assert told == []
        assert made.files != usual.files
    else:
        (loss,) = told
        assert f"no file says {name} " in loss


@pytest.mark.parametrize("target", PROGRAMS)
def test_no_file_says_how_a_softmax_is_made(target: str) -> None:
    usual = exported(target, fused_attention=False)
    made = exported(target, fused_attention=False, softmax="steps")
    (loss,) = [loss for loss in made.losses if loss not in usual.losses]
    assert "no file says softmax " in loss


# Targets whose programs split no sequence over tensor-parallel ranks
WHOLE_SEQUENCES = {
    *("accelerate", "axolotl", "axolotl-deepspeed", "deepspeed", "hf-trainer", "lightning-trainer"),
    *("llama-factory", "maxtext", "verl"),
}
# What the files of a target say where collectives run beside products.
BESIDE_PRODUCTS = {
    "torchtitan": "replace(config.compile, enable=True, enable_async_tensor_parallel=True)",
    "torchtitan-0.2": "enable_async_tensor_parallel = true\n",
    "megatron-lm": "--tp-comm-overlap",
    "nanotron": "tp_linear_async_communication: true\n",
}


@pytest.mark.parametrize("target", [one for one in PROGRAMS if one not in WHOLE_SEQUENCES])
def test_collectives_beside_products_are_written_or_told(target: str) -> None:
    """They are of rows that tensor-parallel ranks split, and of nothing without these."""
    split = Strategy(
        tensor_parallel_degree=2, sequence_parallel=True, data_parallel_shard_degree=4, zero_stage=1
    )
    usual = export(plan_of(split), target)
    made = export(plan_of(split, overlapped_tensor_parallel=True), target)
    told = [loss for loss in made.losses if loss not in usual.losses]
    if target in BESIDE_PRODUCTS:
        assert told == []
        assert any(BESIDE_PRODUCTS[target] in one.text for one in made.files)
        assert exported(target, overlapped_tensor_parallel=True).files == exported(target).files
    else:
        (loss,) = told
        assert "no file says overlapped_tensor_parallel true" in loss


def test_what_runs_beside_products_of_torchtitan_is_compiled() -> None:
    split = Strategy(tensor_parallel_degree=8, sequence_parallel=True)
    made = export(plan_of(split, overlapped_tensor_parallel=True), "torchtitan-0.2")
    assert "[compile]\nenable = true\n" in made.files[0].text


@pytest.mark.parametrize("target", PROGRAMS)
def test_a_number_format_is_written_told_or_refused(target: str) -> None:
    usual = exported(target)
    if target in WITHOUT_FP16:
        with pytest.raises(InputError, match="fp16"):
            exported(target, precision="fp16")
        return
    made = exported(target, precision="fp16")
    assert made.files != usual.files or any("fp16" in loss for loss in made.losses)


@pytest.mark.parametrize("target", PROGRAMS)
def test_products_in_tf32_are_written_told_or_refused_with_fp32(target: str) -> None:
    if target in WITHOUT_FP32:
        with pytest.raises(InputError, match="fp32"):
            exported(target, precision="fp32")
        return
    usual = exported(target, precision="fp32")
    made = exported(target, precision="fp32", tensor_float_32=True)
    told = [loss for loss in made.losses if loss not in usual.losses]
    if "tensor_float_32" in WRITTEN[target]:
        assert told == []
        (text,) = (one.text for one in made.files if "tf32" in one.text)
        assert "tf32: true" in text.replace('"', "")
    else:
        (loss,) = told
        assert "no file says tensor_float_32 true" in loss


@pytest.mark.parametrize("target", PROGRAMS)
def test_drives_that_states_lie_on_are_told_where_no_file_says_them(target: str) -> None:
    losses = job_losses(Job(stack=Stack.DEEPSPEED, offload_to=OffloadStore.NVME), target)
    written = target in {"deepspeed", "axolotl-deepspeed", "llama-factory"}
    assert [("offload_to nvme" in loss) for loss in losses] == [True] * (not written)


@pytest.mark.parametrize("target", PROGRAMS)
def test_adapters_are_written_told_or_refused(target: str) -> None:
    words = ADAPTER_WORDS.get(target)
    if target in WITHOUT_ADAPTERS:
        with pytest.raises(InputError, match=r"job\.adapters: are not trained"):
            exported(target, adapters={"rank": 16})
    elif words is not None:
        made = exported(target, adapters={"rank": 16})
        assert words in made.files[0].text
        assert not any("adapters" in loss for loss in made.losses)
    else:
        assert any(
            "LoraConfig(r=16)" in loss for loss in exported(target, adapters={"rank": 16}).losses
        )


@pytest.mark.parametrize("target", sorted(WITH_THE_PLAN))
def test_what_starts_the_executor_tells_what_it_does_not_do(target: str) -> None:
    assert exported(target, adapters={"rank": 16}, gradient_clipping=True).losses == ()
    undone, stack, scripted = exported(
        target, stack="deepspeed", cuda_graphs=True, optimizer="adafactor"
    ).losses
    assert stack.startswith("the plan is priced for the stack deepspeed")
    assert undone == "the executor does not do cuda_graphs true, which the plan counts on"
    assert scripted == "optimizer adafactor, which the plan counts on, is for the script to do"


def test_programs_that_clip_nothing_of_themselves_need_not_be_told_to() -> None:
    assert exported("accelerate", gradient_clipping=False).losses == exported("accelerate").losses


def test_an_optimizer_that_the_trainer_has_no_name_for_is_told() -> None:
    losses = exported("hf-trainer", optimizer="muon").losses
    assert any("optimizer muon" in loss for loss in losses)


def test_adapters_on_a_quantized_base_say_its_bits() -> None:
    losses = exported("accelerate", adapters={"rank": 8, "base_bits": 4}).losses
    assert any("on a base of 4 bits" in loss for loss in losses)


@pytest.mark.parametrize("target", ["axolotl", "torchtitan"])
def test_gathers_in_8_bits_are_written_or_told(target: str) -> None:
    usual = exported(target, precision="fp8")
    made = exported(target, precision="fp8", gathered_in_8_bits=True)
    told = [loss for loss in made.losses if loss not in usual.losses]
    written = "fp8_enable_fsdp_float8_all_gather: true" in made.files[0].text
    if target == "axolotl":
        assert (told, written) == ([], True)
    else:
        (loss,) = told
        assert "no file says gathered_in_8_bits true" in loss


@pytest.mark.parametrize("target", ["megatron-lm", "nemo"])
def test_copies_in_8_bits_are_written_or_told(target: str) -> None:
    """Megatron-LM has them unless it gathers parameters in 8 bits."""
    usual = exported(target, precision="fp8")
    made = exported(target, precision="fp8", copies_in_8_bits=True)
    told = [loss for loss in made.losses if loss not in usual.losses]
    if target == "megatron-lm":
        assert told == []
        gathers = [any("--fp8-param-gather" in one.text for one in e.files) for e in (usual, made)]
        assert gathers == [True, False]
    else:
        (loss,) = told
        assert "no file says copies_in_8_bits true" in loss
