"""Search: the best plan over all configurations, with proof.

Configurations wait under a lower bound of their step (`planner.ilp.frontier`). The least key is
always the next to be refined, and the search ends when it is no less than the best plan known:
nothing left can beat it.
"""

from __future__ import annotations

import time
from collections.abc import Callable, Sequence

import numpy as np

from planner.cost.configuration import Floats
from planner.ilp.asking import look_for_any
from planner.ilp.bounds import objective_bounds
from planner.ilp.climbing import climbed, starting_cuts
from planner.ilp.crowding import crowd_out
from planner.ilp.effort import Effort
from planner.ilp.fitting import fitted
from planner.ilp.frontier import PROOF_TOLERANCE, Frontier, Stage
from planner.ilp.heuristic import heuristic_assignment
from planner.ilp.instance import Instance
from planner.ilp.offering import offer
from planner.ilp.optimise import optimise
from planner.ilp.outcome import Outcome
from planner.ilp.pricing import Pricing, alike
from planner.ilp.problem import Problem
from planner.ilp.reduction import reduction
from planner.ilp.reopening import reopen
from planner.ilp.reporting import DEGREES, found_of, shortfalls
from planner.ilp.result import NotFound, SearchResult, Wanted
from planner.ilp.settling import branching_of
from planner.ilp.solver import SolverName, Status, Within, default_solver
from planner.ilp.state import State
from planner.schema.progress import Progress
from planner.space.choices import block_choices, edge_choices
from planner.space.degrees import enumerate_configurations

ProgressCallback = Callable[[Progress], None]

_SCREENED_AT_ONCE = 256
_DOUBLINGS_MOST = 5
_SCREENED_REACH = 1.25
_PREPARED_AT_ONCE = 64
_LARGE_SPACE = 8192
_PROGRESS_SECONDS = 0.1
_TURN_UNITS = 250_000.0
_TURN_GROWTH = 2.0
_TURN_NODES = 500
_CLIMBING_UNITS = 400_000.0
_FITTING_UNITS = 1_000_000.0
# Plans at a cutoff count, and proofs are to PROOF_TOLERANCE: the frontier's own cutoff is above it.
_CUTOFF_EASING = 4.0 * PROOF_TOLERANCE


def search(
    problem: Problem,
    *,
    on_progress: ProgressCallback | None = None,
    solver: SolverName | None = None,
    wanted: Wanted = Wanted.FASTEST,
    cutoff_seconds: float | None = None,
    group_count: int = 1,
) -> SearchResult:
    """Return the fastest strategy of the job's space with its certificate, or what is missing.

    The same request gives the same answer, but for what a time limit cuts short. Whoever takes any
    plan gets the first; where it is only asked whether there is one, it has no bound. With
    `cutoff_seconds`, slower plans do not count. `group_count` asks for as many plans of different
    degrees, each the best of its own.

    Raises:
        SolverError: if the solver fails.
    """
    started = time.perf_counter()
    job = problem.job
    space = enumerate_configurations(problem.graph, problem.hardware, job)
    choices = block_choices(job.limits, job.offload_to)
    edges = edge_choices(job.limits, job.offload_to)
    if not len(space.configurations):
        return NotFound(configurations_total=0, refused=space.refused, shortfalls=(), proven=True)
    configurations = space.configurations
    pricing = Pricing(problem, configurations=configurations, choices=choices, edges=edges)
    cutoff = float("inf") if cutoff_seconds is None else cutoff_seconds
    is_any_welcome, is_whether = wanted is not Wanted.FASTEST, wanted is Wanted.WHETHER
    is_large = len(configurations) > _LARGE_SPACE and not is_whether
    state = State(
        problem=problem,
        pricing=pricing,
        configurations=configurations,
        frontier=Frontier(
            keys=_first_keys(pricing, len(configurations), wanted).tolist(),
            refine=pricing.quick_bounds_of_alike if is_large else None,
            groups=alike(configurations, DEGREES)[1].tolist(),
            cutoff_seconds=cutoff * (1.0 + _CUTOFF_EASING),
            group_count=group_count,
        ),
        solver=solver or default_solver(),
        started=started,
        choices=choices,
        edges=edges,
        not_searched=space.not_searched,
    )
    if is_whether and cutoff_seconds is None:
        look_for_any(state, _fit)
    is_refined = _refine(state, on_progress, is_any_welcome=is_any_welcome)
    if is_refined and not is_any_welcome:
        reopen(state)
    if state.frontier.best:
        return found_of(state, as_found=is_any_welcome)
    proven = is_refined and state.frontier.is_exhausted
    is_asked_why = not is_any_welcome and cutoff_seconds is None
    return NotFound(
        configurations_total=len(configurations),
        refused=space.refused,
        shortfalls=shortfalls(state) if proven and is_asked_why else (),
        proven=proven,
        lower_bound_seconds=min(state.frontier.lower_bound(), cutoff),
    )


