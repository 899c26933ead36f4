"""Tidying: of assignments with the same step, always the same one, and the simplest.

Ranks that neither set the pace nor the end may hold their layers under many choices at the same
cost of the step. Which of them a solver returns is its own affair. With what every rank holds, its
fill, the largest pace and the largest end fixed, a last program picks the assignment with the
fewest techniques; ties that are left are broken by generic weights, so that any solver picks the
same.
"""

from __future__ import annotations

from collections.abc import Sequence

import numpy as np

from planner.cost.configuration import Choice, Floats
from planner.ilp.constraints import host, memory
from planner.ilp.extract import assignment_of
from planner.ilp.formulation import Formulation, formulate
from planner.ilp.instance import Assignment, Instance, evaluate, fits
from planner.ilp.reduction import reduction
from planner.ilp.solver import SolverName, Status, solve
from planner.schema.strategy import ActivationCheckpointing

_EASING = 1e-10
_REACH = 1e-6
_GENERIC = 0.6180339887498949  # multiples of the golden ratio lie apart, modulo 1
_GENERIC_WEIGHT = 1e-3


def tidied(
    instance: Instance,
    assignment: Assignment,
    *,
    choices: tuple[Sequence[Choice], Sequence[Choice]],
    solver: SolverName,
    seconds: float,
) -> Assignment:
    """Return the simplest assignment with the same step; the same one where none is found in time.

    `choices` are those of blocks and of edges that the kinds' `choice` points into.

    Raises:
        SolverError: if the solver fails.
    """
    if seconds <= 0.0:
        return assignment
    step = evaluate(instance, assignment).step_seconds
    reduced = reduction(instance, cutoff_seconds=step * (1.0 + _REACH))
    if reduced is None:
        return assignment
    made = formulate(instance, reduced, scale_seconds=step)
    _weigh(made, choices)
    _hold(made, assignment)
    memory(made)
    host(made)
    solution = solve(made.program, solver=solver, seconds=seconds)
    if solution.status is not Status.OPTIMAL:
        return assignment
    counts = assignment_of(made, solution).counts
    found = Assignment(counts=counts, cuts=assignment.cuts)
    evaluation = evaluate(instance, found)
    # Of a plan that is not the best, the simplest form may be faster: then it is another plan.
    same = abs(evaluation.step_seconds - step) <= step * 2.0 * _EASING
    return found if same and fits(instance, evaluation) else assignment


def _weigh(made: Formulation, choices: tuple[Sequence[Choice], Sequence[Choice]]) -> None:
    """Minimise how many techniques all layers use, generic weights among equals."""
    made.program.objective.clear()
    for (_, k, s), column in made.layers.items():
        kind = made.instance.kinds[k]
        place = kind.choice[s]
        choice = choices[0 if kind.pinned_stage is None else 1][place]
        generic = (_GENERIC * (1 + place + 61 * k)) % 1.0
        made.program.objective.append((column, _burden(choice) + _GENERIC_WEIGHT * generic))


def _burden(choice: Choice) -> float:
    """Return a number that grows with what a choice asks of the software and of the host."""
    kept = list(ActivationCheckpointing).index(choice.activation_checkpointing)
    return 1.0 + 2.0 * len(choice.offload) + 0.5 * kept + 0.1 * choice.zero_stage


def _hold(made: Formulation, assignment: Assignment) -> None:
    """Fix what ranks hold, and let none exceed its fill, the largest pace and the largest end."""
    instance, unit = made.instance, made.scale.seconds
    evaluation = evaluate(instance, assignment)
    sums = {name: _sums(instance, assignment, name) for name in ("fill", "pace", "end")}
    limits = {
        "fill": sums["fill"],
        "pace": evaluation.pace.max() - evaluation.pace + sums["pace"],
        "end": evaluation.end.max() - evaluation.end + sums["end"],
    }
    for r, columns in enumerate(made.by_stage):
        for k, counts in enumerate(assignment.counts):
            held = [(column, 1.0) for k2, _, column in columns if k2 == k]
            if held:
                name = f"held[rank={r},kind={k}]"
                made.program.require(name, held, "==", float(counts[r].sum()))
        for name, limit in limits.items():
            terms = [
                (column, float(getattr(instance.kinds[k], name)[r, s]) / unit)
                for k, s, column in columns
            ]
            made.program.require(f"{name}[rank={r}]", terms, "<=", float(limit[r]) / unit + _EASING)
    _hold_cuts(made, assignment)
    unused = [made.repeated_pace, made.largest_end, *made.held.values()]
    made.program.require("unused", [(column, 1.0) for column in unused], ">=", 0.0)


def _hold_cuts(made: Formulation, assignment: Assignment) -> None:
    """Let every cut lie in the run where it is."""
    for place, segments in enumerate(made.segments):
        cut = assignment.cuts[place + 1]
        for segment in segments:
            if segment.column is not None:
                inside = float(segment.first <= cut <= segment.last)
                name = f"cut[{place},{segment.first}]"
                made.program.require(name, [(segment.column, 1.0)], "==", inside)


def _sums(instance: Instance, assignment: Assignment, name: str) -> Floats:
    total = np.zeros(instance.stage_count)
    for kind, counts in zip(instance.kinds, assignment.counts, strict=True):
        total += (counts * getattr(kind, name)).sum(axis=1)
    return total
