"""Every relaxation fits when it is planned, and a little less does not."""

from __future__ import annotations

from typing import Any

import pytest

from planner.answers.relaxation import smallest_relaxations
from planner.hardware import DeviceHardware
from planner.planning import plan
from planner.requests.inquiry import Inquiry
from planner.requests.resolution import Request, resolved_cluster, resolved_model
from planner.requests.variation import (
    device_memory_bytes,
    with_cluster,
    with_group,
    with_job,
    with_limits,
)
from planner.schema.cluster import Cluster, NetworkLevel, NodeGroup
from planner.schema.job import DegreeLimit, Job, Limits, Optimizer
from planner.schema.plan import Infeasible, Relaxation
from planner.units import GIB
from tests.tight_requests import FEW_CHOICES, a_tight_cluster, a_tight_request

SMALL = a_tight_cluster(memory_bytes=6.0 * GIB)


def feasible(request: Request) -> bool:
    return Inquiry.within(60.0).fits(request)


def offered(request: Request, **options: Any) -> dict[str, Relaxation]:
    found = smallest_relaxations(request, feasible=feasible, **options).changes
    return {relaxation.field: relaxation for relaxation in found}


def test_a_model_far_too_large_for_a_node_is_answered_with_how_many_nodes_it_takes():
    """405B in eight A100 of 40 GB; nothing is left out for want of time.

    With all states and gradients on the host, 16 bytes a parameter take 189 of 200 GiB a device.
    """
    answer = plan(resolved_model("llama-3.1-405b"), resolved_cluster("8xa100-sxm4-40gb"), Job())
    assert isinstance(answer, Infeasible)
    nodes = [change.needed for change in answer.relaxations if "node_count" in change.field]
    assert nodes == [4]
    assert not answer.relaxations_cut_by_time


def test_the_request_of_these_tests_does_not_fit():
    assert not feasible(a_tight_request(cluster=SMALL))


@pytest.mark.parametrize(("small_gib", "is_offered"), [(5, True), (3, False)])
def test_devices_too_small_for_embedding_and_head_may_stand_between_larger_ones(
    small_gib: int, is_offered: bool
):
    """Two of 20 GiB and one of 5, where all states of either end are on one; 3 hold no block."""
    fields = {"devices_per_node": 1, "device": "h100-sxm5-80gb"}
    groups = (
        NodeGroup(name="large", node_count=2, memory_bytes=20 * GIB, **fields),
        NodeGroup(name="small", node_count=1, memory_bytes=small_gib * GIB, **fields),
    )
    request = a_tight_request(
        cluster=Cluster(name="mixed", node_groups=groups),
        limits=FEW_CHOICES.model_copy(update={"zero_stages": (0,)}),
    )
    change = offered(request).get("job.limits.device_returns")
    assert (change is not None) is is_offered
    assert change is None or (change.given, change.needed) == (0, 1)
    assert not feasible(request)
    assert feasible(with_limits(request, device_returns=1)) is is_offered


def test_device_memory_is_the_least_whole_gibibyte_that_fits():
    request = a_tight_request(cluster=SMALL)
    needed = offered(request)["cluster.node_groups.0.memory_bytes"].needed

    def with_memory(memory_bytes: float) -> Request:
        return with_cluster(request, with_group(SMALL, "h100", memory_bytes=memory_bytes))

    assert feasible(with_memory(needed))
    assert not feasible(with_memory(needed - GIB))


def test_nodes_are_the_fewest_that_fit():
    request = a_tight_request(cluster=a_tight_cluster(memory_bytes=7.0 * GIB, devices_per_node=1))
    needed = offered(request)["cluster.node_groups.0.node_count"].needed

    def with_nodes(node_count: int) -> Request:
        cluster = a_tight_cluster(memory_bytes=7.0 * GIB, devices_per_node=1, node_count=node_count)
        return with_cluster(request, cluster)

    assert feasible(with_nodes(needed))
    assert not feasible(with_nodes(needed - 1))


