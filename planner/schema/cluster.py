"""Cluster: node groups of devices, and the levels of network that connect them."""

from __future__ import annotations

from typing import Annotated, Self

from pydantic import Field, JsonValue, model_validator

from planner.errors import DocumentError
from planner.schema.block import later
from planner.schema.document import (
    Bytes,
    BytesPerSecond,
    Document,
    Name,
    Part,
    PositiveBytes,
    PositiveCount,
    Seconds,
)

PricePerHour = Annotated[float, Field(ge=0, le=1e6)]
DEVICE_LIMIT = 2**20
DeviceCount = Annotated[int, Field(ge=1, le=DEVICE_LIMIT)]


class NetworkLevel(Part):
    """One level of the network: what one device can send to others of the same domain.

    `device_count` is the size of one domain (8 for a node of eight), `None` for the outermost
    level, which holds all. Bandwidth is per device and direction, before `oversubscription`
    divides it.
    """

    name: Name
    device_count: DeviceCount | None = None
    bandwidth_bytes_per_second: BytesPerSecond
    latency_seconds: Seconds
    oversubscription: Annotated[float, Field(ge=1, le=1e4)] = 1.0


class Nvme(Part):
    """The NVMe drives of one node together, as large sequential transfers see them."""

    capacity_bytes: PositiveBytes
    read_bytes_per_second: BytesPerSecond
    write_bytes_per_second: BytesPerSecond

    def part(self, ratio: float) -> Nvme:
        """Return what a share of the node's devices has of its drives."""
        return Nvme(
            capacity_bytes=self.capacity_bytes * ratio,
            read_bytes_per_second=self.read_bytes_per_second * ratio,
            write_bytes_per_second=self.write_bytes_per_second * ratio,
        )


class NodeGroup(Part):
    """Identical nodes. What is `None` comes from the device's profile, but `nvme`: none is used.

    `network_bandwidth_bytes_per_second` is what collectives between nodes reach per device and
    direction, in place of the outermost level of the profile.
    """

    name: Name
    device: Name
    node_count: Annotated[int, Field(ge=1, le=2**17)]
    devices_per_node: Annotated[int, Field(ge=1, le=1024)]
    memory_bytes: PositiveBytes | None = None
    host_memory_bytes: Bytes | None = None
    host_bandwidth_bytes_per_second: BytesPerSecond | None = None
    nvme: Nvme | None = None
    price_per_device_hour: PricePerHour | None = None
    network_bandwidth_bytes_per_second: BytesPerSecond | None = later(None)

    @property
    def device_count(self) -> int:
        """Return the devices of all the group's nodes."""
        return self.node_count * self.devices_per_node


class Cluster(Document):
    """What the job may use. `levels` run from innermost outwards; absent, the profile's hold.

    `device_profiles` are profiles of devices that do not ship, by name, as `meshwright profile`
    writes them and `planner.hardware` reads them, whole or `like` a device that ships; their groups
    state both memories themselves.
    """

    name: Name
    node_groups: Annotated[tuple[NodeGroup, ...], Field(min_length=1, max_length=64)]
    levels: Annotated[tuple[NetworkLevel, ...], Field(min_length=1, max_length=16)] | None = None
    device_profiles: Annotated[dict[Name, dict[str, JsonValue]], Field(max_length=16)] = later({})

    @property
    def device_count(self) -> PositiveCount:
        """Return the devices of all groups."""
        return sum(group.device_count for group in self.node_groups)

    @property
    def devices(self) -> tuple[str, ...]:
        """Return the names of the devices, each once."""
        return tuple(dict.fromkeys(group.device for group in self.node_groups))

    @model_validator(mode="after")
    def _own_devices_state_memory(self) -> Self:
        for index, group in enumerate(self.node_groups):
            for name in ("memory_bytes", "host_memory_bytes"):
                if group.device in self.device_profiles and getattr(group, name) is None:
                    raise DocumentError(
                        "is required where the device's profile stands in the cluster",
                        field=f"node_groups.{index}.{name}",
                        remedy="state it, as `meshwright profile` does",
                    )
        return self

    @model_validator(mode="after")
    def _network_is_stated_once(self) -> Self:
        for index, group in enumerate(self.node_groups):
            if self.levels is not None and group.network_bandwidth_bytes_per_second is not None:
                raise DocumentError(
                    "is stated beside levels, which say all of the network",
                    field=f"node_groups.{index}.network_bandwidth_bytes_per_second",
                    value=group.network_bandwidth_bytes_per_second,
                    remedy="leave out one of the two",
                )
        return self

    @model_validator(mode="after")
    def _levels_nest(self) -> Self:
        names = [group.name for group in self.node_groups]
        if len(set(names)) != len(names):
            raise ValueError("node_groups must have different names; rename one of them")
        if self.device_count > DEVICE_LIMIT:
            raise ValueError(
                f"node_groups have {self.device_count} devices, and the most is {DEVICE_LIMIT}; "
                "plan for a part of the cluster"
            )
        previous = 1
        levels = self.levels or ()
        for index, level in enumerate(levels):
            if level.device_count is None:
                if index + 1 < len(levels):
                    raise ValueError(
                        f"levels.{index}.device_count: only the outermost level may leave it "
                        "out; say how many devices the level joins"
                    )
            elif level.device_count % previous or level.device_count < previous:
                raise ValueError(
                    f"levels.{index}.device_count {level.device_count} is not a multiple of the "
                    f"inner level's {previous}; write a multiple of it"
                )
            else:
                previous = level.device_count
        return self
