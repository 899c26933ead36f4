"""Solver: a program handed to HiGHS or CBC through PuLP.

The only module that knows either, but for the small programs of `planner.ilp.master`.

Facts about PuLP 3.3 that this code rests on: a time limit with an incumbent reads as status
"Optimal" on both solvers, so proof needs `sol_status`; HiGHS stops at a relative gap of 1e-4 unless
told otherwise; CBC passes over solutions that are better by less than its `increment` of 1e-5. The
presolve of HiGHS 1.15.1 calls some feasible programs of ours infeasible and fails on others (one in
several thousand small ones), so it is off: programs come reduced already.
"""

from __future__ import annotations

import math
import time
from dataclasses import dataclass
from enum import StrEnum
from functools import cache
from typing import TYPE_CHECKING, Any, NamedTuple

from planner.errors import SolverError
from planner.ilp.program import Program

if TYPE_CHECKING:
    import pulp

_FEASIBILITY_TOLERANCE = 1e-9
_KEPT = 1e-6  # a solver that was stopped without a solution hands over any values
NODES_MOST = 20_000
# It took 2.3 s to tell HiGHS a program of 308,000 terms through PuLP, on two EPYC cores.
_SECONDS_A_TERM = 7e-6


class SolverName(StrEnum):
    """The solvers that can be asked for."""

    HIGHS = "HiGHS"
    CBC = "CBC"


class Status(StrEnum):
    """How a solve ended. FEASIBLE: a limit was reached with a solution; LIMIT: without one."""

    OPTIMAL = "optimal"
    FEASIBLE = "feasible"
    LIMIT = "limit"
    INFEASIBLE = "infeasible"


class Within(NamedTuple):
    """How long a solve may take: until the user's limit, and so many nodes of branch and bound."""

    seconds: float
    nodes: int = NODES_MOST


@dataclass(slots=True, kw_only=True)
class _NodeLimit:
    """Ends HiGHS after some nodes, as its own option does, whose status PuLP does not know."""

    nodes: int
    is_reached: bool = False

    def __call__(self, _kind: Any, _message: str, known: Any, answer: Any, _given: Any) -> None:
        if known.mip_node_count >= self.nodes:
            self.is_reached = answer.user_interrupt = True


@dataclass(frozen=True, slots=True, kw_only=True)
class Solution:
    """Values by the program's columns; empty without a solution."""

    status: Status
    values: tuple[float, ...]


@cache
def available_solvers() -> tuple[SolverName, ...]:
    """Return the solvers that are installed, the preferred one first."""
    import pulp  # noqa: PLC0415  (190 ms: paid only by who solves)

    found = []
    if pulp.HiGHS(msg=False).available():
        found.append(SolverName.HIGHS)
    if _cbc(seconds=1.0, nodes=1) is not None:
        found.append(SolverName.CBC)
    return tuple(found)


def default_solver() -> SolverName:
    """Return HiGHS, or CBC where HiGHS is missing.

    Raises:
        SolverError: if neither is installed.
    """
    solvers = available_solvers()
    if not solvers:
        raise SolverError("no MILP solver is installed; run: pip install highspy")
    return solvers[0]


def solve(program: Program, *, solver: SolverName, within: Within) -> Solution:
    """Return the best values found within limits; it takes some of the time to tell the program.

    Where the solver fails the other one is asked.

    Raises:
        SolverError: if none answers, or the program is unbounded (which would be a bug).
    """
    seconds = within.seconds - _SECONDS_A_TERM * sum(len(row.terms) for row in program.rows)
    if seconds <= 0.0:
        return Solution(status=Status.LIMIT, values=())
    failures: list[SolverError] = []
    for name in (solver, *(other for other in available_solvers() if other is not solver)):
        try:
            return _solved(program, name, seconds=seconds, nodes=within.nodes)
        except SolverError as error:
            failures.append(error)
    raise failures[0]


