"""What a program's name says of a run can be stated by a column, so that no name is needed."""

from __future__ import annotations

from dataclasses import fields
from typing import Any

import pytest

from planner.schema.job import BaseFormat, Job, Unpacking
from planner.schema.measured_run import MeasuredRun
from planner.validation.case import case_of
from planner.validation.program import Program
from planner.validation.reasons import Unpriceable, Unpriced
from tests.measured_rows import a_run

# What is known of a program: the column that states it, or the field of `job`.
COLUMNS = {
    "stack": "stack",
    "configured": "stack",
    "fused_attention": "attention_kernel",
    "asks_for_fusion": "attention_kernel",
    "softmax": "job.softmax",
    "fused_elementwise": "job.fused_elementwise",
    "flash_attention_generation": "attention_kernel",
    "fused_loss": "loss_kernel",
    "loss_chunk_count": "loss_chunk_count",
    "compiled_loss_since": "loss_kernel",
    "narrow_gradients": "gradient_dtype",
    "narrow_states": "master_weights",
    "copies_in_8_bits": "copies_in_8_bits",
    "overlapped_gradients": "gradient_overlap",
    "overlapped_tensor_parallel": "tensor_parallel_overlap",
    "copied_rows": "copied_rows",
    "whole_logits": "vocab_parallel_loss",
    "split_logits": "vocab_parallel_loss",
    "parameter_broadcasts": "job.parameter_broadcasts",
    "regathered_rows": "job.regathered_rows",
    "shifted_logits": "loss_kernel",
    "reads_logits": "loss_kernel",
    "loads_in_16_bits": "master_weights",
    "foreach_optimizer": "job.foreach_optimizer",
    "overlapped_offload": "job.overlapped_offload",
    "own_end_groups": "job.ends_stay_gathered",
    "drops_out": "dropout",
    "single_precision": "precision",
    "tensor_float_32": "job.tensor_float_32",
    "launches": "cuda_graphs",
    "stage_buffers": "job.stage_buffers",
    "shards_alone": "tp",
    "interleaves": "vpp",
    "checkpoints": "recompute",
    "summed_gradients": "gradient_reduction",
    "varied_lengths": "varied_lengths",
    "narrow_adapters": "master_weights",
    "causal_flop": "tflops_attention",
    "reads_all_rows": "masked_rows",
    "activation": "activation",
    "adapters": "adapter_rank",
}

# Each field of a job that a row may state by its name, and a value that TORCHTITAN's has not
STATED: dict[str, Any] = {
    "fused_attention": False,
    "fused_loss": True,
    "fused_linear_loss": True,
    "shifted_logits": True,
    "vocabulary_parallel_loss": False,
    "stage_buffers": False,
    "gradients_in_16_bits": True,
    "gradient_clipping": False,
    "foreach_optimizer": True,
    "offload_to": "nvme",
    "offloaded_gradients": False,
    "paged_states": True,
    "overlapped_offload": True,
    "ends_stay_gathered": True,
    "overlapped_gradients": False,
    "parameter_broadcasts": True,
    "summed_gradients": True,
    "attention_graphs": True,
    "expert_load_ratio": 1.3,
    "fused_elementwise": True,
    "fused_norms": True,
    "regathered_rows": True,
    "flash_attention_generation": 3,
    "deduplicated_dispatch": True,
    "overlapped_tensor_parallel": True,
    "row_scaled_fp8": True,
    "states_in_16_bits": True,
}
# Those that go with a column or a field only
WITH = {
    "softmax": ("steps", {"job": {"fused_attention": False}}),
    "tensor_float_32": (True, {"precision": "fp32"}),
}
OF_COLUMNS = {
    "global_batch_size",
    "sequence_length",
    "precision",
    "optimizer",
    "stack",
    "framework",
    "loss_chunk_count",
    "varied_lengths",
    "dropout",
    "steps_in_backward",
    "cuda_graphs",
    "blocking_launches",
    "overlapped_experts",
    "fixed_expert_tokens",
    "copied_rows",
    "copies_in_8_bits",
    "gathered_in_8_bits",
}
ASKED = {"schema_version", "objective", "limits", "calibration"}


def job(**columns: Any) -> Job:
    """The job of Llama-3-8B under torchtitan."""
    return case_of(a_run(**columns)).job


def test_all_that_is_known_of_programs_has_a_column() -> None:
    assert set(COLUMNS) == {field.name for field in fields(Program)} - {"words"}
    for stated in COLUMNS.values():
        column, _, field = stated.partition(".")
        assert column in MeasuredRun.model_fields
        assert not field or field in Job.model_fields


def test_each_field_of_a_job_can_be_stated_but_what_columns_say_and_what_asks() -> None:
    assert {*STATED, *WITH, "adapters"} == set(Job.model_fields) - OF_COLUMNS - ASKED


@pytest.mark.parametrize(("field", "value"), sorted(STATED.items()))
def test_a_stated_field_is_the_jobs(field: str, value: object) -> None:
    assert getattr(job(), field) != value
    assert getattr(job(job={field: value}), field) == value


@pytest.mark.parametrize("field", sorted(WITH))
def test_a_stated_field_is_held_against_the_others(field: str) -> None:
    value, beside = WITH[field]
    stated = {**beside.get("job", {}), field: value}
    assert getattr(job(**{**beside, "job": stated}), field) == value
    with pytest.raises(Unpriced, match=field) as caught:
        job(job={field: value})
    assert caught.value.reason is Unpriceable.FIELD


def test_it_counts_before_columns_and_the_programs_name() -> None:
    assert job(framework="nanotron").regathered_rows
    assert not job(framework="nanotron", job={"regathered_rows": False}).regathered_rows
    assert job(norm_kernel="fused").fused_norms is True
    assert job(norm_kernel="fused", job={"fused_norms": None}).fused_norms is None


def test_of_adapters_it_changes_what_it_names() -> None:
    qlora = {"framework": "axolotl", "task": "qlora", "adapter_rank": 32, "sharding": "ddp"}
    stated = {"base_format": "hqq", "unpacking": "torchao"}
    found = job(**qlora, zero_stage=0, job={"adapters": stated}).adapters
    assert found is not None
    assert (found.rank, found.base_bits) == (32, 4)
    assert (found.base_format, found.unpacking) == (BaseFormat.HQQ, Unpacking.TORCHAO)


@pytest.mark.parametrize(
    ("stated", "said"),
    [
        ({"frobnicated": True}, "frobnicated: is not a known field"),
        ({"softmx": "steps"}, "softmax"),
        ({"fused_loss": "perhaps"}, "fused_loss: is neither true nor false"),
        ({"dropout": True}, "job.dropout True: it is said by the column dropout"),
        ({"sequence_length": 4096}, "job.sequence_length 4096: it is said by the column seq_len"),
        ({"limits": {}}, "job.limits {}: it asks the planner"),
    ],
)
def test_what_no_job_has_is_named(stated: dict[str, object], said: str) -> None:
    with pytest.raises(Unpriced) as caught:
        job(job=stated)
    assert caught.value.reason is Unpriceable.FIELD
    assert said in str(caught.value)


def test_what_is_no_object_is_named_by_the_reader() -> None:
    run = MeasuredRun.from_fields({"job": "fused"}, source="runs.jsonl line 1")
    assert run.unreadable is not None
    assert run.unreadable.startswith("job: ")