def _first_keys(pricing: Pricing, count: int, wanted: Wanted) -> Floats:
    """Return bounds of all steps: 0 where these are no use, rough ones where they are many."""
    if wanted is Wanted.WHETHER:
        return np.zeros(count)
    return pricing.rough_bounds() if count > _LARGE_SPACE else pricing.quick_bounds()


def _refine(state: State, on_progress: ProgressCallback | None, *, is_any_welcome: bool) -> bool:
    """Refine the least key; return whether nothing that is left can beat the best plan."""
    told, is_asked = 0.0, is_any_welcome
    frontier = state.frontier
    while (least := (first := frontier.pop()) or frontier.pop_waiting()) is not None:
        key, index = least
        is_enough = (is_any_welcome and frontier.best) or state.is_close_enough(key)
        if state.seconds_left <= 0.0 or is_enough:
            frontier.push(index, key)
            return False
        now = time.perf_counter()
        if on_progress is not None and now - told > _PROGRESS_SECONDS:
            told = now
            on_progress(_progress(state, key))
        if not is_asked and state.is_half_over and not frontier.best:
            is_asked = True
            frontier.push(index, key)
            look_for_any(state, _fit)
        elif is_any_welcome and first is not None and frontier.stages[index] >= Stage.BOUNDED:
            frontier.wait(index, key)
        else:
            _refine_one(state, index, is_any_welcome=is_any_welcome)
    return True


def _refine_one(state: State, index: int, *, is_any_welcome: bool) -> None:
    """Take a configuration one stage further.

    Where any plan will do, however slow, a closer bound is no use.
    """
    frontier = state.frontier
    stage = frontier.stages[index]
    if stage == Stage.QUICK:
        _dive(state, _screen(state, index))
    elif stage == Stage.SCREENED and is_any_welcome and not np.isfinite(frontier.limit_of(index)):
        _fit(state, index, state.effort(float("inf")))
    elif stage == Stage.SCREENED:
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

    Those with the same prices, if their bounds are not far off, are screened with them. Return
    those that still matter, under a new key.
    """
    frontier = state.frontier
    indices = [index, *frontier.pop_quick(_screened_at_once(state) - 1)]
    alike_priced = state.pricing.priced_alike(indices)
    others = frontier.quick_of(alike_priced, _SCREENED_REACH * frontier.keys[index])
    indices = list(dict.fromkeys([*indices, *others]))
    limits = frontier.limits_of(indices)
    bounds = state.pricing.memory_bounds(indices, limit_seconds=limits)
    return frontier.screen(indices, bounds)


def _screened_at_once(state: State) -> int:
    """Return how many to screen: once plans are known, all below the limit will have to be."""
    if not np.isfinite(state.frontier.limit_seconds()):
        return _SCREENED_AT_ONCE
    state.screens += 1
    return _SCREENED_AT_ONCE << min(state.screens, _DOUBLINGS_MOST)


def _dive(state: State, screened: Sequence[int]) -> None:
    """Bound the least of what was just screened, if that is less than all dived to before.

    The order of bounds would come to it when nothing below it is left to screen, and all that is
    screened until then would be so without a limit.
    """
    frontier = state.frontier
    least = min(screened, key=lambda i: (frontier.keys[i], i), default=None)
    if least is None or frontier.keys[least] >= state.dived_to:
        return
    state.dived_to = frontier.keys[least]
    if state.dived_to < frontier.limit_of(least):
        frontier.take(least)
        _bound(state, least)


def _fit(state: State, index: int, effort: Effort) -> bool:
    """Look for any plan; return whether it came to an end.

    A configuration that has none is done with, others are bounded as well. The heuristic's plan is
    the faster one, if it has any. What took too much waits.
    """
    frontier, instance = state.frontier, _instance(state, index)
    found = fitted(instance, effort=effort)
    if found.is_proven:
        frontier.stages[index] = Stage.BOUNDED
        frontier.keys[index] = float("inf")
        return True
    if found.assignment is None and effort.spent >= effort.most:
        frontier.push(index, frontier.keys[index])
        return False
    if frontier.stages[index] < Stage.BOUNDED:
        _bound(state, index)
    if found.assignment is not None:
        offer(state, index, instance, found.assignment)
    return True


def _instance(state: State, index: int) -> Instance:
    """Return a screened configuration's instance; those that will be asked for are priced too."""
    if not state.pricing.is_at_hand(index):
        others = state.frontier.next_indices(_PREPARED_AT_ONCE, Stage.SCREENED)
        state.pricing.prepare([index, *others])
    return state.pricing.instance(index)


