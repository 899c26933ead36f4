"""Solving: one configuration to the end, by enumeration, branching on ranks and programs in turns.

A solve's cutoff is a little above the configuration's key; when nothing lies below it, the cutoff
becomes the key and the next one is further.
"""

from __future__ import annotations

import time

import numpy as np

from planner.ilp.annealing import annealed
from planner.ilp.branching import Branching
from planner.ilp.climbing import starting_cuts
from planner.ilp.instance import Instance
from planner.ilp.offering import offer
from planner.ilp.optimise import Optimum, enumerated, optimise
from planner.ilp.placing import Placing, placing_of
from planner.ilp.settling import branching_of
from planner.ilp.solver import Status
from planner.ilp.state import State

STEP_MOST = 100.0
_FIRST_STEP = 0.01
_STEP_GROWTH = 3.0
_CLOSER = 0.125
_ENUMERATION_SECONDS = 1.5
_ENUMERATION_OF_CHUNKS_SECONDS = 0.4
_TOO_FAR_MOST = 3
_NEARER = 0.7
_FIRST_PATIENCE = 0.6
_BRANCHING_PATIENCE = 1.5
_PATIENCE_GROWTH = 4.0
_LEFT_MOST = 0.5
_RISE_LEAST = 0.01
_FEW_RANKS = 6
_MANY_RANKS = 24
_JOINED_MOST = 8
_NEAR = 1.004
_FAR_OFF = 1.25
_ANNEALED_FROM = 1.002
_MOVES = 40_000
_ANNEALING_SECONDS_MOST = 1.0
_ANNEALING_AFTER_SECONDS = 1.0
_ANNEALING_SHARE = 0.1


def solve(state: State, index: int) -> None:
    """Look for a plan of the configuration below a cutoff; its key rises if there is none.

    Where ranks are not too many branching is first, elsewhere enumeration. Where that is too far,
    branching goes on as long as it closes half of the gap in its time and its packings are not too
    hard; then a program has a turn, each with more time than the last one had. Where ranks hold
    several parts of a chain of several kinds, cuts are annealed now and then, and programs are of
    no use as long as ranks can be branched on.
    """
    instance = state.pricing.instance(index)
    state.solved.add(index)
    state.turns[index] = state.turns.get(index, -1) + 1
    has_parts = instance.has_several_parts
    if has_parts:
        _anneal(state, index, instance)
    is_stalled = index in state.stalled
    is_first = has_parts or _branches_first(state, index, instance)
    if is_first and not is_stalled and _branch_on_ranks(state, index, instance):
        return
    if not _joins(state, index, instance):
        cutoff, optimum = _enumerate(state, index, instance)
        if optimum is not None:
            _conclude(state, index, cutoff, optimum)
            return
    state.stalled.discard(index)
    may_branch = is_stalled if has_parts else not (is_first or is_stalled)
    if not (may_branch and _branch_on_ranks(state, index, instance)):
        _program(state, index, instance)


def anneal_first(state: State, index: int, instance: Instance) -> None:
    """Offer a plan of annealed cuts before anything else where the best known may be far off.

    What ranks may hold in plans below it would be much. It is done once in a search.
    """
    limit = state.frontier.limit_of(index)
    is_far = instance.has_several_parts and limit > _FAR_OFF * state.frontier.keys[index]
    if is_far and np.isfinite(limit) and state.annealing_seconds == 0.0:
        _offer_annealed(state, index, instance)


def _anneal(state: State, index: int, instance: Instance) -> None:
    """Offer a plan of annealed cuts, where that takes a small share of a search that is long."""
    frontier = state.frontier
    limit = frontier.limit_of(index)
    is_near = not np.isfinite(limit) or limit <= _ANNEALED_FROM * frontier.keys[index]
    elapsed = time.perf_counter() - state.started
    most = _ANNEALING_SHARE * (elapsed - _ANNEALING_AFTER_SECONDS)
    if not is_near and state.annealing_seconds <= most:
        _offer_annealed(state, index, instance)


def _offer_annealed(state: State, index: int, instance: Instance) -> None:
    started, cuts = time.perf_counter(), starting_cuts(instance)
    if cuts is None:
        return
    found = annealed(
        instance,
        cuts,
        limit_seconds=state.frontier.limit_of(index),
        move_count=_MOVES,
        seed=state.turns.get(index, 0),
        deadline=started + min(state.seconds_left, _ANNEALING_SECONDS_MOST),
    )
    if found is not None:
        offer(state, index, instance, found)
    state.annealing_seconds += time.perf_counter() - started


def has_few_ranks(instance: Instance) -> bool:
    """Return whether branching on ranks is quicker than anything else."""
    return 1 < instance.stage_count <= _FEW_RANKS


def _branches_first(state: State, index: int, instance: Instance) -> bool:
    """Return whether branching is likely to be quicker than enumeration.

    It is unless ranks are many, or more than few with a key so near the limit that their patterns
    are few.
    """
    if has_few_ranks(instance):
        return True
    frontier = state.frontier
    is_near = frontier.limit_of(index) <= _NEAR * frontier.keys[index]
    return _FEW_RANKS < instance.stage_count <= _MANY_RANKS and not is_near


