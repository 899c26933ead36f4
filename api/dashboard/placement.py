"""Where a plan's ranks lie: which device of which node, and with whom each talks along every axis.

Ranks are numbered with the pipeline outermost and tensor parallelism innermost (docs/decisions,
0006); stages take the devices of their kind in the order of the nodes.
"""

from __future__ import annotations

from collections.abc import Iterator, Sequence
from dataclasses import dataclass

import numpy as np
from numpy.typing import NDArray

from planner.cost.schedule import rank_of_virtual_stage
from planner.hardware import cluster_hardware
from planner.schema.cluster import Cluster
from planner.schema.plan import Plan
from planner.schema.strategy import Strategy

Integers = NDArray[np.int64]
UNUSED = -1

AXES = ("pipeline", "replicate", "shard", "context", "tensor")
_EXPERT = "expert"
_WORDS = {
    "pipeline": ("Pipeline", "passes activations from stage to stage"),
    "replicate": ("Data parallel, replicated", "averages gradients of replicas"),
    "shard": ("Data parallel, sharded", "shards model states (ZeRO)"),
    "context": ("Context parallel", "shares a sequence"),
    "tensor": ("Tensor parallel", "splits each layer"),
    "expert": ("Expert parallel", "holds different experts"),
}


@dataclass(frozen=True, slots=True, kw_only=True)
class Place:
    """A rank on its device; `coordinates` are by axis, `groups` say which group it is in."""

    rank: int
    node: int
    device: int
    coordinates: dict[str, int]
    groups: dict[str, int]


@dataclass(frozen=True, slots=True, kw_only=True)
class Node:
    """One node with the ranks on its devices; `None` where a device is not used."""

    index: int
    node_group: str
    device: str
    places: tuple[Place | None, ...]


@dataclass(frozen=True, slots=True, kw_only=True)
class AxisGroups:
    """The groups of one axis; `node_span` is the most nodes that one of them lies on."""

    name: str
    label: str
    meaning: str
    rank_count: int
    group_count: int
    node_span: int


@dataclass(frozen=True, slots=True, kw_only=True)
class Placement:
    """All devices of a plan's cluster, and the axes along which its ranks form groups.

    `first_slots` [nodes + 1] says which devices a node has; `rank_of` [devices] is which rank is
    there, or `UNUSED`. `coordinates` and `groups` are [ranks] by axis. A cluster has devices by the
    ten thousand, of which a page shows few: these alone become objects.
    """

    cluster: Cluster
    first_slots: Integers
    rank_of: Integers
    coordinates: dict[str, Integers]
    groups: dict[str, Integers]
    axes: tuple[AxisGroups, ...]

    @property
    def node_count(self) -> int:
        """Return the nodes of the cluster."""
        return len(self.first_slots) - 1

    def node(self, index: int) -> Node:
        """Return one node, all of whose devices are of one kind."""
        own = self.rank_of[self.first_slots[index] : self.first_slots[index + 1]]
        left = index
        for group in self.cluster.node_groups:
            if left < group.node_count:
                break
            left -= group.node_count
        places = tuple(self._place(rank, index, device) for device, rank in enumerate(own.tolist()))
        return Node(index=index, node_group=group.name, device=group.device, places=places)

    def _place(self, rank: int, node: int, device: int) -> Place | None:
        if rank == UNUSED:
            return None
        at, groups = (
            {axis: int(values[rank]) for axis, values in each.items()}
            for each in (self.coordinates, self.groups)
        )
        return Place(rank=rank, node=node, device=device, coordinates=at, groups=groups)


def placement(plan: Plan) -> Placement:
    """Return which rank lies where, and which groups it belongs to."""
    strategy, cluster = plan.strategy, plan.cluster.resolved
    sizes = [
        group.devices_per_node for group in cluster.node_groups for _ in range(group.node_count)
    ]
    first_slots = np.concatenate([[0], np.cumsum(sizes)])
    slots = _slots(strategy, cluster)
    rank_of = np.full(first_slots[-1], UNUSED)
    rank_of[slots] = np.arange(len(slots))
    degrees = _degrees(strategy)
    at = _coordinates(strategy, degrees)
    groups = _groups(strategy, degrees, at)
    nodes = np.repeat(np.arange(len(sizes)), sizes)[slots]
    return Placement(
        cluster=cluster,
        first_slots=first_slots,
        rank_of=rank_of,
        coordinates=at,
        groups=groups,
        axes=tuple(_axes(strategy, groups, nodes)),
    )


