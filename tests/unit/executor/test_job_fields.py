"""Every field of a job is done by the executor, refused by it, told, or of no program."""

from __future__ import annotations

from typing import Any

import pytest

from executor.apply.supported import check_strategy
from executor.errors import UnsupportedPlanError
from planner.executor_fields import (
    DONE_OR_REFUSED,
    OF_NO_PROGRAM,
    OF_THE_SCRIPT,
    executor_differences,
    executor_losses,
)
from planner.schema.job import Job
from planner.schema.strategy import LayerGroup, Offload, Stage, Strategy
from tests.unit.exporters.test_job_fields import OTHERS

USUAL = {"global_batch_size": 8, "sequence_length": 128}
# What `check_strategy` refuses; the others of their group the executor applies or tells itself.
REFUSED = {
    "fused_linear_loss",
    "gradients_in_16_bits",
    "offload_to",
    "offloaded_gradients",
    "paged_states",
    "states_in_16_bits",
    "steps_in_backward",
}
APPLIED = {
    "adapters",
    "foreach_optimizer",
    "fused_elementwise",
    "global_batch_size",
    "gradient_clipping",
    "precision",
    "row_scaled_fp8",
    "sequence_length",
    "tensor_float_32",
}
OFFLOADED = Strategy(
    stages=(
        Stage(
            stage=0,
            layers=(LayerGroup(first_block=0, block_count=1, offload=(Offload.OPTIMIZER,)),),
        ),
    )
)


def a_job(**fields: Any) -> Job:
    of_fp8 = dict.fromkeys(("copies_in_8_bits", "gathered_in_8_bits"), "fp8")
    formats = {"tensor_float_32": "fp32", **of_fp8}
    own = [{"precision": formats[name]} for name in fields if name in formats]
    return Job.model_validate({**USUAL, **(own[0] if own else {}), **fields})


def test_no_field_of_a_job_is_forgotten() -> None:
    assert REFUSED | APPLIED == DONE_OR_REFUSED
    told = OTHERS.keys() - DONE_OR_REFUSED - OF_THE_SCRIPT
    known = DONE_OR_REFUSED | OF_THE_SCRIPT | OF_NO_PROGRAM | told | {"stack"}
    assert known == set(Job.model_fields)


@pytest.mark.parametrize("name", sorted(REFUSED))
def test_a_field_is_refused(name: str) -> None:
    with pytest.raises(UnsupportedPlanError, match=f"job.{name}"):
        check_strategy(OFFLOADED, a_job(**{name: OTHERS[name]}))


@pytest.mark.parametrize("name", sorted(APPLIED & OTHERS.keys()))
def test_what_is_applied_is_no_loss(name: str) -> None:
    assert executor_losses(a_job(**{name: OTHERS[name]})) == ()


def test_how_a_softmax_is_made_is_told_with_the_attention_that_makes_it() -> None:
    job = a_job(softmax="steps", fused_attention=False)
    assert [told.split()[0] for told in executor_losses(job)] == ["fused_attention", "softmax"]
    assert executor_differences(job) == ()


def test_scales_that_are_planned_whole_are_told() -> None:
    base = {"rank": 8, "base_bits": 4}
    (told,) = executor_differences(a_job(adapters={**base, "whole_scales": True}))
    assert "the executor shards scales of weights in 4 bits" in told
    assert executor_differences(a_job(adapters=base)) == ()


@pytest.mark.parametrize("name", sorted(OF_THE_SCRIPT - {"softmax"}))
def test_what_the_script_does_is_told_before_a_run_alone(name: str) -> None:
    job = a_job(**{name: OTHERS[name]})
    (told,) = executor_losses(job)
    assert told.startswith(f"{name} ")
    assert executor_differences(job) == ()


@pytest.mark.parametrize("name", sorted(OTHERS.keys() - DONE_OR_REFUSED - OF_THE_SCRIPT))
def test_what_is_not_done_is_told(name: str) -> None:
    job = a_job(**{name: OTHERS[name]})
    (told,) = executor_differences(job)
    assert f"does not do {name} " in told
    assert executor_losses(job) == (told,)


@pytest.mark.parametrize("name", ["copied_rows", "overlapped_tensor_parallel"])
def test_what_the_executor_does_as_it_is_is_not_told(name: str) -> None:
    assert executor_losses(a_job(**{name: not OTHERS[name]})) == ()


def test_another_stack_than_torch_is_told() -> None:
    (told,) = executor_differences(a_job(stack="megatron"))
    assert "priced for the stack megatron" in told


def test_what_is_the_default_is_not_told() -> None:
    assert executor_losses(a_job(cuda_graphs=False, fused_attention=True, stack="torch")) == ()
