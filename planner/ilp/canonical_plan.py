"""Tidying: of assignments with the same step, always the same one, and the simplest.

Ranks that neither set the pace nor the end may hold their layers under many choices at the same
cost of the step. Which of them a search returns is its own affair. With what every rank holds, its
fill, the largest pace and the largest end fixed, ranks are tidied one by one: of all that a rank
may hold instead, a knapsack has the fewest techniques; ties that are left are broken by generic
weights, so that any solver picks the same. A rank that is at one of its limits has next to nothing
to choose from: what takes no more of that limit is looked through for anything simpler, until
there is nothing. Where a knapsack is too hard, a program of the rank is solved.
"""

from __future__ import annotations

import time
from collections.abc import Sequence
from dataclasses import dataclass, replace
from itertools import pairwise

import numpy as np

from planner.cost.configuration import Choice, Floats, Integers
from planner.ilp.formulation import Program, Variable
from planner.ilp.instance import Assignment, Evaluation, Instance, evaluate, fits, undominated
from planner.ilp.milp import SolverName, Status, Within, solve
from planner.ilp.settings import (
    AT_MEMORY_LIMIT,
    CANONICAL_EASING,
    CANONICAL_POWER,
    CANONICAL_SIMPLER,
    CANONICAL_WEIGHT,
    MEMORY_PRICES,
    PROGRAM_NODES,
    ROUNDING,
    SETS_FEW,
)
from planner.ilp.stage_knapsack import Knapsack, least_cost
from planner.ilp.stage_patterns import Columns, rank_columns
from planner.schema.strategy import ActivationCheckpointing


@dataclass(frozen=True, slots=True, kw_only=True)
class _Rank:
    """A rank's layers by column as they are, and what else could hold them.

    The knapsack has the columns at some `places`, of which `most` [places] layers may be.
    """

    counts: Integers
    places: Integers
    most: Integers
    knapsack: Knapsack
    held: Integers

    def whole(self, counts: Integers) -> Integers:
        """Return layers by the knapsack's columns as ones by all columns."""
        found = np.zeros_like(self.counts)
        found[self.places] = counts
        return found


