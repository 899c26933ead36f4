"""Boundary: which network level two neighbouring pipeline stages exchange over.

Ranks are laid out stage after stage, so that stage r holds devices r S to (r + 1) S - 1, and a
device exchanges with the one in its place on the other stage. The narrowest level that any such
pair crosses sets the pace.
"""

from __future__ import annotations

from collections.abc import Sequence
from functools import cache

import numpy as np

from planner.hardware import ClusterHardware
from planner.network import Level


def crossed_level(levels: Sequence[Level], *, stage_size: int, stage: int, other: int) -> int:
    """Return the place in `levels` of the outermost link between two stages of `stage_size`."""
    domains = tuple(level.device_count for level in levels)
    return _crossed(domains, stage_size, min(stage, other), max(stage, other))


@cache
def _crossed(domains: tuple[int, ...], stage_size: int, low: int, high: int) -> int:
    first = np.arange(low * stage_size, (low + 1) * stage_size)
    second = first + (high - low) * stage_size
    for place, domain in enumerate(domains[:-1]):
        if (first // domain == second // domain).all():
            return place
    return len(domains) - 1


def boundary_places(
    hardware: ClusterHardware, kinds: Sequence[int], *, stage: int, other: int
) -> tuple[tuple[int, int], ...]:
    """Return (kind, level) of each end of the exchange between two stages; `kinds` are by stage.

    Within one kind both ends are the same link; between kinds each end has its outermost link,
    and the slower one sets the pace.
    """
    kind, peer = kinds[stage], kinds[other]
    if kind != peer:
        return tuple((k, len(hardware.kinds[k].levels) - 1) for k in (kind, peer))
    first = kinds.index(kind)
    own = hardware.kinds[kind]
    size = own.device_count // kinds.count(kind)
    place = crossed_level(own.levels, stage_size=size, stage=stage - first, other=other - first)
    return ((kind, place),)
