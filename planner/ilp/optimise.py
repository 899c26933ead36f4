"""Optimise: one instance to proven optimality, below a cutoff."""

from __future__ import annotations

from collections.abc import Callable
from dataclasses import dataclass, replace
from math import inf

from planner.errors import SolverError
from planner.ilp.apart import Moments, apart, hold_as
from planner.ilp.bounds import ObjectiveBounds
from planner.ilp.constraints import constrain, packings
from planner.ilp.enumeration import settled
from planner.ilp.extract import assignment_of
from planner.ilp.formulation import Formulation, formulate
from planner.ilp.instance import Assignment, Instance, evaluate, fits
from planner.ilp.reduction import reduction
from planner.ilp.sharpening import Tables
from planner.ilp.solver import SolverName, Status, solve

_TIGHTENING = (0.0, 1e-9, 1e-7, 1e-5)


@dataclass(frozen=True, slots=True, kw_only=True)
class Optimum:
    """How the solve ended, and the best assignment with its exact step where there is one."""

    status: Status
    step_seconds: float | None = None
    assignment: Assignment | None = None


def optimise(
    instance: Instance,
    *,
    cutoff_seconds: float | None,
    solver: SolverName,
    seconds: float,
    bounds: ObjectiveBounds | None = None,
    tables: Tables | None = None,
) -> Optimum:
    """Return the best assignment whose step is at most the cutoff.

    `bounds` and `tables` hold for all plans below the cutoff, where they are known.

    The step is recomputed from rounded counts. An assignment that the solver's tolerance let
    slip past a limit of memory is refused and the limit tightened by as little.

    Raises:
        SolverError: if no tightening gives an assignment that keeps the limits.
    """
    known = (bounds, tables)
    return _optimum(
        instance,
        lambda tight: _program(tight, cutoff_seconds, known),
        solver=solver,
        seconds=seconds,
    )


def optimise_apart(
    instance: Instance,
    moments: Moments,
    *,
    cutoff_seconds: float | None,
    solver: SolverName,
    seconds: float,
    loads_at: tuple[int, ...] | None = None,
) -> Optimum:
    """Return the same where each virtual stage is counted by itself.

    With `loads_at`, ranks hold as much of every kind as they do at these cuts.

    Raises:
        SolverError: if no tightening gives an assignment that keeps the limits.
    """

    def program(tight: Instance) -> Formulation | None:
        made = _program(tight, cutoff_seconds, (None, None))
        if made is not None:
            apart(made, moments)
            if loads_at is not None:
                hold_as(made, loads_at)
        return made

    return _optimum(instance, program, solver=solver, seconds=seconds)


def _optimum(
    instance: Instance,
    program: Callable[[Instance], Formulation | None],
    *,
    solver: SolverName,
    seconds: float,
) -> Optimum:
    for tightening in _TIGHTENING:
        tight = replace(
            instance,
            capacity_bytes=instance.capacity_bytes * (1.0 - tightening),
            host_capacity_bytes=instance.host_capacity_bytes * (1.0 - tightening),
        )
        optimum = _solved(program(tight), solver=solver, seconds=seconds)
        if optimum.assignment is None:
            return optimum
        evaluation = evaluate(instance, optimum.assignment)
        if fits(instance, evaluation):
            return replace(optimum, step_seconds=evaluation.step_seconds)
    raise SolverError(f"{solver.value} keeps returning plans beyond the memory limit")


def _solved(made: Formulation | None, *, solver: SolverName, seconds: float) -> Optimum:
    if made is None:
        return Optimum(status=Status.INFEASIBLE)
    solution = solve(made.program, solver=solver, seconds=seconds)
    if not solution.values:
        return Optimum(status=solution.status)
    return Optimum(status=solution.status, assignment=assignment_of(made, solution))


def enumerated(
    instance: Instance,
    *,
    cutoff_seconds: float,
    solver: SolverName,
    seconds: float = float("inf"),
    bounds: ObjectiveBounds | None = None,
    tables: Tables | None = None,
) -> Optimum | None:
    """Return the best assignment whose step is at most the cutoff, found without branching.

    None where too much would have to be looked at in the time.

    Raises:
        SolverError: if the solver fails.
    """
    made = _program(instance, cutoff_seconds, (bounds, tables), says_cutoff=False)
    if made is None:
        return Optimum(status=Status.INFEASIBLE)
    found = settled(
        made, cutoff_seconds=cutoff_seconds, tables=tables, solver=solver, seconds=seconds
    )
    if found is None:
        return None
    if found.assignment is None:
        return Optimum(status=Status.INFEASIBLE)
    evaluation = evaluate(instance, found.assignment)
    if not fits(instance, evaluation):
        return None
    return Optimum(
        status=Status.OPTIMAL, step_seconds=evaluation.step_seconds, assignment=found.assignment
    )


def _program(
    instance: Instance,
    cutoff_seconds: float | None,
    known: tuple[ObjectiveBounds | None, Tables | None],
    *,
    says_cutoff: bool = True,
) -> Formulation | None:
    """Return the program of an instance with its rows, None if nothing is below the cutoff.

    The row of the cutoff itself is left out where the program is only to be relaxed.
    """
    bounds, tables = known
    reduced = reduction(instance, cutoff_seconds=cutoff_seconds or inf, bounds=bounds)
    if reduced is None:
        return None
    scale = cutoff_seconds or sum(kind.count * float(kind.pace.max()) for kind in instance.kinds)
    made = formulate(instance, reduced, scale_seconds=scale or 1.0)
    constrain(made, cutoff_seconds=cutoff_seconds if says_cutoff else None)
    if tables is not None:
        packings(made, tables)
    return made