def _slots(strategy: Strategy, cluster: Cluster) -> Integers:
    """Return each rank's device, [ranks]: every stage takes the next of its kind."""
    kinds = {
        name: kind.device_group
        for kind in cluster_hardware(cluster).kinds
        for name in kind.node_groups
    }
    kind_of = np.repeat(
        [kinds[group.name] for group in cluster.node_groups],
        [group.node_count * group.devices_per_node for group in cluster.node_groups],
    )
    free = {kind: np.flatnonzero(kind_of == kind) for kind in kinds.values()}
    stage_size = strategy.world_size // strategy.pipeline_parallel_degree
    taken = []
    for group in _stage_groups(strategy):
        kind = kinds.get(group or "", next(iter(free)))
        taken.append(free[kind][:stage_size])
        free[kind] = free[kind][stage_size:]
    return np.concatenate(taken)


def _stage_groups(strategy: Strategy) -> list[str | None]:
    """Return the device group of each rank of the pipeline."""
    degree = strategy.pipeline_parallel_degree
    groups: list[str | None] = [None] * degree
    for stage in strategy.stages or ():
        rank = rank_of_virtual_stage(
            strategy.pipeline_schedule, pipeline_parallel_degree=degree, virtual_stage=stage.stage
        )
        groups[rank] = stage.device_group
    return groups


def _degrees(strategy: Strategy) -> dict[str, int]:
    return {
        "pipeline": strategy.pipeline_parallel_degree,
        "replicate": strategy.replicate_degree,
        "shard": strategy.shard_degree,
        "context": strategy.context_parallel_degree,
        "tensor": strategy.tensor_parallel_degree,
    }


def _coordinates(strategy: Strategy, degrees: dict[str, int]) -> dict[str, Integers]:
    """Return all ranks' places on each axis, and on that of the experts, [ranks] each."""
    shape = [degrees[axis] for axis in AXES]
    at = dict(zip(AXES, np.unravel_index(np.arange(np.prod(shape)), shape), strict=True))
    inner = _number(("shard", "context", "tensor"), degrees, at)
    at[_EXPERT] = inner // _expert_tensor(strategy) % strategy.expert_parallel_degree
    return at


def _groups(
    strategy: Strategy, degrees: dict[str, int], at: dict[str, Integers]
) -> dict[str, Integers]:
    """Return, for every axis, the number of the group of ranks that differ on that axis alone."""
    groups = {
        axis: _number([other for other in AXES if other != axis], degrees, at) for axis in AXES
    }
    split = _expert_tensor(strategy)
    inner_count = degrees["shard"] * degrees["context"] * degrees["tensor"]
    inner = _number(("shard", "context", "tensor"), degrees, at)
    experts = strategy.expert_parallel_degree * split
    within = inner // experts * split + inner % split
    outer = _number(("pipeline", "replicate"), degrees, at)
    groups[_EXPERT] = outer * (inner_count // strategy.expert_parallel_degree) + within
    return groups


def _number(axes: Sequence[str], degrees: dict[str, int], at: dict[str, Integers]) -> Integers:
    """Return the ranks' places on some axes as one number each, [ranks]."""
    places = tuple(at[axis] for axis in axes)
    return np.ravel_multi_index(places, [degrees[axis] for axis in axes])


def _expert_tensor(strategy: Strategy) -> int:
    return strategy.expert_tensor_parallel_degree or strategy.tensor_parallel_degree


def _axes(strategy: Strategy, groups: dict[str, Integers], nodes: Integers) -> Iterator[AxisGroups]:
    """Yield the axes along which there is more than one rank, of whose `nodes` [ranks]."""
    degrees = {**_degrees(strategy), _EXPERT: strategy.expert_parallel_degree}
    for axis in (*reversed(AXES), _EXPERT):
        if degrees[axis] == 1:
            continue
        pairs = np.unique(groups[axis] * (nodes.max() + 1) + nodes)
        spans = np.unique(pairs // (nodes.max() + 1), return_counts=True)[1]
        label, meaning = _WORDS[axis]
        yield AxisGroups(
            name=axis,
            label=label,
            meaning=meaning,
            rank_count=degrees[axis],
            group_count=len(spans),
            node_span=int(spans.max()),
        )
