"""MILP: the integer program solved to proven optimality through PuLP, and its answer read.

The only module that knows PuLP or HiGHS, but for the small programs of
`planner.ilp.lagrangian_decomposition`. Answers are rounded counts, and become stages of consecutive
layer groups in a fixed order (`strategy_of`).

Facts about PuLP 3.3 that this code rests on: a time limit with an incumbent reads as status
"Optimal", so proof needs `sol_status`; HiGHS stops at a relative gap of 1e-4 unless told otherwise.
The presolve of HiGHS 1.15.1 calls some feasible programs of ours infeasible and fails on others
(one in several thousand small ones), so it is off: programs come reduced already.
"""

from __future__ import annotations

import time
from collections.abc import Sequence
from dataclasses import dataclass, replace
from enum import StrEnum
from itertools import groupby
from math import inf, isfinite
from operator import itemgetter
from typing import TYPE_CHECKING, Any

import numpy as np

from planner.cost.configuration import Choice, Configuration, Integers
from planner.errors import SolverError
from planner.ilp.formulation import (
    Formulation,
    Moments,
    Program,
    apart,
    constant_fill,
    constrain,
    formulate,
)
from planner.ilp.instance import Assignment, Instance, cuts_of, evaluate, fits
from planner.ilp.lagrangian_bound import reduction
from planner.ilp.settings import (
    PROGRAM_TIGHTENINGS,
    PROGRAM_UNITS_PER_TERM,
    SOLVER_FEASIBILITY,
    SOLVER_ROW_TOLERANCE,
)
from planner.schema.strategy import EdgeChoice, LayerGroup, Stage, Strategy

if TYPE_CHECKING:
    import pulp


class Status(StrEnum):
    """How a solve ended. FEASIBLE: a limit was reached with a solution; LIMIT: without one.

    FAILED: the solver gave up before its limits, or contradicts itself, so that nothing is known.
    """

    OPTIMAL = "optimal"
    FEASIBLE = "feasible"
    LIMIT = "limit"
    INFEASIBLE = "infeasible"
    FAILED = "failed"


_UNPROVEN = {Status.OPTIMAL: Status.FEASIBLE, Status.INFEASIBLE: Status.LIMIT}
"""What is left of a verdict that holds for tighter limits than the instance's."""


@dataclass(slots=True)
class Within:
    """What is left to solves: seconds until the user's limit, and looks of the solver at it.

    Each takes off what it took, so that those of one plan share both.
    """

    seconds: float
    looks: float = inf


@dataclass(slots=True, kw_only=True)
class _Stop:
    """Ends HiGHS after it has looked so often whether to, or once its `bound` is `enough`.

    Its own options do neither but with statuses that PuLP does not know.
    """

    looks: float
    enough: float = inf
    bound: float = -inf
    look_count: int = 0
    is_reached: bool = False
    is_enough: bool = False

    def __call__(self, _kind: Any, _message: str, known: Any, answer: Any, _given: Any) -> None:
        self.bound = known.mip_dual_bound
        self.is_enough = self.enough < self.bound < inf
        self.look_count += 1
        if self.is_enough or self.look_count >= self.looks:
            self.is_reached = answer.user_interrupt = True


@dataclass(frozen=True, slots=True, kw_only=True)
class Solution:
    """Values by the program's columns; empty without a solution.

    No solution is below `bound`, by what the solver knew when it ended.
    """

    status: Status
    values: tuple[float, ...]
    bound: float = -inf


_NO_BETTER = {Status.OPTIMAL: Status.INFEASIBLE, Status.FEASIBLE: Status.LIMIT}
"""What is said of values below a limit by values above it."""
_NOTHING_KNOWN = Solution(status=Status.LIMIT, values=())
_NO_PROOF = (Status.FEASIBLE, Status.LIMIT)
_FAILED = Solution(status=Status.FAILED, values=())
_NOTHING_BELOW = Solution(status=Status.INFEASIBLE, values=())


