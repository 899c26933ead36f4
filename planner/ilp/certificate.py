"""Certificate: what a search answers, and how sure it is.

Reporting: what a search found, as strategies with a certificate, or what is missing.

Parts: one answer of searches of several parts of the space.

The parts together are the space. Each is searched for less than the best of those before it, so
that what none has is proven of all.
"""

from __future__ import annotations

import math
import time
from collections import Counter
from collections.abc import Callable, Sequence
from dataclasses import replace

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
from planner.ilp.problem import DEGREES, Candidate, Found, Group, NotFound, Shortfall
from planner.ilp.settings import (
    CUTOFF_EASING,
    FINE_ROUNDING,
    FITTING_UNITS,
    INSTANCES_KEPT,
    PROOF_TOLERANCE,
    RUNNERS_UP,
    SCREENED_AT_ONCE,
    SHORTFALLS,
)
from planner.schema.bound_record import BoundEngine
from planner.schema.job import Limits
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
        configurations_pruned=len(state.configurations) - len(state.turns),
        configurations_branched=len(state.branched),
        configurations_programmed=len(state.programmed),
        milp_count=state.milp_count,
        solver=state.solver.value,
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
    simplest = tidied(instance, best.assignment, choices=(state.space.choices, state.space.edges))
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
    capacity = float(instance.capacity_bytes.max())
    host = float(instance.host_capacity_bytes.max())
    if required_bytes <= capacity:
        effort = state.effort(FITTING_UNITS)
        needed = least_host_bytes(instance, effort=effort)
        if needed is not None and needed > host:
            return Shortfall(
                configuration=state.configurations.row(index),
                required_bytes=needed,
                capacity_bytes=host,
                exceeds_device=False,
            )
        required_bytes = least_device_bytes(instance, effort=effort) or 0.0
    return Shortfall(
        configuration=state.configurations.row(index),
        required_bytes=max(required_bytes, capacity),
        capacity_bytes=capacity,
        exceeds_device=True,
    )


Search = Callable[[Limits, float | None], Found | NotFound]


def search_parts(
    parts: Sequence[Limits],
    search: Search,
    *,
    seconds: float,
    cutoff_seconds: float | None = None,
    group_count: int = 1,
    is_any_welcome: bool = False,
) -> Found | NotFound:
    """Return the best of all `parts`, searched one after another within `seconds`.

    Groups of other degrees than the best's are asked of each part whole, without what is known of
    others. Where any plan is welcome, the first is the answer.
    """
    deadline = time.perf_counter() + seconds
    answers: list[Found | NotFound] = []
    cutoff = cutoff_seconds
    for place, limits in enumerate(parts):
        share = max(deadline - time.perf_counter(), 0.0) / (len(parts) - place)
        timed = limits.model_copy(update={"solver_seconds": min(share, limits.solver_seconds)})
        answer = search(timed, cutoff) if share > 0.0 else _unasked()
        if is_any_welcome and isinstance(answer, Found):
            return answer
        answers.append(answer)
        if isinstance(answer, Found) and group_count == 1:
            better = answer.step_seconds * (1.0 - 2.0 * CUTOFF_EASING)
            cutoff = better if cutoff is None else min(better, cutoff)
    if len(answers) == 1:
        return answers[0]
    return _best(answers, group_count)


def _unasked() -> NotFound:
    return NotFound(configurations_total=0, refused={}, shortfalls=(), proven=False)


def _best(answers: Sequence[Found | NotFound], group_count: int) -> Found | NotFound:
    found = [answer for answer in answers if isinstance(answer, Found)]
    missing = [answer for answer in answers if isinstance(answer, NotFound)]
    if not found:
        return _none(missing)
    best = min(found, key=lambda answer: answer.step_seconds)
    groups = sorted((g for one in found for g in one.groups), key=lambda g: g.step_seconds)
    return replace(
        best,
        certificate=_certificate(best, found, missing),
        groups=tuple(groups[:group_count]),
        left_seconds=min(
            [one.left_seconds for one in found]
            + [float("inf") if one.proven else one.lower_bound_seconds for one in missing]
        ),
        engines={row: name for one in answers for row, name in one.engines.items()},
    )


def _certificate(best: Found, found: Sequence[Found], missing: Sequence[NotFound]) -> Certificate:
    """Return the proof of all parts: the least of their bounds, the sums of their counts.

    A part without a plan under the cutoff is proven to have none, or has its own bound.
    """
    step = best.step_seconds
    bounds = [one.certificate.lower_bound_seconds for one in found]
    bounds += [step if one.proven else one.lower_bound_seconds for one in missing]
    bound = min(step, *bounds)
    own = [one.certificate for one in found]
    optimal = all(one.status == "optimal" for one in own) and all(one.proven for one in missing)
    total = sum(one.configurations_total for one in own)
    lost = sum(one.configurations_total for one in missing)
    engines = Counter(name for one in missing for name in one.engines.values())
    return best.certificate.model_copy(
        update={
            "status": "optimal" if optimal else "feasible",
            "lower_bound_seconds": bound,
            "gap_ratio": 1.0 - bound / step if step > 0.0 else 0.0,
            "configurations_total": total + lost,
            "configurations_pruned": sum(one.configurations_pruned for one in own)
            + lost
            - engines.total(),
            "configurations_branched": sum(one.configurations_branched for one in own)
            + engines[BoundEngine.BRANCH_AND_BOUND],
            "configurations_programmed": sum(one.configurations_programmed for one in own)
            + engines[BoundEngine.INTEGER_PROGRAM],
            "milp_count": sum(one.milp_count for one in own),
            "solve_seconds": sum(one.solve_seconds for one in own),
            "not_searched": tuple(dict.fromkeys(r for one in own for r in one.not_searched)),
        }
    )


def _none(missing: Sequence[NotFound]) -> NotFound:
    refused: Counter[str] = Counter()
    if not missing:
        refused["job.limits and job.framework have no strategy in common"] = 1
    for one in missing:
        refused.update(one.refused)
    shortfalls = sorted(
        (s for one in missing for s in one.shortfalls),
        key=lambda s: s.required_bytes - s.capacity_bytes,
    )
    most = max((len(one.shortfalls) for one in missing), default=0)
    return NotFound(
        configurations_total=sum(one.configurations_total for one in missing),
        refused=dict(refused),
        shortfalls=tuple(shortfalls[:most]),
        proven=all(one.proven for one in missing),
        lower_bound_seconds=min((one.lower_bound_seconds for one in missing), default=0.0),
    )
