"""Every field of a strategy is written by a target, told as lost, refused, or of no file at all."""

from __future__ import annotations

import json
import random
from collections.abc import Iterator
from typing import Any, get_args

import pytest
from pydantic import BaseModel

from planner.errors import InputError
from planner.exporters.canonical import canonical, layer_groups
from planner.exporters.draft import zero_stages
from planner.exporters.registry import TARGETS, Export, export
from planner.exporters.strategy_fields import (
    OF_NO_FILE,
    STRATEGY_FIELDS,
    Said,
    field_values,
    is_idle,
)
from planner.schema.plan import Plan
from planner.schema.strategy import Strategy
from tests.unit.exporters.plans import plan_of, resolved_model
from tests.unit.exporters.strategies import BATCH, random_strategy

WITH_THE_PLAN = {"torchrun", "slurm", "kubeflow", "skypilot"}
PROGRAMS = [target for target in TARGETS if target not in WITH_THE_PLAN]
PLANS = 60
# One value that a target refuses, beside what makes the field say something.
REFUSED: dict[str, dict[str, Any]] = {
    "pipeline_parallel_degree": {"pipeline_parallel_degree": 2, "data_parallel_shard_degree": 8},
    "expert_parallel_degree": {"expert_parallel_degree": 2, "data_parallel_shard_degree": 16},
    "pipeline_schedule": {
        "pipeline_parallel_degree": 2,
        "pipeline_schedule": "zb_v",
        "data_parallel_shard_degree": 8,
    },
    "sequence_parallel": {
        "tensor_parallel_degree": 2,
        "sequence_parallel": True,
        "data_parallel_shard_degree": 8,
    },
    "ring": {
        "context_parallel_degree": 2,
        "context_parallel_kind": "ring",
        "data_parallel_shard_degree": 8,
    },
    "all_to_all": {
        "context_parallel_degree": 2,
        "context_parallel_kind": "all_to_all",
        "data_parallel_shard_degree": 8,
    },
    "parameters": {"zero_stage": 3, "offload": ["parameters"], "data_parallel_shard_degree": 16},
    "activations": {"offload": ["activations"], "data_parallel_shard_degree": 16},
}
REFUSALS = [
    ("deepspeed", "pipeline_parallel_degree", "2", "limits.pipeline_parallel_degree 1"),
    ("deepspeed", "expert_parallel_degree", "2", "limits.expert_parallel_degree 1"),
    ("deepspeed", "sequence_parallel", "True", "limits.sequence_parallel false"),
    ("deepspeed", "ring", "ring", "limits.context_parallel_kinds [all_to_all]"),
    ("accelerate", "pipeline_parallel_degree", "2", "limits.pipeline_parallel_degree 1"),
    ("accelerate", "all_to_all", "all_to_all", "limits.context_parallel_kinds [ring]"),
    ("accelerate", "activations", "activations", "limits.offload [optimizer, parameters] or []"),
    ("hf-trainer", "sequence_parallel", "True", "limits.sequence_parallel false"),
    ("megatron-lm", "pipeline_schedule", "zb_v", "--stack megatron"),
    ("megatron-bridge", "parameters", "parameters", "limits.offload [optimizer, activations]"),
    ("torchtitan", "activations", "activations", "limits.offload [optimizer, parameters] or []"),
]


def leaf_names(schema: type[BaseModel]) -> Iterator[str]:
    """The names of the schema's fields, and of what lies in those that are parts."""
    for name, field in schema.model_fields.items():
        parts = list(_parts(field.annotation))
        if not parts:
            yield name
        for part in parts:
            yield from leaf_names(part)


def _parts(annotation: Any) -> Iterator[type[BaseModel]]:
    if isinstance(annotation, type) and issubclass(annotation, BaseModel):
        yield annotation
    for argument in get_args(annotation):
        yield from _parts(argument)


@pytest.mark.parametrize("target", [*PROGRAMS, "lightning"])
def test_no_field_of_a_strategy_is_forgotten(target: str) -> None:
    assert set(STRATEGY_FIELDS[target]) | OF_NO_FILE == set(leaf_names(Strategy))
    assert not set(STRATEGY_FIELDS[target]) & OF_NO_FILE


def test_every_target_that_is_a_program_has_its_table() -> None:
    assert set(STRATEGY_FIELDS) == {*PROGRAMS, "lightning"}


