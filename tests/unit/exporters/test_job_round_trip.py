"""Round trip of a job: what an export writes of it is what importing it gives."""

from __future__ import annotations

from pathlib import Path
from typing import Any

import pytest

from planner.errors import InputError
from planner.exporters.export import Export
from planner.exporters.job_fields import OPTIMIZERS, WRITTEN
from planner.exporters.registry import export
from planner.importers.training.config import Setting
from planner.importers.training.files import strategy_from
from planner.schema.job import Job
from planner.schema.plan import Plan
from planner.schema.strategy import Strategy
from tests.unit.exporters.plans import plan_of

STRATEGY = Strategy(data_parallel_shard_degree=8, zero_stage=3)
WITH_ZERO_1 = Strategy(data_parallel_shard_degree=8, zero_stage=1)
SHARD_THE_OPTIMIZER = frozenset(
    ["megatron-lm", "megatron-bridge", "nemo", "verl-megatron", "nemo-rl-megatron", "nanotron"]
)
VALUES: dict[str, tuple[Any, ...]] = {
    "adapters": (
        {"rank": 16},
        {"rank": 8, "targets": "attention"},
        {"rank": 8, "base_bits": 4},
        {"rank": 8, "base_bits": 4, "base_format": "bnb"},
        {"rank": 8, "dropout": True},
        {"rank": 8, "trains_ends": True},
    ),
    "dropout": (True, False),
    "global_batch_size": (128,),
    "gradient_clipping": (True, False),
    "gradients_in_16_bits": (True, False),
    "overlapped_gradients": (True, False),
    "precision": ("bf16", "fp16", "fp32", "fp8"),
    "states_in_16_bits": (True, False),
    "tensor_float_32": (True, False),
}
CASES = [
    pytest.param(target, name, value, id=f"{target}-{name}-{value}")
    for target, names in sorted(WRITTEN.items())
    if target != "lightning"
    for name in sorted(names & VALUES.keys())
    for value in VALUES[name]
] + [
    pytest.param(target, "optimizer", one.value, id=f"{target}-optimizer-{one.value}")
    for target, ones in sorted(OPTIMIZERS.items())
    for one in ones
]


# Of a bf16 that Axolotl loads and keeps its states in, which its export tells of every plan.
CASES = [case for case in CASES if case.id != "axolotl-states_in_16_bits-False"]
LEAST_WRITTEN = 110  # of these, the others being told or refused


def written(target: str, name: str, value: Any) -> tuple[Plan, Export] | None:
    """A plan whose job has the value, and its export; None where that is told or refused."""
    fields = {name: value} | ({"precision": "fp32"} if name == "tensor_float_32" else {})
    named = {"batch": fields.pop("global_batch_size", 64)}
    strategy = WITH_ZERO_1 if target in SHARD_THE_OPTIMIZER else STRATEGY
    plan = plan_of(strategy, **named, **fields)
    try:
        made, usual = export(plan, target), export(plan_of(strategy), target)
    except InputError:
        return None
    return None if set(made.losses) - set(usual.losses) else (plan, made)


@pytest.mark.parametrize(("target", "name", "value"), CASES)
def test_importing_an_export_gives_the_field(
    target: str, name: str, value: Any, tmp_path: Path
) -> None:
    found = written(target, name, value)
    if found is None:
        return
    plan, made = found
    for file in made.files:
        (tmp_path / file.name).write_text(file.text)
    setting = Setting(graph=plan.model.resolved, device_count=8)
    job = strategy_from(tmp_path / made.files[0].name, setting).job
    whole = Job.model_validate({"global_batch_size": 1, **job})
    assert getattr(whole, name) == getattr(plan.job.resolved, name)


def test_most_of_these_are_written():
    assert sum(written(*case.values) is not None for case in CASES) >= LEAST_WRITTEN
