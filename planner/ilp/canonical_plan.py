"""Canonical plan: of assignments with the same step, always the same one, and the simplest.

Ranks that neither set the pace nor the end may hold their layers under many choices at the same
cost of the step. Which of them a search returns is its own affair. With what every rank holds, its
fill, the largest pace and the largest end fixed, ranks are tidied one by one: of all that a rank
may hold instead, a knapsack has the fewest techniques; ties that are left are broken by generic
weights, so that any solver's plan becomes the same. Where a knapsack is too hard, the simplest that
was found is taken.
"""

from __future__ import annotations

import time
from collections.abc import Sequence

import numpy as np

from planner.cost.configuration import Choice, Floats, Integers
from planner.ilp.instance import Assignment, Evaluation, Instance, evaluate, fits, undominated
from planner.ilp.settings import CANONICAL_EASING, CANONICAL_POWER, SETS_FEW, TIE_WEIGHT
from planner.ilp.stage_knapsack import Knapsack, least_cost
from planner.ilp.stage_patterns import Columns, rank_columns
from planner.schema.strategy import ActivationCheckpointing


def tidied(
    instance: Instance,
    assignment: Assignment,
    *,
    choices: tuple[Sequence[Choice], Sequence[Choice]],
    deadline: float = float("inf"),
) -> Assignment:
    """Return the simplest assignment with the same step.

    `choices` are those of blocks and of edges that the kinds' `choice` points into. Ranks that the
    deadline (of `time.perf_counter`) leaves no time for stay as they are.
    """
    evaluation = evaluate(instance, assignment)
    burdens = np.concatenate(_burdens(instance, choices))
    simplest = [
        _simplest(instance, assignment, evaluation, burdens=burdens, rank=rank)
        if time.perf_counter() <= deadline
        else np.concatenate([own[rank] for own in assignment.counts])
        for rank in range(instance.stage_count)
    ]
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
        generic = (1.0 + places + 61.0 * k) ** CANONICAL_POWER % 1.0  # at most 60 choices a kind
        found.append(np.array([_burden(own[p]) for p in places]) + TIE_WEIGHT * generic)
    return found


def _burden(choice: Choice) -> float:
    """Return a number that grows with what a choice asks of the software and of the host.

    Weights are in the order in which techniques are to be left out: any offload, checkpointing, a
    further ZeRO stage.
    """
    kept = list(ActivationCheckpointing).index(choice.activation_checkpointing)
    return 1.0 + 2.0 * len(choice.offload) + 0.5 * kept + 0.1 * choice.zero_stage


def _simplest(
    instance: Instance,
    assignment: Assignment,
    evaluation: Evaluation,
    *,
    burdens: Floats,
    rank: int,
) -> Integers:
    """Return a rank's simplest layers that are known, by column.

    They exceed neither its fill, nor the largest pace, nor the largest end, but by so little that
    all ranks together change the step by no more than the easing: a third of it in S, where ranks
    add up, one in rho T and one in U.
    """
    every = [np.repeat(own.sum(axis=1)[:, None], own.shape[1], axis=1) for own in assignment.counts]
    columns = rank_columns(instance, rank, most=every)
    counts = np.concatenate([own[rank] for own in assignment.counts])
    layers = columns.memory @ counts + columns.transient[counts > 0].max(initial=0.0)
    spare = instance.capacity_bytes[rank] - evaluation.memory_bytes[rank]
    limits = np.array(
        [
            counts @ columns.fill,
            counts @ columns.pace + evaluation.pace.max() - evaluation.pace[rank],
            counts @ columns.end + evaluation.end.max() - evaluation.end[rank],
        ]
    )
    thirds = 3.0 * np.array([instance.stage_count, max(instance.repeat_count, 1.0), 1.0])
    places = np.union1d(_unbeaten(columns, burdens), np.flatnonzero(counts))
    some = columns.taken(places)
    knapsack = Knapsack(
        kind=some.kind,
        cost=burdens[places],
        memory=some.memory,
        transient=some.transient,
        host=some.host,
        capacity=float(layers + spare),
        host_capacity=float(instance.host_capacity_bytes[rank]),
        further=np.stack([some.fill, some.pace, some.end]),
        ceilings=limits + CANONICAL_EASING * evaluation.step_seconds / thirds,
    )
    held = [int(own[rank].sum()) for own in assignment.counts]
    least = float(counts @ burdens)
    found = least_cost(knapsack, held, upper=least, most=SETS_FEW)
    if found.counts is not None:
        counts[:] = 0
        counts[places] = found.counts
    return counts


def _unbeaten(columns: Columns, burdens: Floats) -> Integers:
    """Return the columns of kinds that are held that no other of the kind beats in everything."""
    found = []
    for kind in np.unique(columns.kind[columns.most > 0]).tolist():
        own = np.flatnonzero(columns.kind == kind)
        some = columns.taken(own)
        compared = (some.fill, some.pace, some.end, some.memory, some.transient, some.host)
        found.append(own[undominated(np.stack([*compared, burdens[own]]))])
    return np.concatenate(found)
