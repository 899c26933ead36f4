"""A quoted price of memory is what planning again with one more GiB saves."""

from __future__ import annotations

import pytest

from planner.answers.finalists import fastest_plan
from planner.answers.shadow_price import shadow_prices
from planner.hardware import cluster_hardware, device_profile
from planner.requests.inquiry import Inquiry, Solution
from planner.requests.planned import Planned
from planner.requests.variation import (
    devices,
    host_memory_bytes,
    with_device_memory,
    with_group,
    with_host_memory,
    with_memory_cap,
)
from planner.schema.job import Limits
from planner.units import GIB
from tests.tight_requests import a_tight_cluster, a_tight_request


def solved(request) -> Planned:
    answer = fastest_plan(request, inquiry=Inquiry.within(30.0))
    assert isinstance(answer, Solution)
    return Planned(request=request, strategy=answer.strategy, prediction=answer.prediction)


@pytest.mark.parametrize("memory_gib", [11.0, 13.0, 16.0])
def test_the_price_of_device_memory_is_what_solving_again_saves(memory_gib):
    request = a_tight_request(cluster=a_tight_cluster(memory_bytes=memory_gib * GIB))
    planned = solved(request)
    prices = list(shadow_prices(planned, plan_is_proven=True, inquiry=Inquiry.within(30.0)))
    larger = a_tight_cluster(memory_bytes=(memory_gib + 1.0) * GIB)
    again = solved(a_tight_request(cluster=larger))
    assert [(price.resource, price.device) for price in prices] == [
        ("device_memory", "h100-sxm5-80gb")
    ]
    assert prices[0].saved_seconds == pytest.approx(planned.step_seconds - again.step_seconds)
    assert prices[0].saved_seconds > 0.0
    assert prices[0].proven


def test_host_memory_has_a_price_where_the_job_may_offload():
    limits = Limits(zero_stages=(1,), activation_checkpointing=("none",), offload=("optimizer",))
    cluster = a_tight_cluster(memory_bytes=14.0 * GIB, host_memory_bytes=8.0 * GIB)
    request = a_tight_request(cluster=cluster, limits=limits)
    planned = solved(request)
    prices = shadow_prices(planned, plan_is_proven=True, inquiry=Inquiry.within(30.0))
    host = next(price for price in prices if price.resource == "host_memory")
    larger = with_group(cluster, "h100", host_memory_bytes=12.0 * GIB)
    again = solved(a_tight_request(cluster=larger, limits=limits))
    assert host.saved_seconds == pytest.approx(planned.step_seconds - again.step_seconds)


def test_nothing_is_claimed_without_time_or_without_a_proven_plan():
    planned = solved(a_tight_request())
    late = next(shadow_prices(planned, plan_is_proven=True, inquiry=Inquiry.within(0.0)))
    assert (late.saved_seconds, late.proven) == (None, False)
    loose = next(shadow_prices(planned, plan_is_proven=False, inquiry=Inquiry.within(30.0)))
    assert not loose.proven


def test_memory_is_added_to_what_the_profile_says():
    cluster = a_tight_cluster(memory_bytes=None)
    grown = with_device_memory(cluster, "h100-sxm5-80gb", added_bytes=GIB)
    profile = device_profile("h100-sxm5-80gb")
    assert grown.node_groups[0].memory_bytes == profile.memory_gib * GIB + GIB


def test_host_memory_grows_by_every_device_of_the_node():
    cluster = a_tight_cluster(host_memory_bytes=64.0 * GIB)
    grown = with_host_memory(cluster, "h100-sxm5-80gb", added_bytes=GIB)
    assert host_memory_bytes(grown.node_groups[0]) == 68.0 * GIB


def test_other_kinds_keep_their_memory():
    cluster = a_tight_cluster()
    assert with_device_memory(cluster, "a100-sxm4-80gb", added_bytes=GIB) == cluster
    assert devices(cluster) == ("h100-sxm5-80gb",)


def test_a_cap_never_adds_memory():
    cluster, device = a_tight_cluster(), "h100-sxm5-80gb"
    assert with_memory_cap(cluster, device, 90.0 * GIB).node_groups[0].memory_bytes == 20.0 * GIB
    assert with_memory_cap(cluster, device, 9.0 * GIB).node_groups[0].memory_bytes == 9.0 * GIB


def test_a_cap_leaves_other_kinds_their_memory():
    assert with_memory_cap(a_tight_cluster(), "a100-sxm4-80gb", GIB) == a_tight_cluster()


def test_kinds_that_differ_in_memory_alone_stay_apart_under_a_cap():
    group = a_tight_cluster().node_groups[0]
    groups = (group, group.model_copy(update={"name": "small", "memory_bytes": 12.0 * GIB}))
    cluster = a_tight_cluster().model_copy(update={"node_groups": groups})
    capped = with_memory_cap(cluster, "h100-sxm5-80gb", GIB)
    memory = [one.memory_bytes for one in capped.node_groups]
    assert memory == pytest.approx([GIB, GIB], rel=1e-15)
    assert memory[0] < memory[1]
    assert len(cluster_hardware(capped).kinds) == 2