def test_more_nodes_are_looked_for_before_the_time_is_spent_on_anything_else():
    cluster = a_tight_cluster(memory_bytes=7.0 * GIB, devices_per_node=1)
    asked: list[Request] = []

    def with_nodes_alone(request: Request) -> bool:
        asked.append(request)
        return request.cluster.resolved.node_groups[0].node_count >= 2

    (nodes, *_) = smallest_relaxations(
        a_tight_request(cluster=cluster), feasible=with_nodes_alone
    ).changes
    assert (nodes.field, nodes.needed) == ("cluster.node_groups.0.node_count", 2)
    assert asked[0].cluster.resolved.node_groups[0].node_count == 2


def test_the_device_of_least_memory_is_named_also_where_a_larger_one_is_not_enough():
    """As where the larger one's host is smaller."""
    cluster = a_tight_cluster(device="t4-16gb", memory_bytes=None, devices_per_node=1)

    def fits(changed: Request) -> bool:
        device = changed.cluster.resolved.node_groups[0].device
        return device in {"a100-sxm4-40gb", "h200-sxm5-141gb"}

    found = smallest_relaxations(a_tight_request(cluster=cluster), feasible=fits).changes
    (device,) = [change for change in found if change.field.endswith(".device")]
    assert (device.given, device.needed) == ("t4-16gb", "a100-sxm4-40gb")


def test_a_leaner_optimizer_fits_where_the_states_are_too_much():
    request = a_tight_request(cluster=a_tight_cluster(memory_bytes=6.9 * GIB))
    needed = offered(request)["job.optimizer"].needed
    assert (needed, feasible(request)) == ("adam8bit", False)
    assert feasible(with_job(request, optimizer=Optimizer(needed)))


def test_a_shorter_sequence_fits_where_the_activations_are_too_much():
    limits = Limits(
        zero_stages=(3,),
        activation_checkpointing=("none",),
        offload=(),
        tensor_parallel_degree=DegreeLimit(min=1, max=1),
        pipeline_parallel_degree=DegreeLimit(min=1, max=1),
        context_parallel_degree=DegreeLimit(min=1, max=1),
    )
    request = a_tight_request(cluster=a_tight_cluster(memory_bytes=16.0 * GIB), limits=limits)
    needed = offered(request)["job.sequence_length"].needed
    assert feasible(with_job(request, sequence_length=needed))
    assert not feasible(with_job(request, sequence_length=2 * needed))


def test_a_limit_that_stands_alone_in_the_way_is_lifted_alone():
    limits = FEW_CHOICES.model_copy(update={"tensor_parallel_degree": DegreeLimit(min=3, max=3)})
    found = offered(a_tight_request(limits=limits))
    lifted = found["job.limits.tensor_parallel_degree"]
    assert lifted.needed == {"min": 1, "max": 2**20}
    assert "job.limits" not in found


def test_limits_that_only_together_stand_in_the_way_are_lifted_together():
    limits = Limits(
        tensor_parallel_degree=DegreeLimit(min=3, max=3),
        pipeline_parallel_degree=DegreeLimit(min=3, max=3),
        micro_batch_size=DegreeLimit(min=1, max=8),
    )
    lifted = offered(a_tight_request(limits=limits))["job.limits"]
    assert set(lifted.needed) == {"tensor_parallel_degree", "pipeline_parallel_degree"}
    assert "together" in lifted.description


def test_headroom_is_cut_no_more_than_it_must_be():
    limits = FEW_CHOICES.model_copy(update={"memory_headroom_ratio": 0.5})
    request = a_tight_request(cluster=a_tight_cluster(memory_bytes=10.0 * GIB), limits=limits)
    needed = offered(request)["job.limits.memory_headroom_ratio"].needed
    assert 0.0 <= needed < 0.5
    assert feasible(with_limits(request, memory_headroom_ratio=needed))
    assert not feasible(with_limits(request, memory_headroom_ratio=needed + 0.01))