def solve(program: Program, within: Within, *, enough: float = inf) -> Solution:
    """Return the best values found within limits, which telling the solver the program counts to.

    Values above `enough` are none, and the solver is stopped once its bound is. That there are no
    values at all has to be confirmed.

    Raises:
        SolverError: if the program is unbounded (which would be a bug).
    """
    stop = _Stop(looks=within.looks, enough=enough)
    solution = _run_solver(program, within, stop)
    if solution.status is Status.INFEASIBLE and not stop.is_enough:
        solution = _confirmed(program, within, enough=enough)
    if solution.values and program.value(solution.values) > enough:
        solution = replace(solution, status=_NO_BETTER[solution.status], values=())
    return solution


def _confirmed(program: Program, within: Within, *, enough: float) -> Solution:
    """Return "infeasible" only where the eased program bears it out.

    The eased one has a solution in any case. Where its least easing is above the solver's tolerance
    there are no values. Where it is not, the program has some but for that tolerance, or the solver
    is wrong: the best of the program with rows that are looser by as little is returned.
    """
    second = _Stop(looks=within.looks, enough=SOLVER_FEASIBILITY)
    eased = _run_solver(program.eased(), within, second)
    is_above = eased.status is Status.OPTIMAL and eased.values[-1] > SOLVER_FEASIBILITY
    if second.is_enough or is_above:
        return _NOTHING_BELOW
    if eased.status is not Status.OPTIMAL:  # and what it says is of the easing
        return _NOTHING_KNOWN if eased.status in _NO_PROOF else _FAILED
    third = _Stop(looks=within.looks, enough=enough)
    loose = _run_solver(program.loosened(SOLVER_FEASIBILITY), within, third)
    is_wrong = loose.status is Status.INFEASIBLE and not third.is_enough
    return _FAILED if is_wrong else loose


def _run_solver(program: Program, within: Within, stop: _Stop) -> Solution:
    """Return what HiGHS says within limits, if there is time to tell it the program."""
    import pulp  # noqa: PLC0415

    terms = max(sum(len(row.terms) for row in program.rows), 1)
    if within.seconds <= 1e-6 * PROGRAM_UNITS_PER_TERM * terms or within.looks <= 0:
        return _NOTHING_KNOWN
    deadline = time.perf_counter() + within.seconds
    problem, columns = _problem(program)
    seconds = deadline - time.perf_counter()
    if seconds <= 0.0:
        return _NOTHING_KNOWN
    try:
        problem.solve(_highs(seconds, stop))
    except pulp.PulpSolverError:
        return _FAILED
    finally:
        within.seconds = deadline - time.perf_counter()
        within.looks -= stop.look_count
    if stop.is_enough:
        return _NOTHING_BELOW
    solution = replace(_solution(program, problem, columns), bound=stop.bound)
    is_early = within.seconds > 0.0 and not stop.is_reached
    return _FAILED if solution.status is Status.LIMIT and is_early else solution


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

    return pulp.LpAffineExpression([(columns[index], value) for index, value in terms])


def _highs(seconds: float, stop: _Stop) -> Any:
    import pulp  # noqa: PLC0415
    from highspy import cb  # noqa: PLC0415

    return pulp.HiGHS(
        msg=False,
        timeLimit=seconds,
        gapRel=0.0,
        gapAbs=0.0,
        threads=1,
        random_seed=0,
        callbackTuple=(stop, None),
        callbacksToActivate=[cb.HighsCallbackType.kCallbackMipInterrupt],
        presolve="off",
        primal_feasibility_tolerance=SOLVER_FEASIBILITY,
        mip_feasibility_tolerance=SOLVER_FEASIBILITY,
    )


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
        return _NOTHING_KNOWN
    if program.violation(values) > SOLVER_ROW_TOLERANCE:
        return _NOTHING_KNOWN
    proven = proof == pulp.LpSolutionOptimal and _is_bounded(program, problem, values)
    return Solution(status=Status.OPTIMAL if proven else Status.FEASIBLE, values=values)


