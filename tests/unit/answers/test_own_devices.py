"""A device whose profile the cluster brings gets the answers of the same device by its name.

But for seconds: what was learnt from published runs of the shipped device is not the other's.
"""

from __future__ import annotations

from collections.abc import Callable
from typing import Any

import pytest

from planner.answers.frontier import frontier
from planner.answers.reasons import reasons
from planner.answers.relaxation import smallest_relaxations
from planner.hardware import device_profile
from planner.planning import plan
from planner.requests.inquiry import Inquiry
from planner.requests.resolution import Request
from planner.schema.cluster import Cluster
from planner.schema.job import Objective
from planner.schema.plan import Plan
from planner.schema.strategy import Offload, PipelineSchedule
from planner.units import GIB
from tests.tight_requests import FEW_CHOICES, a_tight_cluster, a_tight_request

SHIPPED, OWN = "h100-sxm5-80gb", "measured-here"
FEW = FEW_CHOICES.model_copy(
    update={"zero_stages": (1,), "pipeline_schedules": (PipelineSchedule.ONE_F_ONE_B,)}
)
OFFLOADING = FEW.model_copy(update={"offload": (Offload.OPTIMIZER,)})


def brought(cluster: Cluster) -> Cluster:
    """Return the cluster with its device under a name that no shipped profile has."""
    fields = device_profile(SHIPPED).model_dump(mode="json") | {"device": OWN}
    groups = tuple(g.model_copy(update={"device": OWN}) for g in cluster.node_groups)
    changes = {"node_groups": groups, "device_profiles": {OWN: fields}}
    return Cluster.model_validate(cluster.model_copy(update=changes).model_dump(mode="json"))


def reasons_of(request: Request) -> Any:
    found = plan(request.model, request.cluster, request.job.resolved)
    assert isinstance(found, Plan)
    return [
        (price.resource, price.saved_seconds is not None and price.saved_seconds > 0.0)
        for price in reasons(found, inquiry=Inquiry.within(60.0)).shadow_prices
    ]


def front_of(request: Request) -> Any:
    found = frontier(request, inquiry=Inquiry.within(60.0), point_count=3)
    return [(point.peak_memory_bytes, point.device_count) for point in found.points]


def changes_of(request: Request) -> Any:
    found = smallest_relaxations(request, feasible=Inquiry.within(60.0).fits).changes
    return [(change.field, change.given, change.needed) for change in found]


@pytest.mark.parametrize(
    ("answer", "cluster", "job"),
    [
        (reasons_of, {"memory_bytes": 20.0 * GIB}, {"limits": FEW}),
        (reasons_of, {"memory_bytes": 20.0 * GIB}, {"limits": FEW, "objective": Objective.MEMORY}),
        (reasons_of, {"memory_bytes": 14.0 * GIB}, {"limits": OFFLOADING}),
        (front_of, {"memory_bytes": 20.0 * GIB}, {"limits": FEW}),
        (
            changes_of,
            {"memory_bytes": 20.0 * GIB},
            {"limits": OFFLOADING, "global_batch_size": 65536},
        ),
        (changes_of, {"memory_bytes": 2.0 * GIB}, {"limits": OFFLOADING}),
    ],
)
def test_answers_are_those_of_the_shipped_device(
    answer: Callable[[Request], Any], cluster: dict[str, Any], job: dict[str, Any]
) -> None:
    place = a_tight_cluster(host_memory_bytes=64.0 * GIB, **cluster)
    named = answer(a_tight_request(cluster=place, **job))
    assert named
    assert answer(a_tight_request(cluster=brought(place), **job)) == named
