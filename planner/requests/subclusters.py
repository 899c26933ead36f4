"""Subclusters: the parts of a cluster that a job could do with."""

from __future__ import annotations

from collections.abc import Iterable, Iterator
from itertools import combinations
from math import gcd

from planner.schema.cluster import Cluster, NodeGroup

SUBCLUSTER_LIMIT = 24
# Every number of so many nodes still leaves room for their parts below the limit of searches.
_DENSE_NODES = 16
_DENSE_DEVICES = 8


def subclusters(cluster: Cluster, *, limit: int = SUBCLUSTER_LIMIT) -> tuple[Cluster, ...]:
    """Return the parts of `cluster`, largest first, the whole one at the head.

    Of every set of its node groups, the same share of each: all, a half, a third, and so on as far
    as the node counts divide; of a lone group any number of up to 16 nodes, of larger ones powers
    of two as well, and of a lone node any number of up to 8 devices, of larger ones divisors as
    well. Of more than `limit` parts, so many are kept, evenly from the largest to the least.
    """
    groups = cluster.node_groups
    parts = {
        part
        for count in range(1, min(len(groups), 4) + 1)
        for chosen in combinations(groups, count)
        for part in _shares(chosen)
    }
    whole = tuple(groups)
    parts.discard(whole)
    ranked = sorted(parts, key=lambda part: (-_device_count(part), _names(part)))
    kept = [whole, *_spread(ranked, limit - 1)]
    return tuple(cluster.model_copy(update={"node_groups": part}) for part in kept)


def _spread(ranked: list[tuple[NodeGroup, ...]], count: int) -> Iterator[tuple[NodeGroup, ...]]:
    """Yield up to `count` of the parts, evenly, the first and the last among them."""
    if len(ranked) <= count:
        yield from ranked
    else:
        last = len(ranked) - 1
        yield from (ranked[round(place * last / (count - 1))] for place in range(count))


def _shares(groups: tuple[NodeGroup, ...]) -> set[tuple[NodeGroup, ...]]:
    common = gcd(*(group.node_count for group in groups))
    shares = {
        tuple(_with_nodes(group, group.node_count // divisor) for group in groups)
        for divisor in _divisors(common)
    }
    if len(groups) == 1:
        lone = groups[0]
        counts: Iterable[int] = range(1, lone.node_count + 1)
        if lone.node_count > _DENSE_NODES:
            counts = (2**power for power in range(lone.node_count.bit_length()))
        shares |= {(_with_nodes(lone, count),) for count in counts}
        whole = lone.devices_per_node
        few = range(1, min(whole, _DENSE_DEVICES + 1))
        some = {*few, *_divisors(whole)} - {whole}
        shares |= {(_with_devices(lone, count),) for count in some}
    return shares


def _with_nodes(group: NodeGroup, node_count: int) -> NodeGroup:
    return group.model_copy(update={"node_count": node_count})


def _with_devices(group: NodeGroup, device_count: int) -> NodeGroup:
    """Return one node of the group with fewer devices, and their share of host memory and NVMe."""
    ratio, host = device_count / group.devices_per_node, group.host_memory_bytes
    changes = {
        "node_count": 1,
        "devices_per_node": device_count,
        "host_memory_bytes": None if host is None else host * ratio,
        "nvme": None if group.nvme is None else group.nvme.part(ratio),
    }
    return group.model_copy(update=changes)


def _divisors(number: int) -> list[int]:
    return [divisor for divisor in range(1, number + 1) if number % divisor == 0]


def _device_count(groups: tuple[NodeGroup, ...]) -> int:
    return sum(group.device_count for group in groups)


def _names(groups: tuple[NodeGroup, ...]) -> tuple[str, ...]:
    return tuple(group.name for group in groups)
