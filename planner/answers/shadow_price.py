"""Shadow price: what one more GiB would save, found by planning again with it.

The dual of the memory rows would be a derivative at the optimum, but choices are whole and the
next GiB often changes them, so the re-solved value is what is quoted. It is of what the plan was
asked to be best at: seconds a step, cost, bytes on the fullest device, or devices. Where the plan
is the simplest within a tolerance of the best, it is the best that is compared.
"""

from __future__ import annotations

from collections.abc import Iterator

from planner.answers.finalists import best_plan
from planner.cost.fitting import room
from planner.hardware import profile_of
from planner.ilp.problem import NotFound
from planner.requests.inquiry import Inquiry, Solution
from planner.requests.planned import Planned
from planner.requests.resolution import Request
from planner.requests.variation import (
    device_memory_bytes,
    devices,
    with_cluster,
    with_device_memory,
    with_host_memory,
    with_peak_cap,
)
from planner.schema.job import Objective
from planner.schema.reasons import Resource, ShadowPrice
from planner.units import GIB

ADDED_BYTES = float(GIB)
_LESS_REACH = 1e-9
_LEAST_DEVICE_COUNT = 1.0


def shadow_prices(
    planned: Planned, *, plan_is_proven: bool, inquiry: Inquiry
) -> Iterator[ShadowPrice]:
    """Yield what one more GiB in each kind of device, and in its host, takes off the objective.

    Host memory has no price where the job may not offload.

    Raises:
        SolverError: if the solver fails.
        VerificationError: if a plan does not survive its own recomputation.
    """
    cluster = planned.asked.cluster.resolved
    for device in devices(cluster):
        for resource in _resources(planned.request):
            reason = _why_nothing(planned, device, resource)
            if reason is not None:
                yield _nothing(planned, device, resource, reason=reason)
                continue
            grow = with_device_memory if resource == "device_memory" else with_host_memory
            larger = with_cluster(planned.asked, grow(cluster, device, added_bytes=ADDED_BYTES))
            answer = _solved(planned, larger, inquiry)
            yield _price(planned, answer, device, resource, plan_is_proven=plan_is_proven)


def _resources(request: Request) -> tuple[Resource, ...]:
    offloads = bool(request.job.resolved.limits.offload)
    return ("device_memory", "host_memory") if offloads else ("device_memory",)


def _why_nothing(planned: Planned, device: str, resource: Resource) -> str | None:
    """Return why more memory cannot make the objective less, `None` where it may.

    A plan that only larger devices hold has a peak above what they hold now.
    """
    if planned.objective is Objective.DEVICES and planned.value <= _LEAST_DEVICE_COUNT:
        return "no plan has fewer than 1 device"
    if planned.objective is not Objective.MEMORY or resource != "device_memory":
        return None
    cluster = planned.asked.cluster.resolved
    groups = [group for group in cluster.node_groups if group.device == device]
    least = min(map(device_memory_bytes, groups))
    request = planned.request
    own = room(request.workload, profile_of(cluster, device), request.job.resolved)
    binds = own.capacity_bytes(least) <= planned.value
    return None if binds else "memory does not bind: the leanest plan leaves some of it free"


def _solved(planned: Planned, larger: Request, inquiry: Inquiry) -> Solution | NotFound | None:
    """Return the best plan with more memory, `None` where none is better than the plan."""
    if planned.objective is Objective.MEMORY:
        leaner = with_peak_cap(larger, planned.value * (1.0 - _LESS_REACH))
        answer = inquiry.search(leaner, is_any_welcome=True)
        if isinstance(answer, NotFound):
            return None if answer.proven else answer
    return best_plan(larger, inquiry=inquiry)


def _price(
    planned: Planned,
    answer: Solution | NotFound | None,
    device: str,
    resource: Resource,
    *,
    plan_is_proven: bool,
) -> ShadowPrice:
    if answer is None:
        return _nothing(planned, device, resource, proven=plan_is_proven)
    solved = None if isinstance(answer, NotFound) else answer
    if solved is not None and solved.value >= planned.best_value:  # the plan stays as it is
        return _nothing(planned, device, resource, proven=plan_is_proven and solved.is_proven)
    return ShadowPrice(
        resource=resource,
        device=device,
        added_bytes=ADDED_BYTES,
        step_seconds=planned.best_step_seconds,
        step_seconds_with_more=None if solved is None else solved.step_seconds,
        saved_seconds=None if solved is None else planned.best_step_seconds - solved.step_seconds,
        proven=plan_is_proven and solved is not None and solved.is_proven,
        objective_value_with_more=None if solved is None else solved.value,
        saved_value=None if solved is None else planned.best_value - solved.value,
    )


def _nothing(
    planned: Planned,
    device: str,
    resource: Resource,
    *,
    proven: bool = True,
    reason: str | None = None,
) -> ShadowPrice:
    """Return that more memory leaves the plan as it is."""
    return ShadowPrice(
        resource=resource,
        device=device,
        added_bytes=ADDED_BYTES,
        step_seconds=planned.best_step_seconds,
        step_seconds_with_more=planned.best_step_seconds,
        saved_seconds=0.0,
        proven=proven,
        objective_value_with_more=planned.best_value,
        saved_value=0.0,
        reason=reason,
    )
