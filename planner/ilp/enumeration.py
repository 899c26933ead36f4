"""Enumeration: one configuration settled without branching, where its bound is close.

The program's relaxation prices the rows; with these, all patterns of each rank that a plan below
the cutoff may have are enumerated (`planner.ilp.listing`) and the best of them put together
(`planner.ilp.sweep`).
"""

from __future__ import annotations

import time
from collections.abc import Sequence
from dataclasses import dataclass

import numpy as np

from planner.cost.configuration import Floats, Integers
from planner.ilp.cutting import cuts_with_loads
from planner.ilp.formulation import Formulation, constant_fill
from planner.ilp.instance import Assignment, Instance
from planner.ilp.listing import patterns_of_load
from planner.ilp.loads import Load, loads_of, with_pinned
from planner.ilp.multipliers import Multipliers, multipliers
from planner.ilp.patterns import Ceilings, Columns, Patterns, TooManyError, rank_columns
from planner.ilp.reduction import Reduction
from planner.ilp.sharpening import Tables
from planner.ilp.solver import SolverName, relaxed_prices
from planner.ilp.sweep import swept
from planner.ilp.transitions import steps_of

_LOADS_MOST = 2000
_SUMS_MOST = 400_000
_PATTERNS_MOST = 2500
_EASING = 1e-9


@dataclass(frozen=True, slots=True, kw_only=True)
class Settled:
    """The best assignment below the cutoff, or none because there is no plan below it."""

    assignment: Assignment | None


def settled(
    made: Formulation,
    *,
    cutoff_seconds: float,
    tables: Tables | None,
    solver: SolverName,
    seconds: float = float("inf"),
) -> Settled | None:
    """Return what is proven of a program, None where there is too much to look at in the time.

    The program has all its rows but the cutoff's.

    Raises:
        SolverError: if the solver fails.
    """
    deadline = time.perf_counter() + seconds
    instance = made.instance
    loads = _loads(instance, made.reduction, tables)
    if loads is None or instance.extras is not None:
        return None
    prices = relaxed_prices(made.program, solver=solver)
    if prices is None:
        return None
    proven = multipliers(made.program, prices, ceiling=cutoff_seconds / made.scale.seconds)
    bound = proven.bound * made.scale.seconds + constant_fill(made)
    try:
        found = _patterns(
            _Pricing(made=made, proven=proven, cutoff_seconds=cutoff_seconds),
            loads,
            gap=cutoff_seconds * (1.0 + _EASING) - bound,
            deadline=deadline,
        )
        if found is None:
            return Settled(assignment=None)
        limits = _Limits(cutoff_seconds=cutoff_seconds, deadline=deadline)
        return _assembled(made, loads, found, limits)
    except TooManyError:
        return None


@dataclass(frozen=True, slots=True, kw_only=True)
class _Limits:
    """What a plan must be below, and until when (of `perf_counter`) it may be looked for."""

    cutoff_seconds: float
    deadline: float


@dataclass(frozen=True, slots=True, kw_only=True)
class _Pricing:
    """A program, what prices on its rows prove, and the cutoff."""

    made: Formulation
    proven: Multipliers
    cutoff_seconds: float

    def reduced_costs(self) -> list[Floats]:
        """Return d of every layer and choice in seconds, by kind [stages, choices]."""
        reduced = [np.full(most.shape, np.inf) for most in self.made.reduction.most]
        for (r, k, s), column in self.made.layers.items():
            reduced[k][r, s] = float(self.proven.reduced[column]) * self.made.scale.seconds
        return reduced

    def ceilings(self, rank: int, gap: float) -> Ceilings:
        """Return what a rank's patterns may reach where they may cost `gap` beyond the bound."""
        made, bounds = self.made, self.made.reduction.bounds
        instance, repeats = made.instance, made.instance.repeat_count
        row = made.program.places[f"C5_memory[rank={rank}]"]
        both = (self.cutoff_seconds - bounds.fill_sum) * (1.0 + _EASING)
        return Ceilings(
            gap=gap,
            memory_price=-float(self.proven.prices[row]) * made.scale.seconds / made.scale.bytes,
            capacity=float(instance.capacity_bytes[rank] - instance.stage_bytes[rank]),
            host=float(instance.host_capacity_bytes[rank]),
            pace=(both - bounds.largest_end) / repeats if repeats > 0.0 else float("inf"),
            end=both - bounds.repeated_pace,
            both=both,
            repeats=repeats,
            own_pace=float(instance.stage_pace[rank]),
            own_end=float(instance.stage_end[rank]),
        )


