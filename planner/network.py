"""Network: the levels that one kind of device reaches others over, from innermost outwards.

A cluster document's own levels hold for every kind. Without them each kind has those of its
profile; where kinds are mixed, a level that all share lies around them: as narrow as the narrowest
of their outermost levels, and as slow as the slowest.
"""

from __future__ import annotations

from collections.abc import Sequence
from dataclasses import dataclass, replace
from typing import Annotated

from pydantic import Field

from planner.errors import InputError
from planner.schema.cluster import Cluster, NetworkLevel, NodeGroup
from planner.schema.document import Part
from planner.schema.figures import Collective

NODE_DOMAIN_LIMIT = 8
"""Devices up to which a profile's domain lies in one node; a larger one spans nodes."""


REACHED_SHARE = 0.73
"""Share of the line rate of a node's adapters that collectives between nodes reach.

Source: published nccl-tests tables of 4 nodes, as the outermost levels of the profiles state it.
"""


class CollectiveProfile(Part):
    """A collective that was measured apart from others, with a latency and bandwidth of its own."""

    bandwidth_gb_per_second: Annotated[float, Field(gt=0)]
    latency_us: Annotated[float, Field(ge=0)]
    norm_exponent: Annotated[float, Field(gt=0, le=1)]


class LevelProfile(Part):
    """A network level: t = (latency^e + (bytes / bandwidth)^e)^(1/e).

    `collectives` are those with numbers of their own, by name. Where no switch joins a node's
    devices, `links` says how many of its links a device has to others of an aligned group of so
    many, of the device that has the fewest: {2: 1, 4: 3, 8: 7} of a full mesh.
    """

    name: str
    device_count: Annotated[int, Field(ge=1)] | None
    links: dict[int, Annotated[int, Field(ge=1)]] = Field(default_factory=dict)
    bandwidth_gb_per_second: Annotated[float, Field(gt=0)]
    latency_us: Annotated[float, Field(ge=0)]
    norm_exponent: Annotated[float, Field(gt=0, le=1)]
    all_reduce_bandwidth_ratio: Annotated[float, Field(gt=0)]
    collectives: dict[Collective, CollectiveProfile] = Field(default_factory=dict)
    source: str


@dataclass(frozen=True, slots=True, kw_only=True)
class Level:
    """A network level in SI; `device_count` is the size of one domain, at last the cluster's.

    `collectives` are levels that stand in for this one for the collectives that they are named by,
    their bandwidth as a ratio of this one's. `shares` are pairs of ranks of a group, ascending, and
    the share of the bandwidth that links within it have; none where a switch joins all.
    """

    name: str
    device_count: int
    bandwidth_bytes_per_second: float
    latency_seconds: float
    norm_exponent: float
    all_reduce_bandwidth_ratio: float
    collectives: tuple[OwnCollective, ...] = ()
    shares: tuple[tuple[int, float], ...] = ()

    def of(self, kind: Collective) -> Level:
        """Return the level as the collective `kind` finds it."""
        for own in self.collectives:
            if own.kind == kind:
                return replace(
                    self,
                    bandwidth_bytes_per_second=self.bandwidth_bytes_per_second
                    * own.bandwidth_ratio,
                    latency_seconds=own.latency_seconds,
                    norm_exponent=own.norm_exponent,
                    all_reduce_bandwidth_ratio=1.0,
                    collectives=(),
                )
        return self


@dataclass(frozen=True, slots=True, kw_only=True)
class OwnCollective:
    """A collective's own numbers on a level, its bandwidth over the level's."""

    kind: Collective
    bandwidth_ratio: float
    latency_seconds: float
    norm_exponent: float


def levels_of(levels: tuple[Level, ...], kind: Collective) -> tuple[Level, ...]:
    """Return the levels as the collective `kind` finds them."""
    if not any(level.collectives for level in levels):
        return levels
    return tuple(level.of(kind) for level in levels)


def kind_levels(
    cluster: Cluster, profile: Sequence[LevelProfile], groups: Sequence[NodeGroup]
) -> tuple[Level, ...]:
    """Return the levels that the devices of `groups`, which are of one kind, have by themselves.

    Raises:
        InputError: if the document's levels do not go with its nodes.
    """
    if cluster.levels is not None:
        for group in groups:
            _check_levels(cluster.levels, group, cluster.device_count)
        exponent = profile[-1].norm_exponent
        return tuple(_stated(level, cluster.device_count, exponent) for level in cluster.levels)
    own = sum(group.device_count for group in groups)
    node = groups[0].devices_per_node
    between_nodes = groups[0].network_bandwidth_bytes_per_second
    levels = tuple(
        Level(
            name=level.name,
            device_count=_domain(count, own, node),
            bandwidth_bytes_per_second=level.bandwidth_gb_per_second * 1e9,
            latency_seconds=level.latency_us * 1e-6,
            norm_exponent=level.norm_exponent,
            all_reduce_bandwidth_ratio=level.all_reduce_bandwidth_ratio,
            collectives=tuple(_own(kind, one, level) for kind, one in level.collectives.items()),
            shares=_shares(level, node),
        )
        for level, count in zip(profile, _profiled_domains(profile, node), strict=True)
    )
    if between_nodes is None:
        return levels
    *inner, outermost = levels
    return (*inner, replace(outermost, bandwidth_bytes_per_second=between_nodes))