def _branch_on_ranks(state: State, index: int, instance: Instance) -> bool:
    """Branch on what ranks hold for a turn; return whether that can be done."""
    frontier = state.frontier
    known = state.branchings.get(index)
    is_stuck = known is not None and not known.waiting
    if is_stuck:
        return False
    key = frontier.keys[index]
    patience = _BRANCHING_PATIENCE * _PATIENCE_GROWTH ** state.branched.get(index, 0)
    started = time.perf_counter()
    if not decompose(state, index, instance, seconds=patience):
        return False
    limit = frontier.limit_of(index)
    is_over_time = time.perf_counter() - started >= patience
    left = limit - frontier.keys[index]
    if _is_stuck(state, index) or (is_over_time and left > _LEFT_MOST * (limit - key)):
        state.stalled.add(index)
        if not instance.has_several_parts:
            state.branched[index] = state.branched.get(index, 0) + 1
    if index in state.branchings and frontier.keys[index] - key <= _RISE_LEAST * (limit - key):
        frontier.postpone(index)
    return True


def _is_stuck(state: State, index: int) -> bool:
    """Return whether branching came upon packings that are too hard."""
    known = state.branchings.get(index)
    return isinstance(known, Branching) and known.is_stuck


def _joins(state: State, index: int, instance: Instance) -> bool:
    """Return whether branching finds the best of certain loads from fronts, not from patterns."""
    known = state.branchings.get(index)
    is_known = isinstance(known, Branching) and known.fill_shares is not None
    return is_known and instance.stage_count <= _JOINED_MOST


def decompose(state: State, index: int, instance: Instance, *, seconds: float) -> bool:
    """Branch on what ranks hold for some time; return whether that can be done.

    The key rises to what is proven; where nothing is left, to the best plan or to the limit.
    """
    frontier = state.frontier
    limit = frontier.limit_of(index)
    known = state.branchings.get(index)
    before = None if known is None else known.assignment
    if known is None:
        if not np.isfinite(limit):
            return False
        known = _branching(state, index, instance, cutoff_seconds=limit)
        if known is None:
            return False
        state.branchings[index] = known
    known.limit = min(known.limit, limit)
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
    if not known.is_taken and known.assignment is not None:
        state.leave_open(index, known.assignment)
    return True


def _branching(
    state: State, index: int, instance: Instance, *, cutoff_seconds: float
) -> Branching | Placing | None:
    """Return what there is to look into below a cutoff, by what ranks hold and where cuts lie."""
    found = branching_of(
        instance,
        cutoff_seconds=cutoff_seconds,
        bounds=state.bounds.get(index),
        tables=state.tables.get(index),
        seconds=state.seconds_left,
    )
    if found is None and instance.extras is not None and not instance.is_in_order:
        return placing_of(instance, cutoff_seconds=cutoff_seconds)
    return found


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
        if not taken and optimum.assignment is not None:
            state.leave_open(index, optimum.assignment)
    elif optimum.status is Status.INFEASIBLE:
        state.step[index] = state.step.get(index, _FIRST_STEP) * _STEP_GROWTH
        frontier.push(index, cutoff)
    else:
        state.patience[index] = state.patience.get(index, _FIRST_PATIENCE) * _PATIENCE_GROWTH
        frontier.wait(index, key)


def _cutoff(state: State, index: int, step: float) -> float:
    """Return how far above its key a configuration is solved, the limit at most."""
    key = state.frontier.keys[index]
    reach = key * (1.0 + step) if step < STEP_MOST else float("inf")
    return min(reach, state.frontier.limit_of(index))


def _enumerate(state: State, index: int, instance: Instance) -> tuple[float, Optimum | None]:
    """Return what enumeration says below a cutoff, or below a closer one if that is too far.

    Where it was too far several times, or took long, the configuration is branched on ever after.
    A lone rank is: packing it has said what there is to say.
    """
    is_apt = instance.stage_count > 1 and instance.extras is None
    while is_apt and state.too_far.get(index, 0) < _TOO_FAR_MOST:
        cutoff = _cutoff(state, index, state.step.get(index, _FIRST_STEP))
        seconds = _enumeration_seconds(state, index, instance)
        if not np.isfinite(cutoff) or seconds <= 0.0:
            break
        if _is_as_far(state, index, cutoff):
            _come_closer(state, index, cutoff)
            continue
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
        state.in_vain[index] = cutoff
        _come_closer(state, index, cutoff)
    return float("inf"), None


def _come_closer(state: State, index: int, cutoff: float) -> None:
    """Take note that a cutoff was too far; the next one is closer, unless it was so often."""
    state.too_far[index] = state.too_far.get(index, 0) + 1
    closer = (cutoff / state.frontier.keys[index] - 1.0) * _CLOSER
    state.step[index] = closer if state.too_far[index] < _TOO_FAR_MOST else _FIRST_STEP


def _is_as_far(state: State, index: int, cutoff: float) -> bool:
    """Return whether a cutoff is about as far above the first bound as one that was too far.

    How many patterns there are depends on that, and not on what branching has proven since.
    """
    bounds = state.bounds.get(index)
    if bounds is None or index not in state.in_vain:
        return False
    first = bounds.step_seconds()
    return cutoff - first > _NEARER * (state.in_vain[index] - first)


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


def _enumeration_seconds(state: State, index: int, instance: Instance) -> float:
    """Return how long a configuration may be enumerated from here on.

    Where ranks hold several parts of the chain, sweeps are dear: they get less at a time, so that
    branching has its turn.
    """
    most = _ENUMERATION_SECONDS
    if instance.has_several_parts:
        most = min(most, _ENUMERATION_OF_CHUNKS_SECONDS * (state.turns[index] + 1))
    return min(most - state.spent.get(index, 0.0), state.seconds_left)
