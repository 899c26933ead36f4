"""Merging: kinds of blocks that cost the same become one, and so do classes of cuts.

Blocks of a model may differ in what travels behind them alone, as those of a vision tower do whose
outputs are collected on the way. Such kinds differ in cuts (`CutExtras`), not in layers: as one
kind they leave fewer loads and no plans that are the same but for names.
"""

from __future__ import annotations

from collections.abc import Sequence
from dataclasses import fields, replace

import numpy as np

from planner.cost.configuration import Integers
from planner.ilp.instance import CutExtras, Instance, Kind

_COLUMNS = ("pace", "fill", "end", "memory", "transient", "host", "kept")


def merged(instance: Instance) -> Instance:
    """Return the instance with equal kinds as one, and cuts that cost the same as one class."""
    kinds, places = _merged_kinds(instance.kinds)
    if instance.extras is None:
        if len(kinds) == len(instance.kinds):
            return instance
        return replace(instance, kinds=kinds, chain=_runs(places[instance.block_kinds]))
    extras, groups = _merged_extras(instance.extras)
    return replace(
        instance,
        kinds=kinds,
        chain=_runs(places[instance.block_kinds]),
        extras=extras,
        classes=_runs(groups[instance.block_classes]),
    )


def _merged_kinds(kinds: Sequence[Kind]) -> tuple[tuple[Kind, ...], Integers]:
    """Return the kinds that differ, and the place of each one's among them, [kinds]."""
    found: dict[object, int] = {}
    counts: list[int] = []
    firsts: list[Kind] = []
    places = []
    for kind in kinds:
        place = found.setdefault(_key(kind), len(found))
        if place == len(firsts):
            firsts.append(kind)
            counts.append(0)
        counts[place] += kind.count
        places.append(place)
    every = (replace(kind, count=count) for kind, count in zip(firsts, counts, strict=True))
    return tuple(every), np.array(places, dtype=np.int64)


def _key(kind: Kind) -> object:
    """Return what equal kinds share; one that is pinned has no equal."""
    if kind.pinned_stage is not None:
        return id(kind)
    return (kind.choice, *(getattr(kind, name).tobytes() for name in _COLUMNS))


def _merged_extras(extras: CutExtras) -> tuple[CutExtras, Integers]:
    """Return the extras of the classes that differ, and the place of each one's, [classes]."""
    names = [field.name for field in fields(CutExtras)]
    columns = np.concatenate([getattr(extras, name) for name in names])
    _, firsts, places = np.unique(columns, axis=1, return_index=True, return_inverse=True)
    kept = {name: getattr(extras, name)[:, firsts] for name in names}
    return CutExtras(**kept), np.asarray(places, dtype=np.int64).ravel()


def _runs(numbers: Integers) -> tuple[tuple[int, int], ...]:
    """Return (number, how often) of equal numbers that follow one another."""
    starts = np.concatenate([[0], np.flatnonzero(np.diff(numbers)) + 1, [len(numbers)]])
    return tuple(zip(numbers[starts[:-1]].tolist(), np.diff(starts).tolist(), strict=True))