def test_the_chance_of_fitting_is_lowered_no_more_than_it_must_be():
    limits = FEW_CHOICES.model_copy(update={"fits_probability": 0.95})
    request = a_tight_request(cluster=a_tight_cluster(memory_bytes=9.7 * GIB), limits=limits)
    lowered = offered(request)["job.limits.fits_probability"]
    needed = lowered.needed
    assert (lowered.given, feasible(request)) == (0.95, False)
    assert 0.5 <= needed < 0.95
    assert feasible(with_limits(request, fits_probability=needed))
    assert not feasible(with_limits(request, fits_probability=needed + 0.01))
    assert lowered.description == (f"accept a chance of fitting of {needed:.0%} in place of 95%")


def test_a_chance_is_lowered_and_not_lifted_where_it_is_more_than_the_default():
    limits = FEW_CHOICES.model_copy(update={"fits_probability": 0.999})
    request = a_tight_request(cluster=a_tight_cluster(memory_bytes=9.7 * GIB), limits=limits)
    lowered = offered(request)["job.limits.fits_probability"]
    assert lowered.description.endswith("in place of 99.9%")


def test_no_chance_is_lowered_where_none_was_asked_for():
    assert "job.limits.fits_probability" not in offered(a_tight_request(cluster=SMALL))


def test_chance_and_headroom_are_given_up_together_where_neither_is_enough():
    """What fits at no less than an even chance, with no more than a fifth kept free."""
    limits = FEW_CHOICES.model_copy(update={"fits_probability": 0.95, "memory_headroom_ratio": 0.3})
    request = a_tight_request(limits=limits)

    def fits(changed: Request) -> bool:
        own = changed.job.resolved.limits
        even = own.fits_probability is not None and own.fits_probability <= 0.5
        return even and own.memory_headroom_ratio <= 0.2

    found = smallest_relaxations(request, feasible=fits).changes
    (both,) = [change for change in found if change.field == "request"]
    assert both.needed == {
        "job.limits.fits_probability": 0.5,
        "job.limits.memory_headroom_ratio": 0.2,
    }


def test_a_batch_that_no_degrees_divide_is_moved_to_the_nearest_that_some_do():
    limits = FEW_CHOICES.model_copy(
        update={
            "tensor_parallel_degree": DegreeLimit(min=1, max=1),
            "pipeline_parallel_degree": DegreeLimit(min=1, max=1),
            "context_parallel_degree": DegreeLimit(min=1, max=1),
        }
    )
    moved = offered(a_tight_request(limits=limits, global_batch_size=15))["job.global_batch_size"]
    assert (moved.given, moved.needed) == (15, 16)


def test_too_many_nodes_for_the_batch_are_made_fewer():
    limits = FEW_CHOICES.model_copy(
        update={
            "tensor_parallel_degree": DegreeLimit(min=1, max=1),
            "pipeline_parallel_degree": DegreeLimit(min=1, max=1),
            "context_parallel_degree": DegreeLimit(min=1, max=1),
        }
    )
    cluster = a_tight_cluster(node_count=16)
    request = a_tight_request(cluster=cluster, limits=limits)
    fewer = offered(request)["cluster.node_groups.0.node_count"]
    assert (fewer.given, fewer.needed) == (16, 4)


def test_host_memory_is_the_least_whole_gibibyte_that_fits():
    limits = Limits(
        zero_stages=(1,),
        activation_checkpointing=("full",),
        offload=("optimizer",),
        solver_seconds=120.0,
    )
    cluster = a_tight_cluster(memory_bytes=9.0 * GIB, host_memory_bytes=1.0 * GIB)
    request = a_tight_request(cluster=cluster, limits=limits)
    assert not feasible(request)
    needed = offered(request)["cluster.node_groups.0.host_memory_bytes"].needed

    def with_host(host_bytes: float) -> Request:
        return with_cluster(request, with_group(cluster, "h100", host_memory_bytes=host_bytes))

    assert feasible(with_host(needed))
    assert not feasible(with_host(needed - GIB))


