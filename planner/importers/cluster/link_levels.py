"""Link levels: the levels of network inside a node that a matrix of paths between GPUs shows.

A profile has the levels of nodes as its device is sold. Where the matrix contradicts them, GPUs
that NVLink or xGMI joins are a level, and PCIe is one around them. Rates of links are data sheets';
what collectives reach of them is assumed, and said.
"""

from __future__ import annotations

from collections.abc import Callable, Sequence
from dataclasses import dataclass

from planner.errors import InputError
from planner.hardware import device_profile
from planner.hardware_profiles import DeviceProfile
from planner.schema.cluster import NetworkLevel

# GB/s of one link and direction. Sources: NVIDIA's data sheets of the cards and white papers of
# Volta, Ampere and Hopper; GA102 has four links of 28 GB/s both ways, Blackwell's are twice
# Hopper's.
_LINK_GB_PER_SECOND = {
    "rtx-a6000-48gb": 14.0625,
    "rtx-a5000-24gb": 14.0625,
    "rtx-3090-24gb": 14.0625,
    "a40-48gb": 14.0625,
    "b200-sxm-180gb": 50.0,
    "b300-sxm-288gb": 50.0,
}
_USUAL_LINK_GB_PER_SECOND = 25.0
# Of the links' rate: an H100's eight reach 362 of 450 GB/s (its profile's source).
_REACHED_OF_LINKS = 0.8
# Of the rate of copies: eight RTX PRO 6000 on PCIe 5 reach 25 of 54.8 GB/s (its profile's source).
_REACHED_OF_PCIE = 25.0 / 54.8
_LINK_LATENCY_SECONDS = 10.7e-6  # as an H100's NVLink
_PCIE_LATENCY_SECONDS = 20e-6  # as an A100 PCIe's
_FAST = frozenset({"nvlink", "xgmi"})

Joined = Callable[[int, int], int]
"""How many fast links join two GPUs of a node by their numbers, 0 where none does."""


@dataclass(frozen=True, slots=True, kw_only=True)
class LinkLevels:
    """The levels in place of the profile's, None where those hold, and what was assumed."""

    levels: tuple[NetworkLevel, ...] | None
    note: str


def link_levels(device: str, count: int, joined: Joined) -> LinkLevels | None:
    """Return the levels that the links between the `count` GPUs of a node make of the profile's.

    None where nothing contradicts the profile, or its device is not known.
    """
    try:
        profile = device_profile(device)
    except InputError:
        return None
    inner = profile.levels[0]
    cliques = _cliques(count, joined)
    if count == 1 or inner.name not in {*_FAST, "pcie"}:
        return None
    if cliques is None:
        return LinkLevels(
            levels=None,
            note="links join other GPUs than groups of equal size, and the profile's levels are "
            "used: measure them with `meshwright profile` or nccl-tests",
        )
    if (cliques == count) == (inner.name in _FAST) and cliques in {1, count}:
        return None
    return _levels(profile, count, cliques, joined)


def _cliques(count: int, joined: Joined) -> int | None:
    """Return the size of the groups within which all GPUs are joined, and across which none is.

    None where the links make no such groups of one size.
    """
    groups: set[tuple[int, ...]] = set()
    for gpu in range(count):
        groups.add(tuple(other for other in range(count) if other == gpu or joined(gpu, other)))
    sizes = {len(group) for group in groups}
    whole = sum(len(group) for group in groups) == count
    return sizes.pop() if whole and len(sizes) == 1 else None


def _levels(profile: DeviceProfile, count: int, clique: int, joined: Joined) -> LinkLevels:
    levels: list[NetworkLevel] = []
    said: list[str] = []
    if clique > 1:
        links = joined(*_first_pair(count, joined))
        per_link = _LINK_GB_PER_SECOND.get(profile.device, _USUAL_LINK_GB_PER_SECOND)
        rate = links * per_link * _REACHED_OF_LINKS
        levels.append(_level("nvlink", clique, rate, _LINK_LATENCY_SECONDS))
        said.append(
            f"{clique} GPUs each are joined by {links} NVLinks of {per_link:g} GB/s, of which "
            f"collectives are assumed to reach {_REACHED_OF_LINKS:g}: {rate:.3g} GB/s"
        )
    if clique < count:
        inner = profile.levels[0]
        own = inner.name == "pcie"
        rate = (
            inner.bandwidth_gb_per_second
            if own
            else profile.host.to_device_gb_per_second * _REACHED_OF_PCIE
        )
        levels.append(_level("pcie", count, rate, _PCIE_LATENCY_SECONDS))
        said.append(
            f"{'between these' if clique > 1 else 'GPUs reach one another over'} PCIe, where "
            f"{'the profile has' if own else 'collectives are assumed to reach'} {rate:.3g} GB/s"
        )
    outermost = profile.levels[-1]
    levels.append(
        NetworkLevel(
            name=outermost.name,
            bandwidth_bytes_per_second=outermost.bandwidth_gb_per_second * 1e9,
            latency_seconds=outermost.latency_us * 1e-6,
        )
    )
    return LinkLevels(levels=tuple(levels), note="; ".join(said))


def _first_pair(count: int, joined: Joined) -> Sequence[int]:
    pairs = ((one, other) for one in range(count) for other in range(one + 1, count))
    return next(pair for pair in pairs if joined(*pair))


def _level(name: str, count: int, gb_per_second: float, latency_seconds: float) -> NetworkLevel:
    return NetworkLevel(
        name=name,
        device_count=count,
        bandwidth_bytes_per_second=gb_per_second * 1e9,
        latency_seconds=latency_seconds,
    )
