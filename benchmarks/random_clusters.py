"""Random clusters: 1 to 16,384 devices, domains of several sizes, racks, one to three kinds."""

from __future__ import annotations

from random import Random
from typing import Any

GPUS = (
    "h100-sxm5-80gb",
    "a100-sxm4-40gb",
    "a100-sxm4-80gb",
    "h200-sxm5-141gb",
    "b200-sxm-180gb",
    "l40s-48gb",
    "gb200-nvl72",
    "gb300-nvl72",
)
RACKS = frozenset({"gb200-nvl72", "gb300-nvl72"})
TRAY = 4
DEVICE_COUNT_LIMIT = 16384
MIXED_SHARE = 0.15
RACK_LEVEL_SHARE = 0.3
ODD_SHARE = 0.15
NODE_LEVEL = {"bandwidth_bytes_per_second": 300e9, "latency_seconds": 1.1e-5}
NETWORK_LEVEL = {"bandwidth_bytes_per_second": 40e9, "latency_seconds": 1.6e-5}

Reference = str | dict[str, Any]


def random_cluster(random: Random, *, mixed: bool) -> Reference:
    """Return a short form or the fields of a cluster document."""
    if mixed and random.random() < MIXED_SHARE:
        return _mixed(random)
    device = random.choice(GPUS)
    node = _devices_per_node(random, device)
    count = _node_count(random, node)
    if count > 1 and node in {4, 8} and random.random() < RACK_LEVEL_SHARE:
        return _racks(random, device, node, count)
    if device in RACKS and node > TRAY:  # a rack as one node, which no short form stands for
        name = f"{count} racks of {device}"
        return {"name": name, "node_groups": [_group(device, node, count)]}
    return f"{count}x{node}x{device}"


def mixed_cluster(counts: dict[str, int], *, devices_per_node: int = 8) -> dict[str, Any]:
    """Return the fields of a cluster with so many devices of each kind."""
    groups = [
        {
            "name": device,
            "device": device,
            "node_count": count // devices_per_node,
            "devices_per_node": devices_per_node,
        }
        for device, count in counts.items()
    ]
    return {"name": "+".join(f"{n}x{d}" for d, n in counts.items()), "node_groups": groups}


def device_count_of(cluster: Reference) -> int:
    """Return how many devices a reference stands for."""
    if isinstance(cluster, str):
        nodes, node, _ = cluster.split("x", 2)
        return int(nodes) * int(node)
    return sum(g["node_count"] * g["devices_per_node"] for g in cluster["node_groups"])


def devices_of(cluster: Reference) -> tuple[str, ...]:
    """Return the names of the devices that a reference stands for."""
    if isinstance(cluster, str):
        return (cluster.split("x", 2)[2],)
    return tuple(group["device"] for group in cluster["node_groups"])


def _devices_per_node(random: Random, device: str) -> int:
    """Return the devices of a node: half nodes and lone devices are about, too."""
    if device in RACKS:
        return random.choice((4, 4, 72))
    return random.choice((8, 8, 8, 8, 4, 2, 1))


def _node_count(random: Random, node: int) -> int:
    """Return a number of nodes, even in its logarithm, mostly a power of two or thrice one."""
    most = DEVICE_COUNT_LIMIT // node
    wanted: float = most ** random.random()
    if random.random() < ODD_SHARE:
        return max(round(wanted), 1)
    usual = [m << k for k in range(15) for m in (1, 3)]
    return min(usual, key=lambda count: (abs(count - wanted), count)) if wanted > 1 else 1


def _racks(random: Random, device: str, node: int, count: int) -> dict[str, Any]:
    """Return a cluster with a level of racks whose way out is oversubscribed."""
    in_rack = random.choice([n for n in (2, 4, 8, 16, 32) if n <= count])
    levels = [
        {"name": "node", "device_count": node, **NODE_LEVEL},
        {"name": "rack", "device_count": node * in_rack, **NETWORK_LEVEL},
        {"name": "spine", "oversubscription": random.choice((1.0, 2.0, 4.0, 8.0)), **NETWORK_LEVEL},
    ]
    return {
        "name": f"{count}x{node} in racks of {in_rack}",
        "node_groups": [_group(device, node, count)],
        "levels": levels,
    }


def _mixed(random: Random) -> dict[str, Any]:
    """Return two or three kinds of devices, whose numbers are powers of two nodes."""
    kinds = random.sample([gpu for gpu in GPUS if gpu not in RACKS], random.choice((2, 2, 3)))
    nodes = 2 ** random.randint(0, 6)
    counts = {kind: 8 * nodes * random.choice((1, 1, 1, 2)) for kind in kinds}
    return mixed_cluster(counts)


def _group(device: str, node: int, count: int) -> dict[str, Any]:
    return {"name": "all", "device": device, "node_count": count, "devices_per_node": node}
