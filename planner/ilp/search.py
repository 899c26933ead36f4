"""Search: the best plan over all configurations, with proof.

Configurations wait under a lower bound of their step (`planner.ilp.frontier`). The least key is
always the next to be refined, and the search ends when it is no less than the best plan known:
nothing left can beat it. A solve's cutoff is a little above the key; when nothing lies below it,
the cutoff becomes the key and the next one is further.
"""

from __future__ import annotations

import time
from collections.abc import Callable

import numpy as np

from planner.ilp.bounds import objective_bounds
from planner.ilp.climbing import climbed, starting_cuts
from planner.ilp.frontier import Frontier, Stage
from planner.ilp.heuristic import heuristic_assignment
from planner.ilp.instance import Instance
from planner.ilp.offering import offer
from planner.ilp.optimise import Optimum, enumerated, optimise
from planner.ilp.pricing import Pricing, alike
from planner.ilp.problem import Problem
from planner.ilp.reduction import reduction
from planner.ilp.reporting import DEGREES, found_of, shortfalls
from planner.ilp.result import NotFound, SearchResult
from planner.ilp.scouting import scout
from planner.ilp.settling import branching_of
from planner.ilp.sharpening import sharpened
from planner.ilp.solver import SolverName, Status, default_solver
from planner.ilp.state import State
from planner.schema.progress import Progress
from planner.space.choices import block_choices, edge_choices
from planner.space.degrees import enumerate_configurations

ProgressCallback = Callable[[Progress], None]

_FIRST_STEP = 0.01
_STEP_GROWTH = 3.0
_STEP_MOST = 100.0
_CLOSER = 0.125
_ENUMERATION_SECONDS = 1.5
_TOO_FAR_MOST = 3
_FIRST_PATIENCE = 1.0
_BRANCHING_PATIENCE = 1.5
_TURNS_BEFORE_SUMS = 2
_PATIENCE_GROWTH = 4.0
_FAR = 1.05
_RANKS_LOOKED_AT = 32
_SHARPENING_REACH = 0.05
_SHARPENING_SECONDS = 0.4
_SCREENED_AT_ONCE = 256
_SCREENED_BELOW_LIMIT = 512
_SCREENED_REACH = 1.25
_PREPARED_AT_ONCE = 64
_LARGE_SPACE = 8192
_PROGRESS_SECONDS = 0.1


