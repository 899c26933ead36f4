"""Search: the best plan over all configurations, with proof.

Configurations wait under a lower bound of their step (`planner.ilp.frontier`). The least key is
always the next to be refined, and the search ends when it is no less than the best plan known:
nothing left can beat it.
"""

from __future__ import annotations

import time
from collections.abc import Callable

import numpy as np

from planner.cost.configuration import Floats
from planner.ilp.asking import look_for_any
from planner.ilp.bounds import objective_bounds
from planner.ilp.climbing import climbed, starting_cuts
from planner.ilp.crowding import crowd_out
from planner.ilp.fitting import fitted
from planner.ilp.frontier import PROOF_TOLERANCE, Frontier, Stage
from planner.ilp.heuristic import heuristic_assignment
from planner.ilp.instance import Instance
from planner.ilp.offering import offer
from planner.ilp.pricing import Pricing, alike
from planner.ilp.problem import Problem
from planner.ilp.reduction import reduction
from planner.ilp.reopening import reopen
from planner.ilp.reporting import DEGREES, found_of, shortfalls
from planner.ilp.result import NotFound, SearchResult, Wanted
from planner.ilp.scouting import dive, scout, scout_first
from planner.ilp.sharing import shared
from planner.ilp.sharpening import sharpened
from planner.ilp.solver import SolverName, default_solver
from planner.ilp.solving import STEP_MOST, anneal_first, decompose, has_few_ranks, solve
from planner.ilp.state import State
from planner.schema.progress import Progress
from planner.space.choices import block_choices, edge_choices
from planner.space.degrees import enumerate_configurations

ProgressCallback = Callable[[Progress], None]

_FAR = 1.05
_CLIMBED_FROM = 1.005
_RANKS_LOOKED_AT = 128
_LONG_PIPELINE = 16
_SHARPENING_REACH = 0.05
_SHARPENING_SECONDS = 0.4
_SCREENED_AT_ONCE = 256
_SCREENED_BELOW_LIMIT = 256
_DOUBLINGS_MOST = 5
_SCREENED_REACH = 1.25
_PREPARED_AT_ONCE = 64
_LARGE_SPACE = 8192
_PROGRESS_SECONDS = 0.1
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

    Where any plan will do, however slow, a closer bound is no use: what the heuristic has no plan
    for waits until it was tried on all others, and is solved without a cutoff.
    """
    stage = state.frontier.stages[index]
    is_unlimited = is_any_welcome and not np.isfinite(state.frontier.limit_seconds())
    if stage == Stage.QUICK:
        screened = _screen(state, index)
        if not is_any_welcome:
            _anneal_dived(state, dive(state, screened, _bound))
    elif stage == Stage.SCREENED and is_unlimited:
        _fit(state, index, state.seconds_left)
    elif stage == Stage.SCREENED:
        _bound(state, index, is_next=True)
        if not is_any_welcome:
            scout(state, _bound)
    elif stage == Stage.BOUNDED and not is_unlimited:
        _sharpen(state, index)
    else:
        _settle(state, index, is_unlimited=is_unlimited)


def _anneal_dived(state: State, index: int | None) -> None:
    """Anneal cuts of a long pipeline that was dived to, so that all that follows has a limit."""
    if index is None or state.frontier.stages[index] < Stage.BOUNDED:
        return
    instance = state.pricing.instance(index)
    if instance.stage_count >= _LONG_PIPELINE:
        anneal_first(state, index, instance)


def _settle(state: State, index: int, *, is_unlimited: bool) -> None:
    """Solve a configuration for a turn, without a cutoff where any plan will do."""
    if is_unlimited:
        state.step.setdefault(index, STEP_MOST)
    if state.frontier.stages[index] == Stage.SHARPENED:
        _climb_in_order(state, index, state.pricing.instance(index))
    solve(state, index)


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
    screened = frontier.screen(indices, bounds)
    state.screened += screened
    return screened


def _screened_at_once(state: State) -> int:
    """Return how many to screen: once plans are known, all below the limit will have to be."""
    if not np.isfinite(state.frontier.limit_seconds()):
        return _SCREENED_AT_ONCE
    state.screens_below_limit += 1
    return _SCREENED_BELOW_LIMIT << min(state.screens_below_limit, _DOUBLINGS_MOST)


def _fit(state: State, index: int, seconds: float) -> bool:
    """Look for any plan for some seconds; return whether it came to an end.

    A configuration that has none is done with, others are bounded as well. The heuristic's plan is
    the faster one, if it has any. What took too long waits.
    """
    frontier, instance = state.frontier, _instance(state, index)
    deadline = time.perf_counter() + min(seconds, state.seconds_left)
    found = fitted(instance, deadline=deadline)
    if found.is_proven:
        frontier.stages[index] = Stage.BOUNDED
        frontier.keys[index] = float("inf")
        return True
    is_late = seconds < state.seconds_left and time.perf_counter() > deadline
    if found.assignment is None and is_late:
        frontier.push(index, frontier.keys[index])
        return False
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


def _bound(state: State, index: int, *, is_next: bool = False) -> None:
    """Replace the screen's bound by the configuration's own, and try the heuristic.

    Where it `is_next` in order, and a look at the ranks apart is likely to be all that it takes,
    the heuristic waits for what that leaves open.
    """
    frontier = state.frontier
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
    if bounds.step_seconds() > limit:
        frontier.push(index, bounds.step_seconds())
        return
    if np.isfinite(limit) and reduction(instance, cutoff_seconds=limit, bounds=bounds) is None:
        frontier.push(index, limit)
        return
    state.bounds[index] = bounds
    frontier.push(index, bounds.step_seconds())
    if bounds.step_seconds() < limit and not (is_next and _is_far(state, index, instance)):
        _try(state, index, instance)


def _try(state: State, index: int, instance: Instance) -> None:
    """Offer the heuristic's plan, once."""
    if index in state.tried:
        return
    state.tried.add(index)
    found = heuristic_assignment(instance)
    if found is not None:
        offer(state, index, instance, found[1])