def _bound(state: State, index: int) -> None:
    """Replace the screen's bound by the configuration's own, and try the heuristic."""
    frontier = state.frontier
    state.bounded += 1
    crowd_out(state, index)
    limit = frontier.limit_of(index)
    frontier.stages[index] = Stage.BOUNDED
    if frontier.keys[index] >= limit:
        frontier.push(index, limit)
        return
    instance = _instance(state, index)
    bounds = objective_bounds(instance, cutoff_seconds=limit)
    if bounds is None:
        frontier.keys[index] = float("inf")
        return
    key = bounds.step_seconds()
    if key < limit < float("inf"):
        is_left = reduction(instance, cutoff_seconds=limit, bounds=bounds) is not None
        key = key if is_left else limit
    frontier.push(index, key)
    if key < limit:
        found = heuristic_assignment(instance)
        if found is not None:
            offer(state, index, instance, found[1])


def _solve(state: State, index: int) -> None:
    """Give a configuration a turn of branching on its ranks, or of a program where that is over.

    Each turn has more effort than the one before. Where no plan is known to be better than, any
    plan is looked for first.
    """
    frontier, instance = state.frontier, state.pricing.instance(index)
    turn = state.turns[index] = state.turns.get(index, -1) + 1
    if turn == 0:
        _climb(state, index, instance)
    if turn == 0 and not np.isfinite(frontier.limit_of(index)):
        _fit(state, index, state.effort(_FITTING_UNITS))
    limit = frontier.limit_of(index)
    if np.isfinite(limit) and index not in state.branchings:
        state.branchings[index] = branching_of(instance, cutoff_seconds=limit)
    branching = state.branchings.get(index)
    if branching is None:
        _take(state, index, instance, _programmed(state, index, instance))
        return
    outcome = branching.run(
        limit=limit,
        enough=frontier.next_key(),
        effort=state.effort(_TURN_UNITS * _TURN_GROWTH**turn),
    )
    if outcome.is_done or outcome.is_stuck:
        state.branchings[index] = None
    _take(state, index, instance, outcome)


def _take(state: State, index: int, instance: Instance, outcome: Outcome) -> None:
    """Take note of a bound and of a plan.

    Where nothing is left but a plan that does not fit with virtual stages counted apart, the
    configuration is left open, with that plan's step as its bound.
    """
    frontier, found = state.frontier, outcome.assignment
    if found is not None and not offer(state, index, instance, found):
        state.refused_cuts[index] = found.cuts
    frontier.keys[index] = max(frontier.keys[index], outcome.bound_seconds)
    is_below = frontier.keys[index] < frontier.limit_of(index) * (1.0 - PROOF_TOLERANCE)
    if outcome.is_done and is_below and index in state.refused_cuts:
        frontier.leave_open(index)
    elif index in state.programmed and not outcome.is_done:
        frontier.wait(index, frontier.keys[index])
    else:
        frontier.push(index, frontier.keys[index])


def _programmed(state: State, index: int, instance: Instance) -> Outcome:
    """Return what the integer program says below the limit."""
    state.milp_count += 1
    state.programmed.add(index)
    key, limit = state.frontier.keys[index], state.frontier.limit_of(index)
    optimum = optimise(
        instance,
        cutoff_seconds=limit if np.isfinite(limit) else None,
        solver=state.solver,
        within=Within(state.seconds_left, _TURN_NODES * int(_TURN_GROWTH ** state.turns[index])),
    )
    bound = key
    if optimum.status is Status.INFEASIBLE:
        bound = limit
    elif optimum.status is Status.OPTIMAL and optimum.step_seconds is not None:
        bound = optimum.step_seconds
    return Outcome(
        bound_seconds=bound,
        assignment=optimum.assignment,
        is_done=optimum.status in (Status.INFEASIBLE, Status.OPTIMAL),
        is_stuck=False,
    )


def _climb(state: State, index: int, instance: Instance) -> None:
    """Offer the plan on the way up from balanced cuts, where ranks hold layers of several kinds."""
    if instance.is_uniform or instance.stage_count == 1:
        return
    cuts = starting_cuts(instance)
    effort = state.effort(_CLIMBING_UNITS)
    found = None if cuts is None else climbed(instance, cuts, effort=effort)
    if found is not None:
        offer(state, index, instance, found)
