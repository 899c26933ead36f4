"""What takes a search's time is told by the planner's own functions."""

from __future__ import annotations

import sys
from functools import reduce
from importlib import import_module
from types import FunctionType

import pytest

from benchmarks.phases import OTHER, STEPS, phase_of, sampled_phases
from planner import planning
from planner.planning import resolved_cluster, resolved_model
from planner.schema.job import Job


@pytest.mark.parametrize("name", STEPS)
def test_each_step_is_a_function_of_the_planner(name: str) -> None:
    module, qualified = name.split(":")

    found = reduce(getattr, qualified.split("."), import_module(module))

    assert isinstance(found, FunctionType)
    assert found.__module__ == module
    assert found.__qualname__ == qualified


def test_a_stack_without_steps_is_other() -> None:
    assert phase_of(sys._getframe()) == OTHER


def test_steps_make_up_most_of_a_search() -> None:
    job = Job.from_fields({"global_batch_size": 64, "sequence_length": 4096}, source="job")
    model, cluster = resolved_model("qwen3-30b-a3b"), resolved_cluster("8x8xh100-sxm5-80gb")

    with sampled_phases() as seconds:
        planning.plan(model, cluster, job)

    assert seconds["screens"] > 0.0
    assert seconds[OTHER] < 0.5 * sum(seconds.values())
