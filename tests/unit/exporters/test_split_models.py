"""Tensor parallelism under Hugging Face's programs: who splits the model, and what is refused."""

from __future__ import annotations

import json
from typing import Any

import pytest

from planner.errors import InputError
from planner.exporters.registry import export
from planner.schema.strategy import Strategy
from tests.unit.exporters.plans import plan_of

SPLIT: dict[str, Any] = {
    "tensor_parallel_degree": 2,
    "data_parallel_shard_degree": 8,
    "zero_stage": 3,
    "micro_batch_size": 1,
}


def exported(target: str, **changes: Any):
    """The export of 16 devices' plan with two tensor-parallel ranks."""
    strategy = Strategy(**{**SPLIT, **changes})
    plan = plan_of(strategy, model="llama-3-8b", cluster="2x8xh100-sxm5-80gb", batch=64)
    return export(plan, target)


def test_the_trainers_arguments_leave_the_model_to_its_loading():
    made = exported("hf-trainer")
    fields = json.loads(made.files[0].text)
    assert "fsdp" not in fields
    assert fields["parallelism_config"]["tp_size"] == 2
    assert any("DistributedConfig(tp_size=2, fsdp_size=8)" in loss for loss in made.losses)


def test_what_is_split_at_load_is_sharded_as_zero_3():
    made = exported("hf-trainer", zero_stage=2)
    assert made.strategy.stages[0].layers[0].zero_stage == 3
    assert any("where the plan has 2" in loss for loss in made.losses)


@pytest.mark.parametrize(
    ("changes", "field"),
    [
        (
            {"context_parallel_degree": 2, "data_parallel_shard_degree": 4},
            "context_parallel_degree",
        ),
        (
            {"data_parallel_replicate_degree": 2, "data_parallel_shard_degree": 4},
            "data_parallel_replicate_degree",
        ),
        ({"offload": ["optimizer", "parameters"]}, "offload"),
    ],
    ids=lambda value: value if isinstance(value, str) else "",
)
def test_what_the_trainer_has_not_beside_it_is_refused(changes: dict[str, Any], field: str):
    with pytest.raises(InputError, match="beside tensor parallelism") as refused:
        exported("hf-trainer", **changes)
    assert refused.value.field == f"strategy.{field}"


def test_accelerate_says_which_transformers_it_needs_to_prepare_a_split_model():
    assert any("ReplicateParallel" in loss for loss in exported("accelerate").losses)
