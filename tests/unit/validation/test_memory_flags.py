"""What a row's software and knobs say of memory reaches the job and the layers."""

from __future__ import annotations

from typing import Any

import pytest

from planner.schema.job import Adapters, AdapterTargets, BaseFormat, Precision, Stack, Unpacking
from planner.schema.strategy import ActivationCheckpointing
from planner.validation.case import case_of
from planner.validation.layout import parts_run_again
from planner.validation.reasons import Assumption, Unpriced
from tests.measured_rows import KORTHIKANTI, MIXTURE, TORCHTITAN, a_run

# On weights of bitsandbytes, whose scales stay whole
PACKED = Adapters(dropout=True, rank=64, base_bits=4, whole_scales=True)


def flags_of(base: dict[str, Any], **changes: Any) -> tuple[bool, bool, bool, bool]:
    """Fused attention, fused loss, dropout, gradients in 16 bits."""
    job = case_of(a_run(base, **changes)).job
    return job.fused_attention, job.fused_loss, job.dropout, job.gradients_in_16_bits


def test_megatron_s_gpt_has_dropout_and_here_unfused_attention() -> None:
    assert flags_of(KORTHIKANTI, precision="bf16") == (False, False, True, False)


def test_nanotron_gathers_rows_anew_and_fuses_norms() -> None:
    job = case_of(a_run(TORCHTITAN, framework="nanotron")).job
    assert (job.regathered_rows, job.fused_elementwise) == (True, True)
    assert not case_of(a_run(TORCHTITAN)).job.regathered_rows


def test_llamas_have_no_dropout() -> None:
    assert flags_of(TORCHTITAN) == (True, False, False, False)


@pytest.mark.parametrize(
    ("framework", "compiled", "fused"),
    [
        ("torchtitan (2025-06)", True, True),
        ("torchtitan (2024-12)", True, False),
        ("torchtitan (2025-06)", False, False),
        ("llm-foundry (composer)", False, True),
    ],
)
def test_a_loss_is_fused_where_the_software_compiles_or_brings_it(
    framework: str, compiled: bool, fused: bool
) -> None:
    assert flags_of(TORCHTITAN, framework=framework, compile=compiled)[1] is fused


@pytest.mark.parametrize(
    ("framework", "narrow"), [("Megatron-Bridge (NeMo container)", True), ("Megatron-Core", False)]
)
def test_recipes_of_nemo_accumulate_gradients_in_16_bits(framework: str, narrow: bool) -> None:
    assert flags_of(MIXTURE, framework=framework)[3] is narrow


SCALING = {"framework": "AA-Scaling", "zero_stage": 1, "sharding": "zero1"}


def test_scaling_keeps_and_reduces_gradients_in_the_parameters_type_after_backward() -> None:
    job = case_of(a_run(KORTHIKANTI, **SCALING)).job
    assert (job.stack, job.gradients_in_16_bits) == (Stack.TORCH, True)
    assert job.overlapped_gradients is False


def test_scaling_gathers_logits_and_receives_into_one_buffer() -> None:
    job = case_of(a_run(KORTHIKANTI, **SCALING)).job
    assert (job.vocabulary_parallel_loss, job.stage_buffers) == (False, False)


@pytest.mark.parametrize(
    ("source", "narrow"),
    [("foundation-model-stack/fms-fsdp README.md@5a296af", True), ("pytorch/pytorch", False)],
)
def test_a_row_that_names_torch_alone_is_of_the_program_whose_repository_prints_it(
    source: str, narrow: bool
) -> None:
    changes = {"framework": "PyTorch FSDP1", "sharding": "fsdp", "source": source}
    job = case_of(a_run(TORCHTITAN, **changes)).job
    assert (job.stack, job.gradients_in_16_bits) == (Stack.TORCH, narrow)
    assert job.ends_stay_gathered


def test_modules_that_a_row_runs_again_keep_nothing() -> None:
    changes = {"recompute": "selective", "recompute_detail": "modules=['moe_act', 'layernorm']"}
    layer, _ = case_of(a_run(MIXTURE, **changes)).workload.runs[0]
    assert layer.activations.none.products == 0.0
    assert layer.activations.none.gathered == 4096  # products of attention have their norm inside
    plain, _ = case_of(a_run(MIXTURE)).workload.runs[0]
    assert plain.activations.none.products == 2 * 14336
    assert plain.activations.none.gathered == 2 * 4096


@pytest.mark.parametrize(
    ("detail", "names"),
    [
        (None, {"core_attn"}),
        ("selective modules=['mla_up_proj', 'mlp']", {"mla_up_proj", "mlp"}),
        ("recompute-modules=[moe]", {"moe"}),
        ("recompute_modules=core_attn shared_experts", {"core_attn", "shared_experts"}),
    ],
)
def test_each_module_of_megatron_is_run_again_and_its_core_where_none_is_named(
    detail: str | None, names: set[str]
) -> None:
    run = a_run(MIXTURE, recompute="selective", recompute_detail=detail)
    case = case_of(run)
    assert parts_run_again(run, case.job) == names
    stages = case.strategy.stages or ()
    kinds = {group.activation_checkpointing for stage in stages for group in stage.layers}
    assert kinds == {ActivationCheckpointing.NONE}
    assert (Assumption.SELECTIVE_CORE in case.assumptions) is (detail is None)