def _loads(
    instance: Instance, reduced: Reduction, tables: Tables | None
) -> list[list[Load]] | None:
    """Return what ranks may hold: where it was packed exactly, only what stays below the cutoff."""
    if tables is not None:
        return [list(table) for table in tables.both]
    return loads_of(instance, reduced.windows, most=_LOADS_MOST)


def _patterns(
    pricing: _Pricing, loads: Sequence[Sequence[Load]], *, gap: float, deadline: float
) -> list[Patterns] | None:
    """Return each rank's patterns, None if a rank has none.

    What the least pattern of one rank costs beyond the bound is not left for another.
    """
    instance = pricing.made.instance
    reduced = pricing.reduced_costs()
    spent = np.zeros(instance.stage_count)
    found: list[Patterns] = []
    for rank, own in enumerate(loads):
        left = gap - float(spent.sum())
        if left < 0.0 or not own:
            return None
        columns = rank_columns(instance, rank, reduced=reduced, most=pricing.made.reduction.most)
        held = [np.array(with_pinned(instance, rank, load)) for load in own]
        one = _of_loads(columns, held, pricing.ceilings(rank, left), deadline=deadline)
        if not len(one.load):
            return None
        spent[rank] = max(float(one.excess.min()), 0.0)
        found.append(one)
    left_over = gap - (spent.sum() - spent)
    kept = [
        one.taken(np.flatnonzero(one.excess <= most))
        for one, most in zip(found, left_over.tolist(), strict=True)
    ]
    return kept if all(len(one.load) for one in kept) else None


def _of_loads(
    columns: Columns, held: Sequence[Integers], ceilings: Ceilings, *, deadline: float
) -> Patterns:
    """Return the patterns of all loads of a rank, each `held` [kinds].

    Raises:
        TooManyError: if there are too many, or it gets too late.
    """
    return Patterns.together(
        [
            patterns_of_load(columns, load, ceilings, most=_PATTERNS_MOST, deadline=deadline).at(
                place
            )
            for place, load in enumerate(held)
        ]
    )


def _assembled(
    made: Formulation,
    loads: Sequence[Sequence[Load]],
    found: Sequence[Patterns],
    limits: _Limits,
) -> Settled | None:
    """Return the best plan of the patterns, None where the chain cannot be cut as it wants."""
    instance = made.instance
    steps = steps_of(instance, made.reduction.windows, loads, sums_most=_SUMS_MOST)
    if steps is None:
        return Settled(assignment=None)
    best = swept(
        steps,
        found,
        load_counts=[len(own) for own in loads],
        repeat_count=instance.repeat_count,
        below=limits.cutoff_seconds * (1.0 + _EASING) - float(instance.stage_fill.sum()),
        deadline=limits.deadline,
    )
    if best is None:
        return Settled(assignment=None)
    held = [own[int(one.load[row])] for own, one, row in zip(loads, found, best.rows, strict=True)]
    cuts = cuts_with_loads(instance, held)
    if cuts is None:
        return None
    return Settled(assignment=Assignment(counts=_counts(instance, found, best.rows), cuts=cuts))


def _counts(
    instance: Instance, found: Sequence[Patterns], rows: Sequence[int]
) -> tuple[np.ndarray, ...]:
    """Return layers by [stages, choices] of every kind."""
    side_by_side = np.stack([one.counts[row] for one, row in zip(found, rows, strict=True)])
    ends = np.cumsum([len(kind.choice) for kind in instance.kinds])[:-1]
    return tuple(part.astype(np.int64) for part in np.split(side_by_side, ends, axis=1))