def _is_bounded(program: Program, problem: pulp.LpProblem, values: Sequence[float]) -> bool:
    """Return whether HiGHS's own bound bears out that no values are better."""
    if problem.solverModel is None or not any(each.is_integer for each in program.variables):
        return True
    objective = program.value(values)
    bound = problem.solverModel.getInfo().mip_dual_bound
    return bool(bound >= objective - SOLVER_FEASIBILITY * max(abs(objective), 1.0))


def assignment_of(made: Formulation, solution: Solution) -> Assignment:
    """Return layers by [stages, choices] of every kind and the cuts, rounded from floats."""
    instance = made.instance
    counts = tuple(
        np.zeros((instance.stage_count, len(kind.choice)), dtype=np.int64)
        for kind in instance.kinds
    )
    for (r, k, s), column in made.layers.items():
        counts[k][r, s] = round(solution.values[column])
    if not made.held:
        return Assignment(counts=counts, cuts=cuts_of(instance, counts))
    cuts = [0]
    for j in range(len(instance.holders)):
        held = sum(round(solution.values[made.held[j, k]]) for k in instance.free_kinds)
        cuts.append(cuts[-1] + held)
    return Assignment(counts=counts, cuts=tuple(cuts))


def strategy_of(
    instance: Instance,
    assignment: Assignment,
    *,
    configuration: Configuration,
    choices: tuple[Choice, ...],
    edges: tuple[Choice, ...],
    device_groups: Sequence[str],
) -> Strategy:
    """Return the resolved strategy that an assignment stands for.

    `device_groups` are by rank. On a rank, blocks of one kind take their choices in the order of
    the choice's place in `choices`, from the first block of the chain on.
    """
    return Strategy(
        tensor_parallel_degree=configuration.tensor_parallel_degree,
        sequence_parallel=configuration.sequence_parallel,
        pipeline_parallel_degree=configuration.pipeline_parallel_degree,
        virtual_pipeline_degree=configuration.virtual_pipeline_degree,
        pipeline_schedule=configuration.pipeline_schedule,
        context_parallel_degree=configuration.context_parallel_degree,
        context_parallel_kind=configuration.context_parallel_kind,
        expert_parallel_degree=configuration.expert_parallel_degree,
        expert_tensor_parallel_degree=configuration.expert_tensor_degree,
        data_parallel_replicate_degree=configuration.data_parallel_replicate_degree,
        data_parallel_shard_degree=configuration.data_parallel_shard_degree,
        micro_batch_size=configuration.micro_batch_size,
        micro_batch_count=configuration.micro_batch_count,
        stages=_stages(instance, assignment, choices=choices, device_groups=device_groups),
        embedding=_edge(instance, assignment, 0, edges),
        head=_edge(instance, assignment, len(instance.kinds) - 1, edges),
    )


def _stages(
    instance: Instance,
    assignment: Assignment,
    *,
    choices: tuple[Choice, ...],
    device_groups: Sequence[str],
) -> tuple[Stage, ...]:
    """Return every virtual stage with its blocks, a group for each change of choice."""
    left = [counts.copy() for counts in assignment.counts]
    stages = []
    for j, holder in enumerate(instance.holders):
        chosen: list[tuple[Choice, int]] = []
        for block in range(assignment.cuts[j], assignment.cuts[j + 1]):
            k = int(instance.block_kinds[block])
            s = _next_choice(instance, k, left[k][holder], holder)
            left[k][holder, s] -= 1
            chosen.append((choices[instance.kinds[k].choice[s]], block))
        runs = (list(run) for _, run in groupby(chosen, key=itemgetter(0)))
        layers = tuple(_group(*run[0], block_count=len(run)) for run in runs)
        stages.append(Stage(stage=j, device_group=device_groups[holder], layers=layers))
    return tuple(stages)


def _next_choice(instance: Instance, k: int, left: Integers, rank: int) -> int:
    """Return the choice that the rank's next block of the kind takes, of those that are `left`.

    On a rank with several virtual stages the earlier ones hold more micro-batches, so that blocks
    that keep the least come first.
    """
    waiting = np.flatnonzero(left)
    if instance.least_blocks == 1:
        return int(waiting[0])
    return int(waiting[instance.kinds[k].kept[rank, waiting].argmin()])