@pytest.mark.parametrize("module", ["gdn_norm_out", "gdp_in_proj", "gdp_qkv", "mhc"])
def test_modules_of_megatron_that_are_no_part_of_ours_are_a_reason(module: str) -> None:
    with pytest.raises(Unpriced, match=module):
        case_of(a_run(MIXTURE, recompute="selective", recompute_detail=f"['{module}']"))


@pytest.mark.parametrize(
    ("changes", "expected"),
    [
        ({}, None),
        ({"task": "full_finetune"}, None),
        ({"task": "lora"}, Adapters(dropout=True, rank=64)),
        ({"task": "lora", "optimizer": "adamw (LoRA rank 8)"}, Adapters(dropout=True, rank=8)),
        (
            {"task": "lora", "notes": "method=lora_emb"},
            Adapters(dropout=True, rank=64, trains_ends=True),
        ),
        (
            {"task": "lora", "framework": "NeMo 24.07"},
            Adapters(rank=16, targets=AdapterTargets.ATTENTION),
        ),
        ({"task": "qlora", "precision": "w4a16"}, PACKED),
        (
            {"task": "qlora", "precision": "w4a16", "precision_raw": "int4 GPTQ weights + fp16"},
            Adapters(
                dropout=True,
                rank=64,
                base_bits=4,
                base_format=BaseFormat.GPTQ,
                unpacking=Unpacking.AUTO_GPTQ,
            ),
        ),
        ({"task": "lora", "precision": "w4a16"}, PACKED),
        ({"task": "lora", "precision": "int8"}, Adapters(dropout=True, rank=64, base_bits=8)),
        ({"task": "qlora", "precision": "fp16"}, PACKED),
        ({"task": "lora", "framework": "torchtune"}, Adapters(rank=8)),
        (
            {"task": "qlora", "precision": "nf4", "framework": "torchtune"},
            Adapters(rank=8, base_bits=4, unpacking=Unpacking.TORCHAO),
        ),
        (
            {"task": "qlora", "precision": "nf4", "framework": "torchtune", "compile": True},
            Adapters(rank=8, base_bits=4),
        ),
        (
            {"task": "lora", "framework": "lit-gpt"},
            Adapters(dropout=True, rank=8, targets=AdapterTargets.ATTENTION),
        ),
        (
            {"task": "lora", "framework": "ms-swift", "notes": "rank=32"},
            Adapters(dropout=True, rank=32),
        ),
        ({"task": "lora", "framework": "LLaMA-Factory"}, Adapters(rank=8)),
        ({"task": "lora", "framework": "unsloth"}, Adapters(rank=16)),
    ],
)
def test_a_row_says_what_was_trained(changes: dict[str, Any], expected: Adapters | None) -> None:
    assert case_of(a_run(**changes)).job.adapters == expected


@pytest.mark.parametrize(
    ("task", "precision", "expected"),
    [
        ("qlora", "nf4", Precision.BF16),
        ("qlora", "fp16", Precision.FP16),
        ("lora", "8bit", Precision.BF16),
        ("lora", "fp16", Precision.FP16),
    ],
)
def test_how_weights_are_stored_is_not_what_is_computed_in(
    task: str, precision: str, expected: Precision
) -> None:
    assert case_of(a_run(task=task, precision=precision)).job.precision is expected


@pytest.mark.parametrize(
    ("changes", "fused", "chunk_count"),
    [
        ({"framework": "torchtune"}, True, 8),
        ({"framework": "torchtune", "compile": False}, False, 8),
        ({"framework": "torchtune", "loss_kernel": "plain"}, False, 1),
        ({"framework": "torchtune", "loss_chunk_count": 4}, True, 4),
        ({"framework": "litgpt"}, True, 1),
        ({"framework": "Lit-GPT"}, True, 1),
        ({"framework": "HF Trainer"}, False, 1),
        ({"framework": "HF Trainer", "loss_chunk_count": 4}, False, 4),
    ],
)
def test_some_programs_take_the_loss_in_chunks(
    changes: dict[str, Any], fused: bool, chunk_count: int
) -> None:
    job = case_of(a_run(**changes)).job
    assert (job.fused_loss, job.loss_chunk_count) == (fused, chunk_count)


def test_chunks_of_a_loss_that_takes_none_are_refused() -> None:
    with pytest.raises(Unpriced, match="loss_chunk_count 4 of a linear loss"):
        case_of(a_run(loss_kernel="linear", loss_chunk_count=4))


