"""Growth: the least more memory, or nodes, with which an infeasible request has a plan."""

from __future__ import annotations

from collections.abc import Iterator

from planner.answers.feasibility import Checks, fewest_above, least, most_count_below
from planner.requests.resolution import Request
from planner.requests.variation import (
    device_memory_bytes,
    devices,
    host_memory_bytes,
    with_device_memory,
    with_group,
    with_host_memory,
)
from planner.schema.cluster import Cluster, NodeGroup
from planner.schema.plan import Relaxation
from planner.units import GIB, counted, format_bytes

_MEMORY_GROWTH_LIMIT = 16
_HOST_GROWTH_LIMIT = 16
_ORDINARY_HOST_GIB = 1024
_NODE_GROWTH_LIMIT = 4096
_NODE_COUNT_LIMIT = 2**17


def more_device_memory(request: Request, checks: Checks) -> Iterator[Relaxation]:
    """Yield the memory of each kind of device that is enough, in whole GiB, the least to 2 %."""
    cluster = request.cluster.resolved
    for device in devices(cluster):
        index, group = _first_group(cluster, device)
        given = device_memory_bytes(group)
        given_gib = int(given // GIB)

        def fits(memory_gib: int, device: str = device, given: float = given) -> bool:
            added = memory_gib * GIB - given
            larger = with_device_memory(cluster, device, added_bytes=added)
            return checks.fits_on(request, larger)

        needed = least(fits, given_gib, max(given_gib, 1) * _MEMORY_GROWTH_LIMIT)
        if needed is not None:
            yield Relaxation(
                field=f"cluster.node_groups.{index}.memory_bytes",
                given=given,
                needed=float(needed * GIB),
                description=f"use {device} devices of {needed} GiB in place of "
                f"{format_bytes(given)}",
            )


def more_host_memory(request: Request, checks: Checks) -> Iterator[Relaxation]:
    """Yield the host memory that is enough, likewise, where the job may offload."""
    if not request.job.resolved.limits.offload:
        return
    cluster = request.cluster.resolved
    for device in devices(cluster):
        index, group = _first_group(cluster, device)
        given = host_memory_bytes(group)
        given_gib = int(given // GIB)

        def fits(
            memory_gib: int, device: str = device, given: float = given, group: NodeGroup = group
        ) -> bool:
            added = (memory_gib * GIB - given) / group.devices_per_node
            larger = with_host_memory(cluster, device, added_bytes=added)
            return checks.fits_on(request, larger)

        most = max(given_gib * _HOST_GROWTH_LIMIT, _ORDINARY_HOST_GIB)
        needed = least(fits, given_gib, most)
        if needed is not None:
            yield Relaxation(
                field=f"cluster.node_groups.{index}.host_memory_bytes",
                given=given,
                needed=float(needed * GIB),
                description=f"use nodes with {needed} GiB of host memory in place of "
                f"{format_bytes(given)}",
            )


def more_nodes(request: Request, checks: Checks) -> Iterator[Relaxation]:
    """Yield the fewest nodes of each group that are found to be enough."""
    cluster = request.cluster.resolved
    for index, group in enumerate(cluster.node_groups):

        def fits(node_count: int, group: NodeGroup = group) -> bool:
            changed = with_group(cluster, group.name, node_count=node_count)
            return checks.fits_on(request, changed)

        most = min(group.node_count * _NODE_GROWTH_LIMIT, _NODE_COUNT_LIMIT)
        needed = fewest_above(fits, group.node_count, most)
        if needed is not None:
            yield _nodes(index, group, needed)


def fewer_nodes(request: Request, checks: Checks) -> Iterator[Relaxation]:
    """Yield the most nodes below the given that are found: too many can leave no legal degrees."""
    cluster = request.cluster.resolved
    for index, group in enumerate(cluster.node_groups):

        def fits(node_count: int, group: NodeGroup = group) -> bool:
            changed = with_group(cluster, group.name, node_count=node_count)
            return checks.fits_on(request, changed)

        fewer = most_count_below(fits, group.node_count)
        if fewer is not None:
            yield _nodes(index, group, fewer)


def _nodes(index: int, group: NodeGroup, needed: int) -> Relaxation:
    return Relaxation(
        field=f"cluster.node_groups.{index}.node_count",
        given=group.node_count,
        needed=needed,
        description=f"use {counted(needed, 'node')} of {group.devices_per_node} {group.device} in "
        f"place of {group.node_count}",
    )


def _first_group(cluster: Cluster, device: str) -> tuple[int, NodeGroup]:
    return next(
        (index, group) for index, group in enumerate(cluster.node_groups) if group.device == device
    )
