"""The planned accelerator: loops that are not the plan's end before their first update."""

from __future__ import annotations

from collections.abc import Iterator
from typing import Any

import pytest

pytest.importorskip("accelerate", reason="no package accelerate")
pytest.importorskip("torch", reason="the executor's tests need torch")

import torch
from accelerate.state import AcceleratorState
from accelerate.utils import DistributedType

from meshwright.integrations.accelerate import PlannedAccelerator, _check_engine, _draft
from planner.errors import InputError
from tests.distributed.families import hugging_face_graph, hugging_face_model
from tests.distributed.plans import SEQUENCE_LENGTH, cpu_plan

SHARDED: dict[str, Any] = {"data_parallel_degree": 2, "micro_batch_size": 2, "zero_stage": 3}


@pytest.fixture(autouse=True)
def _no_state_of_other_tests() -> Iterator[None]:
    AcceleratorState._reset_state(reset_partial_state=True)
    yield
    AcceleratorState._reset_state(reset_partial_state=True)


def plan_of(**strategy: Any):
    """A plan for the small Llama."""
    return cpu_plan(model=hugging_face_graph("llama", tied=False), **strategy)


def accelerator_of_one_rank() -> PlannedAccelerator:
    """An accelerator for steps of four micro-batches of two sequences."""
    return PlannedAccelerator(plan_of(micro_batch_size=2), cpu=True)


def prepared(accelerator: PlannedAccelerator, **changes: Any) -> torch.nn.Module:
    """A model that the accelerator has prepared; `changes` are to its fields."""
    model = hugging_face_model("llama", tied=False, **changes)
    made: torch.nn.Module = accelerator.prepare(model)
    return made


@pytest.mark.parametrize("name", ["mixed_precision", "gradient_accumulation_steps", "fsdp_plugin"])
def test_what_the_plan_says_the_script_may_not(name: str):
    with pytest.raises(InputError, match="is the plan's to say") as refused:
        PlannedAccelerator(plan_of(**SHARDED), **{name: None})
    assert refused.value.field == name


def test_other_ranks_are_refused():
    with pytest.raises(InputError, match="the plan is for 2 ranks"):
        PlannedAccelerator(plan_of(data_parallel_degree=2, micro_batch_size=2), cpu=True)


def test_shards_that_accelerate_would_leave_out_in_silence_are_refused():
    with pytest.raises(InputError, match="shards nothing") as refused:
        _check_engine(DistributedType.MULTI_CPU, _draft(plan_of(**SHARDED)))
    assert refused.value.field == "distributed_type"


def test_shards_that_the_plan_has_not_are_refused():
    draft = _draft(plan_of(data_parallel_degree=2, micro_batch_size=2))
    with pytest.raises(InputError, match="has replicas of the whole model"):
        _check_engine(DistributedType.FSDP, draft)


@pytest.mark.parametrize(
    ("field", "strategy"),
    [
        ("pipeline_parallel_degree", {"pipeline_parallel_degree": 2}),
        ("tensor_parallel_degree", {**SHARDED, "tensor_parallel_degree": 2}),
    ],
)
def test_what_accelerate_cannot_run_is_refused(field: str, strategy: dict[str, Any]):
    with pytest.raises(InputError, match="Accelerate") as refused:
        PlannedAccelerator(plan_of(**strategy))
    assert refused.value.field == f"strategy.{field}"


def test_another_model_is_refused():
    with pytest.raises(InputError, match="which has 32") as refused:
        prepared(accelerator_of_one_rank(), hidden_size=16)
    assert refused.value.field == "model.hidden_size"


def test_updates_after_each_micro_batch_are_refused():
    """Accelerate divides their losses by four all the same."""
    accelerator = accelerator_of_one_rank()
    with pytest.raises(InputError, match="a step of the plan has 4 micro-batches"):
        accelerator.backward(torch.ones(1, requires_grad=True).sum())


def test_other_micro_batches_are_refused():
    model = prepared(accelerator_of_one_rank())
    tokens = torch.zeros(3, SEQUENCE_LENGTH, dtype=torch.long)
    with pytest.raises(InputError, match="which has 2") as refused:
        model(input_ids=tokens)
    assert refused.value.field == "micro-batch size"
