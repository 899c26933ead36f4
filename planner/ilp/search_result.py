"""Search result: what a search found, as strategies with a proof, or what is missing."""

from __future__ import annotations

import math
import time

import numpy as np

from planner.cost.configuration import Configuration
from planner.ilp.canonical_plan import tidied
from planner.ilp.construction_heuristic import even_assignment
from planner.ilp.feasibility import least_device_bytes, least_host_bytes
from planner.ilp.frontier import Best, State
from planner.ilp.incumbent import repriced
from planner.ilp.instance import Assignment, Instance
from planner.ilp.lagrangian_bound import least_memory_bytes
from planner.ilp.pricing import alike
from planner.ilp.problem import DEGREES, Candidate, Found, Group, Shortfall
from planner.ilp.settings import (
    FINE_ROUNDING,
    FITTING_UNITS,
    INSTANCES_KEPT,
    PROOF_TOLERANCE,
    RUNNERS_UP,
    SCREENED_AT_ONCE,
    SHORTFALLS,
    TIDIED_SHARE_RATIO,
)
from planner.schema.bound_record import BoundEngine
from planner.schema.plan import Certificate
from planner.schema.strategy import Strategy


def found_of(state: State, *, as_found: bool = False) -> Found:
    """Return the best plans of a search with its certificate, in their simplest form.

    Whoever only asks whether there are any takes them `as_found`.
    """
    ranked = state.frontier.ranked()
    best = ranked[0]
    lower_bound = state.frontier.lower_bound()
    groups = tuple(group_of(state, one, as_found=as_found) for one in ranked)
    gap = max(0.0, 1.0 - lower_bound / best.step_seconds)
    proven = gap <= PROOF_TOLERANCE
    certificate = Certificate(
        status="optimal" if proven else "feasible",
        lower_bound_seconds=best.step_seconds if proven else lower_bound,
        gap_ratio=0.0 if proven else gap,
        configurations_total=len(state.configurations),
        configurations_pruned=len(state.configurations) - len(state.branched | state.programmed),
        configurations_branched=len(state.branched),
        configurations_programmed=len(state.programmed),
        milp_count=state.milp_count,
        solver="HiGHS",
        solve_seconds=time.perf_counter() - state.started,
        not_searched=state.space.listed.not_searched,
    )
    return Found(
        strategy=groups[0].strategy,
        step_seconds=best.step_seconds,
        certificate=certificate,
        runners_up=_runners_up(state, best),
        groups=groups,
        left_seconds=state.frontier.least_left(),
        engines=engines_of(state),
    )


def engines_of(state: State) -> dict[Configuration, BoundEngine]:
    """Return what bounded configurations last, of those that were branched on or programmed."""
    names = dict.fromkeys(state.branched, BoundEngine.BRANCH_AND_BOUND)
    names |= dict.fromkeys(state.programmed, BoundEngine.INTEGER_PROGRAM)
    return {state.configurations.row(index): name for index, name in names.items()}


def group_of(state: State, best: Best, *, as_found: bool = False) -> Group:
    """Return a plan, in its simplest form with the same step if it is not wanted `as_found`."""
    known = state.settled.get(state.frontier.groups[best.index])
    if known is not None and known.step_seconds == best.step_seconds:
        return known
    instance = best.instance or state.pricing.instance(best.index)
    return Group(
        strategy=state.space.strategy(
            best.index,
            instance,
            best.assignment if as_found else _simplest(state, best, instance),
        ),
        step_seconds=best.step_seconds,
        even=None if as_found else _even(state, best, instance),
    )


def _even(state: State, best: Best, instance: Instance) -> Strategy | None:
    """Return a strategy whose virtual stages wait little, where ranks hold several that differ."""
    tried = even_assignment(instance) if instance.has_several_parts else None
    return None if tried is None else state.space.strategy(best.index, instance, tried)


def _simplest(state: State, best: Best, instance: Instance) -> Assignment:
    """Return the simplest assignment with the same step that is found."""
    simplest = tidied(
        instance,
        best.assignment,
        choices=(state.space.choices, state.space.edges),
        deadline=state.deadline + TIDIED_SHARE_RATIO * state.problem.job.limits.solver_seconds,
    )
    if instance.least_blocks > 1:
        # tidying knows virtual stages by their bounds: what they cost is said by their price alone
        priced = repriced(state, best.index, instance, simplest)
        seconds = priced.step_seconds.p50
        if not (priced.fits and math.isclose(seconds, best.step_seconds, rel_tol=FINE_ROUNDING)):
            return best.assignment
    return simplest


def _runners_up(state: State, best: Best) -> tuple[Candidate, ...]:
    """Return the least key of each other (tensor, pipeline, context) triple, least first."""
    keys = state.frontier.keys
    firsts, group = alike(state.configurations, DEGREES[:3])
    least = np.full(len(firsts), np.inf)
    np.minimum.at(least, group, keys)
    least[group[best.index]] = np.inf
    groups = np.argsort(least, kind="stable")[:RUNNERS_UP]
    ranked = [
        int(np.flatnonzero((group == own) & (keys == least[own]))[0])
        for own in groups[np.isfinite(least[groups])].tolist()
    ]
    return tuple(
        Candidate(
            configuration=state.configurations.row(index),
            step_seconds=float(keys[index]),
            is_lower_bound=not _is_reached(state, index),
        )
        for index in ranked
    )


def _is_reached(state: State, index: int) -> bool:
    """Return whether a plan of the configuration is known whose step is its key."""
    frontier = state.frontier
    best = frontier.best.get(frontier.groups[index])
    if best is None or best.index != index:
        return False
    return bool(best.step_seconds <= frontier.keys[index] * (1.0 + PROOF_TOLERANCE))


def shortfalls(state: State) -> tuple[Shortfall, ...]:
    """Return the configurations that come closest to fitting, by the device bytes that they need.

    A sample of them is looked into, a few of which in any case and all if the time lasts.
    """
    found: list[tuple[float, int]] = []
    count = len(state.configurations)
    sample = range(0, count, max(count // SCREENED_AT_ONCE, 1))
    for place, index in enumerate(sample):
        if len(found) >= SHORTFALLS and state.seconds_left <= 0.0:
            break
        if place % INSTANCES_KEPT == 0:
            state.pricing.prepare(sample[place : place + INSTANCES_KEPT])
        found.append((least_memory_bytes(state.pricing.instance(index)), index))
    closest = [_shortfall(state, *least) for least in sorted(found)[:SHORTFALLS]]
    return tuple(sorted(closest, key=lambda s: s.required_bytes - s.capacity_bytes))


def _shortfall(state: State, required_bytes: float, index: int) -> Shortfall:
    """Return what a configuration lacks: device memory, or host memory where that would do.

    `required_bytes` is a bound of what its fullest device needs. Where there is as much, packings
    tell which memory it is, and how much of it would do.
    """
    instance = state.pricing.instance(index)
    capacity, exceeds_device = float(instance.capacity_bytes.max()), True
    if required_bytes <= capacity:
        effort, host = state.effort(FITTING_UNITS), float(instance.host_capacity_bytes.max())
        needed = least_host_bytes(instance, effort=effort)
        if needed is not None and needed > host:
            required_bytes, capacity, exceeds_device = needed, host, False
        else:
            required_bytes = least_device_bytes(instance, effort=effort) or 0.0
    return Shortfall(
        configuration=state.configurations.row(index),
        required_bytes=max(required_bytes, capacity),
        capacity_bytes=capacity,
        exceeds_device=exceeds_device,
    )
