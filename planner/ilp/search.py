"""Search: the best plan over all configurations, with proof.

Configurations wait under a lower bound of their step (`planner.ilp.frontier`). The least key is
always the next to be refined, and the search ends when it is no less than the best plan known:
nothing left can beat it.

If no plan is known after a quarter of the work that there is time for, or any will do, the search
proves nothing for a while and looks for any plan (`look_for_any`). How long a step takes does not
matter then, and is not priced but for what may fit. Parts of the space are screened for memory one
after another, and what may fit is looked into at once, though not for long: another may have a plan
that is found sooner.

Small programs take turns with branch and bound (`_solve`). Others come last, for configurations
with too many loads for branch and bound, whose cuts differ where ranks hold several parts, or whose
best relaxed plan does not fit: while ranks are searched, their virtual stages count as if they held
alike. Programs that come last count them by themselves. What a program's plan does not reach either
is given up (`Queue.GIVEN_UP`), with its key as a bound.
"""

from __future__ import annotations

import time
from collections.abc import Callable, Sequence

import numpy as np

from planner.cost.configuration import Booleans
from planner.ilp.branch_and_bound import Branching, branching_of
from planner.ilp.construction_heuristic import heuristic_assignment
from planner.ilp.feasibility import fitted
from planner.ilp.formulation import Moments
from planner.ilp.frontier import Frontier, Queue, Refinement, State
from planner.ilp.incumbent import offer, offer_apart
from planner.ilp.instance import Instance
from planner.ilp.lagrangian_bound import objective_bounds, reduction
from planner.ilp.milp import Status, Within, optimise
from planner.ilp.pricing import PricedSpace, alike
from planner.ilp.problem import (
    ONE_GROUP,
    Effort,
    Groups,
    NotFound,
    Outcome,
    Problem,
    SearchResult,
)
from planner.ilp.search_result import engines_of, found_of, group_of, shortfalls
from planner.ilp.settings import (
    CUTOFF_EASING,
    FEW_KEPT,
    FITTING_UNITS,
    INSTANCES_KEPT,
    PROGRESS_SECONDS,
    PROOF_TOLERANCE,
    ROWS_AT_ONCE,
    SCREENED_AT_ONCE,
    TOLD_SHARE_RATIO,
    TURN_CELLS,
    TURN_UNITS,
    UNITS_PER_BOUND,
    UNITS_PER_CELL_LOOK,
    UNITS_PER_SCREEN,
)
from planner.schema.progress import Progress

Look = Callable[[State, int, Effort], bool]
"""Looks into a configuration with some effort; returns whether it came to an end."""


def look_for_any(state: State, look: Look) -> None:
    """Screen all configurations and `look` into those that may fit, until there is a plan.

    What was screened before comes first. It ends as well when the time is over. What is not settled
    waits in the frontier.
    """
    frontier, unsettled = state.frontier, list[int]()
    unseen = np.flatnonzero(frontier.refinements < Refinement.SCREENED).tolist()
    known = np.flatnonzero(frontier.refinements == Refinement.SCREENED).tolist()
    known = [index for index in known if np.isfinite(frontier.keys[index])]
    known.sort(key=frontier.keys.__getitem__)
    for start in range(0, len(known), SCREENED_AT_ONCE):
        _look_at(state, known[start : start + SCREENED_AT_ONCE], look, unsettled)
    count = SCREENED_AT_ONCE
    while unseen and not _is_over(state):
        part, unseen = unseen[:count], unseen[count:]
        bounds = state.pricing.memory_bounds(part, with_fills=False)
        _look_at(state, frontier.screen(part, bounds), look, unsettled)
        count = min(2 * count, ROWS_AT_ONCE)
    for index in unsettled:
        if not _is_over(state):
            frontier.dequeue(index)
            look(state, index, state.effort(float("inf")))


