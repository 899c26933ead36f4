"""Relaxation: the smallest changes to an infeasible request under which it has a plan.

Each is a change of one field (or lifts limits that only together help), and is found by asking
whether the changed request has a plan, so none is offered that was not checked. Quantities are
searched by doubling and then halving the interval. All of it together keeps a time limit, of which
every kind of change has its share: what is not found in time is not offered.
"""

from __future__ import annotations

import time
from collections.abc import Callable, Iterator
from dataclasses import dataclass

from planner.errors import InputError
from planner.resolution import Request
from planner.schema.cluster import Cluster, NodeGroup
from planner.schema.job import GLOBAL_BATCH_LIMIT, Limits, Optimizer
from planner.schema.plan import Relaxation
from planner.units import GIB, format_bytes
from planner.variation import (
    device_memory_bytes,
    devices,
    host_memory_bytes,
    with_cluster,
    with_device_memory,
    with_group,
    with_host_memory,
    with_job,
    with_limits,
)

Feasible = Callable[[Request], bool]

_MEMORY_GROWTH_LIMIT = 4
_HOST_GROWTH_LIMIT = 16
_ORDINARY_HOST_GIB = 1024
_NODE_GROWTH_LIMIT = 64
_NODE_COUNT_LIMIT = 2**17
_LEAST_SEQUENCE = 128
_BATCHES_TRIED = 8
_SECONDS_A_SEARCH = 5.0
_NEVER_LIFTED = {"solver_seconds", "accepted_gap_ratio", "memory_headroom_ratio"}
_LEANER = (Optimizer.ADAM8BIT, Optimizer.MUON, Optimizer.ADAFACTOR, Optimizer.SGD)


@dataclass(slots=True, kw_only=True)
class _Checks:
    """Whether changed requests have a plan, asked until a deadline of `time.perf_counter`."""

    feasible: Feasible
    deadline: float

    @property
    def seconds_left(self) -> float:
        return self.deadline - time.perf_counter()

    def fits(self, changed: Request) -> bool:
        """Return whether a plan was found; past the deadline none is looked for."""
        seconds = min(self.seconds_left, _SECONDS_A_SEARCH)
        if seconds <= 0.0:
            return False
        own = changed.job.resolved.limits.solver_seconds
        return self.feasible(with_limits(changed, solver_seconds=min(own, seconds)))

    def fits_on(self, request: Request, cluster: Cluster) -> bool:
        """Return whether a plan was found on `cluster`; none is where its parts do not go together.

        A cluster's own levels may have no room for more nodes.
        """
        if self.seconds_left <= 0.0:
            return False
        try:
            changed = with_cluster(request, cluster)
        except InputError:
            return False
        return self.fits(changed)


def smallest_relaxations(
    request: Request, *, feasible: Feasible, seconds: float | None = None
) -> tuple[Relaxation, ...]:
    """Return changes, each as small as can be, that make `request` fit, within `seconds`.

    The seconds are the job's own limit unless they are given.
    """
    limit = request.job.resolved.limits.solver_seconds if seconds is None else seconds
    end = time.perf_counter() + limit
    found: list[Relaxation] = []
    for index, family in enumerate(_FAMILIES):
        now = time.perf_counter()
        share = max(end - now, 0.0) / (len(_FAMILIES) - index)
        checks = _Checks(feasible=feasible, deadline=now + share)
        found.extend(family(request, checks))
    return tuple(found)


def _lifted_limits(request: Request, checks: _Checks) -> Iterator[Relaxation]:
    """Yield each limit that the user narrowed, lifted alone; else as few as help together."""
    limits, default = request.job.resolved.limits, Limits()
    narrowed = [
        name
        for name in Limits.model_fields
        if name not in _NEVER_LIFTED and getattr(limits, name) != getattr(default, name)
    ]
    alone = [name for name in narrowed if checks.fits(_lifted(request, [name]))]
    for name in alone:
        yield _lift(limits, [name])
    if not alone and len(narrowed) > 1 and checks.fits(_lifted(request, narrowed)):
        needed = list(narrowed)
        for name in narrowed:
            fewer = [other for other in needed if other != name]
            if fewer and checks.fits(_lifted(request, fewer)):
                needed = fewer
        yield _lift(limits, needed)


def _lifted(request: Request, names: list[str]) -> Request:
    default = Limits()
    return with_limits(request, **{name: getattr(default, name) for name in names})


def _lift(limits: Limits, names: list[str]) -> Relaxation:
    given = limits.model_dump(mode="json")
    wanted = Limits().model_dump(mode="json")
    if len(names) == 1:
        name = names[0]
        return Relaxation(
            field=f"job.limits.{name}",
            given=given[name],
            needed=wanted[name],
            description=f"lift the limit on {name}",
        )
    return Relaxation(
        field="job.limits",
        given={name: given[name] for name in names},
        needed={name: wanted[name] for name in names},
        description=f"lift the limits on {', '.join(names)} together",
    )


def _less_headroom(request: Request, checks: _Checks) -> Iterator[Relaxation]:
    """Yield the most headroom, in whole per cent, with which something fits."""
    given = request.job.resolved.limits.memory_headroom_ratio
    percent = round(given * 100.0)

    def fits(taken: int) -> bool:
        ratio = max(percent - taken, 0) / 100.0
        return checks.fits(with_limits(request, memory_headroom_ratio=ratio))

    if percent > 0 and fits(percent):
        low, high = 0, percent
        while high - low > 1:
            middle = (low + high) // 2
            low, high = (low, middle) if fits(middle) else (middle, high)
        needed = (percent - high) / 100.0
        yield Relaxation(
            field="job.limits.memory_headroom_ratio",
            given=given,
            needed=needed,
            description=f"leave {needed:.0%} of device memory free in place of {given:.0%}",
        )


