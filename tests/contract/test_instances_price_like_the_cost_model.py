"""An instance prices any assignment as the cost model prices the strategy that it stands for."""

from __future__ import annotations

from collections import Counter

import numpy as np
import pytest

from planner.cost.configuration import Configuration
from planner.cost.step import predict
from planner.cost.table import memory_limits
from planner.hardware import DeviceHardware
from planner.ilp.instance import Assignment, Instance, evaluate
from planner.ilp.milp import strategy_of
from planner.ilp.pricing import Pricing
from planner.ilp.problem import Problem
from planner.requests.resolution import resolved_cluster, resolved_model, resolved_request
from planner.schema.plan import Prediction
from planner.schema.strategy import PipelineSchedule, Strategy
from planner.space.choices import block_choices, edge_choices
from planner.space.degrees import enumerate_configurations
from tests.builders import a_job
from tests.draws import drawn, of_drawn
from tests.small_jobs import random_assignment, small_jobs

ONE_OF = 5
JOBS = drawn(range(120), one_of=ONE_OF)
PER_JOB = 4


def devices_of(problem: Problem, row: Configuration) -> list[DeviceHardware]:
    """The kind of device of every rank."""
    kinds = problem.hardware.stage_kinds(
        row.device_order, pipeline_parallel_degree=row.pipeline_parallel_degree
    )
    return [problem.hardware.kinds[kind] for kind in kinds]


def strategy(
    problem: Problem, row: Configuration, instance: Instance, assignment: Assignment
) -> Strategy:
    """The strategy that an assignment stands for."""
    return strategy_of(
        instance,
        assignment,
        configuration=row,
        choices=block_choices(problem.job.limits),
        edges=edge_choices(problem.job.limits),
        device_groups=[device.device_group for device in devices_of(problem, row)],
    )


def assert_memory_is_the_same(
    problem: Problem, row: Configuration, memory: np.ndarray, prediction: Prediction
) -> None:
    """Live bytes with slack and runtime are the peak.

    Ranks with several virtual stages may hold more than their micro-batches in flight of all
    layers, where earlier virtual stages keep more than later ones, and never less.
    """
    for device, live, stage in zip(
        devices_of(problem, row), memory.tolist(), prediction.stages, strict=True
    ):
        limits = memory_limits(problem.workload, device, problem.job)
        peak = live * (1.0 + limits.slack_ratio) + limits.runtime_bytes
        if row.virtual_pipeline_degree == 1:
            assert stage.peak_memory_bytes == pytest.approx(peak, rel=1e-9)
        else:
            assert stage.peak_memory_bytes >= peak * (1.0 - 1e-9)


def test_random_assignments_cost_what_the_cost_model_says() -> None:
    """Step, device memory and host memory, on every schedule and on mixed clusters."""
    numbers = np.random.default_rng(20)
    seen: Counter[object] = Counter()
    for seed, job in small_jobs(JOBS):
        count = len(job.space.configurations)
        for index in sorted(set(numbers.integers(count, size=PER_JOB).tolist())):
            row = job.space.configurations.row(index)
            instance = job.pricing.instance(index)
            assignment = random_assignment(instance, numbers)
            evaluation = evaluate(instance, assignment)
            made = strategy(job.problem, row, instance, assignment)
            found = predict(job.problem.workload, job.problem.hardware, job.problem.job, made)
            name = f"job {seed}, configuration {index}"
            expected = pytest.approx(evaluation.step_seconds, rel=1e-9)
            assert found.step_seconds.p50 == expected, name
            hosts = [stage.host_memory_bytes for stage in found.stages]
            assert hosts == pytest.approx(evaluation.host_bytes.tolist(), rel=1e-9), name
            assert_memory_is_the_same(job.problem, row, evaluation.memory_bytes, found)
            seen[row.pipeline_schedule if row.pipeline_parallel_degree > 1 else "alone"] += 1
            seen["mixed"] += len(job.problem.hardware.kinds) > 1
            seen["extras"] += instance.extras is not None
    least = of_drawn(5, one_of=ONE_OF)
    assert all(seen[schedule] > least for schedule in PipelineSchedule)
    assert seen["mixed"] > of_drawn(50, one_of=ONE_OF)


def test_the_instance_has_no_boundary_that_the_cost_model_has_not() -> None:
    """The same blocks cut anywhere: where kinds send alike, no cut has extras."""
    for _, job in small_jobs(drawn(range(20), one_of=ONE_OF)):
        for _, instance in job.instances():
            if len(instance.chain) == 1 or instance.stage_count == 1:
                assert instance.extras is None


def test_configurations_share_prices_only_where_these_are_their_own() -> None:
    """What an instance costs is the same where its configuration is priced by itself.

    Ranks that take turns hide what is synced once a step beside other virtual stages, so that more
    of these cost less.
    """
    asked = a_job(global_batch_size=64, sequence_length=4096, stack="megatron")
    cluster = resolved_cluster("16x2xa100-sxm4-80gb")
    request = resolved_request(resolved_model("llama-3-8b"), cluster, asked)
    job = request.job.resolved
    problem = Problem(
        graph=request.model.resolved, workload=request.workload, hardware=request.hardware, job=job
    )
    space = enumerate_configurations(problem.graph, problem.hardware, job)
    choices, edges = block_choices(job.limits), edge_choices(job.limits)
    together = Pricing(problem, configurations=space.configurations, choices=choices, edges=edges)
    in_turns = np.flatnonzero(space.configurations.turns > 1)
    sample = np.random.default_rng(21).choice(in_turns, size=40, replace=False).tolist()
    together.memory_bounds(sample)  # keeps the prices of what fits, with bytes priced apart
    ends = set()
    for index in sample:
        alone = space.configurations.take(np.array([index]))
        own = Pricing(problem, configurations=alone, choices=choices, edges=edges).instance(0)
        shared = together.instance(index)
        assert len(own.kinds) == len(shared.kinds)
        for mine, theirs in zip(own.kinds, shared.kinds, strict=True):
            assert mine.choice == theirs.choice
            for name in ("pace", "fill", "end", "memory", "transient", "host"):
                assert getattr(mine, name) == pytest.approx(getattr(theirs, name), rel=1e-12), index
        ends.add(float(own.kinds[own.free_kinds[0]].end.max()))
    assert len(ends) > 10
