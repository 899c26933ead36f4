"""Whatever is planned, and however, fits with the chance that its job asks for."""

from __future__ import annotations

from typing import Any

import pytest

from planner.answers.frontier import frontier
from planner.planning import estimate, plan, resolved_cluster, resolved_model
from planner.requests.inquiry import Inquiry
from planner.requests.resolution import resolved_request
from planner.schema.cluster import Cluster, NodeGroup
from planner.schema.job import Job, Limits
from planner.schema.plan import Plan, ResolvedCluster
from planner.units import GIB

ASKED = 0.95
DEVICE = "h100-sxm5-80gb"


def cluster_of(*groups: tuple[str, int, int, float | None]) -> ResolvedCluster:
    """Nodes of devices, each (device, nodes, devices a node, GiB of a device or its own)."""
    cluster = Cluster(
        name="cluster",
        node_groups=tuple(
            NodeGroup(
                name=f"group-{index}",
                device=device,
                node_count=nodes,
                devices_per_node=devices,
                memory_bytes=None if memory_gib is None else memory_gib * GIB,
            )
            for index, (device, nodes, devices, memory_gib) in enumerate(groups)
        ),
    )
    return resolved_cluster(cluster.model_dump(mode="json"))


def planned(model: str, cluster: ResolvedCluster, *, gap_ratio: float = 0.1, **fields: Any) -> Plan:
    """A plan that need not be the best, nor simple: it must fit all the same."""
    limits = {"simplicity_ratio": 0.0, "accepted_gap_ratio": gap_ratio, **fields.pop("limits", {})}
    job = {"global_batch_size": 64, "sequence_length": 2048, "limits": limits, **fields}
    found = plan(resolved_model(model), cluster, Job.from_fields(job, source="job"))
    assert isinstance(found, Plan)
    return found


@pytest.mark.parametrize(
    ("memory_gib", "stack"),
    [
        pytest.param(memory_gib, stack, marks=[] if (place + turn) % 3 == 0 else [pytest.mark.full])
        for place, memory_gib in enumerate((14.0, 20.0, 28.0, 40.0))
        for turn, stack in enumerate(("torch", "megatron", "deepspeed"))
    ],
)
def test_plans_on_tight_devices_have_the_chance(memory_gib: float, stack: str) -> None:
    found = planned("llama-3-8b", cluster_of((DEVICE, 1, 8, memory_gib)), stack=stack)
    assert found.prediction.fits_probability >= ASKED


def test_the_simplest_plan_has_the_chance() -> None:
    cluster = cluster_of((DEVICE, 1, 8, 28.0))
    found = planned("llama-3-8b", cluster, limits={"simplicity_ratio": 0.1})
    assert found.certificate.simplicity is not None
    assert found.strategy != found.certificate.simplicity.fastest
    assert found.prediction.fits_probability >= ASKED


@pytest.mark.parametrize("stage_count", [2, 4, 8])
def test_every_stage_of_a_pipeline_has_the_chance(stage_count: int) -> None:
    limits = {"pipeline_parallel_degree": stage_count}
    found = planned("llama-3-8b", cluster_of((DEVICE, 1, 8, 20.0)), limits=limits)
    assert len(found.prediction.stages) == stage_count
    assert found.prediction.fits_probability >= ASKED


@pytest.mark.parametrize("model", ["mixtral-8x7b", "qwen3-8b"])
def test_plans_on_devices_of_two_kinds_have_the_chance(model: str) -> None:
    mixed = cluster_of((DEVICE, 1, 8, None), ("l40s-48gb", 1, 8, None))
    limits = {"solver_seconds": 10.0}
    assert planned(model, mixed, limits=limits).prediction.fits_probability >= ASKED


@pytest.mark.parametrize("objective", ["throughput", "cost", "memory", "devices"])
def test_plans_for_every_objective_have_the_chance(objective: str) -> None:
    cluster = cluster_of((DEVICE, 2, 4, 24.0))
    found = planned("llama-3-8b", cluster, objective=objective)
    assert found.prediction.fits_probability >= ASKED


def test_the_first_plan_of_the_readme_has_the_chance_and_hardly_more() -> None:
    """The search is held to the chance itself, not to something near it."""
    named = resolved_model("llama-3-8b"), resolved_cluster("8xh100-sxm5-80gb")
    limits = Limits(simplicity_ratio=0.0)
    found = plan(*named, Job(global_batch_size=512, limits=limits))
    assert isinstance(found, Plan)
    assert ASKED <= found.prediction.fits_probability < ASKED + 0.005
    binding = found.explanation.binding_constraints
    assert binding
    assert all(line.endswith("at a chance of fitting of 95%") for line in binding)


def test_a_lower_chance_asked_for_gives_a_plan_no_slower() -> None:
    cluster = cluster_of((DEVICE, 1, 8, 24.0))
    steps = [
        planned(
            "llama-3-8b",
            cluster,
            gap_ratio=0.0,
            limits={"fits_probability": chance},
        )
        for chance in (0.99, 0.8, None)
    ]
    seconds = [found.prediction.step_seconds.p50 for found in steps]
    assert seconds == sorted(seconds, reverse=True)
    assert seconds[0] > seconds[-1]


def test_points_of_a_frontier_have_the_chance() -> None:
    model, cluster = resolved_model("llama-3-8b"), cluster_of((DEVICE, 1, 8, None))
    job = Job(global_batch_size=64, sequence_length=2048)
    inquiry = Inquiry.within(60.0, share_ratio=0.1)
    request = resolved_request(model, cluster, job)
    points = frontier(request, inquiry=inquiry, point_count=3).points
    chances = [
        estimate(
            model, cluster_of((DEVICE, 1, point.device_count, None)), job, point.strategy
        ).prediction.fits_probability
        for point in points
    ]
    assert len(chances) >= 2
    assert min(chances) >= ASKED
