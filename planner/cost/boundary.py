"""Boundary: which network level two neighbouring pipeline stages exchange over.

Ranks are laid out stage after stage, so that stage r holds devices r S to (r + 1) S - 1, and a
device exchanges with the one in its place on the other stage. The narrowest level that any such
pair crosses sets the pace.
"""

from __future__ import annotations

from collections.abc import Sequence

from planner.hardware import ClusterHardware
from planner.network import Level


def crossed_level(levels: Sequence[Level], *, stage_size: int, stage: int, other: int) -> int:
    """Return the place in `levels` of the outermost link between two stages of `stage_size`.

    All pairs lie within one domain exactly if the first device of the lower stage and the last of
    the higher do: the first device's peer is already beyond the lower stage's last.
    """
    if stage == other:
        return 0
    first = min(stage, other) * stage_size
    last = (max(stage, other) + 1) * stage_size - 1
    for place, level in enumerate(levels[:-1]):
        if first // level.device_count == last // level.device_count:
            return place
    return len(levels) - 1


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
