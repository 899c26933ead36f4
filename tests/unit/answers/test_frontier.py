"""The front holds what has to be traded, and no search finds anything that beats a point of it."""

from __future__ import annotations

import pytest

from planner.answers.finalists import fastest_plan
from planner.answers.frontier import frontier
from planner.planning import estimate, plan, resolved_cluster, resolved_model
from planner.requests.inquiry import Inquiry, Solution
from planner.requests.resolution import cluster_document, resolved_request
from planner.requests.subclusters import subclusters
from planner.requests.variation import with_cluster, with_memory_cap
from planner.schema.cluster import Cluster, NodeGroup
from planner.schema.frontier import Frontier
from planner.schema.job import Job, Objective
from planner.space.complexity import complexity
from planner.units import GIB
from tests.tight_requests import a_tight_cluster, a_tight_request


@pytest.fixture(scope="module")
def front() -> Frontier:
    return frontier(a_tight_request(), inquiry=Inquiry.within(60.0), point_count=5)


def values(point):
    techniques = complexity(point.strategy)
    return point.step_seconds, point.peak_memory_bytes, point.cost_per_million_tokens, techniques


def documents(request):
    return request.model, request.cluster, request.job.resolved


def part_of(point) -> Cluster:
    share = point.node_groups[0]
    return a_tight_cluster(node_count=share.node_count, devices_per_node=share.devices_per_node)


def test_the_front_trades_step_against_memory(front):
    assert front.status == "complete"
    assert len(front.points) >= 4
    assert [point.step_seconds for point in front.points] == sorted(
        point.step_seconds for point in front.points
    )


def test_no_point_beats_another_in_all_three_with_no_more_techniques(front):
    for one in front.points:
        for other in front.points:
            if one is not other:
                pairs = zip(values(one), values(other), strict=True)
                assert not all(a <= b for a, b in pairs)


def test_the_front_ends_with_the_plan_of_least_peak_on_all_devices(front):
    least = plan(*documents(a_tight_request(objective=Objective.MEMORY)))
    whole = [point for point in front.points if point.device_count == 4]
    peak = min(point.peak_memory_bytes for point in whole)
    assert peak == pytest.approx(least.certificate.objective_value, rel=1e-9)
    assert front.least_peak_bound_bytes == pytest.approx(peak, rel=1e-2)
    assert front.least_peak_bound_bytes <= peak


def test_every_point_is_proven_optimal_under_its_cap(front):
    assert {point.certificate.status for point in front.points} == {"optimal"}
    for point in front.points:
        cap = point.memory_cap_bytes
        assert cap is None or point.peak_memory_bytes <= cap * (1.0 + 1e-9)


def test_solving_again_with_a_points_own_peak_as_the_cap_finds_nothing_faster(front):
    for point in front.points:
        cap = point.peak_memory_bytes * (1.0 + 1e-9) / 0.95
        capped = with_memory_cap(part_of(point), "h100-sxm5-80gb", cap)
        again = fastest_plan(with_cluster(a_tight_request(), capped), inquiry=Inquiry.within(30.0))
        assert isinstance(again, Solution)
        assert again.step_seconds == pytest.approx(point.step_seconds, rel=1e-9)


def test_estimating_a_points_strategy_gives_its_numbers(front):
    request = a_tight_request()
    for point in front.points:
        part = part_of(point)
        again = estimate(
            request.model,
            cluster_document(part.name, part),
            request.job.resolved,
            point.strategy,
        ).prediction
        step = again.step_seconds.p50
        assert step == pytest.approx(point.step_seconds, rel=1e-9)
        assert point.simulated_step_seconds == point.step_seconds
        assert max(stage.peak_memory_bytes for stage in again.stages) == pytest.approx(
            point.peak_memory_bytes, rel=1e-9
        )
        assert again.cost_per_million_tokens == pytest.approx(point.cost_per_million_tokens)


def test_a_part_on_which_nothing_fits_is_named(front):
    assert {(part.device_count, part.reason) for part in front.skipped} == {(1, "infeasible")}


def test_without_time_the_front_is_partial_and_says_what_was_not_solved():
    found = frontier(a_tight_request(), inquiry=Inquiry.within(0.0), point_count=3)
    assert (found.status, found.points) == ("partial", ())
    assert {part.reason for part in found.skipped} == {"out_of_time"}


def test_a_job_that_fits_nowhere_has_an_empty_front():
    request = a_tight_request(cluster=a_tight_cluster(memory_bytes=4.0 * GIB))
    found = frontier(request, inquiry=Inquiry.within(30.0), point_count=2)
    assert (found.status, found.points) == ("infeasible", ())


