"""The least count is the one that solving every count by itself gives."""

from __future__ import annotations

from typing import Any

import pytest

from planner.answers.capacity import size
from planner.answers.finalists import fastest_plan
from planner.errors import InputError
from planner.requests.device_counts import counts_of, least_device_count
from planner.requests.inquiry import Inquiry, Solution
from planner.requests.resolution import cluster_document, resolved_request
from planner.schema.cluster import Cluster, NodeGroup
from planner.schema.job import DegreeLimit, Job
from planner.schema.sizing import Sizing, SizingWish
from tests.tight_requests import FEW_CHOICES, a_tight_request

H100, A100 = "h100-sxm5-80gb", "a100-sxm4-80gb"
BASE = a_tight_request(global_batch_size=48)
STEP_COUNT = 1000
TOKENS = 48 * 4096 * STEP_COUNT
PRICES = {H100: 3.0, A100: 1.8}


def a_wish(**changes: Any) -> SizingWish:
    fields = {
        "tokens": TOKENS,
        "days": 0.01,
        "devices": (H100,),
        "devices_per_node": 4,
        "max_devices": 24,
    }
    return SizingWish(**{**fields, **changes})


def sized(wish: SizingWish, *, seconds: float = 60.0) -> Sizing:
    return size(BASE.model, BASE.job.resolved, wish, inquiry=Inquiry.within(seconds))


def step_alone(
    device: str, node_count: int, devices_per_node: int, *, job: Job = BASE.job.resolved
) -> float | None:
    """Return the fastest step of so many devices, solved by itself."""
    group = NodeGroup(
        name=device, device=device, node_count=node_count, devices_per_node=devices_per_node
    )
    cluster = Cluster(name="c", node_groups=(group,))
    request = resolved_request(BASE.model, cluster_document(cluster.name, cluster), job)
    answer = fastest_plan(request, inquiry=Inquiry.within(60.0))
    return answer.step_seconds if isinstance(answer, Solution) else None


@pytest.fixture(scope="module")
def alone() -> dict[tuple[str, int], float]:
    """The fastest step by kind and device count, of all counts up to 24."""
    shapes = [(1, 1), (1, 2), (1, 3), *((nodes, 4) for nodes in range(1, 7))]
    steps = {
        (device, nodes * per_node): step_alone(device, nodes, per_node)
        for device in (H100, A100)
        for nodes, per_node in shapes
    }
    return {key: step for key, step in steps.items() if step is not None}


def days(step_seconds: float) -> float:
    return step_seconds * STEP_COUNT / 86400.0


def cost(device: str, count: int, step_seconds: float) -> float:
    return PRICES[device] * count * step_seconds * STEP_COUNT / 3600.0


@pytest.mark.parametrize("limit", [0.04, 0.01, 0.006, 0.004, 0.0035])
def test_the_fewest_devices_are_the_least_count_that_is_in_time(limit, alone):
    in_time = sorted(count for (_, count), step in alone.items() if days(step) <= limit)
    found = sized(a_wish(days=limit, devices=(H100, A100)))
    assert found.answer is not None
    assert found.proven
    assert found.answer.device_count == in_time[0]
    step = alone[found.answer.device, found.answer.device_count]
    assert found.answer.step_seconds == pytest.approx(step, rel=1e-9)


@pytest.mark.parametrize("limit", [0.04, 0.006])
def test_the_cheapest_run_costs_least_of_those_in_time(limit, alone):
    costs = [cost(*key, step) for key, step in alone.items() if days(step) <= limit]
    found = sized(a_wish(days=limit, devices=(H100, A100), goal="cheapest"))
    assert found.proven
    assert found.answer.cost == pytest.approx(min(costs), rel=1e-9)


def test_the_cheapest_run_may_take_more_devices_than_the_fewest():
    """Nine devices are in time, but divide the batch so badly that twelve cost less."""
    steps = {3 * nodes: step_alone(H100, nodes, 3) for nodes in range(1, 7)}
    deadline = days(steps[9]) * 1.01
    shape = {"devices_per_node": 3, "max_devices": 18, "days": deadline}
    in_time = {n: cost(H100, n, step) for n, step in steps.items() if days(step) <= deadline}
    fewest, cheapest = sized(a_wish(**shape)), sized(a_wish(**shape, goal="cheapest"))
    assert fewest.answer.device_count == min(in_time) == 9
    assert cheapest.answer.device_count == min(in_time, key=in_time.__getitem__) == 12
    assert cheapest.answer.cost == pytest.approx(in_time[12], rel=1e-9)
    assert cheapest.proven


def test_the_next_smaller_count_is_shown_to_miss(alone):
    found = sized(a_wish(days=0.006))
    smaller = found.next_smaller
    assert smaller.device_count < found.answer.device_count
    assert (smaller.verdict, smaller.limited_by) == ("misses", "deadline")
    assert smaller.certificate.status == "optimal"
    assert smaller.days == pytest.approx(days(alone[H100, smaller.device_count]))
    assert smaller.days > 0.006


def test_counts_that_were_solved_again_have_their_days_and_cost():
    found = sized(a_wish(days=0.006))
    row = next(t for t in found.trials if t.device_count == found.next_smaller.device_count)
    assert (row.days, row.cost) == (found.next_smaller.days, found.next_smaller.cost)


