"""Sweep: the best plan of a configuration from the patterns of its ranks, exactly.

Below caps T on every rank's pace and U on every rank's end, the least sum of fills falls apart into
ranks, which only share the blocks: dynamic programming. The best plan is the least of
S(T, U) + rho T + U over the paces and ends that occur. All T are looked at together with no cap on
U; then, for those that are left, all U.
"""

from __future__ import annotations

from collections.abc import Sequence
from dataclasses import dataclass, replace
from typing import Literal

import numpy as np

from planner.cost.configuration import Floats
from planner.ilp.effort import Effort
from planner.ilp.patterns import Patterns
from planner.ilp.transitions import Step, best_loads, least_sums

_UNITS_A_RANK, _UNITS_A_CELL = 60.0, 0.004


@dataclass(frozen=True, slots=True, kw_only=True)
class Swept:
    """The least S + rho T + U without the ranks' own fills, and the pattern of each rank."""

    step_seconds: float
    rows: tuple[int, ...]


def swept(
    steps: Sequence[Step],
    patterns: Sequence[Patterns],
    *,
    load_counts: Sequence[int],
    repeat_count: float,
    below: float,
    effort: Effort,
) -> Swept | None:
    """Return the best choice of one pattern a rank, None if none is below `below`.

    Raises:
        TooManyError: if no effort is left.
    """
    paces = _candidates([one.pace for one in patterns])
    ends = _candidates([one.end for one in patterns])
    ranks = _Ranks(steps=steps, patterns=patterns, load_counts=load_counts)
    best, caps = below, None
    loose = ranks.least_fills("pace", paces)
    floor = loose + repeat_count * paces + ends[0]
    moves = sum(len(step.load) for step in steps)
    effort.spend(_UNITS_A_CELL * moves * len(paces))
    for place in np.argsort(floor, kind="stable").tolist():
        if floor[place] >= best:
            break
        effort.check()
        pace = float(paces[place])
        # Of what rounding makes no end at all the least is one: the floor is below the best.
        own = ends[ends <= max(best - loose[place] - repeat_count * pace, ends[0])]
        effort.spend(_UNITS_A_RANK * len(patterns) + _UNITS_A_CELL * moves * len(own))
        total = ranks.under(pace=pace).least_fills("end", own) + repeat_count * pace + own
        least = int(total.argmin())
        if total[least] < best:
            best, caps = float(total[least]), (pace, float(own[least]))
    if caps is None:
        return None
    return Swept(step_seconds=best, rows=ranks.rows(pace=caps[0], end=caps[1]))


def _candidates(columns: Sequence[Floats]) -> Floats:
    """Return the values that the largest of all ranks may have: no less than each rank's least."""
    least = max(float(column.min()) for column in columns)
    every = np.unique(np.concatenate(columns))
    return np.asarray(every[every >= least])


@dataclass(frozen=True, slots=True, kw_only=True)
class _Ranks:
    """The patterns of all ranks, and how these share the blocks."""

    steps: Sequence[Step]
    patterns: Sequence[Patterns]
    load_counts: Sequence[int]

    def under(self, *, pace: float) -> _Ranks:
        """Return the ranks without the patterns above a pace."""
        kept = [one.taken(np.flatnonzero(one.pace <= pace)) for one in self.patterns]
        return replace(self, patterns=kept)

    def least_fills(self, name: Literal["pace", "end"], caps: Floats) -> Floats:
        """Return the least sums of fills with every rank's `name` at most each of the caps."""
        tables = [
            _least_fills(one, count, name, caps)
            for one, count in zip(self.patterns, self.load_counts, strict=True)
        ]
        return least_sums(self.steps, tables)

    def rows(self, *, pace: float, end: float) -> tuple[int, ...]:
        """Return each rank's pattern in a plan with the least sum of fills under both caps."""
        cheapest, tables = [], []
        for one, count in zip(self.patterns, self.load_counts, strict=True):
            table, which = np.full(count, np.inf), np.full(count, -1)
            for row in np.flatnonzero((one.pace <= pace) & (one.end <= end)).tolist():
                load = int(one.load[row])
                if one.fill[row] < table[load]:
                    table[load], which[load] = one.fill[row], row
            tables.append(table)
            cheapest.append(which)
        places = best_loads(self.steps, tables)
        return tuple(int(which[place]) for which, place in zip(cheapest, places, strict=True))


def _least_fills(patterns: Patterns, load_count: int, name: str, caps: Floats) -> Floats:
    """Return the least fill of each load with `name` at most each of the caps, [loads, caps]."""
    table = np.full((load_count, len(caps)), np.inf)
    first = np.searchsorted(caps, getattr(patterns, name), side="left")
    inside = first < len(caps)
    np.minimum.at(table, (patterns.load[inside], first[inside]), patterns.fill[inside])
    return np.asarray(np.minimum.accumulate(table, axis=1))
