"""What a row states of its program counts, and what it leaves open is the program's default."""

from __future__ import annotations

from typing import Any

import pytest

from planner.importers.models import read_model
from planner.importers.training.config import Setting
from planner.importers.training.files import config_from_fields
from planner.schema.job import Adapters, AdapterTargets, Softmax, Stack
from planner.schema.strategy import ActivationCheckpointing
from planner.validation.case import Case, case_of
from planner.validation.reasons import Assumption
from tests.measured_rows import TORCHTITAN, a_run


def case(framework: str, **changes: Any) -> Case:
    """A run of Llama-3-8B on 64 A100 by some program."""
    return case_of(a_run(TORCHTITAN, framework=framework, **changes))


@pytest.mark.parametrize(
    ("framework", "stated", "expected"),
    [
        ("Paxml JAX/XLA", None, "full"),
        ("Paxml JAX/XLA", "none", "none"),
        ("MaxText JAX", None, "none"),
    ],
)
def test_models_of_pax_run_blocks_again_unless_a_row_says_otherwise(
    framework: str, stated: str | None, expected: str
) -> None:
    found = case(framework, recompute=stated, zero_stage=3)
    (stage,) = found.strategy.stages or ()
    chosen = {group.activation_checkpointing for group in stage.layers}
    assert chosen == {ActivationCheckpointing(expected)}
    assert (Assumption.RECOMPUTE_FULL in found.assumptions) == (expected == "full")


@pytest.mark.parametrize(
    ("framework", "kernel", "fused", "softmax"),
    [
        ("Paxml JAX/XLA + Transformer Engine", None, False, Softmax.KERNEL),
        ("Paxml JAX/XLA + Transformer Engine", "cudnn", True, None),
        ("Paxml JAX/XLA", None, True, None),
    ],
)
def test_transformer_engine_in_pax_fuses_attention_where_its_kernel_is_named(
    framework: str, kernel: str | None, *, fused: bool, softmax: Softmax | None
) -> None:
    found = case(framework, flash_attention=True, attention_kernel=kernel)
    assert (found.job.fused_attention, found.job.softmax) == (fused, softmax)
    assert (Assumption.ATTENTION_NOT_ASKED_FOR in found.assumptions) == (not fused)


@pytest.mark.parametrize(
    ("source", "activation", "generation", "drops"),
    [
        (
            "FlagOpen/FlagPerf training/nvidia/gpt3_6.7B-paddle/README.md@1b5a030398",
            "gelu",
            1,
            True,
        ),
        ("FlagOpen/FlagPerf training/nvidia/llama1_7B-paddle/README.md", "swiglu", 1, False),
        ("FlagOpen/FlagPerf training/nvidia/llama1_7B-other/README.md", "gelu", None, False),
    ],
)
def test_flagperf_runs_paddles_first_flash_attention_and_drops_out_in_gpt(
    source: str, activation: str, generation: int | None, *, drops: bool
) -> None:
    found = case("PaddleNLP", source=source, activation=activation)
    assert {one.job.stack for one in (found, *found.others)} == set(Stack)
    assert (found.job.flash_attention_generation, found.job.dropout) == (generation, drops)


@pytest.mark.parametrize(("mode", "narrow"), [("PURE", True), ("DEFAULT", False)])
def test_mixed_precision_of_llm_foundry_means_what_its_importer_reads(
    mode: str, *, narrow: bool
) -> None:
    notes = f"precision column='bf16', MP mode={mode} (per composer)"
    assert case("composer/llm-foundry", notes=notes).job.gradients_in_16_bits is narrow
    config = {
        "max_seq_len": 2048,
        "global_train_batch_size": 64,
        "device_train_microbatch_size": 1,
        "precision": "amp_bf16",
        "fsdp_config": {"sharding_strategy": "FULL_SHARD", "mixed_precision": mode},
    }
    setting = Setting(graph=read_model("llama-3-8b")[1], device_count=64)
    read = config_from_fields(config, setting, source="train.yaml")
    assert read.job.get("gradients_in_16_bits", False) is narrow


@pytest.mark.parametrize(
    ("framework", "known"),
    [
        ("HF Trainer", True),
        ("FrobTrainer 9", False),
        ("zero1", False),
        ("PyTorch 2.8.0, ROCm 7.0", False),
        ("PaddleNLP", False),
        ("Lightning Trainer", True),
    ],
)
def test_a_name_that_only_looks_like_a_programs_is_none(framework: str, *, known: bool) -> None:
    """Priced under every stack; Lightning's own trainer has no layers of transformers."""
    found = case(framework, sharding=None)
    assert (Assumption.STACK_UNKNOWN in found.assumptions) != known
    stacks = {one.job.stack for one in (found, *found.others)}
    assert stacks == ({Stack.TORCH} if known else set(Stack))
    assert found.job.shifted_logits == (framework == "HF Trainer")


