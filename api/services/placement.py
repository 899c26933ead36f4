"""Placement: which agent gets which ranks of a plan. Pure: rows in, assignments out.

Ranks are numbered along the pipeline, and nodes in the order of the kinds of devices along it, so
node n has the ranks after those of node n - 1.
"""

from __future__ import annotations

from collections import Counter
from collections.abc import Collection, Iterator, Mapping, Sequence
from dataclasses import dataclass
from functools import lru_cache
from itertools import groupby

from planner.errors import InputError
from planner.importers.cluster.discovered import device_called
from planner.schema.agent import AgentReport
from planner.schema.cluster import Cluster, NodeGroup
from planner.schema.plan import Plan


@dataclass(frozen=True, slots=True, kw_only=True)
class Need:
    """Nodes of one group: how many, of what, and the ranks from `first_rank` that they run."""

    group: NodeGroup
    first_rank: int
    rank_count: int

    @property
    def node_count(self) -> int:
        """Return how many nodes have ranks of the group."""
        return -(-self.rank_count // self.group.devices_per_node)


@dataclass(frozen=True, slots=True, kw_only=True)
class Candidate:
    """An idle agent: its devices by kind, and on how many nodes it can start ranks."""

    agent_id: str
    address: str
    location: tuple[str, ...]
    device_counts: Mapping[str, int]
    commands: frozenset[str]
    node_count: int

    def fits(self, group: NodeGroup, command: str) -> bool:
        """Return whether one of its nodes can stand for one of the group's."""
        enough = self.device_counts.get(group.device, 0) >= group.devices_per_node
        return enough and command in self.commands


@dataclass(frozen=True, slots=True, kw_only=True)
class Assignment:
    """An agent's part: nodes from `node_rank` on, and the ranks that they run."""

    candidate: Candidate
    node_rank: int
    node_span: int
    first_rank: int
    rank_count: int


def candidate(agent_id: str, report: AgentReport) -> Candidate:
    """Return what placement needs to know of an agent."""
    kinds = Counter(device.profile or _profile_called(device.name) for device in report.devices)
    return Candidate(
        agent_id=agent_id,
        address=report.address,
        location=report.topology.location,
        device_counts=kinds,
        commands=frozenset(report.commands),
        node_count=report.node_count,
    )


@lru_cache(maxsize=256)
def _profile_called(name: str) -> str:
    """Return the profile that the driver's name of a device means; a name that means none, itself.

    Such a one is a plan's device only where a cluster document has a profile of that name.
    """
    try:
        return device_called(name, field="devices")
    except InputError:
        return name


def needs(plan: Plan) -> tuple[Need, ...]:
    """Return the nodes that `plan` takes, along its pipeline."""
    left = plan.strategy.world_size
    found = []
    for group in _along_pipeline(plan):
        rank_count = min(left, group.device_count)
        if rank_count:
            first = plan.strategy.world_size - left
            found.append(Need(group=group, first_rank=first, rank_count=rank_count))
        left -= rank_count
    return tuple(found)


def assignments(
    plan: Plan, candidates: Sequence[Candidate], *, command: str
) -> tuple[Assignment, ...] | None:
    """Return who runs what of `plan`, nodes in order; nothing unless all of it is placed."""
    free = sorted(candidates, key=lambda agent: agent.location)
    made: list[Assignment] = []
    for need in needs(plan):
        placed = list(_placed(need, free, command=command, first_node=_next_node(made)))
        if sum(assignment.rank_count for assignment in placed) < need.rank_count:
            return None
        taken = {assignment.candidate.agent_id for assignment in placed}
        free = [agent for agent in free if agent.agent_id not in taken]
        made += placed
    return tuple(made)


def agents_towards(plan: Plan, candidates: Sequence[Candidate], *, command: str) -> frozenset[str]:
    """Return who of `candidates` would run a part of `plan`, as far as they go."""
    free = sorted(candidates, key=lambda agent: agent.location)
    taken: set[str] = set()
    for need in needs(plan):
        left = [agent for agent in free if agent.agent_id not in taken]
        placed = _placed(need, left, command=command, first_node=0)
        taken.update(assignment.candidate.agent_id for assignment in placed)
    return frozenset(taken)


def remaining_cluster(
    cluster: Cluster, candidates: Collection[Candidate], *, command: str
) -> Cluster | None:
    """Return what `candidates` can stand for of `cluster`; nothing if that is no node."""
    free = list(candidates)
    groups = []
    for group in cluster.node_groups:
        fitting = [agent for agent in free if agent.fits(group, command)]
        node_count = 0
        for agent in fitting:
            if node_count < group.node_count:
                node_count += agent.node_count
                free.remove(agent)
        node_count = min(node_count, group.node_count)
        if node_count:
            groups.append(group.model_copy(update={"node_count": node_count}))
    if not groups:
        return None
    lost = sum(g.node_count for g in cluster.node_groups) - sum(g.node_count for g in groups)
    name = f"{cluster.name} less {lost} node{'s' if lost > 1 else ''}" if lost else cluster.name
    return cluster.model_copy(update={"name": name[:200], "node_groups": tuple(groups)})


def shortfall(plan: Plan, candidates: Collection[Candidate], *, command: str) -> str:
    """Return in words what a plan needs and what of it is there."""
    lines = []
    for need in needs(plan):
        there = sum(a.node_count for a in candidates if a.fits(need.group, command))
        group = need.group
        nodes = f"{need.node_count} node{'s' if need.node_count > 1 else ''}"
        lines.append(
            f"{nodes} with {group.devices_per_node} x {group.device} whose agents allow "
            f"{command!r} ({there} idle)"
        )
    return "; ".join(lines)


def _along_pipeline(plan: Plan) -> Iterator[NodeGroup]:
    """Yield node groups, each with the nodes of stages that follow one another; the rest last.

    A kind may have several groups, and the pipeline may come back to one.
    """
    strategy, groups = plan.strategy, plan.cluster.resolved.node_groups
    left = {group.name: group.node_count for group in groups}
    degree = strategy.pipeline_parallel_degree
    named = [stage.device_group for stage in (strategy.stages or ())[:degree] if stage.device_group]
    for name, run in groupby(named):
        ranks = len(list(run)) * (strategy.world_size // degree)
        for group in _of_kind(name, groups, named):
            wanted = max(-(-ranks // group.devices_per_node), 0)
            count = min(wanted, left[group.name])
            yield from _part(group, count)
            left[group.name] -= count
            ranks -= count * group.devices_per_node
    for group in groups:
        yield from _part(group, left[group.name])


def _of_kind(name: str, groups: Sequence[NodeGroup], named: Collection[str]) -> Iterator[NodeGroup]:
    """Yield the group of that name, and those like it that no stage names."""
    for first in groups:
        if first.name == name:
            yield from (
                group
                for group in groups
                if group is first or (group.name not in named and _alike(group, first))
            )


def _part(group: NodeGroup, node_count: int) -> Iterator[NodeGroup]:
    if node_count:
        yield group.model_copy(update={"node_count": node_count})


def _alike(group: NodeGroup, other: NodeGroup) -> bool:
    return (group.device, group.devices_per_node) == (other.device, other.devices_per_node)


def _next_node(made: Sequence[Assignment]) -> int:
    return made[-1].node_rank + made[-1].node_span if made else 0


def _placed(
    need: Need, free: Sequence[Candidate], *, command: str, first_node: int
) -> Iterator[Assignment]:
    """Yield assignments of one group's nodes to agents, until all its ranks are placed."""
    node, rank, left = first_node, need.first_rank, need.rank_count
    per_node = need.group.devices_per_node
    for agent in free:
        if left and agent.fits(need.group, command):
            span = min(agent.node_count, -(-left // per_node))
            rank_count = min(left, span * per_node)
            yield Assignment(
                candidate=agent,
                node_rank=node,
                node_span=span,
                first_rank=rank,
                rank_count=rank_count,
            )
            node, rank, left = node + span, rank + rank_count, left - rank_count