def _look_at(state: State, indices: Sequence[int], look: Look, unsettled: list[int]) -> None:
    """Look into screened configurations with little effort each; add those that take more.

    The leanest come first: those that hold no less than one of them have no plan where it has none.
    """
    frontier = state.frontier
    leanest = state.pricing.leanest(indices) if indices else {}
    ordered = sorted(leanest, key=lambda i: (leanest[i] != i, frontier.keys[i], i))
    for place, index in enumerate(ordered):
        if _is_over(state):
            return
        frontier.dequeue(index)
        if np.isinf(frontier.keys[leanest[index]]):
            frontier.refinements[index] = Refinement.BOUNDED
            frontier.close(index, float("inf"))
            continue
        if not state.pricing.is_at_hand(index):
            state.pricing.prepare(ordered[place : place + INSTANCES_KEPT])
        if not look(state, index, state.effort(TURN_UNITS)):
            unsettled.append(index)


def _is_over(state: State) -> bool:
    """Return whether there is a plan, or no time is left."""
    return bool(state.frontier.best) or state.seconds_left <= 0.0


ProgressCallback = Callable[[Progress], None]


def search(
    problem: Problem,
    *,
    on_progress: ProgressCallback | None = None,
    is_any_welcome: bool = False,
    cutoff_seconds: float | None = None,
    groups: Groups = ONE_GROUP,
) -> SearchResult:
    """Return the fastest strategy of the job's space with its certificate, or what is missing.

    The same request gives the same answer, but for what a time limit cuts short. Whoever takes any
    plan gets the first, without a bound. With `cutoff_seconds`, slower plans do not count. The best
    of each of `groups` is asked for.

    Raises:
        SolverError: if the solver fails.
    """
    started = time.perf_counter()
    deadline = started + problem.job.limits.solver_seconds
    space = problem.space or PricedSpace(problem)
    refused, configurations = space.listed.refused, space.configurations
    if not len(configurations):
        return NotFound(configurations_total=0, refused=refused, shortfalls=(), proven=True)
    cutoff = float("inf") if cutoff_seconds is None else cutoff_seconds
    state = State(
        problem=problem,
        space=space,
        frontier=Frontier(
            keys=np.zeros(len(configurations))
            if is_any_welcome
            else np.where(_is_known(space, groups), np.inf, space.bounds(deadline)),
            groups=alike(configurations, groups.by)[1].tolist(),
            cutoff_seconds=cutoff * (1.0 + CUTOFF_EASING),
            group_count=groups.count,
            plans=space.plans,
        ),
        started=started,
        groups=groups,
        enough_seconds=groups.enough_seconds,
    )
    if is_any_welcome:
        look_for_any(state, _fit)
    ran_to_end = _refine(state, on_progress, is_any_welcome=is_any_welcome)
    if not ran_to_end and not state.frontier.best and cutoff_seconds is None:
        _offer_any(state)
    _share(state)
    if state.frontier.best:
        return found_of(state, as_found=is_any_welcome)
    proven = ran_to_end and state.frontier.is_exhausted
    is_asked_why = not is_any_welcome and cutoff_seconds is None
    return NotFound(
        configurations_total=len(configurations),
        refused=refused,
        shortfalls=shortfalls(state) if proven and is_asked_why else (),
        proven=proven,
        lower_bound_seconds=min(state.frontier.lower_bound(), cutoff),
        engines=engines_of(state),
    )


