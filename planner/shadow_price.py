"""Shadow price: what one more GiB would save, found by planning again with it.

The dual of the memory rows would be a derivative at the optimum, but choices are whole and the
next GiB often changes them, so the re-solved value is what is quoted.
"""

from __future__ import annotations

from collections.abc import Iterator

from planner.ilp.result import NotFound
from planner.inquiry import Inquiry
from planner.resolution import Request
from planner.schema.reasons import Resource, ShadowPrice
from planner.units import GIB
from planner.variation import devices, with_cluster, with_device_memory, with_host_memory

ADDED_BYTES = float(GIB)


def shadow_prices(
    request: Request, step_seconds: float, *, plan_is_proven: bool, inquiry: Inquiry
) -> Iterator[ShadowPrice]:
    """Yield what one more GiB in each kind of device, and in its host, takes off `step_seconds`.

    Host memory has no price where the job may not offload.

    Raises:
        SolverError: if the solver fails.
        VerificationError: if a plan does not survive its own recomputation.
    """
    cluster = request.cluster.resolved
    for device in devices(cluster):
        for resource in _resources(request):
            grow = with_device_memory if resource == "device_memory" else with_host_memory
            answer = inquiry.ask(
                with_cluster(request, grow(cluster, device, added_bytes=ADDED_BYTES))
            )
            solved = None if isinstance(answer, NotFound) else answer
            yield ShadowPrice(
                resource=resource,
                device=device,
                added_bytes=ADDED_BYTES,
                step_seconds=step_seconds,
                step_seconds_with_more=None if solved is None else solved.step_seconds,
                saved_seconds=None if solved is None else step_seconds - solved.step_seconds,
                proven=plan_is_proven and solved is not None and solved.is_proven,
            )


def _resources(request: Request) -> tuple[Resource, ...]:
    offloads = bool(request.job.resolved.limits.offload)
    return ("device_memory", "host_memory") if offloads else ("device_memory",)