def test_a_stated_stack_is_the_one_that_is_priced_and_nothing_is_said_to_be_a_mean() -> None:
    found = case("FrobTrainer 9", sharding=None, stack="megatron")
    assert [one.job.stack for one in (found, *found.others)] == [Stack.MEGATRON]
    assert Assumption.STACK_UNKNOWN not in found.assumptions


@pytest.mark.parametrize(
    ("framework", "sharding", "fused", "shifted"),
    [
        ("DeepSpeed ZeRO-3", None, False, True),
        ("ms-swift / HF Trainer + DeepSpeed", "deepspeed_zero3", False, True),
        ("HF Trainer", "ddp", False, True),
        ("unsloth + TRL", "none", True, False),
        ("xtuner (DeepSpeed, Ulysses SP)", None, True, False),
        ("Megatron-DeepSpeed", None, None, False),
        ("DeepSpeed/Megatron-LM 3D parallelism", None, None, False),
    ],
)
def test_models_of_transformers_are_torch_s_own_whatever_shards_them(
    framework: str, sharding: str | None, fused: bool | None, *, shifted: bool
) -> None:
    job = case(framework, sharding=sharding, zero_stage=1).job
    assert (job.fused_elementwise, job.shifted_logits) == (fused, shifted)


@pytest.mark.parametrize(
    ("framework", "precision", "stated", "narrow"),
    [
        ("Megatron-LM", "fp16", None, True),
        ("Megatron-LM", "bf16", None, False),
        ("Megatron-LM", "fp16", "fp32", False),
        ("Megatron-DeepSpeed", "fp16", None, False),
        ("PaddleNLP", "fp16", None, False),
    ],
)
def test_megatron_adds_gradients_in_32_bits_under_bf16_alone(
    framework: str, precision: str, stated: str | None, *, narrow: bool
) -> None:
    job = case(framework, precision=precision, gradient_dtype=stated).job
    assert job.gradients_in_16_bits is narrow


@pytest.mark.parametrize(
    ("framework", "stated", "summed"),
    [
        ("AA-Scaling (Aleph Alpha)", None, True),
        ("AA-Scaling (Aleph Alpha)", "reduce_scatter", False),
        ("DeepSpeed", None, False),
        ("DeepSpeed", "all_reduce", True),
    ],
)
def test_a_row_says_what_gradients_are_reduced_by(
    framework: str, stated: str | None, *, summed: bool
) -> None:
    job = case(framework, gradient_reduction=stated, zero_stage=1).job
    assert job.summed_gradients is summed


@pytest.mark.parametrize(
    ("framework", "stated", "overlapped"),
    [
        ("AA-Scaling", None, False),
        ("AA-Scaling", True, True),
        ("DeepSpeed", None, None),
        ("Megatron-LM", None, False),
        ("Megatron-LM", True, True),
        ("Megatron-LM (NeMo perf scripts)", None, None),
        ("PyTorch DDP (NVIDIA DLE, LAMB)", None, False),
    ],
)
def test_a_row_says_whether_backward_hides_gradients(
    framework: str, stated: bool | None, overlapped: bool | None
) -> None:
    assert case(framework, gradient_overlap=stated).job.overlapped_gradients is overlapped


@pytest.mark.parametrize(
    ("framework", "stated", "varied"),
    [
        ("ms-swift / HF Trainer", None, True),
        ("ms-swift / HF Trainer", False, False),
        ("Megatron-SWIFT (Megatron-Core)", None, False),
        ("transformers Trainer", None, False),
        ("transformers Trainer", True, True),
    ],
)
def test_a_row_says_whether_its_sequences_differ_in_length(
    framework: str, stated: bool | None, *, varied: bool
) -> None:
    assert case(framework, varied_lengths=stated).job.varied_lengths is varied


@pytest.mark.parametrize(
    ("framework", "stated", "divided"),
    [
        ("OneFlow GPT", None, {True}),
        ("OneFlow GPT", False, {False}),
        ("PaddleNLP", None, {True, False}),
    ],
)
def test_a_program_of_no_known_stack_may_be_known_to_divide_its_loss(
    framework: str, stated: bool | None, divided: set[bool]
) -> None:
    found = case(framework, vocab_parallel_loss=stated, tp=2, dp=32, zero_stage=0)
    assert {one.job.vocabulary_parallel_loss for one in (found, *found.others)} == divided


@pytest.mark.parametrize("stated", [True, False])
def test_a_row_says_whether_there_is_dropout(*, stated: bool) -> None:
    assert case("torchtitan", dropout=stated).job.dropout is stated


