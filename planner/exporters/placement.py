"""Placement: how many nodes with how many devices a plan's ranks take."""

from __future__ import annotations

from dataclasses import dataclass

from planner.errors import InputError
from planner.schema.plan import Plan


@dataclass(frozen=True, slots=True, kw_only=True)
class Placement:
    """Nodes of one size, as launchers want them."""

    node_count: int
    devices_per_node: int


def placement(plan: Plan) -> Placement:
    """Return the nodes and devices that the plan's ranks take.

    Raises:
        InputError: if its nodes have different numbers of devices.
    """
    sizes = {group.devices_per_node for group in plan.cluster.resolved.node_groups}
    if len(sizes) > 1:
        raise InputError(
            "launchers start as many ranks on every node",
            field="cluster.node_groups",
            value=f"nodes of {', '.join(map(str, sorted(sizes)))} devices",
            remedy="plan on node groups of one size",
        )
    (size,) = sizes
    ranks = plan.strategy.world_size
    return Placement(node_count=max(ranks // size, 1), devices_per_node=min(size, ranks))