def _other_batches(request: Request, checks: _Checks) -> Iterator[Relaxation]:
    """Yield the nearest batch among multiples of the devices and halves of what was given."""
    given = request.job.resolved.global_batch_size or 1
    devices_in_all = request.cluster.resolved.device_count
    above = -(-given // devices_in_all) * devices_in_all
    tried = {above, above + devices_in_all, *(given >> power for power in range(1, 24))}
    nearest = sorted(tried - {0, given}, key=lambda batch: (abs(batch - given), batch))
    for batch in (one for one in nearest[:_BATCHES_TRIED] if one <= GLOBAL_BATCH_LIMIT):
        if checks.fits(with_job(request, global_batch_size=batch)):
            yield Relaxation(
                field="job.global_batch_size",
                given=given,
                needed=batch,
                description=f"train on {batch} sequences a step in place of {given}",
            )
            return


def _shorter_sequences(request: Request, checks: _Checks) -> Iterator[Relaxation]:
    given = request.job.resolved.sequence_length or 1
    length = given // 2
    while length >= _LEAST_SEQUENCE:
        if checks.fits(with_job(request, sequence_length=length)):
            yield Relaxation(
                field="job.sequence_length",
                given=given,
                needed=length,
                description=f"train on sequences of {length} tokens in place of {given}",
            )
            return
        length //= 2


def _leaner_optimizers(request: Request, checks: _Checks) -> Iterator[Relaxation]:
    given = request.job.resolved.optimizer
    for optimizer in _LEANER:
        if optimizer is not given and checks.fits(with_job(request, optimizer=optimizer)):
            yield Relaxation(
                field="job.optimizer",
                given=given.value,
                needed=optimizer.value,
                description=f"use {optimizer.value} in place of {given.value}",
            )
            return


def _more_device_memory(request: Request, checks: _Checks) -> Iterator[Relaxation]:
    cluster = request.cluster.resolved
    for device in devices(cluster):
        index, group = _first_group(cluster, device)
        given = device_memory_bytes(group)
        given_gib = int(given // GIB)

        def fits(memory_gib: int, device: str = device, given: float = given) -> bool:
            added = memory_gib * GIB - given
            larger = with_device_memory(cluster, device, added_bytes=added)
            return checks.fits_on(request, larger)

        needed = _least(fits, given_gib, max(given_gib, 1) * _MEMORY_GROWTH_LIMIT)
        if needed is not None:
            yield Relaxation(
                field=f"cluster.node_groups.{index}.memory_bytes",
                given=given,
                needed=float(needed * GIB),
                description=f"use {device} devices of {needed} GiB in place of "
                f"{format_bytes(given)}",
            )


def _more_host_memory(request: Request, checks: _Checks) -> Iterator[Relaxation]:
    """Yield the least host memory that is enough, where the job may offload."""
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
        needed = _least(fits, given_gib, most)
        if needed is not None:
            yield Relaxation(
                field=f"cluster.node_groups.{index}.host_memory_bytes",
                given=given,
                needed=float(needed * GIB),
                description=f"use nodes with {needed} GiB of host memory in place of "
                f"{format_bytes(given)}",
            )


def _more_nodes(request: Request, checks: _Checks) -> Iterator[Relaxation]:
    cluster = request.cluster.resolved
    for index, group in enumerate(cluster.node_groups):

        def fits(node_count: int, group: NodeGroup = group) -> bool:
            changed = with_group(cluster, group.name, node_count=node_count)
            return checks.fits_on(request, changed)

        most = min(group.node_count * _NODE_GROWTH_LIMIT, _NODE_COUNT_LIMIT)
        needed = _least(fits, group.node_count, most)
        if needed is not None:
            yield _nodes(index, group, needed)


def _fewer_nodes(request: Request, checks: _Checks) -> Iterator[Relaxation]:
    """Yield the most nodes below the given, by halving: too many can leave no legal degrees."""
    cluster = request.cluster.resolved
    for index, group in enumerate(cluster.node_groups):
        node_count = group.node_count // 2
        while node_count >= 1:
            changed = with_group(cluster, group.name, node_count=node_count)
            if checks.fits_on(request, changed):
                yield _nodes(index, group, node_count)
                break
            node_count //= 2


def _nodes(index: int, group: NodeGroup, needed: int) -> Relaxation:
    return Relaxation(
        field=f"cluster.node_groups.{index}.node_count",
        given=group.node_count,
        needed=needed,
        description=f"use {needed} nodes of {group.devices_per_node} {group.device} in place of "
        f"{group.node_count}",
    )


def _first_group(cluster: Cluster, device: str) -> tuple[int, NodeGroup]:
    return next(
        (index, group) for index, group in enumerate(cluster.node_groups) if group.device == device
    )


def _least(fits: Callable[[int], bool], given: int, limit: int) -> int | None:
    """Return the least value above `given` that fits, supposing that more never hurts."""
    low, high = given, min(max(given, 1) * 2, limit)
    while not fits(high):
        if high >= limit:
            return None
        low, high = high, min(high * 2, limit)
    while high - low > 1:
        middle = (low + high) // 2
        low, high = (low, middle) if fits(middle) else (middle, high)
    return high


_FAMILIES = (
    _lifted_limits,
    _less_headroom,
    _other_batches,
    _shorter_sequences,
    _leaner_optimizers,
    _more_device_memory,
    _more_host_memory,
    _more_nodes,
    _fewer_nodes,
)
