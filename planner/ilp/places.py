"""Places: where the cuts of a chain may lie, and what they add at the least there."""

from __future__ import annotations

from collections.abc import Sequence
from dataclasses import replace

import numpy as np

from planner.cost.configuration import Integers
from planner.ilp.instance import Instance


def everywhere(instance: Instance) -> Integers:
    """Return the windows of all cuts: a block on every virtual stage, [2, virtual stages + 1]."""
    count = len(instance.holders)
    first = np.arange(count + 1)
    last = instance.block_count - first[::-1]
    first[-1], last[0] = instance.block_count, 0
    return np.stack([first, last])


def places_of(instance: Instance) -> Integers:
    """Return the windows of the cuts of an instance, [2, virtual stages + 1]."""
    return everywhere(instance) if instance.places is None else instance.places


def placed(instance: Instance, places: Integers) -> Instance:
    """Return the instance with its cuts within the windows, each at its least extras there."""
    pace, fill = instance.stage_pace.copy(), instance.stage_fill.copy()
    held = instance.stage_bytes.copy()
    for cut, least in enumerate(_least(instance, places)):
        for rank, added in zip(instance.holders[cut : cut + 2], least[2:], strict=True):
            pace[rank] += least[0]
            fill[rank] += least[1]
            held[rank] += added
    return replace(
        instance,
        stage_pace=pace,
        stage_fill=fill,
        stage_bytes=held,
        extras=None,
        classes=None,
        places=places,
    )


def at_cuts(instance: Instance, cuts: Sequence[int]) -> Instance:
    """Return the instance with what cuts at these places add as costs of the ranks themselves."""
    if instance.extras is None:
        return instance
    return replace(placed(instance, np.array([cuts, cuts])), places=None)


def _least(instance: Instance, places: Integers) -> list[list[float]]:
    """Return what every cut adds at the least: pace, fill, bytes before and behind it."""
    assert instance.extras is not None  # noqa: S101 - nothing to place otherwise
    extras, classes = instance.extras, instance.block_classes
    earliest, latest = places[:, 1:-1]
    cuts = np.arange(len(earliest))
    open_cuts = np.flatnonzero(earliest < latest).tolist()
    found = []
    for part in (extras.pace, extras.fill, extras.first_bytes, extras.second_bytes):
        least = part[cuts, classes[earliest - 1]]
        for cut in open_cuts:
            least[cut] = part[cut, classes[earliest[cut] - 1 : latest[cut]]].min()
        found.append(least.tolist())
    return [list(own) for own in zip(*found, strict=True)]