def _profiled_domains(profile: Sequence[LevelProfile], devices_per_node: int) -> list[int | None]:
    """Return the devices of each level's domain: the widest in a node spans all of a larger one.

    Profiles are of nodes of eight. Those of sixteen have the same switches or buses between all.
    """
    counts = [level.device_count for level in profile]
    within = [n for n in counts if n is not None and n <= NODE_DOMAIN_LIMIT]
    widest = max(within, default=None)
    return [max(n, devices_per_node) if n is not None and n == widest else n for n in counts]


def _shares(level: LevelProfile, devices_per_node: int) -> tuple[tuple[int, float], ...]:
    """Return the shares of a mesh; a node of more devices than it has joins them by switches."""
    if not level.links or devices_per_node > max(level.links):
        return ()
    every = level.links[max(level.links)]
    return tuple((ranks, count / every) for ranks, count in sorted(level.links.items()))


def _own(kind: Collective, one: CollectiveProfile, level: LevelProfile) -> OwnCollective:
    return OwnCollective(
        kind=kind,
        bandwidth_ratio=one.bandwidth_gb_per_second / level.bandwidth_gb_per_second,
        latency_seconds=one.latency_us * 1e-6,
        norm_exponent=one.norm_exponent,
    )


def shared_level(outermost: Sequence[Level], device_count: int) -> Level:
    """Return the level around kinds of devices with these outermost levels."""
    narrowest = min(outermost, key=lambda level: level.bandwidth_bytes_per_second)
    return Level(
        name="shared",
        device_count=device_count,
        bandwidth_bytes_per_second=narrowest.bandwidth_bytes_per_second,
        latency_seconds=max(level.latency_seconds for level in outermost),
        norm_exponent=narrowest.norm_exponent,
        all_reduce_bandwidth_ratio=min(level.all_reduce_bandwidth_ratio for level in outermost),
    )


def _stated(level: NetworkLevel, device_count: int, norm_exponent: float) -> Level:
    return Level(
        name=level.name,
        device_count=min(level.device_count or device_count, device_count),
        bandwidth_bytes_per_second=level.bandwidth_bytes_per_second / level.oversubscription,
        latency_seconds=level.latency_seconds,
        norm_exponent=norm_exponent,
        all_reduce_bandwidth_ratio=1.0,
    )


def _domain(profiled: int | None, own: int, devices_per_node: int) -> int:
    """Return the devices of one domain, whole nodes or equal parts of one.

    A domain within a node is cut to what divides the node. One that spans nodes, of 72 say, is cut
    to whole nodes that the devices fill alike, 64 of each rack for 256: schedulers hand out as many
    nodes of every rack, so that groups of ranks do not straddle two. Where only less than half of
    each would be filled, the racks are full but for the last.
    """
    if profiled is None:
        return own
    if profiled <= max(NODE_DOMAIN_LIMIT, devices_per_node):
        fitting = range(1, min(profiled, devices_per_node) + 1)
        return max(size for size in fitting if devices_per_node % size == 0)
    whole = profiled // devices_per_node * devices_per_node
    if own <= whole:
        return own
    alike = (size for size in range(whole, 0, -devices_per_node) if own % size == 0)
    filled = next(alike, whole)
    return filled if 2 * filled >= whole else whole


def _check_levels(levels: Sequence[NetworkLevel], group: NodeGroup, device_count: int) -> None:
    node = group.devices_per_node
    for index, level in enumerate(levels):
        size = level.device_count
        if size is not None and size % node and node % size:
            raise InputError(
                f"neither divides nor is a multiple of the {node} devices of a node of "
                f"{group.name}",
                field=f"cluster.levels.{index}.device_count",
                value=size,
                remedy="give the devices of one domain: whole nodes, or an equal part of one",
            )
    outermost = levels[-1].device_count
    if outermost is not None and outermost < device_count:
        raise InputError(
            f"connects fewer than the cluster's {device_count} devices",
            field=f"cluster.levels.{len(levels) - 1}.device_count",
            value=outermost,
            remedy="leave it out for the outermost level, or add a level around it",
        )
