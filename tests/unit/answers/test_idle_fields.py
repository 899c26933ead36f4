"""A field of a job that counts for nothing in a layout is named in the answer, and no other is."""

from __future__ import annotations

import pytest

from planner.planning import estimate, plan, resolved_cluster, resolved_model
from planner.schema.job import Job
from planner.schema.plan import Plan
from planner.schema.strategy import Strategy

LLAMA, CLUSTER = resolved_model("llama-3-8b"), resolved_cluster("8xh100-sxm5-80gb")
SHARDED = {"data_parallel_shard_degree": 8, "zero_stage": 3}


def said_of(strategy: dict[str, object], **job: object) -> list[str]:
    """The idle fields that an estimate of Llama-3-8B on eight H100 names."""
    whole = Job.model_validate({"global_batch_size": 64, "sequence_length": 4096, **job})
    found = estimate(LLAMA, CLUSTER, whole, Strategy.model_validate(strategy))
    return [one.split()[0] for one in found.warnings if "changes nothing" in one]


@pytest.mark.parametrize(
    ("field", "value"),
    [
        ("row_scaled_fp8", True),
        ("fixed_expert_tokens", True),
        ("deduplicated_dispatch", True),
        ("expert_load_ratio", 1.5),
        ("stage_buffers", False),
        ("paged_states", True),
        ("vocabulary_parallel_loss", False),
    ],
)
def test_what_a_dense_model_without_pipelines_has_no_use_for_is_named(
    field: str, value: object
) -> None:
    assert said_of(SHARDED, **{field: value}) == [field]


def test_the_same_fields_are_not_named_where_they_count() -> None:
    tensor = {"tensor_parallel_degree": 2, "data_parallel_shard_degree": 4, "zero_stage": 1}
    assert said_of(tensor, vocabulary_parallel_loss=False, parameter_broadcasts=True) == []
    assert said_of(SHARDED, precision="fp8", row_scaled_fp8=True) == []
    offloaded = {**SHARDED, "offload": ["optimizer"]}
    assert said_of(offloaded, paged_states=True) == []


def test_a_field_that_says_what_the_stack_does_anyway_is_not_idle() -> None:
    """DeepSpeed hides no gradients of ZeRO 2 by default, and would if the job said so."""
    stage_2 = {"data_parallel_shard_degree": 8, "zero_stage": 2}
    assert said_of(stage_2, stack="deepspeed", overlapped_gradients=False) == []
    assert said_of(SHARDED, flash_attention_generation=2) == []
    assert said_of(SHARDED, fused_attention=False, softmax="wide_steps") == []


def test_a_job_that_states_nothing_has_none_and_plans_name_theirs() -> None:
    assert said_of(SHARDED) == []
    job = Job(global_batch_size=64, sequence_length=4096, row_scaled_fp8=True)
    found = plan(LLAMA, CLUSTER, job)
    assert isinstance(found, Plan)
    assert found.warnings[-1] == (
        "row_scaled_fp8 true changes nothing of this layout's step or memory"
    )
