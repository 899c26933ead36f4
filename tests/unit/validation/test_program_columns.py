"""What a row states of its program counts, and what it leaves open is the program's default."""

from __future__ import annotations

from typing import Any

import pytest

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
    ("framework", "sharding", "fused", "shifted"),
    [
        ("DeepSpeed ZeRO-3", None, False, True),
        ("ms-swift / HF Trainer + DeepSpeed", "deepspeed_zero3", False, True),
        ("HF Trainer", "ddp", False, True),
        ("unsloth + TRL", "none", True, False),
        ("xtuner (DeepSpeed, Ulysses SP)", None, True, False),
        ("Megatron-DeepSpeed", None, None, False),
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
    [("AA-Scaling", None, False), ("AA-Scaling", True, True), ("DeepSpeed", None, None)],
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
