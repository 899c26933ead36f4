"""What takes a search's time is told by the planner's own functions."""

from __future__ import annotations

import sys
from functools import reduce
from importlib import import_module
from types import FrameType, FunctionType

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


def test_the_innermost_step_on_the_stack_tells_the_phase() -> None:
    told: set[str] = set()

    def look(frame: FrameType, event: str, _: object) -> None:
        if event == "call" and frame.f_code.co_qualname == "quick_bounds":
            told.add(phase_of(frame))

    job = Job.from_fields({"global_batch_size": 8, "sequence_length": 512}, source="job")
    model, cluster = resolved_model("llama-3-8b"), resolved_cluster("8xh100-sxm5-80gb")
    before = sys.getprofile()
    sys.setprofile(look)
    try:
        planning.plan(model, cluster, job)
    finally:
        sys.setprofile(before)

    assert told == {"quick bounds"}


def test_seconds_of_a_block_without_the_planner_are_other() -> None:
    with sampled_phases() as seconds:
        sum(range(1000))

    assert set(seconds) == {OTHER}
