"""What the page of ranks on nodes shows: some nodes at a time, coloured by one axis's groups."""

from __future__ import annotations

from collections import defaultdict
from collections.abc import Iterator
from dataclasses import dataclass

import numpy as np

from api.dashboard.placement import (
    UNUSED,
    AxisGroups,
    Integers,
    Node,
    Place,
    Placement,
    placement,
)
from planner.errors import InputError
from planner.schema.plan import Plan

NODES_PER_PAGE = 64  # without a map of all
_NODES_BELOW_MAP = 24
_DEVICE_UNITS, _DEVICE_HEIGHT, _GAP = 4, 5, 2
_MAP_UNITS = 1152
_BAND_ROWS = 4  # as many as make a link that is large enough to be hit
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
class MapBand:
    """Some rows of the map of all nodes: a link to the page that begins with their first."""

    top: int
    height: int
    url: str
    first_node: int
    last_node: int
    is_shown: bool


@dataclass(frozen=True, slots=True, kw_only=True)
class NodeMap:
    """All nodes as one small picture: `paths` has the outline of all devices of each colour."""

    width: int
    height: int
    paths: tuple[tuple[str, str], ...]
    bands: tuple[MapBand, ...]


@dataclass(frozen=True, slots=True, kw_only=True)
class PlacementView:
    """Ranks on nodes, arranged for the page; `map` is there where not all nodes are on it."""

    plan: Plan
    axes: tuple[AxisGroups, ...]
    shown: AxisGroups | None
    nodes: tuple[NodeView, ...]
    first_node: int
    node_count: int
    map: NodeMap | None
    previous_url: str | None
    next_url: str | None


def placement_view(plan: Plan, *, by: str | None = None, first_node: int = 0) -> PlacementView:
    """Return the nodes from `first_node` on, coloured by the groups of the axis `by`.

    Without `by` the innermost axis is taken whose groups tell devices apart: its ranks talk most.
    On a map of many nodes it is the pipeline, if there is one, whose stages are seen at a glance.

    Raises:
        InputError: if the plan has no such axis, or the cluster no such node.
    """
    found = placement(plan)
    node_count = found.node_count
    is_map = node_count > NODES_PER_PAGE
    axes = sorted(found.axes, key=lambda axis: is_map and axis.name != "pipeline")
    shown = _axis(tuple(axes), by)
    if not 0 <= first_node < node_count:
        raise InputError(
            "is not a node of the plan's cluster",
            field="node",
            value=str(first_node),
            remedy=f"use 0 to {node_count - 1}",
        )
    names = [axis.name for axis in reversed(found.axes)]
    shown_count = _NODES_BELOW_MAP if is_map else NODES_PER_PAGE
    after, before = first_node + shown_count, first_node - shown_count
    on_page = range(first_node, min(after, node_count))
    return PlacementView(
        plan=plan,
        axes=found.axes,
        shown=shown,
        nodes=tuple(_node(found.node(index), names, shown) for index in on_page),
        first_node=first_node,
        node_count=node_count,
        map=_map(plan, found, shown, first_node) if is_map else None,
        previous_url=_url(plan, shown, max(before, 0)) if first_node else None,
        next_url=_url(plan, shown, after) if after < node_count else None,
    )


def tells_apart(axis: AxisGroups) -> bool:
    """Return whether not all devices have the same number along `axis`."""
    return axis.name == "pipeline" or axis.group_count > 1


def _axis(axes: tuple[AxisGroups, ...], by: str | None) -> AxisGroups | None:
    if by is None:
        return next((axis for axis in axes if tells_apart(axis)), None)
    for axis in axes:
        if axis.name == by:
            return axis
    raise InputError(
        "is not an axis along which this plan's ranks form groups",
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
        colour_class=_colour(number),
        coordinates=", ".join(f"{_SHORT[name]} {place.coordinates[name]}" for name in names),
    )


def _map(plan: Plan, found: Placement, shown: AxisGroups | None, first_node: int) -> NodeMap:
    """Return rows of nodes, each a strip of its devices; neighbours of one colour are one box."""
    node_units = _DEVICE_UNITS * int(np.diff(found.first_slots).max()) + _GAP
    per_row = max(_MAP_UNITS // node_units, 1)
    row_height = _DEVICE_HEIGHT + _GAP
    paths: dict[str, list[str]] = defaultdict(list)
    for colour, node, first, count in _strips(found, shown):
        row, column = divmod(node, per_row)
        width = _DEVICE_UNITS * count
        box = f"M{column * node_units + _DEVICE_UNITS * first} {row * row_height}h{width}"
        paths[colour].append(f"{box}v{_DEVICE_HEIGHT}h-{width}z")
    row_count = -(-found.node_count // per_row)
    return NodeMap(
        width=per_row * node_units - _GAP,
        height=row_count * row_height - _GAP,
        paths=tuple((colour, "".join(paths[colour])) for colour in sorted(paths)),
        bands=tuple(
            MapBand(
                top=row * row_height,
                height=min(_BAND_ROWS, row_count - row) * row_height - _GAP,
                url=_url(plan, shown, row * per_row),
                first_node=row * per_row,
                last_node=min((row + _BAND_ROWS) * per_row, found.node_count) - 1,
                is_shown=row * per_row <= first_node < (row + _BAND_ROWS) * per_row,
            )
            for row in range(0, row_count, _BAND_ROWS)
        ),
    )


def _strips(found: Placement, shown: AxisGroups | None) -> Iterator[tuple[str, int, int, int]]:
    """Yield colour, node, first device and count of neighbouring devices of one colour."""
    numbers = (
        np.zeros_like(found.rank_of) if shown is None else _numbers(found, shown)[found.rank_of]
    )
    colours = np.where(found.rank_of == UNUSED, UNUSED, numbers % _COLOUR_COUNT)
    begins = np.concatenate([[True], colours[1:] != colours[:-1]])
    begins[found.first_slots[:-1]] = True
    firsts = np.flatnonzero(begins)
    counts = np.diff(firsts, append=len(colours))
    nodes = np.searchsorted(found.first_slots, firsts, side="right") - 1
    columns = (colours[firsts], nodes, firsts - found.first_slots[nodes], counts)
    for colour, *box in zip(*(column.tolist() for column in columns), strict=True):
        yield _colour(None if colour == UNUSED else colour), *box


def _colour(number: int | None) -> str:
    return "unused" if number is None else f"group-{number % _COLOUR_COUNT}"


def _number(place: Place, shown: AxisGroups) -> int:
    """Return the group; along the pipeline it is the stage that tells ranks apart."""
    name = shown.name
    return place.coordinates[name] if name == "pipeline" else place.groups[name]


def _numbers(found: Placement, shown: AxisGroups) -> Integers:
    """Return the same of all ranks, [ranks]."""
    by = found.coordinates if shown.name == "pipeline" else found.groups
    return by[shown.name]