def _sharpen(state: State, index: int) -> None:
    """Find a closer bound and a better plan below the limit, from the ranks apart."""
    instance = state.pricing.instance(index)
    anneal_first(state, index, instance)
    is_long = instance.stage_count >= _LONG_PIPELINE and not instance.has_several_parts
    if is_long and _is_far(state, index, instance):
        scout_first(state, _bound)
    if _is_far(state, index, instance) and decompose(state, index, instance, seconds=0.0):
        if index in state.branchings:
            _try_and_climb(state, index, instance)
        return
    _try_and_climb(state, index, instance)
    state.frontier.stages[index] = Stage.SHARPENED
    _pack(state, index, instance)
    if state.frontier.keys[index] * _CLIMBED_FROM < state.frontier.limit_of(index):
        _climb_in_order(state, index, instance)


def _try_and_climb(state: State, index: int, instance: Instance) -> None:
    """Offer the heuristic's plan, and better cuts where ranks hold several parts, each once."""
    _try(state, index, instance)
    if instance.has_several_parts and index not in state.climbed:
        state.climbed.add(index)
        _climb(state, index, instance)


def _pack(state: State, index: int, instance: Instance) -> None:
    """Pack single ranks exactly."""
    frontier = state.frontier
    key, limit = frontier.keys[index], frontier.limit_of(index)
    cutoff = limit if np.isfinite(limit) else key * (1.0 + _SHARPENING_REACH)
    reduced = reduction(instance, cutoff_seconds=cutoff, bounds=state.bounds.get(index))
    if reduced is None:
        frontier.push(index, cutoff)
        return
    deadline = time.perf_counter() + min(state.seconds_left, _SHARPENING_SECONDS)
    found = sharpened(instance, reduced, cutoff_seconds=cutoff, deadline=deadline)
    if found is None:
        frontier.push(index, key)
        return
    if found.assignment is not None:
        offer(state, index, instance, found.assignment)
    if found.bounds is None:
        frontier.push(index, cutoff)
        return
    if cutoff == limit:
        state.bounds[index], state.tables[index] = found.bounds, found.tables
    frontier.push(index, min(found.bounds.step_seconds(), cutoff))


def _is_far(state: State, index: int, instance: Instance) -> bool:
    """Return whether a key is far below the limit, ranks are few, and nobody has branched on them.

    Then a look at the ranks apart may bring the key there at once.
    """
    key, limit = state.frontier.keys[index], state.frontier.limit_of(index)
    if not np.isfinite(limit) or index in state.branchings:
        return False
    if limit <= _FAR * key and not has_few_ranks(instance):
        return False
    return instance.stage_count * len(instance.free_kinds) <= _RANKS_LOOKED_AT


def _climb_in_order(state: State, index: int, instance: Instance) -> None:
    """Climb once where ranks hold one part each: before a solve, at once where much is open."""
    if index in state.climbed or instance.is_uniform or instance.stage_count == 1:
        return
    if instance.is_in_order:
        state.climbed.add(index)
        _climb(state, index, instance)


def _climb(state: State, index: int, instance: Instance) -> None:
    """Offer plans of cuts that are shared out, and of the way up from balanced ones."""
    if instance.is_in_order:
        plan = shared(instance)
        if plan is not None:
            offer(state, index, instance, plan)
    deadline = time.perf_counter() + min(state.seconds_left, _SHARPENING_SECONDS)
    cuts = starting_cuts(instance)
    found = None if cuts is None else climbed(instance, cuts, deadline=deadline)
    if found is not None:
        offer(state, index, instance, found)