@pytest.mark.parametrize(("target", "case", "value", "remedy"), REFUSALS)
def test_a_value_that_no_file_says_is_refused_by_name(
    target: str, case: str, value: str, remedy: str
) -> None:
    model = "mixtral-8x7b" if case == "expert_parallel_degree" else "llama-3-8b"
    plan = plan_of(
        Strategy.model_validate(REFUSED[case]), model=model, cluster="2x8xh100-sxm5-80gb"
    )
    with pytest.raises(InputError) as refused:
        export(plan, target)
    field = {"ring": "context_parallel_kind", "all_to_all": "context_parallel_kind"}.get(case, case)
    field = "offload" if case in {"parameters", "activations"} else field
    assert refused.value.field == f"strategy.{field}"
    assert str(refused.value.value) == value
    assert remedy in str(refused.value.remedy)


def by_block(strategy: Strategy, name: str) -> object:
    """The field's values, of layers block by block and of the ends."""
    if name in {"zero_stage", "activation_checkpointing", "offload"}:
        ends = [getattr(end, name, None) for end in (strategy.embedding, strategy.head)]
        groups = layer_groups(strategy)
        return [getattr(g, name) for g in groups for _ in range(g.block_count)], ends
    if name in {"first_block", "block_count"}:
        return [stage.block_count for stage in strategy.stages or ()]
    return field_values(strategy, name)


def _replicas(strategy: Strategy) -> int:
    return strategy.data_parallel_replicate_degree * (strategy.data_parallel_shard_degree or 1)


def changed_fields(before: Strategy, after: Strategy) -> list[str]:
    """The fields that say something else after an export."""
    names = [name for name in STRATEGY_FIELDS["torchtitan"] if not is_idle(before, name)]
    changed = [name for name in names if by_block(before, name) != by_block(after, name)]
    # Where nothing is sharded, replicas are shards by another name: only how many there are counts.
    if zero_stages(before) == {0} and _replicas(before) == _replicas(after):
        changed = [name for name in changed if not name.startswith("data_parallel_")]
    return changed


def exported(plan: Plan, target: str) -> Export | InputError:
    """The export, or why the target refuses the plan."""
    try:
        return export(plan, target)
    except InputError as refused:
        return refused


def is_always_written(field: Said) -> bool:
    """Whether the files say every value, whatever stands beside it."""
    return field.values is None and not field.lost and not field.beside


@pytest.mark.parametrize(("model", "experts"), [("llama-3-8b", 1), ("mixtral-8x7b", 8)])
@pytest.mark.parametrize("target", PROGRAMS)
def test_what_changes_may_change_and_is_told(target: str, model: str, experts: int) -> None:
    rng = random.Random(20261126)  # noqa: S311
    blocks = resolved_model(model).resolved.block_count
    table = STRATEGY_FIELDS[target]
    for _ in range(PLANS):
        strategy = random_strategy(rng, block_count=blocks, experts=experts)
        plan = plan_of(strategy, model=model, cluster="2x8xh100-sxm5-80gb", batch=BATCH)
        made = exported(plan, target)
        if isinstance(made, InputError):
            owner, _, name = made.field.partition(".")
            assert owner == "job" or not is_always_written(table[name])
            continue
        changed = changed_fields(canonical(plan.strategy), canonical(made.strategy))
        assert [name for name in changed if is_always_written(table[name])] == []
        # of one micro-batch gradients are reduced as often in ZeRO 1 as in ZeRO 2
        alike = changed == ["zero_stage"] and plan.strategy.micro_batch_count == 1
        assert made.losses or not changed or alike


def test_a_lone_rank_with_several_zero_stages_has_the_one_that_its_offload_needs() -> None:
    """It shards nothing, so that only the offload of parameters says which stage is written."""
    groups = [
        {"first_block": 0, "block_count": 8},
        {"first_block": 8, "block_count": 24, "zero_stage": 3, "offload": ["parameters"]},
    ]
    alone = Strategy.model_validate({"stages": [{"stage": 0, "layers": groups}]})
    plan = plan_of(alone, model="llama-3-8b", cluster="1xh100-sxm5-80gb")
    (file,) = export(plan, "deepspeed").files
    assert json.loads(file.text)["zero_optimization"]["stage"] == 3


def test_nodes_are_told_in_the_order_of_the_stages_on_them() -> None:
    plan = plan_of(Strategy(pipeline_parallel_degree=4, data_parallel_shard_degree=2, zero_stage=1))
    stages = [
        stage.model_copy(update={"device_group": name})
        for stage, name in zip(plan.strategy.stages or (), "abba", strict=True)
    ]
    strategy = plan.strategy.model_copy(update={"stages": tuple(stages)})
    losses = export(plan.model_copy(update={"strategy": strategy}), "torchrun").losses
    assert losses[-1].endswith(
        "give ranks to nodes in the order a (1 stage), then b (2 stages), then a (1 stage)"
    )