def _solved(program: Program, solver: SolverName, *, seconds: float, nodes: int) -> Solution:
    import pulp  # noqa: PLC0415

    problem, columns = _problem(program)
    limit = _NodeLimit(nodes=nodes)
    command = _highs(seconds, limit) if solver is SolverName.HIGHS else _cbc(seconds, nodes)
    if command is None:
        raise SolverError(f"{solver.value} is not installed; run: pip install highspy")
    started = time.perf_counter()
    try:
        problem.solve(command)
    except pulp.PulpSolverError as error:
        raise SolverError(f"{solver.value} failed: {error}") from error
    solution = _solution(program, problem, columns)
    is_highs_early = solver is SolverName.HIGHS and time.perf_counter() - started < seconds
    if solution.status is Status.LIMIT and is_highs_early and not limit.is_reached:
        raise SolverError(f"{solver.value} gave up before its limits")
    return solution


def _problem(program: Program) -> tuple[pulp.LpProblem, list[pulp.LpVariable]]:
    import pulp  # noqa: PLC0415

    problem = pulp.LpProblem("plan", pulp.LpMinimize)
    columns = [
        problem.add_variable(
            f"x{index}",
            lowBound=variable.lower,
            upBound=variable.upper,
            cat=pulp.LpInteger if variable.is_integer else pulp.LpContinuous,
        )
        for index, variable in enumerate(program.variables)
    ]
    problem.setObjective(_expression(columns, program.objective))
    senses = {"<=": pulp.LpConstraintLE, ">=": pulp.LpConstraintGE, "==": pulp.LpConstraintEQ}
    for index, row in enumerate(program.rows):
        expression = _expression(columns, row.terms)
        constraint = pulp.LpConstraint(expression, sense=senses[row.sense], rhs=row.bound)
        problem.addConstraint(constraint, f"r{index}")
    return problem, columns


def _expression(columns: list[pulp.LpVariable], terms: Any) -> pulp.LpAffineExpression:
    import pulp  # noqa: PLC0415

    pairs = [(columns[index], value) for index, value in terms]
    from_list = getattr(pulp.LpAffineExpression, "from_list", None)  # PuLP 4
    return pulp.LpAffineExpression(pairs) if from_list is None else from_list(pairs)


def _highs(seconds: float, limit: _NodeLimit) -> Any:
    import pulp  # noqa: PLC0415
    from highspy import cb  # noqa: PLC0415

    return pulp.HiGHS(
        msg=False,
        timeLimit=seconds,
        gapRel=0.0,
        gapAbs=0.0,
        threads=1,
        random_seed=0,
        callbackTuple=(limit, None),
        callbacksToActivate=[cb.HighsCallbackType.kCallbackMipInterrupt],
        presolve="off",
        primal_feasibility_tolerance=_FEASIBILITY_TOLERANCE,
        mip_feasibility_tolerance=_FEASIBILITY_TOLERANCE,
    )


def _cbc(seconds: float, nodes: int) -> Any:
    """Return the CBC that PuLP 3 bundles, or one on the PATH, or None."""
    import pulp  # noqa: PLC0415
    from pulp.apis import coin_api  # noqa: PLC0415

    for path in (getattr(coin_api, "pulp_cbc_path", None), None):
        command = pulp.COIN_CMD(
            path=path,
            msg=False,
            timeLimit=max(math.ceil(seconds), 1),
            gapRel=0.0,
            gapAbs=0.0,
            options=[
                "randomCbcSeed 1",
                "primalTolerance 1e-9",
                "dualTolerance 1e-9",
                "integerTolerance 1e-9",
                "increment 1e-12",
                f"maxNodes {nodes}",
            ],
        )
        if command.available():
            return command
    return None


def _solution(
    program: Program, problem: pulp.LpProblem, columns: list[pulp.LpVariable]
) -> Solution:
    import pulp  # noqa: PLC0415

    status, proof = problem.status, problem.sol_status
    if status == pulp.LpStatusUnbounded:
        raise SolverError("the solver calls a bounded program unbounded")
    if proof == pulp.LpSolutionInfeasible or status == pulp.LpStatusInfeasible:
        return Solution(status=Status.INFEASIBLE, values=())
    values = tuple(column.varValue for column in columns)
    if any(value is None for value in values) or proof == pulp.LpSolutionNoSolutionFound:
        return Solution(status=Status.LIMIT, values=())
    proven = proof == pulp.LpSolutionOptimal
    if not proven and program.violation(values) > _KEPT:
        return Solution(status=Status.LIMIT, values=())
    return Solution(status=Status.OPTIMAL if proven else Status.FEASIBLE, values=values)