def test_a_rank_that_no_row_states_is_an_assumption() -> None:
    stated = case_of(a_run(task="lora", notes="rank=32"))
    assert Assumption.ADAPTER_RANK in case_of(a_run(task="lora")).assumptions
    assert Assumption.ADAPTER_RANK not in stated.assumptions


@pytest.mark.parametrize(
    ("changes", "narrow"),
    [
        ({}, False),
        ({"framework": "litgpt", "precision_raw": "bf16-true"}, True),
        ({"framework": "torchtune"}, True),
        ({"framework": "torchtune", "precision": "fp32"}, False),
        ({"framework": "HF Trainer + peft", "task": "lora"}, True),
        ({"framework": "HF Trainer + peft", "task": "lora", "sharding": "deepspeed_z2"}, False),
        ({"framework": "HF Trainer + peft", "task": "qlora", "precision": "w4a16"}, False),
        ({"framework": "ms-swift / HF Trainer", "task": "lora", "precision": "int8"}, False),
        ({"framework": "ms-swift / HF Trainer", "sharding": "none"}, True),
        ({"framework": "ms-swift / HF Trainer + DeepSpeed", "sharding": "deepspeed_zero2"}, False),
        ({"framework": "axolotl", "sharding": "fsdp"}, False),
        ({"framework": "LLaMA-Factory", "sharding": "none"}, False),
        ({"framework": "LLaMA-Factory", "precision_raw": "pure_bf16"}, True),
        ({"framework": "fsdp_qlora (PyTorch FSDP1)", "sharding": "fsdp FULL_SHARD"}, True),
        ({"framework": "torchtune", "task": "qlora", "precision": "w4a16"}, True),
    ],
)
def test_a_model_converted_whole_has_states_in_16_bits(
    changes: dict[str, Any], narrow: bool
) -> None:
    assert case_of(a_run(**changes)).job.states_in_16_bits is narrow


def test_torchtune_moves_activations_beside_compute() -> None:
    assert case_of(a_run(framework="torchtune")).job.overlapped_offload is True
    assert case_of(a_run()).job.overlapped_offload is None


def test_a_row_says_where_gradients_and_optimizer_states_lie() -> None:
    paged = case_of(a_run(optimizer="PagedAdamW8bit + optimizer_in_bwd")).job
    assert (paged.paged_states, paged.steps_in_backward) == (True, True)
    assert paged.offloaded_gradients is None
    hosted = {"offload_optimizer": True, "offload_params": True, "offload_grads": True}
    assert case_of(a_run(**hosted)).job.offloaded_gradients is True
    plain = case_of(a_run()).job
    assert (plain.paged_states, plain.steps_in_backward) == (False, False)


@pytest.mark.parametrize(
    ("framework", "sharding", "stays"),
    [
        ("llm-foundry (composer)", "fsdp:FULL_SHARD", True),
        ("fsdp_qlora (PyTorch FSDP1)", "fsdp FULL_SHARD", True),
        ("torchtitan (2025-06)", "fsdp2", False),
        ("torchtune", "fsdp2", False),
        ("HF Trainer", "deepspeed_zero3", False),
    ],
)
def test_fsdp_s_root_keeps_ends_gathered_where_they_are_no_groups(
    framework: str, sharding: str, stays: bool
) -> None:
    job = case_of(a_run(framework=framework, sharding=sharding)).job
    assert job.ends_stay_gathered is stays


@pytest.mark.parametrize(
    ("framework", "optimizer", "foreach"),
    [
        ("ms-swift / HF Trainer", "adamw", True),
        ("ms-swift / HF Trainer", "adamw_torch_fused", False),
        ("Megatron-SWIFT (Megatron-Core)", "adam", False),
        ("transformers Trainer", "adamw", False),  # of its own until 4.30
    ],
)
def test_programs_since_torch_2_update_all_parameters_at_once(
    framework: str, optimizer: str, foreach: bool
) -> None:
    job = case_of(a_run(framework=framework, optimizer=optimizer)).job
    assert job.foreach_optimizer is foreach


@pytest.mark.parametrize(
    ("changes", "stage"),
    [
        ({"zero_stage": 3}, 1),
        ({"zero_stage": None, "sharding": "fsdp2"}, 1),
        ({"zero_stage": 3, "notes": "reshard_after_forward=always"}, 3),
        ({"zero_stage": 2}, 2),
        ({"zero_stage": 3, "framework": "DeepSpeed"}, 3),
        ({"zero_stage": 3, "pp": 1, "dp": 64, "gbs": 64}, 3),
    ],
)
def test_sharded_pipeline_stages_of_torch_stay_gathered(
    changes: dict[str, Any], stage: int
) -> None:
    case = case_of(a_run(**{"pp": 2, "dp": 32, "gbs": 64, **changes}))
    assert case.strategy.stages is not None
    assert case.strategy.stages[0].layers[0].zero_stage == stage
