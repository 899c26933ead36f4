"""Growth: the least more memory, or nodes, with which an infeasible request has a plan."""

from __future__ import annotations

from collections.abc import Iterator

from planner.answers.feasibility import Checks, fewest_above, least, most_count_below
from planner.hardware import device_profile, larger_devices, profile_of
from planner.requests.resolution import Request
from planner.requests.variation import (
    device_memory_bytes,
    devices,
    host_memory_bytes,
    with_device,
    with_device_memory,
    with_group,
    with_host_memory,
)
from planner.schema.cluster import Cluster, NodeGroup
from planner.schema.plan import Relaxation
from planner.units import GIB, counted, format_bytes

_MEMORY_GROWTH_LIMIT = 16
_HOST_GROWTH_LIMIT = 16
_PARTS_OF_A_HOST = 16  # hosts are sold with memory in steps of an eighth and more
_ORDINARY_HOST_GIB = 1024
_NODE_GROWTH_LIMIT = 4096
_NODE_COUNT_LIMIT = 2**17


def more_device_memory(request: Request, checks: Checks) -> Iterator[Relaxation]:
    """Yield for each kind of device what holds more: more of its own memory, or another device.

    A group that states less memory than its device has may be given more of it, as may CPUs and
    devices that the cluster describes itself, the least to 2 %. Beyond that no such device is sold,
    and one of the catalogue is named.
    """
    cluster = request.cluster.resolved
    for device in devices(cluster):
        index, group = _first_group(cluster, device)
        field = f"cluster.node_groups.{index}"
        yield from _more_memory(request, checks, group, field=field) or _other_device(
            request, checks, group, field=field
        )


def _more_memory(
    request: Request, checks: Checks, group: NodeGroup, *, field: str
) -> list[Relaxation]:
    """Return the least memory of the device itself that is enough, in whole GiB."""
    cluster, device = request.cluster.resolved, group.device
    profile = profile_of(cluster, device)
    given = device_memory_bytes(group)
    given_gib = int(given // GIB)

    def fits(memory_gib: int) -> bool:
        added = memory_gib * GIB - given
        return checks.fits_on(request, with_device_memory(cluster, device, added_bytes=added))

    is_open = profile.kind == "cpu" or device in cluster.device_profiles
    most = max(given_gib, 1) * _MEMORY_GROWTH_LIMIT if is_open else int(profile.memory_gib)
    needed = least(fits, given_gib, most) if most > given_gib else None
    if needed is None:
        return []
    use = format_bytes(needed * GIB)
    words = f"let the job use {use} of each {device} in place of {format_bytes(given)}"
    return [
        Relaxation(
            field=f"{field}.memory_bytes",
            given=given,
            needed=float(needed * GIB),
            description=words,
        )
    ]


def _other_device(
    request: Request, checks: Checks, group: NodeGroup, *, field: str
) -> list[Relaxation]:
    """Return the device of least memory that is enough, with as many of them.

    Devices come with hosts of their own, so that one of less memory may be enough where a larger
    one is not: all are asked about, from the least on.
    """
    cluster, device = request.cluster.resolved, group.device
    if device in cluster.device_profiles:
        return []
    larger = larger_devices(device, device_memory_bytes(group) / GIB)
    enough = (
        other for other in larger if checks.fits_on(request, with_device(cluster, device, other))
    )
    other = next(enough, None)
    if other is None:
        return []
    memory = format_bytes(device_profile(other).memory_gib * GIB)
    given = format_bytes(device_memory_bytes(group))
    words = f"use {other} ({memory} each) in place of {device} ({given})"
    return [Relaxation(field=f"{field}.device", given=device, needed=other, description=words)]


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
        needed = least(fits, given_gib, most, parts=_PARTS_OF_A_HOST)
        if needed is not None:
            yield Relaxation(
                field=f"cluster.node_groups.{index}.host_memory_bytes",
                given=given,
                needed=float(needed * GIB),
                description=f"use nodes with {format_bytes(needed * GIB)} of host memory in place "
                f"of {format_bytes(given)}",
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
