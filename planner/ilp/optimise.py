"""Optimise: one instance to proven optimality, below a cutoff."""

from __future__ import annotations

from collections.abc import Callable
from dataclasses import dataclass, replace
from math import inf

from planner.errors import SolverError
from planner.ilp.apart import Moments, apart, hold_as
from planner.ilp.bounds import ObjectiveBounds
from planner.ilp.constraints import constrain
from planner.ilp.extract import assignment_of
from planner.ilp.formulation import Formulation, formulate
from planner.ilp.instance import Assignment, Instance, evaluate, fits
from planner.ilp.reduction import reduction
from planner.ilp.solver import SolverName, Status, Within, solve

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
    within: Within,
    bounds: ObjectiveBounds | None = None,
) -> Optimum:
    """Return the best assignment whose step is at most the cutoff.

    `bounds` hold for all plans below the cutoff, where they are known.

    The step is recomputed from rounded counts. An assignment that the solver's tolerance let
    slip past a limit of memory is refused and the limit tightened by as little.

    Raises:
        SolverError: if no tightening gives an assignment that keeps the limits.
    """
    return _optimum(
        instance,
        lambda tight: _program(tight, cutoff_seconds, bounds),
        solver=solver,
        within=within,
    )


def optimise_apart(
    instance: Instance,
    moments: Moments,
    *,
    cutoff_seconds: float | None,
    solver: SolverName,
    within: Within,
    loads_at: tuple[int, ...] | None = None,
) -> Optimum:
    """Return the same where each virtual stage is counted by itself.

    With `loads_at`, ranks hold as much of every kind as they do at these cuts.

    Raises:
        SolverError: if no tightening gives an assignment that keeps the limits.
    """

    def program(tight: Instance) -> Formulation | None:
        made = _program(tight, cutoff_seconds, None)
        if made is not None:
            apart(made, moments)
            if loads_at is not None:
                hold_as(made, loads_at)
        return made

    return _optimum(instance, program, solver=solver, within=within)


def _optimum(
    instance: Instance,
    program: Callable[[Instance], Formulation | None],
    *,
    solver: SolverName,
    within: Within,
) -> Optimum:
    for tightening in _TIGHTENING:
        tight = replace(
            instance,
            capacity_bytes=instance.capacity_bytes * (1.0 - tightening),
            host_capacity_bytes=instance.host_capacity_bytes * (1.0 - tightening),
        )
        optimum = _solved(program(tight), solver=solver, within=within)
        if optimum.assignment is None:
            return optimum
        evaluation = evaluate(instance, optimum.assignment)
        if fits(instance, evaluation):
            return replace(optimum, step_seconds=evaluation.step_seconds)
    raise SolverError(f"{solver.value} keeps returning plans beyond the memory limit")


def _solved(made: Formulation | None, *, solver: SolverName, within: Within) -> Optimum:
    if made is None:
        return Optimum(status=Status.INFEASIBLE)
    solution = solve(made.program, solver=solver, within=within)
    if not solution.values:
        return Optimum(status=solution.status)
    return Optimum(status=solution.status, assignment=assignment_of(made, solution))


def _program(
    instance: Instance,
    cutoff_seconds: float | None,
    bounds: ObjectiveBounds | None,
) -> Formulation | None:
    """Return the program of an instance with its rows, None if nothing is below the cutoff."""
    reduced = reduction(instance, cutoff_seconds=cutoff_seconds or inf, bounds=bounds)
    if reduced is None:
        return None
    scale = cutoff_seconds or sum(kind.count * float(kind.pace.max()) for kind in instance.kinds)
    made = formulate(instance, reduced, scale_seconds=scale or 1.0)
    constrain(made, cutoff_seconds=cutoff_seconds)
    return made