def search(
    problem: Problem,
    *,
    on_progress: ProgressCallback | None = None,
    solver: SolverName | None = None,
    stop_at_first: bool = False,
    cutoff_seconds: float | None = None,
    group_count: int = 1,
) -> SearchResult:
    """Return the fastest strategy of the job's space with its certificate, or what is missing.

    The same request gives the same answer, but for what a time limit cuts short. Whoever only asks
    whether anything fits stops at the first plan. With `cutoff_seconds`, slower plans do not count.
    `group_count` asks for as many plans of different degrees, each the best of its own.

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
    is_large = len(configurations) > _LARGE_SPACE
    state = State(
        problem=problem,
        pricing=pricing,
        configurations=configurations,
        frontier=Frontier(
            keys=(pricing.rough_bounds() if is_large else pricing.quick_bounds()).tolist(),
            refine=pricing.quick_bounds_of_alike if is_large else None,
            groups=alike(configurations, DEGREES)[1].tolist(),
            cutoff_seconds=float("inf") if cutoff_seconds is None else cutoff_seconds,
            group_count=group_count,
        ),
        solver=solver or default_solver(),
        started=started,
        choices=choices,
        edges=edges,
    )
    proven = _refine(state, on_progress, stop_at_first=stop_at_first)
    if state.frontier.best:
        return found_of(state, as_found=stop_at_first)
    is_asked_why = not stop_at_first and cutoff_seconds is None
    return NotFound(
        configurations_total=len(configurations),
        refused=space.refused,
        shortfalls=shortfalls(state) if proven and is_asked_why else (),
        proven=proven,
        lower_bound_seconds=min(state.frontier.lower_bound(), state.frontier.cutoff_seconds),
    )


def _refine(state: State, on_progress: ProgressCallback | None, *, stop_at_first: bool) -> bool:
    """Refine the least key; return whether nothing that is left can beat the best plan."""
    told = 0.0
    frontier = state.frontier
    while (least := (first := frontier.pop()) or frontier.pop_waiting()) is not None:
        key, index = least
        if state.seconds_left <= 0.0 or (stop_at_first and frontier.best):
            frontier.push(index, key)
            return False
        now = time.perf_counter()
        if on_progress is not None and now - told > _PROGRESS_SECONDS:
            told = now
            on_progress(_progress(state, key))
        if stop_at_first and first is not None and frontier.stages[index] >= Stage.BOUNDED:
            frontier.wait(index, key)
        else:
            _refine_one(state, index, is_any_welcome=stop_at_first)
    return True


def _refine_one(state: State, index: int, *, is_any_welcome: bool) -> None:
    """Take a configuration one stage further.

    Where any plan will do, however slow, a closer bound is no use: what the heuristic has no plan
    for waits until it was tried on all others, and is solved without a cutoff.
    """
    stage = state.frontier.stages[index]
    is_unlimited = is_any_welcome and not np.isfinite(state.frontier.limit_seconds())
    if stage is Stage.QUICK:
        _screen(state, index)
    elif stage is Stage.SCREENED:
        _bound(state, index)
        if not is_any_welcome:
            scout(state, _bound)
    elif stage is Stage.BOUNDED and not is_unlimited:
        _sharpen(state, index)
    else:
        if is_unlimited:
            state.step.setdefault(index, _STEP_MOST)
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


def _screen(state: State, index: int) -> None:
    """Replace the quick bounds of this configuration and of those next to it in order.

    Those with the same prices, if their bounds are not far off, are screened with them.
    """
    frontier = state.frontier
    is_limited = np.isfinite(frontier.limit_seconds())
    count = _SCREENED_BELOW_LIMIT if is_limited else _SCREENED_AT_ONCE
    indices = [index, *frontier.pop_quick(count - 1)]
    alike_priced = state.pricing.priced_alike(indices)
    others = frontier.quick_of(alike_priced, _SCREENED_REACH * frontier.keys[index])
    indices = list(dict.fromkeys([*indices, *others]))
    limits = frontier.limits_of(indices)
    bounds = state.pricing.memory_bounds(indices, limit_seconds=limits)
    for place, bound in zip(indices, bounds, strict=True):
        frontier.stages[place] = Stage.SCREENED
        if np.isfinite(bound):
            frontier.push(place, float(bound))
            state.screened.append(place)
        else:
            frontier.keys[place] = float("inf")


def _bound(state: State, index: int) -> None:
    """Replace the screen's bound by the configuration's own, and try the heuristic."""
    frontier = state.frontier
    frontier.stages[index] = Stage.BOUNDED
    if not state.pricing.is_at_hand(index):
        state.pricing.prepare([index, *frontier.next_indices(_PREPARED_AT_ONCE, Stage.SCREENED)])
    instance = state.pricing.instance(index)
    limit = frontier.limit_of(index)
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
    if bounds.step_seconds() < limit:
        tried = heuristic_assignment(instance)
        if tried is not None:
            offer(state, index, instance, tried[1])
    frontier.push(index, bounds.step_seconds())


def _sharpen(state: State, index: int) -> None:
    """Pack single ranks exactly, for a closer bound and a better plan below the limit.

    Where the key is far below the limit, a look at the ranks apart may bring it there at once.
    """
    frontier = state.frontier
    key, limit = frontier.keys[index], frontier.limit_of(index)
    instance = state.pricing.instance(index)
    is_far = np.isfinite(limit) and limit > _FAR * key and index not in state.branchings
    is_small = instance.stage_count * len(instance.free_kinds) <= _RANKS_LOOKED_AT
    if is_far and is_small and _decompose(state, index, instance, seconds=0.0):
        return
    frontier.stages[index] = Stage.SHARPENED
    cutoff = limit if np.isfinite(limit) else key * (1.0 + _SHARPENING_REACH)
    reduced = reduction(instance, cutoff_seconds=cutoff, bounds=state.bounds.get(index))
    if reduced is None:
        frontier.push(index, cutoff)
        return
    deadline = time.perf_counter() + min(state.seconds_left, _SHARPENING_SECONDS)
    if not instance.is_uniform and instance.stage_count > 1:
        _climb(state, index, instance, deadline)
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


def _climb(state: State, index: int, instance: Instance, deadline: float) -> None:
    """Offer the best plan on the way up from balanced cuts."""
    cuts = starting_cuts(instance)
    found = None if cuts is None else climbed(instance, cuts, deadline=deadline)
    if found is not None:
        offer(state, index, instance, found)


def _solve(state: State, index: int) -> None:
    """Look for a plan of the configuration below a cutoff; its key rises if there is none.

    Where enumeration is too far, branching and a program take turns, each with more time than the
    last one had.
    """
    instance = state.pricing.instance(index)
    state.solved.add(index)
    turn = state.turns[index] = state.turns.get(index, -1) + 1
    cutoff, optimum = _enumerate(state, index, instance)
    if optimum is not None:
        _conclude(state, index, cutoff, optimum)
    elif turn % 2 == 1 or not _branch_on_ranks(state, index, instance):
        _program(state, index, instance)


def _branch_on_ranks(state: State, index: int, instance: Instance) -> bool:
    """Branch on what ranks hold for a turn; return whether that can be done.

    Where ranks are not in the chain's order the sums of what they hold leave its order aside, and
    programs go first.
    """
    frontier = state.frontier
    known = state.branchings.get(index)
    is_stuck = known is not None and not known.waiting
    is_along = instance.is_uniform or instance.is_in_order
    if is_stuck or not (is_along or state.turns[index] >= _TURNS_BEFORE_SUMS):
        return False
    key = frontier.keys[index]
    patience = _BRANCHING_PATIENCE * _PATIENCE_GROWTH ** state.branched.get(index, 0)
    state.branched[index] = state.branched.get(index, 0) + 1
    if not _decompose(state, index, instance, seconds=patience):
        return False
    if index in state.branchings and frontier.keys[index] <= key:
        frontier.postpone(index)
    return True


def _decompose(state: State, index: int, instance: Instance, *, seconds: float) -> bool:
    """Branch on what ranks hold for some time; return whether that can be done.

    The key rises to what is proven; where nothing is left, to the best plan or to the limit.
    """
    frontier = state.frontier
    limit = frontier.limit_of(index)
    known = state.branchings.get(index)
    if known is None:
        if not np.isfinite(limit):
            return False
        bounds, tables = state.bounds.get(index), state.tables.get(index)
        known = branching_of(instance, cutoff_seconds=limit, bounds=bounds, tables=tables)
        if known is None:
            return False
        state.branchings[index] = known
    known.limit, before = min(known.limit, limit), known.assignment
    known.run(seconds=min(seconds, state.seconds_left), enough=frontier.next_key())
    if known.assignment is not None and known.assignment is not before:
        known.is_taken = offer(state, index, instance, known.assignment)
    lower = known.lower()
    if np.isfinite(lower):
        frontier.push(index, lower)
        return True
    del state.branchings[index]
    if known.best_seconds > known.limit:
        frontier.push(index, known.limit)
        return True
    frontier.keys[index] = max(frontier.keys[index], known.limit)
    state.exact.add(index)
    if not known.is_taken:
        frontier.leave_open(index)
    return True


def _program(state: State, index: int, instance: Instance) -> None:
    """Ask the solver for a plan below a cutoff."""
    state.step[index] = max(state.step.get(index, _FIRST_STEP), _FIRST_STEP)
    cutoff = _cutoff(state, index, state.step[index])
    optimum = _branch(state, index, instance, cutoff)
    if optimum.status is Status.FEASIBLE:
        state.too_far[index], state.spent[index] = _TOO_FAR_MOST - 1, 0.0
    _conclude(state, index, cutoff, optimum)


def _conclude(state: State, index: int, cutoff: float, optimum: Optimum) -> None:
    """Take note of what is known of the plans of a configuration below a cutoff."""
    frontier, instance = state.frontier, state.pricing.instance(index)
    key = frontier.keys[index]
    taken = True
    if optimum.assignment is not None:
        taken = offer(state, index, instance, optimum.assignment)
    if optimum.status is Status.OPTIMAL and optimum.step_seconds is not None:
        frontier.keys[index] = max(key, optimum.step_seconds)
        state.exact.add(index)
        if not taken:
            frontier.leave_open(index)
    elif optimum.status is Status.INFEASIBLE:
        state.step[index] = state.step.get(index, _FIRST_STEP) * _STEP_GROWTH
        frontier.push(index, cutoff)
    else:
        state.patience[index] = state.patience.get(index, _FIRST_PATIENCE) * _PATIENCE_GROWTH
        frontier.wait(index, key)


def _cutoff(state: State, index: int, step: float) -> float:
    """Return how far above its key a configuration is solved, the limit at most."""
    key = state.frontier.keys[index]
    reach = key * (1.0 + step) if step < _STEP_MOST else float("inf")
    return min(reach, state.frontier.limit_of(index))


def _enumerate(state: State, index: int, instance: Instance) -> tuple[float, Optimum | None]:
    """Return what enumeration says below a cutoff, or below a closer one if that is too far.

    Where it was too far several times, or took long, the configuration is branched on ever after.
    A lone rank is: packing it has said what there is to say.
    """
    while state.too_far.get(index, 0) < _TOO_FAR_MOST and instance.stage_count > 1:
        cutoff = _cutoff(state, index, state.step.get(index, _FIRST_STEP))
        seconds = min(_ENUMERATION_SECONDS - state.spent.get(index, 0.0), state.seconds_left)
        if not np.isfinite(cutoff) or seconds <= 0.0:
            break
        started = time.perf_counter()
        optimum = enumerated(
            instance,
            cutoff_seconds=cutoff,
            solver=state.solver,
            seconds=seconds,
            bounds=state.bounds.get(index),
            tables=state.tables.get(index),
        )
        state.spent[index] = state.spent.get(index, 0.0) + time.perf_counter() - started
        if optimum is not None:
            return cutoff, optimum
        state.too_far[index] = state.too_far.get(index, 0) + 1
        closer = (cutoff / state.frontier.keys[index] - 1.0) * _CLOSER
        state.step[index] = closer if state.too_far[index] < _TOO_FAR_MOST else _FIRST_STEP
    return float("inf"), None


def _branch(state: State, index: int, instance: Instance, cutoff: float) -> Optimum:
    """Return what the solver says of the configuration's program below a cutoff."""
    state.milp_count += 1
    return optimise(
        instance,
        cutoff_seconds=cutoff if np.isfinite(cutoff) else None,
        solver=state.solver,
        seconds=max(min(state.patience.get(index, _FIRST_PATIENCE), state.seconds_left), 0.05),
        bounds=state.bounds.get(index),
        tables=state.tables.get(index),
    )
