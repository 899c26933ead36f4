"""Where a plan's ranks lie: which device of which node, and with whom each talks along every axis.

Ranks are numbered with the pipeline outermost and tensor parallelism innermost (docs/decisions,
0006); stages take the devices of their kind in the order of the nodes.
"""

from __future__ import annotations

from collections.abc import Iterator, Sequence
from dataclasses import dataclass

from planner.cost.schedule import rank_of_virtual_stage
from planner.hardware import cluster_hardware
from planner.schema.cluster import Cluster
from planner.schema.plan import Plan
from planner.schema.strategy import Strategy

AXES = ("pipeline", "replicate", "shard", "context", "tensor")
_EXPERT = "expert"
_OTHERS = {axis: tuple(other for other in AXES if other != axis) for axis in AXES}
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
    """All nodes of a plan's cluster, and the axes along which its ranks form groups."""

    nodes: tuple[Node, ...]
    axes: tuple[AxisGroups, ...]


def placement(plan: Plan) -> Placement:
    """Return which rank lies where, and which groups it belongs to."""
    strategy, degrees = plan.strategy, _degrees(plan.strategy)
    nodes = _empty_nodes(plan.cluster.resolved)
    filled: list[list[Place | None]] = [[None] * node.device_count for node in nodes]
    for rank, (node, device) in enumerate(_slots(plan, nodes)):
        at = _coordinates(strategy, degrees, rank)
        groups = _groups(strategy, degrees, at)
        filled[node][device] = Place(
            rank=rank, node=node, device=device, coordinates=at, groups=groups
        )
    found = tuple(
        Node(index=index, node_group=node.group, device=node.device, places=tuple(filled[index]))
        for index, node in enumerate(nodes)
    )
    return Placement(nodes=found, axes=tuple(_axes(strategy, found)))


@dataclass(frozen=True, slots=True, kw_only=True)
class _EmptyNode:
    group: str
    device: str
    device_count: int


def _empty_nodes(cluster: Cluster) -> list[_EmptyNode]:
    return [
        _EmptyNode(group=group.name, device=group.device, device_count=group.devices_per_node)
        for group in cluster.node_groups
        for _ in range(group.node_count)
    ]


def _slots(plan: Plan, nodes: list[_EmptyNode]) -> Iterator[tuple[int, int]]:
    """Yield each rank's node and device: every stage takes the next of its kind."""
    strategy = plan.strategy
    kinds = {
        name: kind.device_group
        for kind in cluster_hardware(plan.cluster.resolved).kinds
        for name in kind.node_groups
    }
    free: dict[str, list[tuple[int, int]]] = {}
    for index, node in enumerate(nodes):
        slots = [(index, device) for device in range(node.device_count)]
        free.setdefault(kinds[node.group], []).extend(slots)
    waiting = {kind: iter(slots) for kind, slots in free.items()}
    stage_size = strategy.world_size // strategy.pipeline_parallel_degree
    for group in _stage_groups(strategy):
        kind = kinds.get(group or "", next(iter(free)))
        for _ in range(stage_size):
            yield next(waiting[kind])


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


def _coordinates(strategy: Strategy, degrees: dict[str, int], rank: int) -> dict[str, int]:
    """Return a rank's place on each axis, and on that of the experts."""
    at: dict[str, int] = {}
    left = rank
    for axis in reversed(AXES):
        left, at[axis] = divmod(left, degrees[axis])
    inner = (at["shard"] * degrees["context"] + at["context"]) * degrees["tensor"] + at["tensor"]
    at[_EXPERT] = inner // _expert_tensor(strategy) % strategy.expert_parallel_degree
    return at


def _groups(strategy: Strategy, degrees: dict[str, int], at: dict[str, int]) -> dict[str, int]:
    """Return, for every axis, the number of the group of ranks that differ on that axis alone."""
    groups = {axis: _number(others, degrees, at) for axis, others in _OTHERS.items()}
    groups[_EXPERT] = _expert_group(strategy, at, degrees)
    return groups


def _expert_group(strategy: Strategy, at: dict[str, int], degrees: dict[str, int]) -> int:
    split = _expert_tensor(strategy)
    inner_count = degrees["shard"] * degrees["context"] * degrees["tensor"]
    inner = _number(("shard", "context", "tensor"), degrees, at)
    experts = strategy.expert_parallel_degree * split
    within = inner // experts * split + inner % split
    return (
        _number(("pipeline", "replicate"), degrees, at)
        * (inner_count // strategy.expert_parallel_degree)
        + within
    )


def _number(axes: Sequence[str], degrees: dict[str, int], at: dict[str, int]) -> int:
    number = 0
    for axis in axes:
        number = number * degrees[axis] + at[axis]
    return number


def _expert_tensor(strategy: Strategy) -> int:
    return strategy.expert_tensor_parallel_degree or strategy.tensor_parallel_degree


def _axes(strategy: Strategy, nodes: tuple[Node, ...]) -> Iterator[AxisGroups]:
    degrees = {**_degrees(strategy), _EXPERT: strategy.expert_parallel_degree}
    for axis in (*reversed(AXES), _EXPERT):
        if degrees[axis] == 1:
            continue
        spans: dict[int, set[int]] = {}
        for node in nodes:
            for place in node.places:
                if place is not None:
                    spans.setdefault(place.groups[axis], set()).add(node.index)
        label, meaning = _WORDS[axis]
        yield AxisGroups(
            name=axis,
            label=label,
            meaning=meaning,
            rank_count=degrees[axis],
            group_count=len(spans),
            node_span=max(len(found) for found in spans.values()),
        )