def test_a_budget_rules_out_what_is_dearer(alone):
    costs = {key: cost(*key, step) for key, step in alone.items() if days(step) <= 0.01}
    budget = sorted(costs.values())[1] * (1.0 + 1e-6)
    found = sized(a_wish(devices=(H100, A100), budget=budget))
    affordable = [count for (_, count), money in costs.items() if money <= budget]
    assert found.answer.device_count == min(affordable)
    assert found.answer.cost <= budget


def test_a_budget_that_no_run_keeps_binds_and_the_cheapest_is_nearest(alone):
    costs = [cost(*key, step) for key, step in alone.items() if days(step) <= 0.01]
    found = sized(a_wish(devices=(H100, A100), budget=min(costs) * 0.99))
    assert (found.status, found.binding, found.answer) == ("none", "budget", None)
    assert found.nearest_miss.cost == pytest.approx(min(costs), rel=1e-9)
    assert found.nearest_miss.limited_by == "budget"


def test_a_deadline_that_no_count_meets_binds_and_the_fastest_is_nearest(alone):
    found = sized(a_wish(days=0.0001))
    assert (found.status, found.binding) == ("none", "deadline")
    assert found.nearest_miss.device_count == 24
    assert found.nearest_miss.days == pytest.approx(days(alone[H100, 24]))


def test_memory_binds_where_nothing_fits():
    job = BASE.job.resolved.model_copy(
        update={"limits": FEW_CHOICES.model_copy(update={"memory_headroom_ratio": 0.96})}
    )
    wish = a_wish(max_devices=4, days=1.0)
    found = size(BASE.model, job, wish, inquiry=Inquiry.within(60.0))
    assert (found.status, found.binding) == ("none", "memory")
    assert "more on its fullest device" in found.nearest_miss.reason


def test_legality_binds_where_no_degrees_are_left():
    limits = FEW_CHOICES.model_copy(update={"tensor_parallel_degree": DegreeLimit(min=3, max=3)})
    job = BASE.job.resolved.model_copy(update={"limits": limits})
    found = size(BASE.model, job, a_wish(max_devices=4), inquiry=Inquiry.within(60.0))
    assert (found.status, found.binding) == ("none", "legality")
    assert "tensor_parallel_degree" in found.nearest_miss.reason


def test_without_time_nothing_is_claimed():
    found = sized(a_wish(), seconds=0.0)
    assert (found.status, found.binding, found.proven) == ("none", "time_limit", False)


def test_every_count_tried_and_left_out_is_stated():
    found = sized(a_wish(days=0.006))
    kind = found.ranges[0]
    counts = [candidate.device_count for candidate in counts_of(H100, found.wish)]
    above = [count for count in counts if count >= kind.least_device_count]
    assert sorted((*kind.tried, *kind.untried)) == above
    assert [trial.device_count for trial in found.trials] == sorted(kind.tried)


def test_no_step_is_faster_than_the_peak_rate_allows(alone):
    """The bound that leaves counts out untried never leaves out one that would do."""
    for (device, count), step in alone.items():
        wish = a_wish(days=days(step))
        assert least_device_count(wish, BASE, device) <= count


def test_counts_are_dense_up_to_sixteen_nodes_and_smooth_from_there():
    counts = [c.device_count for c in counts_of(H100, a_wish(max_devices=4 * 25))]
    nodes = [*range(1, 17), 18, 20, 21, 24, 25]
    assert counts == [1, 2, 3, *(4 * n for n in nodes)]


def test_parts_of_large_nodes_are_dense_up_to_sixteen_devices_and_smooth_from_there():
    counts = [c.device_count for c in counts_of(H100, a_wish(devices_per_node=24))]
    assert counts == [*range(1, 17), 18, 20, 21, 24]


def test_five_devices_of_a_node_are_enough_where_four_are_not():
    """Forty sequences are shared out evenly among five ranks, as among four and eight."""
    job = BASE.job.resolved.model_copy(update={"global_batch_size": 40})
    steps = {count: step_alone(H100, 1, count, job=job) for count in range(1, 9)}
    deadline = days(steps[5]) * 1.001
    assert next(n for n, step in steps.items() if step and days(step) <= deadline) == 5
    wish = a_wish(tokens=40 * 4096 * STEP_COUNT, devices_per_node=8, max_devices=8, days=deadline)
    found = size(BASE.model, job, wish, inquiry=Inquiry.within(60.0))
    assert (found.answer.device_count, found.proven) == (5, True)


def test_an_unknown_device_is_refused():
    with pytest.raises(InputError, match="has no profile"):
        sized(a_wish(devices=("abacus",)))


@pytest.mark.parametrize(
    ("device", "shapes"),
    [
        (H100, [*((1, count) for count in range(1, 9)), (2, 8)]),
        ("gb200-nvl72", [(1, 1), (1, 2), (1, 3), (1, 4), (2, 4), (3, 4), (4, 4)]),
    ],
)
def test_nodes_are_as_the_device_is_sold_where_nothing_says_otherwise(device, shapes):
    wish = a_wish(devices=(device,), devices_per_node=None, max_devices=16)
    assert [(c.node_count, c.devices_per_node) for c in counts_of(device, wish)] == shapes
