"""Device counts: how many devices of each kind are worth trying for a job."""

from __future__ import annotations

import math
from collections.abc import Iterator
from dataclasses import dataclass

from planner.cost.adapters import needed_flop_per_token
from planner.hardware import TENSOR_FLOAT_32_RATIO, check_precision, device_profile
from planner.requests.resolution import Request
from planner.schema.cluster import Cluster, NodeGroup
from planner.schema.job import Precision
from planner.schema.sizing import SizingWish

_DENSE_COUNTS = 16
_USUAL_NODE = 8  # of CPU ranks, of which a node may have any number
_FACTORS = (2, 3, 5, 7)
_DAY_SECONDS = 86400.0
_ROUNDING = 1.0 - 1e-9


@dataclass(frozen=True, slots=True, kw_only=True)
class Candidate:
    """So many nodes of one kind of device."""

    device: str
    node_count: int
    devices_per_node: int
    price_per_hour: float

    @property
    def device_count(self) -> int:
        """Return the devices of all nodes."""
        return self.node_count * self.devices_per_node

    @property
    def cluster(self) -> Cluster:
        """Return the candidate as a cluster."""
        group = NodeGroup(
            name=self.device,
            device=self.device,
            node_count=self.node_count,
            devices_per_node=self.devices_per_node,
        )
        name = f"{self.node_count}x{self.devices_per_node}x{self.device}"
        return Cluster(name=name, node_groups=(group,))


def candidates(wish: SizingWish, base: Request) -> tuple[Candidate, ...]:
    """Return the counts to try, fewest devices first, then cheapest."""
    found = [
        candidate
        for device in dict.fromkeys(wish.devices)
        if (least := least_device_count(wish, base, device)) is not None
        for candidate in counts_of(device, wish)
        if candidate.device_count >= least
    ]
    return tuple(sorted(found, key=lambda c: (c.device_count, c.price_per_hour, c.device)))


def counts_of(device: str, wish: SizingWish) -> Iterator[Candidate]:
    """Yield parts of a node, then whole nodes, fewest devices first.

    All counts up to 16 devices of a node and up to 16 nodes, and from there those without a prime
    factor above 7: what has one is rarely a product of degrees that divide heads, blocks and batch.
    """
    price = device_profile(device).price_per_device_hour
    whole = _devices_per_node(device, wish)
    shapes = [(1, part) for part in filter(_is_tried, range(1, whole))]
    nodes = range(1, wish.max_devices // whole + 1)
    shapes += [(count, whole) for count in filter(_is_tried, nodes)]
    for node_count, per_node in shapes:
        if node_count * per_node <= wish.max_devices:
            yield Candidate(
                device=device,
                node_count=node_count,
                devices_per_node=per_node,
                price_per_hour=price * node_count * per_node,
            )


def _devices_per_node(device: str, wish: SizingWish) -> int:
    """Return the devices of a whole node: as told, else as the device is sold."""
    node = device_profile(device).node
    sold = None if node is None else node.device_count
    return wish.devices_per_node or sold or _USUAL_NODE


def least_device_count(wish: SizingWish, base: Request, device: str) -> int | None:
    """Return the devices below which even their peak rate misses the deadline.

    N >= tokens x FLOPs per token / (peak FLOP/s x deadline): no product and no attention is priced
    faster than the peak, and the priced step does no less than the model's own FLOPs. `None`
    where the device has no rate for the job's precision.

    Raises:
        InputError: if the device does not have the job's precision.
    """
    job, profile = base.job.resolved, device_profile(device)
    check_precision(profile, job)
    peak_tflop = profile.peak_tflop_per_second.get(job.precision)
    if job.tensor_float_32:
        peak_tflop = TENSOR_FLOAT_32_RATIO * profile.peak_tflop_per_second[Precision.BF16]
    if peak_tflop is None:
        return None
    flop = needed_flop_per_token(base.workload, job, job.sequence_length or 1) * wish.tokens
    seconds = wish.days * _DAY_SECONDS
    return max(math.ceil(flop / (peak_tflop * 1e12 * seconds) * _ROUNDING), 1)


def _is_tried(count: int) -> bool:
    return count <= _DENSE_COUNTS or _is_smooth(count)


def _is_smooth(number: int) -> bool:
    for factor in _FACTORS:
        while number % factor == 0:
            number //= factor
    return number == 1
