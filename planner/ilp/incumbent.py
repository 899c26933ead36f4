"""Incumbent: how an assignment becomes the best plan known.

Assignments become plans of the frontier if they fit, virtual stages counted apart. Earlier virtual
stages of a rank hold more micro-batches than later ones, while the search counts all of a rank's as
if they held alike. Which of the ways to cut a chain into the same loads takes the least memory is
found by dynamic programming over the ranks (`leanest_cuts`): the largest excess of a rank over its
memory is made least, each kind of layer at the mean of its choices.
"""

from __future__ import annotations

from collections.abc import Iterator
from dataclasses import replace

import numpy as np

from planner.cost.configuration import Configuration, Floats, Integers
from planner.cost.step import predict_priced
from planner.ilp.cut_point_graph import cuts_by_parts
from planner.ilp.formulation import Moments
from planner.ilp.frontier import State
from planner.ilp.instance import Assignment, Instance, cuts_of, evaluate, fits, load_of_cuts
from planner.ilp.lagrangian_bound import everything
from planner.ilp.problem import TooManyError
from planner.schema.plan import Prediction


def leanest_cuts(
    instance: Instance, assignment: Assignment, configuration: Configuration
) -> tuple[int, ...] | None:
    """Return the cuts of the assignment's loads with the least memory, None if none is found."""
    over = evaluate(instance, assignment).memory_bytes - instance.capacity_bytes
    kept = _mean_kept(instance, assignment)
    moments = Moments.of(configuration)

    def excess(rank: int, counts: Integers) -> Floats:
        by_part = counts @ kept[rank]
        more = (by_part @ np.array(moments.held[rank]).T).max(axis=1)
        more -= moments.alike[rank] * by_part.sum(axis=1)
        return np.asarray(over[rank] + np.maximum(more, 0.0))

    loads = [tuple(load) for load in load_of_cuts(instance, assignment.cuts)]
    try:
        return cuts_by_parts(instance, everything(instance), loads, excess=excess)
    except TooManyError:
        return None


def _mean_kept(instance: Instance, assignment: Assignment) -> Floats:
    """Return what a layer keeps for a micro-batch, [stages, free kinds]."""
    found = np.zeros((instance.stage_count, len(instance.free_kinds)))
    for column, k in enumerate(instance.free_kinds):
        counts = assignment.counts[k]
        total = (counts * instance.kinds[k].kept).sum(axis=1)
        found[:, column] = total / np.maximum(counts.sum(axis=1), 1)
    return found


def offer(state: State, index: int, instance: Instance, assignment: Assignment) -> bool:
    """Offer an assignment to the frontier if it fits; return False if it does not, however cut.

    Where ranks hold several virtual stages, the program counts activations as if these held alike:
    a lower bound. What does not fit when each is counted by itself is cut anew. What is no faster
    than the best plan known is not looked at so closely.
    """
    frontier = state.frontier
    evaluation = evaluate(instance, assignment)
    if not fits(instance, evaluation):
        return False
    if instance.least_blocks == 1:
        frontier.offer(index, evaluation.step_seconds, assignment)
        return True
    if evaluation.step_seconds >= frontier.limit_of(index):
        return True
    for arranged in cut_anew(instance, assignment, state.configurations.row(index)):
        if evaluate(instance, arranged).step_seconds >= frontier.limit_of(index):
            continue
        priced = repriced(state, index, instance, arranged)
        if priced.fits:
            frontier.offer(index, priced.step_seconds.p50, arranged)
            return True
    return False


def offer_apart(state: State, index: int, instance: Instance, assignment: Assignment) -> bool:
    """Offer an assignment of an instance with all choices, as it is; return whether it fits."""
    priced = repriced(state, index, instance, assignment)
    if priced.fits:
        state.frontier.offer(index, priced.step_seconds.p50, assignment, instance)
    return priced.fits


def cut_anew(
    instance: Instance, assignment: Assignment, configuration: Configuration
) -> Iterator[Assignment]:
    """Yield the assignment, and the same loads cut evenly, or so that the fullest rank is least."""
    yield assignment
    loads = load_of_cuts(instance, assignment.cuts)
    even = cuts_of(instance, assignment.counts)
    if even != assignment.cuts and load_of_cuts(instance, even) == loads:
        yield replace(assignment, cuts=even)
    if instance.has_several_parts:
        leanest = leanest_cuts(instance, assignment, configuration)
        if leanest is not None and leanest != assignment.cuts:
            yield replace(assignment, cuts=leanest)


def repriced(state: State, index: int, instance: Instance, assignment: Assignment) -> Prediction:
    """Return what the cost model says of an assignment."""
    problem, space = state.problem, state.space
    return predict_priced(
        space.price_list(index).priced(space.strategy(index, instance, assignment)),
        workload=problem.workload,
        hardware=problem.hardware,
        job=problem.job,
    )