def tidied(
    instance: Instance,
    assignment: Assignment,
    *,
    choices: tuple[Sequence[Choice], Sequence[Choice]],
    solver: SolverName,
    seconds: float,
) -> Assignment:
    """Return the simplest assignment with the same step.

    `choices` are those of blocks and of edges that the kinds' `choice` points into. Ranks whose
    simplest form is not found in time have the simplest that was.

    Raises:
        SolverError: if the solver fails.
    """
    if seconds <= 0.0:
        return assignment
    deadline = time.perf_counter() + seconds
    evaluation, burdens = (
        evaluate(instance, assignment),
        np.concatenate(_burdens(instance, choices)),
    )
    ranks = [
        _rank(instance, assignment, evaluation, burdens=burdens, place=place)
        for place in range(instance.stage_count)
    ]
    packed = [_packed(rank) for rank in ranks]
    hard = [place for place, (_, is_proven) in enumerate(packed) if not is_proven]
    simplest = [rank.whole(found) for rank, (found, _) in zip(ranks, packed, strict=True)]
    for place in hard:
        left = deadline - time.perf_counter()
        solved = _solved(ranks[place], solver, seconds=left, nodes=PROGRAM_NODES // len(hard))
        if solved is not None:
            simplest[place] = ranks[place].whole(solved)
    starts = np.cumsum([len(kind.choice) for kind in instance.kinds])[:-1]
    counts = np.split(np.stack(simplest), starts, axis=1)
    found = Assignment(counts=tuple(counts), cuts=assignment.cuts)
    # Of a plan that is not the best, the simplest form may be faster: then it is another plan.
    again, step = evaluate(instance, found), evaluation.step_seconds
    same = abs(again.step_seconds - step) <= step * 2.0 * CANONICAL_EASING
    return found if same and fits(instance, again) else assignment


def _burdens(
    instance: Instance, choices: tuple[Sequence[Choice], Sequence[Choice]]
) -> list[Floats]:
    """Return how many techniques a layer uses, generic weights among equals, by kind [choices]."""
    found = []
    for k, kind in enumerate(instance.kinds):
        own = choices[0 if kind.pinned_stage is None else 1]
        places = np.array(kind.choice)
        generic = (1.0 + places + 61.0 * k) ** CANONICAL_POWER % 1.0
        found.append(np.array([_burden(own[p]) for p in places]) + CANONICAL_WEIGHT * generic)
    return found


def _burden(choice: Choice) -> float:
    """Return a number that grows with what a choice asks of the software and of the host."""
    kept = list(ActivationCheckpointing).index(choice.activation_checkpointing)
    return 1.0 + 2.0 * len(choice.offload) + 0.5 * kept + 0.1 * choice.zero_stage


def _rank(
    instance: Instance,
    assignment: Assignment,
    evaluation: Evaluation,
    *,
    burdens: Floats,
    place: int,
) -> _Rank:
    """Return a rank that exceeds neither its fill, nor the largest pace, nor the largest end."""
    every = [np.repeat(own.sum(axis=1)[:, None], own.shape[1], axis=1) for own in assignment.counts]
    columns = rank_columns(instance, place, reduced=every, most=every)
    counts = np.concatenate([own[place] for own in assignment.counts])
    held = np.array([own[place].sum() for own in assignment.counts])
    layers = columns.memory @ counts + columns.transient[counts > 0].max(initial=0.0)
    capacity = float(instance.capacity_bytes[place] - evaluation.memory_bytes[place] + layers)
    limits = np.array(
        [
            counts @ columns.fill,
            counts @ columns.pace + evaluation.pace.max() - evaluation.pace[place],
            counts @ columns.end + evaluation.end.max() - evaluation.end[place],
        ]
    )
    limits += CANONICAL_EASING * evaluation.step_seconds
    places = np.union1d(_unbeaten(columns, burdens), np.flatnonzero(counts))
    most = _affordable(columns.taken(places), held, limits, capacity=capacity)
    while not most.all():
        places = places[most > 0]
        most = _affordable(columns.taken(places), held, limits, capacity=capacity)
    some = columns.taken(places)
    knapsack = Knapsack(
        kind=some.kind,
        cost=burdens[places],
        memory=some.memory,
        transient=some.transient,
        host=some.host,
        capacity=capacity,
        host_capacity=float(instance.host_capacity_bytes[place]),
        further=np.stack([some.fill, some.pace, some.end]),
        ceilings=limits,
    )
    return _Rank(counts=counts, places=places, most=most, knapsack=knapsack, held=held)


def _affordable(columns: Columns, held: Integers, limits: Floats, *, capacity: float) -> Integers:
    """Return how many layers each column can have beside the least of all others, [columns].

    As R2 of `planner.ilp.lagrangian_bound`, for what is held and at some prices of memory. `limits`
    are of the fills, paces and ends.
    """
    own = [np.flatnonzero(columns.kind == kind) for kind in np.unique(columns.kind)]
    least_transient = max(float(columns.transient[each].min()) for each in own)
    most = held[columns.kind].astype(np.float64)
    span = float(np.ptp(columns.memory)) or 1.0
    for values, limit in zip((columns.fill, columns.pace, columns.end), limits, strict=True):
        paid = MEMORY_PRICES * float(np.ptp(values)) / span
        priced = values[:, None] + paid * columns.memory[:, None]
        spare = limit + paid * (capacity - least_transient)
        extra = np.empty_like(priced)
        for each in own:
            least = priced[each].min(axis=0)
            spare = spare - held[columns.kind[each[0]]] * least
            extra[each] = priced[each] - least
        rounding = ROUNDING * np.abs(priced).max(axis=0) * held.sum()
        share = np.full_like(extra, np.inf)
        np.divide(np.maximum(spare + rounding, 0.0), extra, out=share, where=extra > 0.0)
        most = np.minimum(most, np.floor(share.min(axis=1) * (1.0 + ROUNDING)))
    return most.astype(np.int64)


def _unbeaten(columns: Columns, burdens: Floats) -> Integers:
    """Return the columns of kinds that are held that no other of the kind beats in everything."""
    found = []
    for kind in np.unique(columns.kind[columns.most > 0]).tolist():
        own = np.flatnonzero(columns.kind == kind)
        some = columns.taken(own)
        compared = (some.fill, some.pace, some.end, some.memory, some.transient, some.host)
        found.append(own[undominated(np.stack([*compared, burdens[own]]))])
    return np.concatenate(found)


def _packed(rank: _Rank) -> tuple[Integers, bool]:
    """Return the simplest layers known by the knapsack's columns, and whether none are simpler."""
    counts, is_proven = _packed_at_limit(rank)
    if is_proven:
        return counts, True
    least = float(counts @ rank.knapsack.cost)
    found = least_cost(rank.knapsack, rank.held.tolist(), upper=least, effort=SETS_FEW)
    if found.counts is not None:
        counts, least = found.counts, found.cost
    return counts, found.lower >= least * (1.0 - ROUNDING)


def _packed_at_limit(rank: _Rank) -> tuple[Integers, bool]:
    """Return the same, where a rank takes next to all of a limit, from what takes no more of it."""
    counts, knapsack = rank.counts[rank.places], rank.knapsack
    ceilings = knapsack.limits[1:]
    used = np.divide(
        knapsack.taken[1:] @ counts, ceilings, out=np.zeros(len(ceilings)), where=ceilings > 0.0
    )
    tightest = 1 + int(used.argmax())
    if used.max() < AT_MEMORY_LIMIT:
        return counts, False
    for _ in range(CANONICAL_SIMPLER):
        upper = float(knapsack.limits[tightest]) * (1.0 + ROUNDING)
        simpler = _simpler_than(knapsack, float(counts @ knapsack.cost), tightest)
        found = least_cost(simpler, rank.held.tolist(), upper=upper, effort=SETS_FEW, will_do=upper)
        if found.counts is None:
            return counts, found.lower >= upper
        counts = found.counts
    return counts, False


def _simpler_than(knapsack: Knapsack, burden: float, place: int) -> Knapsack:
    """Return a knapsack whose cost is what a limit holds, with less than a burden as one more."""
    return replace(
        knapsack,
        cost=knapsack.taken[place],
        further=np.concatenate([knapsack.taken[1:], knapsack.cost[None]]),
        ceilings=np.append(knapsack.limits[1:], burden * (1.0 - ROUNDING)),
        known_frame=knapsack.frame,
    )


def _solved(rank: _Rank, solver: SolverName, *, seconds: float, nodes: int) -> Integers | None:
    """Return the solver's layers by the knapsack's columns, None where it has no proof in time."""
    if seconds <= 0.0:
        return None
    solution = solve(_program(rank), solver=solver, within=Within(seconds, nodes))
    if solution.status is not Status.OPTIMAL:
        return None
    return np.rint(solution.values[: len(rank.places)]).astype(np.int64)


def _program(rank: _Rank) -> Program:
    """Return the knapsack as a program; its columns come first."""
    program, knapsack = Program(), rank.knapsack
    for column, most in enumerate(rank.most.tolist()):
        variable = Variable(name=f"n[{column}]", upper=float(most), is_integer=True)
        program.objective.append((program.add(variable), float(knapsack.cost[column])))
    for kind, number in enumerate(rank.held.tolist()):
        own = [(column, 1.0) for column in np.flatnonzero(knapsack.kind == kind).tolist()]
        if own:
            program.require(f"held[{kind}]", own, "==", float(number))
    for place, limit in enumerate(knapsack.limits.tolist()):
        _require(program, f"limit[{place}]", knapsack.taken[place].tolist(), limit)
    _require_memory(program, rank)
    known = float(rank.counts[rank.places] @ knapsack.cost)
    _require(program, "known", knapsack.cost.tolist(), known * (1.0 + ROUNDING))
    return program


def _require(program: Program, name: str, taken: Sequence[float], limit: float) -> None:
    """Let what columns take, in their order, add up to no more than a limit, scaled by it."""
    unit = abs(limit) or max(map(abs, taken)) or 1.0
    terms = [(column, value / unit) for column, value in enumerate(taken) if value]
    if terms:
        program.require(name, terms, "<=", limit / unit)


def _require_memory(program: Program, rank: _Rank) -> None:
    """Let layers and the largest transient fit: q[l] is 1 where a layer has the l-th or a larger.

    sum m n + w_0 + sum_l (w_l - w_{l-1}) q[l] <= capacity, as in C5 of the formulation.
    """
    knapsack, taken = rank.knapsack, rank.knapsack.memory.tolist()
    levels = knapsack.thresholds.tolist()
    for place, (below, level) in enumerate(pairwise(levels)):
        switch = program.add(Variable(name=f"q[{place}]", upper=1.0, is_integer=True))
        for column in np.flatnonzero(knapsack.transient >= level).tolist():
            most = float(rank.most[column])
            name = f"transient[{place},{column}]"
            program.require(name, [(column, 1.0), (switch, -most)], "<=", 0.0)
        taken.append(level - below)
    _require(program, "memory", taken, knapsack.capacity - levels[0])
