"""Variation: the same request with one thing changed, resolved anew."""

from __future__ import annotations

import math
from collections.abc import Iterator
from typing import Any

from planner.cost.fitting import room
from planner.hardware import device_profile, profile_of
from planner.ilp.problem import DEGREES
from planner.requests.resolution import Request, cluster_document, resolved_request
from planner.schema.cluster import Cluster, NodeGroup
from planner.schema.job import DegreeLimit, Job
from planner.schema.strategy import Strategy
from planner.units import GIB


def with_limits(request: Request, **changes: Any) -> Request:
    """Return `request` with the named limits of its job replaced.

    Raises:
        InputError: if the changed request does not go together.
    """
    limits = request.job.resolved.limits.model_copy(update=changes)
    return with_job(request, limits=limits)


def without_its_choices(request: Request, strategy: Strategy) -> Iterator[Request]:
    """Yield `request` with the degrees of `strategy` alone, each without one thing that it chose.

    That is its micro-batch (for smaller ones, and for larger), checkpointing, ZeRO stages, schedule
    of a pipeline, and offload.
    """
    limits = request.job.resolved.limits
    same = {name: _only(getattr(strategy, name)) for name in DEGREES}
    size, given = strategy.micro_batch_size, limits.micro_batch_size
    for least, most in ((given.min, size - 1), (size + 1, given.max)):
        if least <= most:
            fewer = DegreeLimit(min=least, max=most)
            yield with_limits(request, **same, micro_batch_size=fewer)
    groups = [group for stage in strategy.stages or () for group in stage.layers]
    used: dict[str, set[object]] = {
        "activation_checkpointing": {group.activation_checkpointing for group in groups},
        "zero_stages": {group.zero_stage for group in groups},
        "offload": {state for group in groups for state in group.offload},
    }
    if strategy.pipeline_parallel_degree > 1:
        used["pipeline_schedules"] = {strategy.pipeline_schedule}
    for name, chosen in used.items():
        rest = tuple(item for item in getattr(limits, name) if item not in chosen)
        if chosen and (rest or name == "offload"):
            yield with_limits(request, **same, **{name: rest})


def _only(degree: int) -> DegreeLimit:
    return DegreeLimit(min=degree, max=degree)


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


def with_device(cluster: Cluster, device: str, other: str) -> Cluster:
    """Return `cluster` with another device, as it is sold, in the place of each of one kind."""
    own = {"device": other, "memory_bytes": None, "price_per_device_hour": None}
    for group in cluster.node_groups:
        if group.device == device:
            cluster = with_group(cluster, group.name, **own)
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
        memory = room(request.workload, profile_of(cluster, device), job).device_bytes(cap_bytes)
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
