"""A search over configurations finds the best of all plans of all configurations, and proves it."""

from __future__ import annotations

from dataclasses import replace

import pytest
from hypothesis import HealthCheck, given, settings
from hypothesis import strategies as st

from planner.cost.configuration import Choices, LayerChoices
from planner.cost.step import predict
from planner.cost.table import cost_table, memory_limits
from planner.hardware import ClusterHardware, cluster_hardware
from planner.ilp.problem import Problem
from planner.ilp.result import Found, NotFound
from planner.ilp.search import search
from planner.ilp.solver import SolverName
from planner.schema.cluster import NodeGroup
from planner.schema.job import Job
from planner.schema.model import ModelGraph
from planner.space.choices import block_choices, edge_choices
from planner.space.degrees import enumerate_configurations
from planner.space.legality import breaches
from planner.units import MIB
from planner.workload.model import model_workload
from tests.builders import a_cluster, a_job, a_model
from tests.oracle import chain_of, least_step

CHOICE_SETS = (
    {"zero_stages": (0, 3), "activation_checkpointing": ("none", "full"), "offload": ()},
    {"zero_stages": (1, 2), "activation_checkpointing": ("selective",), "offload": ("optimizer",)},
    {"zero_stages": (3,), "activation_checkpointing": ("none",), "offload": ("parameters",)},
    {"zero_stages": (0,), "activation_checkpointing": ("none", "selective", "full"), "offload": ()},
)


def best_of_all(graph: ModelGraph, hardware: ClusterHardware, job: Job) -> float | None:
    """The least step over every configuration, each searched exhaustively."""
    space = enumerate_configurations(graph, hardware, job)
    if not space.rows:
        return None
    edges = Choices.of(edge_choices(job.limits))
    table = cost_table(
        model_workload(graph),
        hardware.kinds[0],
        job,
        configurations=space.columns(),
        choices=LayerChoices(
            blocks=Choices.of(block_choices(job.limits)), embedding=edges, head=edges
        ),
    )
    steps = [least_step(chain_of(table, index, row)) for index, row in enumerate(space.rows)]
    return min((step for step in steps if step is not None), default=None)


@st.composite
def small_jobs(draw: st.DrawFn) -> tuple[ModelGraph, ClusterHardware, Job]:
    """A few blocks of one or two kinds on one to four devices with little memory."""
    first = a_model().runs[0]
    wider = first.block.model_copy(
        update={"feed_forward": first.block.feed_forward.model_copy(update={"ffn_size": 512})}
    )
    runs = [first.model_copy(update={"block_count": draw(st.integers(1, 3))})]
    if draw(st.booleans()):
        runs.append(
            first.model_copy(update={"block": wider, "block_count": draw(st.integers(1, 2))})
        )
    job = a_job(
        global_batch_size=draw(st.sampled_from([4, 6, 8])),
        sequence_length=draw(st.sampled_from([64, 128])),
        precision="fp32",
        limits=draw(st.sampled_from(CHOICE_SETS)),
    )
    live_bytes = draw(st.integers(4, 40)) * MIB / 4
    hardware = ranks_with(live_bytes, job, device_count=draw(st.sampled_from([1, 2, 4])))
    host = draw(st.sampled_from([0, 1, 64])) * MIB
    return (
        a_model(runs=tuple(runs)),
        with_only_kind(hardware, host_memory_bytes_per_device=float(host)),
        job,
    )


def ranks_with(live_bytes: float, job: Job, *, device_count: int) -> ClusterHardware:
    """Ranks of one node whose tensors may take `live_bytes`, runtime and headroom aside."""
    group = NodeGroup(name="ranks", device="cpu-gloo", node_count=1, devices_per_node=device_count)
    hardware = cluster_hardware(a_cluster(name="ranks", node_groups=(group,)))
    limits = memory_limits(hardware.kinds[0], job)
    capacity = live_bytes * (1.0 + limits.slack_ratio) + limits.runtime_bytes
    headroom = 1.0 - job.limits.memory_headroom_ratio
    return with_only_kind(hardware, device_memory_bytes=capacity / headroom)


def with_only_kind(hardware: ClusterHardware, **changes: float) -> ClusterHardware:
    """The cluster of one kind of device, with that kind changed."""
    (kind,) = hardware.kinds
    return ClusterHardware(kinds=(replace(kind, **changes),))


@pytest.mark.parametrize("solver", list(SolverName))
@settings(
    max_examples=40,
    deadline=None,
    derandomize=True,
    suppress_health_check=[HealthCheck.too_slow, HealthCheck.data_too_large],
)
@given(request=small_jobs())
def test_search_finds_and_proves_the_best_of_all_configurations(
    solver: SolverName, request: tuple[ModelGraph, ClusterHardware, Job]
) -> None:
    """The claim is legal, fits, is priced the same by the cost model, and its proof is closed."""
    graph, hardware, job = request
    workload = model_workload(graph)
    expected = best_of_all(graph, hardware, job)
    result = search(
        Problem(graph=graph, workload=workload, hardware=hardware, job=job), solver=solver
    )
    if expected is None:
        assert isinstance(result, NotFound)
        assert result.proven
        return
    assert isinstance(result, Found)
    assert result.step_seconds == pytest.approx(expected, rel=1e-9)
    assert result.certificate.status == "optimal"
    assert result.certificate.lower_bound_seconds == pytest.approx(expected, rel=1e-9)
    assert list(breaches(graph, hardware, job, result.strategy)) == []
    prediction = predict(workload, hardware, job, result.strategy)
    assert prediction.fits
    assert prediction.step_seconds.p50 == pytest.approx(expected, rel=1e-9)


@settings(max_examples=15, deadline=None, derandomize=True)
@given(request=small_jobs())
def test_runners_up_are_bounds_or_optima_of_other_degrees(
    request: tuple[ModelGraph, ClusterHardware, Job],
) -> None:
    """None is below the winner, each has degrees of its own, and exact ones are what they cost."""
    graph, hardware, job = request
    result = search(
        Problem(graph=graph, workload=model_workload(graph), hardware=hardware, job=job)
    )
    if isinstance(result, NotFound):
        return
    steps = [runner.step_seconds for runner in result.runners_up]
    degrees = {
        (c.tensor_parallel_degree, c.pipeline_parallel_degree, c.context_parallel_degree)
        for c in (runner.configuration for runner in result.runners_up)
    }
    assert steps == sorted(steps)
    assert all(step >= result.step_seconds * (1 - 1e-9) for step in steps)
    assert len(degrees) == len(result.runners_up)