def _offer_any(state: State) -> None:
    """Offer the first heuristic plan of a sample of configurations, as time was too short for any.

    It takes about a tenth of a second, and is spared where there may be no plan below a cutoff.
    """
    count = len(state.configurations)
    sample = np.arange(0, count, max(count // SCREENED_AT_ONCE, 1))
    bounds = state.pricing.memory_bounds(sample.tolist())
    for place in np.argsort(bounds, kind="stable")[:FEW_KEPT].tolist():
        if state.frontier.best or not np.isfinite(bounds[place]):
            return
        index = int(sample[place])
        instance = state.pricing.instance(index)
        found = heuristic_assignment(instance)
        if found is not None:
            offer(state, index, instance, found[1])


def _is_known(space: PricedSpace, groups: Groups) -> Booleans:
    """Return which configurations are of the group that is known, [configurations]."""
    if groups.known is None:
        return np.zeros(len(space.configurations), dtype=bool)
    named = zip(groups.by, groups.known, strict=True)
    is_known = [getattr(space.configurations, name) == value for name, value in named]
    return np.asarray(np.all(is_known, axis=0))


def _share(state: State) -> None:
    """Leave what was proven, and what of the least keys was begun, to the next search."""
    frontier, space = state.frontier, state.space
    space.raise_bounds(np.where(_is_known(space, state.groups), 0.0, frontier.keys))
    open_ones = [i for i, one in state.branchings.items() if one and i not in state.refused]
    least = sorted(open_ones, key=lambda i: (frontier.keys[i], i))[:FEW_KEPT]
    space.branchings = {i: one for i in least if (one := state.branchings[i]) is not None}


def _refine(state: State, on_progress: ProgressCallback | None, *, is_any_welcome: bool) -> bool:
    """Refine the least key until nothing is left that matters, or what was told of is enough.

    Return False where time ran out, the gap is accepted or any plan was enough. What is proven is
    said by `Frontier.is_exhausted`.
    """
    told, is_asked = 0.0, is_any_welcome
    frontier = state.frontier
    while (least := _next(state)) is not None:
        key, index = least
        is_enough = (is_any_welcome and frontier.best) or state.is_close_enough(key)
        if state.seconds_left <= 0.0 or is_enough:
            frontier.push(index, key)
            return False
        if _report_settled(state, index, key):
            frontier.push(index, key)
            return True
        if key >= frontier.limit_of(index):
            continue
        now = time.perf_counter()
        if on_progress is not None and now - told > PROGRESS_SECONDS:
            told = now
            on_progress(_progress(state, key))
        if not is_asked and state.is_past(TOLD_SHARE_RATIO) and not frontier.best:
            is_asked = True
            frontier.push(index, key)
            look_for_any(state, _fit)
        else:
            _refine_one(state, index)
    return True


def _next(state: State) -> tuple[float, int] | None:
    """Return the least key with its configuration, None where nothing matters any more.

    Programs wait until nothing else is left, or all else is beyond what has to be known.
    """
    frontier = state.frontier
    least = frontier.pop()
    if least is None or least[0] < state.enough_seconds:
        return least or frontier.pop(Queue.LAST)
    waiting = frontier.pop(Queue.LAST)
    if waiting is not None:
        frontier.push(least[1], least[0])
    return waiting or least


def _report_settled(state: State, index: int, key: float) -> bool:
    """Tell of plans that are settled, or best after some time; return whether that is enough.

    What is left has `key` at least. Before a program, which may take all the time that is left, the
    best plan is told of as well.
    """
    frontier, settle = state.frontier, state.groups.settle
    if settle is None:
        return False
    is_due = state.is_past(TOLD_SHARE_RATIO) or index in state.declined
    best_of_all = frontier.ranked()[:1] if is_due and not state.settled else []
    for best in (*frontier.settled(key), *best_of_all):
        own = frontier.groups[best.index]
        if state.seconds_left <= 0.0:
            break
        if own not in state.settled and key < state.enough_seconds:
            group = state.settled[own] = group_of(state, best)
            enough = settle(group)
            state.enough_seconds = min(state.enough_seconds, enough.seconds)
            state.leaves_programs |= enough.leaves_programs
    if state.leaves_programs and index in state.declined:
        return True
    return min(key, frontier.least_key(Queue.LAST)) >= state.enough_seconds


def _refine_one(state: State, index: int) -> None:
    """Take a configuration one stage further."""
    stage = state.frontier.refinements[index]
    if stage == Refinement.QUICK:
        _bound_the_least(state, _screen(state, index))
    elif stage == Refinement.SCREENED:
        _bound(state, index)
    else:
        _solve(state, index)


def _progress(state: State, key: float) -> Progress:
    best = state.frontier.incumbent_seconds()
    return Progress(
        phase="solve" if state.milp_count else "bound",
        configurations_total=len(state.configurations),
        open_count=state.frontier.open_count + 1,
        milp_count=state.milp_count,
        best_seconds=best if np.isfinite(best) else None,
        lower_bound_seconds=key,
    )


def _screen(state: State, index: int) -> list[int]:
    """Replace the quick bounds of this configuration and of those next to it in order.

    Return those that still matter, under a new key.
    """
    frontier = state.frontier
    indices = [index, *frontier.pop_quick(_screened_at_once(state) - 1)]
    limits = frontier.limits_of(indices)
    state.work.spend(5.0 * UNITS_PER_BOUND + UNITS_PER_SCREEN * len(indices))
    bounds = state.pricing.memory_bounds(indices, limit_seconds=limits)
    return frontier.screen(indices, bounds)


def _screened_at_once(state: State) -> int:
    """Return how many to screen: once plans are known, all below the limit will have to be."""
    if not np.isfinite(state.frontier.limit_seconds()):
        return SCREENED_AT_ONCE
    state.screens += 1
    return min(SCREENED_AT_ONCE << state.screens, ROWS_AT_ONCE)


def _bound_the_least(state: State, screened: Sequence[int]) -> None:
    """Bound the least of what was just screened, if it is less than all that were bounded so.

    The order of bounds would come to it when nothing below it is left to screen, and all that is
    screened until then would be so without a limit.
    """
    frontier = state.frontier
    least = min(screened, key=lambda i: (frontier.keys[i], i), default=None)
    if least is None or frontier.keys[least] >= state.dived_to:
        return
    state.dived_to = frontier.keys[least]
    if state.dived_to < frontier.limit_of(least):
        frontier.dequeue(least)
        _bound(state, least)


def _fit(state: State, index: int, effort: Effort) -> bool:
    """Look for any plan; return whether it came to an end.

    A configuration that has none is done with, others are bounded as well. The heuristic's plan is
    the faster one, if it has any. What took too much waits.
    """
    frontier, instance = state.frontier, _instance(state, index)
    found = fitted(instance, effort=effort)
    if found.is_proven:
        frontier.refinements[index] = Refinement.BOUNDED
        frontier.close(index, float("inf"))
        return True
    if found.assignment is None and effort.spent >= effort.most:
        frontier.push(index)
        return False
    if frontier.refinements[index] < Refinement.BOUNDED:
        _bound(state, index)
    if found.assignment is not None:
        offer(state, index, instance, found.assignment)
    return True


def _instance(state: State, index: int) -> Instance:
    """Return a screened configuration's instance; those that will be asked for are priced too."""
    if not state.pricing.is_at_hand(index):
        others = state.frontier.next_indices(INSTANCES_KEPT, Refinement.SCREENED)
        state.pricing.prepare([index, *others])
    return state.pricing.instance(index)


def _bound(state: State, index: int) -> None:
    """Replace the screen's bound by the configuration's own, and try the heuristic."""
    frontier = state.frontier
    limit = frontier.limit_of(index)
    frontier.refinements[index] = Refinement.BOUNDED
    if frontier.keys[index] >= limit:
        frontier.push(index, limit)
        return
    instance = _instance(state, index)
    state.work.spend(UNITS_PER_BOUND)
    bounds = objective_bounds(instance, cutoff_seconds=limit)
    if bounds is None:
        frontier.close(index, float("inf"))
        return
    key = bounds.step_seconds()
    if key < limit < float("inf"):
        is_left = reduction(instance, cutoff_seconds=limit, bounds=bounds) is not None
        key = key if is_left else limit
    frontier.push(index, key)
    if key < limit:
        found = heuristic_assignment(instance, is_thorough=not np.isfinite(limit))
        if found is not None:
            offer(state, index, instance, found[1])


def _solve(state: State, index: int) -> None:
    """Give a configuration a turn: of branch and bound, or every other time of a small program.

    Each has twice the effort of the one before. A program begins anew with each: where ranks hold
    several parts, one whose bound is no better than what branching had proven has no further. Where
    there is no limit yet, any plan is looked for first. A configuration that cannot be branched on,
    or no further, waits until all others are looked into, as its program takes longer than all
    other turns, and is branched on after all if the limit has become lower by then.
    """
    frontier, instance = state.frontier, state.pricing.instance(index)
    turn = state.turns[index] = state.turns.get(index, -1) + 1
    state.work.spend(10.0 * UNITS_PER_BOUND)
    if turn == 0 and not np.isfinite(frontier.limit_of(index)):
        _fit(state, index, state.effort(FITTING_UNITS))
    limit = frontier.limit_of(index)
    branching = _branching(state, index, instance, limit)
    if branching is None and index not in state.declined:
        state.declined[index] = limit
        frontier.push(index, queue=Queue.LAST)
        return
    if branching is None:
        _program(state, index)
        return
    is_small = instance.cell_count <= TURN_CELLS * 2 ** (turn // 2)
    if turn % 2 and is_small and index not in state.space.outdone:
        outcome = _programmed(state, index, instance, units=TURN_UNITS * 2**turn)
        is_over = outcome.is_done
        if instance.has_several_parts and outcome.bound_seconds <= frontier.keys[index]:
            state.space.outdone.add(index)
    else:
        state.branched.add(index)
        effort = state.effort(TURN_UNITS * 2**turn)
        outcome = branching.run(limit=limit, enough=frontier.least_key(), effort=effort)
        is_over = outcome.is_done or outcome.is_stuck
    if is_over:
        state.branchings[index] = None
    _record(state, index, instance, outcome)


def _branching(state: State, index: int, instance: Instance, limit: float) -> Branching | None:
    """Return what is left of a configuration's branching, None where it can say no more."""
    is_lower = limit < state.declined.get(index, 0.0) * (1.0 - PROOF_TOLERANCE)
    if np.isfinite(limit) and (is_lower or index not in state.branchings):
        state.declined.pop(index, None)
        begun = state.space.branchings.pop(index, None)
        is_whole = begun is not None and begun.limit >= limit
        found = begun if is_whole else branching_of(instance, cutoff_seconds=limit)
        state.branchings[index] = found
    return state.branchings.get(index)


def _record(state: State, index: int, instance: Instance, outcome: Outcome) -> None:
    """Take note of a bound and of a plan of a turn.

    Where nothing is left but a plan that does not fit with virtual stages counted apart, a program
    is due, with that plan's step as the bound.
    """
    frontier, found = state.frontier, outcome.assignment
    if found is not None and not offer(state, index, instance, found):
        state.refused.add(index)
    frontier.push(index, outcome.bound_seconds)
    if outcome.is_done and frontier.matters(index) and index in state.refused:
        state.declined[index] = frontier.limit_of(index)
        frontier.push(index, queue=Queue.LAST)


def _program(state: State, index: int) -> None:
    """Give a configuration's program a turn, with virtual stages apart, and take note of it."""
    frontier, apart = state.frontier, state.pricing.instance_apart(index)
    if apart.is_uniform and index in state.refused:  # spread evenly, blocks hold no more than alike
        frontier.push(index, queue=Queue.GIVEN_UP)
        return
    is_apart = apart.has_several_parts
    instance = apart if is_apart else state.pricing.instance(index)
    moments = Moments.of(state.configurations.row(index)) if is_apart else None
    units = FITTING_UNITS * 2 ** state.turns[index]
    outcome = _programmed(state, index, instance, moments, units=units)
    is_over = outcome.is_done or outcome.is_stuck
    if outcome.assignment is not None:
        offered = offer_apart if is_apart else offer
        is_over |= not offered(state, index, instance, outcome.assignment)
    frontier.push(index, outcome.bound_seconds, Queue.GIVEN_UP if is_over else Queue.LAST)
    if is_over and not frontier.matters(index):
        frontier.dequeue(index)


def _programmed(
    state: State,
    index: int,
    instance: Instance,
    moments: Moments | None = None,
    *,
    units: float,
) -> Outcome:
    """Return what a program says below the limit with some work; if it fails, it is stuck."""
    limit = state.frontier.limit_of(index)
    state.milp_count += 1
    state.programmed.add(index)
    units_per_look = UNITS_PER_CELL_LOOK * instance.cell_count
    within = Within(state.seconds_left, units / units_per_look)
    optimum = optimise(
        instance,
        cutoff_seconds=limit if np.isfinite(limit) else None,
        within=within,
        moments=moments,
    )
    state.work.spend(units - within.looks * units_per_look)
    is_done = optimum.status in (Status.INFEASIBLE, Status.OPTIMAL)
    proven = limit if optimum.step_seconds is None else optimum.step_seconds
    return Outcome(
        bound_seconds=proven if is_done else min(optimum.bound_seconds, limit),
        assignment=optimum.assignment,
        is_done=is_done,
        is_stuck=optimum.status is Status.FAILED,
    )