@pytest.mark.parametrize(
    ("framework", "stated", "expected"),
    [
        ("Megatron-Bridge", None, "causal"),
        ("Megatron-Bridge", "whole", "whole"),
        ("torchtitan", None, None),
        ("torchtitan", "causal", "causal"),
    ],
)
def test_a_row_says_what_its_flop_count_of_attention(
    framework: str, stated: str | None, expected: str | None
) -> None:
    assert case(framework, tflops_attention=stated).run.tflops_attention == expected


def test_a_row_says_what_is_adapted_before_its_program_s_recipes() -> None:
    stated = {"adapter_rank": 4, "adapter_targets": "attention", "adapter_dropout": False}
    found = case("HF Trainer + peft", task="lora", adapted_ends=True, **stated)
    assert found.job.adapters == Adapters(
        rank=4, targets=AdapterTargets.ATTENTION, trains_ends=True
    )
    assert Assumption.ADAPTER_RANK not in found.assumptions
    assert case("HF Trainer + peft", task="lora").job.adapters == Adapters(rank=64, dropout=True)


@pytest.mark.parametrize(
    ("framework", "stated", "ratio"),
    [
        ("PyTorch DDP (NVIDIA DLE)", None, 0.15),
        ("PyTorch DDP (NVIDIA DLE in DLPerf)", None, 1.0),
        ("HF Trainer", None, 1.0),
        ("HF Trainer", True, 0.15),
        ("PyTorch DDP (NVIDIA DLE)", False, 1.0),
    ],
)
def test_a_row_says_whether_the_head_reads_masked_rows_alone(
    framework: str, stated: bool | None, ratio: float
) -> None:
    masked = {"attention_kind": "mha_bidirectional", "masked_rows": stated, "kv_heads": 32}
    assert case(framework, **masked).graph.head_token_ratio == ratio


@pytest.mark.parametrize(
    ("changes", "counts"),
    [
        ({"recompute_detail": "selective: every 2nd layer (torchtitan default)"}, [16, 16]),
        ({"recompute_block_ratio": 0.25}, [8, 24]),
        ({"recompute_block_ratio": 1.0}, [32]),
        ({"recompute_block_ratio": 0.5, "pp": 32, "dp": 2, "gbs": 64}, [1] * 32),
    ],
)
def test_some_blocks_run_again_whole(changes: dict[str, Any], counts: list[int]) -> None:
    """Of 32 blocks, one a stage where a pipeline has as many stages: every second of them."""
    found = case("torchtitan", **changes)
    groups = [group for stage in found.strategy.stages or () for group in stage.layers]
    assert [group.block_count for group in groups] == counts
    again = [g.block_count for g in groups if g.activation_checkpointing == "full"]
    assert sum(again) == 32 * (changes.get("recompute_block_ratio") or 0.5)
    assert {g.activation_checkpointing for g in groups} <= {"full", "none"}


@pytest.mark.parametrize(
    ("source", "changes", "captured"),
    [
        ("v5.1 NVIDIA/benchmarks/llama31_8b/nemo/config_GB300_18x4x1xtp1pp1cp2_8b.sh", {}, True),
        ("v5.1 AMD/benchmarks/llama31_8b/nemo/config_MI355X_1x8x1_8b.sh", {}, False),
        ("v5.1 NVIDIA/benchmarks/llama2_70b_lora/nemo/config_DGXH200_1x8x1xtp4pp1.sh", {}, False),
        ("v4.1 NVIDIA/benchmarks/llama31_8b/nemo/config_DGXH100_1x8x1xtp4pp1.sh", {}, False),
        ("v5.1 x/llama31_8b/config_x_tp1pp1.sh", {"notes": "FULL_CUDA_GRAPH=0"}, False),
        ("v5.1 x/llama31_8b/config_x_tp1pp1.sh", {"cuda_graphs": "none"}, False),
    ],
)
def test_configurations_of_llama_in_mlperf_of_2025_capture_graphs_unless_they_say_otherwise(
    source: str, changes: dict[str, Any], *, captured: bool
) -> None:
    assert case("NeMo", source=f"training_results_{source}", **changes).job.cuda_graphs is captured


@pytest.mark.parametrize("framework", ["NeMo", "NVIDIA NeMo Framework 25.09", "a list of packages"])
def test_a_stated_configuration_counts_before_the_source(framework: str) -> None:
    captures = "training_results_v5.1 x/llama31_8b/config_x_tp1pp1.sh"
    plain = "training_results_v4.1 x/llama2_70b/config_x_tp1pp1.sh"
    for configuration, source, captured in ((captures, plain, True), (plain, captures, False)):
        job = case(framework, configuration=configuration, source=source).job
        assert (job.cuda_graphs, job.stack) == (captured, "megatron")
