"""Levelling: how low the largest rho t + u of ranks can be, with those that set it packed exactly.

What a rank costs under a load starts at its linear bound. The loads that level the ranks best are
found, those of them that set the level are packed, and this is repeated until what sets the level
is exact: ranks that never do are not packed at all.
"""

from __future__ import annotations

import time
from collections.abc import Sequence
from dataclasses import dataclass

from planner.cost.configuration import Booleans, Floats
from planner.ilp.decomposition import Decomposition
from planner.ilp.rank import Caps
from planner.ilp.transitions import levelled_loads

_NEAR = 0.995
_EFFORT = 2000


@dataclass(frozen=True, slots=True, kw_only=True)
class Level:
    """The least level, the loads that reach it, and lower bounds of rho t + u, by rank [loads].

    Where `is_packed` [loads] the bounds come from packings.
    """

    value: float
    loads: tuple[int, ...]
    floors: tuple[Floats, ...]
    is_packed: tuple[Booleans, ...]


def levelled(
    decomposition: Decomposition,
    floors: Sequence[Floats],
    is_packed: Sequence[Booleans],
    *,
    limit: float,
    seconds: float,
) -> Level:
    """Return the level of an instance's ranks; what exceeds `limit` is not looked into."""
    deadline = time.perf_counter() + seconds
    bare = decomposition.roster.priced(1.0, 1.0, Caps(), fill_weight=0.0)
    tables = [floor.copy() for floor in floors]
    packed = [mask.copy() for mask in is_packed]
    while True:
        loads = levelled_loads(decomposition.steps, tables)
        value = max(float(table[load]) for table, load in zip(tables, loads, strict=True))
        vague = [
            (rank, load)
            for rank, load in enumerate(loads)
            if not packed[rank][load] and tables[rank][load] >= _NEAR * value
        ]
        if not value < limit or not vague or time.perf_counter() >= deadline:
            return Level(value=value, loads=loads, floors=tuple(tables), is_packed=tuple(packed))
        for rank, load in vague:
            found = bare[rank].packing(load, upper=limit, effort=_EFFORT)
            packed[rank][load] = True
            tables[rank][load] = max(float(tables[rank][load]), found.lower)
