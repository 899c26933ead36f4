"""What the page of ranks on nodes shows: some nodes at a time, coloured by one axis's groups."""

from __future__ import annotations

from dataclasses import dataclass
from itertools import islice

from api.dashboard.placement import AxisGroups, Node, Place, placement
from planner.errors import InputError
from planner.schema.plan import Plan

NODES_PER_PAGE = 64
_COLOUR_COUNT = 8
_SHORT = {
    "pipeline": "PP",
    "replicate": "replica",
    "shard": "DP",
    "context": "CP",
    "tensor": "TP",
    "expert": "EP",
}


@dataclass(frozen=True, slots=True, kw_only=True)
class Cell:
    """A device: its rank, the number that its colour stands for, and where it is on every axis."""

    rank: int
    number: int
    colour_class: str
    coordinates: str


@dataclass(frozen=True, slots=True, kw_only=True)
class NodeView:
    """A node with its devices in order; `None` where a device is not used."""

    title: str
    cells: tuple[Cell | None, ...]


@dataclass(frozen=True, slots=True, kw_only=True)
class PlacementView:
    """Ranks on nodes, arranged for the page."""

    plan: Plan
    axes: tuple[AxisGroups, ...]
    shown: AxisGroups | None
    nodes: tuple[NodeView, ...]
    first_node: int
    node_count: int
    previous_url: str | None
    next_url: str | None


def placement_view(plan: Plan, *, by: str | None = None, first_node: int = 0) -> PlacementView:
    """Return the nodes from `first_node` on, coloured by the groups of the axis `by`.

    Without `by` the axis whose ranks talk most is taken, which is the innermost.

    Raises:
        InputError: if the plan has no such axis, or the cluster no such node.
    """
    found = placement(plan)
    shown = _axis(found.axes, by)
    node_count = len(found.nodes)
    if not 0 <= first_node < node_count:
        raise InputError(
            "is no node of the plan's cluster",
            field="node",
            value=str(first_node),
            remedy=f"use 0 to {node_count - 1}",
        )
    names = [axis.name for axis in reversed(found.axes)]
    on_page = islice(found.nodes, first_node, first_node + NODES_PER_PAGE)
    after, before = first_node + NODES_PER_PAGE, first_node - NODES_PER_PAGE
    return PlacementView(
        plan=plan,
        axes=found.axes,
        shown=shown,
        nodes=tuple(_node(node, names, shown) for node in on_page),
        first_node=first_node,
        node_count=node_count,
        previous_url=_url(plan, shown, max(before, 0)) if first_node else None,
        next_url=_url(plan, shown, after) if after < node_count else None,
    )


def _axis(axes: tuple[AxisGroups, ...], by: str | None) -> AxisGroups | None:
    if by is None:
        return axes[0] if axes else None
    for axis in axes:
        if axis.name == by:
            return axis
    raise InputError(
        "is no axis along which this plan's ranks form groups",
        field="by",
        value=by,
        remedy=f"use one of {', '.join(axis.name for axis in axes)}" if axes else "leave it out",
    )


def _url(plan: Plan, shown: AxisGroups | None, node: int) -> str:
    axis = f"by={shown.name}&" if shown else ""
    return f"/plans/{plan.id}/placement?{axis}node={node}"


def _node(node: Node, names: list[str], shown: AxisGroups | None) -> NodeView:
    cells = tuple(None if place is None else _cell(place, names, shown) for place in node.places)
    return NodeView(title=f"Node {node.index} · {node.device}", cells=cells)


def _cell(place: Place, names: list[str], shown: AxisGroups | None) -> Cell:
    number = 0 if shown is None else _number(place, shown)
    return Cell(
        rank=place.rank,
        number=number,
        colour_class=f"group-{number % _COLOUR_COUNT}",
        coordinates=", ".join(f"{_SHORT[name]} {place.coordinates[name]}" for name in names),
    )


def _number(place: Place, shown: AxisGroups) -> int:
    """Return the group; along the pipeline it is the stage that tells ranks apart."""
    name = shown.name
    return place.coordinates[name] if name == "pipeline" else place.groups[name]
