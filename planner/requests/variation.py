"""Variation: the same request with one thing changed, resolved anew."""

from __future__ import annotations

import math
from typing import Any

from planner.cost.fitting import room
from planner.hardware import device_profile
from planner.requests.resolution import Request, cluster_document, resolved_request
from planner.schema.cluster import Cluster, NodeGroup
from planner.schema.job import Job
from planner.units import GIB


def with_limits(request: Request, **changes: Any) -> Request:
    """Return `request` with the named limits of its job replaced.

    Raises:
        InputError: if the changed request does not go together.
    """
    limits = request.job.resolved.limits.model_copy(update=changes)
    return with_job(request, limits=limits)


def with_job(request: Request, **changes: Any) -> Request:
    """Return `request` with the named fields of its job replaced.

    Raises:
        InputError: if the changed request does not go together.
    """
    job = request.job.resolved.model_copy(update=changes)
    job = Job.from_fields(job.model_dump(mode="json"), source="job")
    return resolved_request(request.model, request.cluster, job)


def with_cluster(request: Request, cluster: Cluster) -> Request:
    """Return `request` on `cluster`; what the job's defaults were resolved to stays.

    Raises:
        InputError: if the changed request does not go together.
    """
    fields = cluster.model_dump(mode="json")
    document = cluster_document(fields, Cluster.from_fields(fields, source="cluster"))
    return resolved_request(request.model, document, request.job.resolved)


def with_group(cluster: Cluster, name: str, **changes: Any) -> Cluster:
    """Return `cluster` with the named fields of one node group replaced."""
    groups = tuple(
        group.model_copy(update=changes) if group.name == name else group
        for group in cluster.node_groups
    )
    return cluster.model_copy(update={"node_groups": groups})


def with_device_memory(cluster: Cluster, device: str, *, added_bytes: float) -> Cluster:
    """Return `cluster` with that much more memory in every device of one kind."""
    for group in cluster.node_groups:
        if group.device == device:
            total = device_memory_bytes(group) + added_bytes
            cluster = with_group(cluster, group.name, memory_bytes=total)
    return cluster


def with_host_memory(cluster: Cluster, device: str, *, added_bytes: float) -> Cluster:
    """Return `cluster` with that much more host memory for every device of one kind."""
    for group in cluster.node_groups:
        if group.device == device:
            total = host_memory_bytes(group) + added_bytes * group.devices_per_node
            cluster = with_group(cluster, group.name, host_memory_bytes=total)
    return cluster


def with_memory_cap(cluster: Cluster, device: str, cap_bytes: float) -> Cluster:
    """Return `cluster` with no device of one kind that holds more than `cap_bytes`.

    Groups that differ in memory alone stay apart by a last digit: as one kind they would have other
    strategies.
    """
    groups = [group for group in cluster.node_groups if group.device == device]
    larger = sorted({m for g in groups if (m := device_memory_bytes(g)) >= cap_bytes})
    caps = {}
    for memory in larger:
        caps[memory] = cap_bytes
        cap_bytes = math.nextafter(cap_bytes, 0.0)
    for group in groups:
        own = device_memory_bytes(group)
        cluster = with_group(cluster, group.name, memory_bytes=caps.get(own, own))
    return cluster


def with_peak_cap(request: Request, cap_bytes: float) -> Request:
    """Return `request` with devices of which no peak may be predicted to take more than the cap."""
    cluster, job = request.cluster.resolved, request.job.resolved
    for device in devices(cluster):
        memory = room(device_profile(device), job).device_bytes(cap_bytes)
        cluster = with_memory_cap(cluster, device, memory)
    return with_cluster(request, cluster)


def device_memory_bytes(group: NodeGroup) -> float:
    """Return the memory of one device of the group: its own figure or its profile's."""
    if group.memory_bytes is not None:
        return group.memory_bytes
    return device_profile(group.device).memory_gib * GIB


def host_memory_bytes(group: NodeGroup) -> float:
    """Return the host memory of one node of the group: its own figure or its profile's."""
    if group.host_memory_bytes is not None:
        return group.host_memory_bytes
    return device_profile(group.device).host.memory_gib_per_device * GIB * group.devices_per_node


def devices(cluster: Cluster) -> tuple[str, ...]:
    """Return the kinds of devices in the cluster, in its own order."""
    return tuple(dict.fromkeys(group.device for group in cluster.node_groups))