def test_one_point_for_each_part_is_its_fastest_plan():
    found = frontier(a_tight_request(), inquiry=Inquiry.within(30.0), point_count=1)
    assert {point.memory_cap_bytes for point in found.points} == {None}


def test_the_listener_hears_the_work_end():
    heard = []
    inquiry = Inquiry.within(30.0, listen=lambda *words: heard.append(words))
    frontier(a_tight_request(), inquiry=inquiry, point_count=2)
    assert heard[-1] == ("points", 8, 8)


def group(name: str, device: str, node_count: int) -> NodeGroup:
    return NodeGroup(name=name, device=device, node_count=node_count, devices_per_node=8)


def shapes(cluster: Cluster) -> list[tuple[tuple[str, int, int], ...]]:
    return [
        tuple((g.name, g.node_count, g.devices_per_node) for g in part.node_groups)
        for part in subclusters(cluster)
    ]


def test_parts_of_a_cluster_are_shares_of_its_nodes_and_of_one_node():
    lone = Cluster(name="c", node_groups=(group("a", "h100-sxm5-80gb", 4),))
    assert shapes(lone) == [
        (("a", 4, 8),),
        (("a", 3, 8),),
        (("a", 2, 8),),
        *((("a", 1, count),) for count in range(8, 0, -1)),
    ]


def test_parts_of_a_lone_node_of_many_devices_are_up_to_eight_of_them_and_divisors():
    lone = Cluster(name="c", node_groups=(group("a", "h100-sxm5-80gb", 1),))
    large = lone.node_groups[0].model_copy(update={"devices_per_node": 20})
    counts = [part.device_count for part in subclusters(Cluster(name="c", node_groups=(large,)))]
    assert counts == [20, 10, 8, 7, 6, 5, 4, 3, 2, 1]


def test_parts_of_a_lone_group_of_many_nodes_are_divisors_and_powers_of_two():
    lone = Cluster(name="c", node_groups=(group("a", "h100-sxm5-80gb", 24),))
    assert [nodes for ((_, nodes, devices),) in shapes(lone) if devices == 8] == [
        24, 16, 12, 8, 6, 4, 3, 2, 1,
    ]  # fmt: skip


def test_of_too_many_parts_the_largest_and_the_least_are_kept():
    lone = Cluster(name="c", node_groups=(group("a", "h100-sxm5-80gb", 64),))
    counts = [part.device_count for part in subclusters(lone, limit=5)]
    assert len(counts) == 5
    assert counts == sorted(counts, reverse=True)
    assert (counts[0], counts[-1]) == (512, 1)


def test_parts_of_a_mixed_cluster_keep_its_proportions_or_leave_a_kind_out():
    groups = (group("h", "h100-sxm5-80gb", 2), group("a", "a100-sxm4-80gb", 4))
    found = shapes(Cluster(name="c", node_groups=groups))
    assert found[:4] == [
        (("h", 2, 8), ("a", 4, 8)),
        (("a", 4, 8),),
        (("a", 3, 8),),
        (("h", 1, 8), ("a", 2, 8)),
    ]
    assert (("h", 2, 8),) in found
    assert (("h", 1, 8), ("a", 1, 8)) not in found


def test_part_of_a_node_has_its_share_of_the_host():
    whole = a_tight_cluster(host_memory_bytes=64.0 * GIB)
    hosts = [part.node_groups[0].host_memory_bytes for part in subclusters(whole)]
    assert hosts == [64.0 * GIB, 48.0 * GIB, 32.0 * GIB, 16.0 * GIB]


def test_points_are_the_simplest_within_the_tolerance_and_the_first_is_the_plan():
    """The sweep leaves time to look for them, however many caps there are."""
    model, cluster = resolved_model("llama-3-8b"), resolved_cluster("8xh100-sxm5-80gb")
    limits = {"context_parallel_degree": 1, "offload": (), "pipeline_schedules": ["1f1b"]}
    job = Job(global_batch_size=128, sequence_length=4096, limits=limits)
    request = resolved_request(model, cluster, job)
    found = frontier(request, inquiry=Inquiry.within(60.0), point_count=2)
    first, said = found.points[0], found.points[0].certificate.simplicity
    assert (said.status, said.tolerance_ratio) == ("optimal", pytest.approx(0.02))
    assert len(said.techniques) < len(said.fastest_techniques)
    assert first.strategy == plan(model, cluster, job).strategy
    assert all(point.certificate.simplicity for point in found.points)