def test_every_kind_of_a_mixed_cluster_may_grow():
    other = a_tight_cluster(name="a100", device="a100-sxm4-80gb", memory_bytes=6.0 * GIB)
    mixed = SMALL.model_copy(update={"node_groups": (*SMALL.node_groups, *other.node_groups)})
    request = a_tight_request(cluster=mixed, sequence_length=128)
    grown = set()
    for relaxation in offered(request).values():
        if relaxation.field.startswith("cluster"):
            _, _, index, name = relaxation.field.split(".")
            group = mixed.node_groups[int(index)]
            changed = with_group(mixed, group.name, **{name: relaxation.needed})
            assert feasible(with_cluster(request, changed))
            grown.add(group.name)
    assert grown == {"h100", "a100"}


def test_levels_that_hold_no_more_nodes_rule_more_nodes_out():
    """The cluster's own level connects four devices: a second node is no change to offer."""
    level = NetworkLevel(
        name="node",
        device_count=4,
        bandwidth_bytes_per_second=1e11,
        latency_seconds=1e-6,
    )
    found = offered(a_tight_request(cluster=SMALL.model_copy(update={"levels": (level,)})))
    assert "cluster.node_groups.0.memory_bytes" in found
    assert "cluster.node_groups.0.node_count" not in found


def test_no_search_is_given_more_than_is_left():
    asked: list[float] = []

    def never(request: Request) -> bool:
        asked.append(request.job.resolved.limits.solver_seconds)
        return False

    request = a_tight_request(cluster=SMALL)
    assert smallest_relaxations(request, feasible=never, seconds=4.0).changes == ()
    assert asked
    assert max(asked) <= 4.0


def test_without_time_nothing_is_asked_and_nothing_offered():
    def unexpected(request: Request) -> bool:
        raise AssertionError(request)

    request = a_tight_request(cluster=SMALL)
    found = smallest_relaxations(request, feasible=unexpected, seconds=0.0)
    assert (found.changes, found.is_cut) == ((), True)


@pytest.mark.parametrize("memory_gib", [5.0, 6.0])
def test_all_that_is_offered_for_one_job_is_different(memory_gib):
    cluster = a_tight_cluster(memory_bytes=memory_gib * GIB)
    found = smallest_relaxations(a_tight_request(cluster=cluster), feasible=feasible).changes
    assert len({relaxation.field for relaxation in found}) == len(found) >= 2


def test_a_sequence_is_the_longest_multiple_of_a_step_that_fits():
    """4096 tokens are looked at in steps of 256; the halves alone would end at 1024."""
    request = a_tight_request(cluster=SMALL)

    def up_to_1280(changed: Request) -> bool:
        job, limits = changed.job.resolved, changed.job.resolved.limits
        return (job.sequence_length or 0) <= 1280 and limits.memory_headroom_ratio > 0.0

    found = smallest_relaxations(request, feasible=up_to_1280).changes
    needed = {change.field: change for change in found}["job.sequence_length"]
    assert needed.needed == 1280
    assert needed.description.endswith("(in steps of 256)")


def test_a_batch_is_the_nearest_that_fits_whatever_divides_it():
    """Eight sequences at a time fit up to 80, and 88 do not: halves of 128 would end at 64."""
    request = a_tight_request(cluster=SMALL, global_batch_size=128)

    def multiples_of_8_up_to_80(changed: Request) -> bool:
        batch = changed.job.resolved.global_batch_size or 0
        return batch % 8 == 0 and batch <= 80

    found = smallest_relaxations(request, feasible=multiples_of_8_up_to_80).changes
    assert {change.field: change.needed for change in found} == {"job.global_batch_size": 80}


def node_count(request: Request) -> int:
    return request.cluster.resolved.node_groups[0].node_count


def test_fewer_nodes_that_fit_are_found_below_more_that_do_not():
    """Of 96 doubled only 192 fit, and 129 to 191 do not: 128 do, which halving would pass by."""
    cluster = a_tight_cluster(memory_bytes=6.0 * GIB, node_count=96, devices_per_node=1)
    request = a_tight_request(cluster=cluster)
    found = smallest_relaxations(
        request, feasible=lambda changed: node_count(changed) in {128, 192}
    ).changes
    assert {change.field: change.needed for change in found} == {
        "cluster.node_groups.0.node_count": 128
    }