def _group(choice: Choice, first_block: int, *, block_count: int) -> LayerGroup:
    return LayerGroup(
        first_block=first_block,
        block_count=block_count,
        zero_stage=choice.zero_stage,
        activation_checkpointing=choice.activation_checkpointing,
        offload=choice.offload,
    )


def _edge(
    instance: Instance, assignment: Assignment, k: int, edges: tuple[Choice, ...]
) -> EdgeChoice:
    _, s = np.argwhere(assignment.counts[k] > 0)[0]
    choice = edges[instance.kinds[k].choice[s]]
    return EdgeChoice(zero_stage=choice.zero_stage, offload=choice.offload)


@dataclass(frozen=True, slots=True, kw_only=True)
class Optimum:
    """How the solve ended, and the best assignment with its exact step where there is one.

    No assignment is below `bound_seconds`.
    """

    status: Status
    bound_seconds: float = 0.0
    step_seconds: float | None = None
    assignment: Assignment | None = None


def optimise(
    instance: Instance,
    *,
    cutoff_seconds: float | None,
    within: Within,
    moments: Moments | None = None,
) -> Optimum:
    """Return the best assignment whose step is at most the cutoff.

    With `moments` each virtual stage is counted by itself. The step is recomputed from rounded
    counts. An assignment that the solver's tolerance let slip past a limit of memory is refused and
    the limit tightened by as little; by more than that tolerance, what the solver says of the
    tighter limits is no proof. All of it has what `within` leaves.

    Raises:
        SolverError: if no tightening gives an assignment that keeps the limits.
    """
    for tightening in PROGRAM_TIGHTENINGS:
        tight = replace(
            instance,
            capacity_bytes=instance.capacity_bytes * (1.0 - tightening),
            host_capacity_bytes=instance.host_capacity_bytes * (1.0 - tightening),
        )
        made = _program(tight, cutoff_seconds, moments)
        optimum = _solved(made, within, cutoff_seconds)
        if tightening > SOLVER_FEASIBILITY:
            status = _UNPROVEN.get(optimum.status, optimum.status)
            optimum = replace(optimum, status=status, bound_seconds=0.0)
        if optimum.assignment is None:
            return optimum
        evaluation = evaluate(instance, optimum.assignment)
        if fits(instance, evaluation):
            return replace(optimum, step_seconds=evaluation.step_seconds)
    raise SolverError("HiGHS keeps returning plans beyond the memory limit")


def _solved(made: Formulation | None, within: Within, cutoff_seconds: float | None) -> Optimum:
    if made is None:
        return Optimum(status=Status.INFEASIBLE)
    most = inf if cutoff_seconds is None else (cutoff_seconds - constant_fill(made))
    solution = solve(made.program, within, enough=most / made.scale.seconds + SOLVER_FEASIBILITY)
    bound = 0.0
    if isfinite(solution.bound):
        bound = solution.bound * made.scale.seconds + constant_fill(made)
        bound *= 1.0 - SOLVER_ROW_TOLERANCE
    assignment = assignment_of(made, solution) if solution.values else None
    return Optimum(status=solution.status, bound_seconds=bound, assignment=assignment)


def _program(
    instance: Instance, cutoff_seconds: float | None, moments: Moments | None
) -> Formulation | None:
    """Return the program of an instance with its rows, None if nothing is below the cutoff."""
    in_flight = None if moments is None else tuple(moments.alike)
    reduced = reduction(instance, cutoff_seconds=cutoff_seconds or inf, in_flight=in_flight)
    if reduced is None:
        return None
    scale = cutoff_seconds or sum(kind.count * float(kind.pace.max()) for kind in instance.kinds)
    made = formulate(instance, reduced, scale_seconds=scale or 1.0)
    constrain(made)
    if moments is not None:
        apart(made, moments)
    return made
