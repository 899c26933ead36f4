"""Relaxation: the smallest changes to an infeasible request under which it has a plan.

Each is tried one at a time and found by asking whether the changed request is feasible, so none is
offered that was not checked. Quantities are searched by doubling and then halving the interval.
"""

from __future__ import annotations

from collections.abc import Callable, Iterator
from dataclasses import replace

from planner.resolution import Request, cluster_document, resolved_request
from planner.schema.cluster import Cluster
from planner.schema.job import Job, Limits, Optimizer
from planner.schema.plan import Relaxation
from planner.units import GIB, format_bytes

Feasible = Callable[[Request], bool]

_MEMORY_GROWTH_LIMIT = 4
_NODE_GROWTH_LIMIT = 64
_SOLVER_SECONDS = 5.0


def smallest_relaxations(request: Request, *, feasible: Feasible) -> tuple[Relaxation, ...]:
    """Return every single change of one field, as small as can be, that makes `request` fit."""
    families = (_freed_limits, _more_nodes, _more_memory, _shorter_sequences, _leaner_optimizers)
    return tuple(relaxation for family in families for relaxation in family(request, feasible))


def _freed_limits(request: Request, feasible: Feasible) -> Iterator[Relaxation]:
    """Each limit that the user narrowed, set back to its default alone."""
    given, default = request.job.resolved.limits, Limits()
    for name in Limits.model_fields:
        if name == "solver_seconds" or getattr(given, name) == getattr(default, name):
            continue
        freed = given.model_copy(update={name: getattr(default, name)})
        if feasible(_with_job(request, limits=freed)):
            dumped, wanted = given.model_dump(mode="json"), freed.model_dump(mode="json")
            yield Relaxation(
                field=f"job.limits.{name}",
                given=dumped[name],
                needed=wanted[name],
                description=f"lift the limit on {name}",
            )


def _more_nodes(request: Request, feasible: Feasible) -> Iterator[Relaxation]:
    cluster = request.cluster.resolved
    group = cluster.node_groups[0]

    def fits(node_count: int) -> bool:
        return feasible(_with_cluster(request, _changed_group(cluster, node_count=node_count)))

    needed = _least(fits, group.node_count, group.node_count * _NODE_GROWTH_LIMIT)
    if needed is not None:
        yield Relaxation(
            field="cluster.node_groups.0.node_count",
            given=group.node_count,
            needed=needed,
            description=f"use {needed} nodes of {group.devices_per_node} in place of "
            f"{group.node_count}",
        )


def _more_memory(request: Request, feasible: Feasible) -> Iterator[Relaxation]:
    cluster = request.cluster.resolved
    given_bytes = request.hardware.kinds[0].device_memory_bytes
    given_gib = int(given_bytes // GIB)

    def fits(memory_gib: int) -> bool:
        changed = _changed_group(cluster, memory_bytes=float(memory_gib * GIB))
        return feasible(_with_cluster(request, changed))

    needed_gib = _least(fits, given_gib, given_gib * _MEMORY_GROWTH_LIMIT)
    if needed_gib is not None:
        yield Relaxation(
            field="cluster.node_groups.0.memory_bytes",
            given=given_bytes,
            needed=float(needed_gib * GIB),
            description=f"devices of {needed_gib} GiB in place of {format_bytes(given_bytes)}",
        )


def _shorter_sequences(request: Request, feasible: Feasible) -> Iterator[Relaxation]:
    given = request.job.resolved.sequence_length or 1
    length = given // 2
    while length >= 128:
        if feasible(_with_job(request, sequence_length=length)):
            yield Relaxation(
                field="job.sequence_length",
                given=given,
                needed=length,
                description=f"train on sequences of {length} tokens in place of {given}",
            )
            return
        length //= 2


def _leaner_optimizers(request: Request, feasible: Feasible) -> Iterator[Relaxation]:
    given = request.job.resolved.optimizer
    for optimizer in (Optimizer.ADAM8BIT, Optimizer.SGD):
        if optimizer is not given and feasible(_with_job(request, optimizer=optimizer)):
            yield Relaxation(
                field="job.optimizer",
                given=given.value,
                needed=optimizer.value,
                description=f"use {optimizer.value}, which keeps smaller states than {given.value}",
            )
            return


def _least(fits: Callable[[int], bool], given: int, limit: int) -> int | None:
    """Return the least value above `given` that fits, supposing that more never hurts."""
    low, high = given, max(given, 1) * 2
    while not fits(high):
        if high >= limit:
            return None
        low, high = high, min(high * 2, limit)
    while high - low > 1:
        middle = (low + high) // 2
        if fits(middle):
            high = middle
        else:
            low = middle
    return high


def _with_job(request: Request, **changes: object) -> Request:
    job = request.job.resolved
    changed: Job = job.model_copy(update=changes)
    bounded = changed.limits.model_copy(update={"solver_seconds": _SOLVER_SECONDS})
    changed = changed.model_copy(update={"limits": bounded})
    return resolved_request(request.model, request.cluster, changed)


def _with_cluster(request: Request, cluster: Cluster) -> Request:
    job = request.job.resolved
    limits = job.limits.model_copy(update={"solver_seconds": _SOLVER_SECONDS})
    changed = job.model_copy(update={"limits": limits})
    document = cluster_document(request.cluster.given, cluster)
    return replace(
        resolved_request(request.model, document, changed), assumptions=request.assumptions
    )


def _changed_group(cluster: Cluster, **changes: object) -> Cluster:
    first, *others = cluster.node_groups
    return cluster.model_copy(update={"node_groups": (first.model_copy(update=changes), *others)})