def test_one_node_may_grow_to_thousands():
    request = a_tight_request(cluster=a_tight_cluster(memory_bytes=6.0 * GIB))
    found = smallest_relaxations(request, feasible=lambda changed: node_count(changed) >= 1100)
    assert [change.needed for change in found.changes] == [1100]


def memory_gib(request: Request) -> float:
    return device_memory_bytes(request.cluster.resolved.node_groups[0]) / GIB


@pytest.mark.parametrize(
    ("given", "needed_gib", "named", "words"),
    [
        ("a100-sxm4-40gb", 41.0, "a100-sxm4-80gb", "(79.15 GiB each) in place of"),
        ("a100-sxm4-40gb", 100.0, "h200-sxm5-141gb", "of a100-sxm4-40gb (39.39 GiB)"),
        ("h100-sxm5-80gb", 140.0, "b200-sxm-180gb", "use b200-sxm-180gb (178 GiB each)"),
        ("l40s-48gb", 94.8, "rtx-pro-6000-96gb", "(95 GiB each)"),
    ],
)
def test_more_memory_than_a_device_has_is_that_of_one_that_is_sold(given, needed_gib, named, words):
    """Of the catalogue's 139.8, 178 and 191.5 GiB those of 178 are the least with 140."""
    cluster = a_tight_cluster(device=given, memory_bytes=None)
    found = smallest_relaxations(
        a_tight_request(cluster=cluster),
        feasible=lambda changed: memory_gib(changed) >= needed_gib,
    ).changes
    assert [(change.field, change.given, change.needed) for change in found] == [
        ("cluster.node_groups.0.device", given, named)
    ]
    assert words in found[0].description


def test_no_device_is_named_where_none_has_enough_memory():
    cluster = a_tight_cluster(memory_bytes=None)
    found = smallest_relaxations(
        a_tight_request(cluster=cluster), feasible=lambda changed: memory_gib(changed) >= 300.0
    )
    assert found.changes == ()


def test_a_device_of_the_catalogue_has_its_own_memory_links_and_price():
    """What the group stated of the old device's memory and price is not the new one's."""
    group = {"memory_bytes": 30.0 * GIB, "price_per_device_hour": 1.0}
    cluster = a_tight_cluster(device="a100-sxm4-40gb", **group)
    asked: list[Request] = []

    def on_others(request: Request) -> bool:
        asked.append(request)
        return memory_gib(request) > 40.0

    def memory_of(kind: DeviceHardware) -> float:
        return kind.device_memory_bytes / GIB

    smallest_relaxations(a_tight_request(cluster=cluster), feasible=on_others)
    kinds = [request.hardware.kinds[0] for request in asked]
    prices = {kind.device: kind.price_per_device_hour for kind in kinds if memory_of(kind) > 40.0}
    assert prices["a100-sxm4-80gb"] == 1.8


def test_where_no_change_alone_is_enough_a_pair_is_offered():
    """Neither the sequence nor the optimizer alone makes it fit, at any size."""
    request = a_tight_request(cluster=SMALL, limits=Limits())

    def short_and_lean(changed: Request) -> bool:
        job = changed.job.resolved
        return (job.sequence_length or 0) <= 2048 and job.optimizer is Optimizer.MUON

    found = smallest_relaxations(request, feasible=short_and_lean).changes
    assert [(change.field, change.needed) for change in found] == [
        ("request", {"job.sequence_length": 2048, "job.optimizer": "muon"})
    ]
    assert found[0].description == (
        "train on sequences of 2048 tokens in place of 4096, and use muon in place of adamw"
    )


def test_what_was_looked_into_whole_is_not_cut_by_time():
    request = a_tight_request(cluster=SMALL)
    assert not smallest_relaxations(request, feasible=lambda _: False, seconds=1e6).is_cut
