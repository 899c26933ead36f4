"""What branching on ranks settles is what trying everything finds, and its bounds never exceed it.

It leaves alone chains whose cuts differ in what travels over them where ranks hold several parts,
which `test_cuts_that_differ_equal_brute_force` has.
"""

from __future__ import annotations

from collections import Counter
from dataclasses import replace

import pytest

from planner.ilp.branch_and_bound import Branching, branching_of
from planner.ilp.instance import Instance, evaluate, fits
from planner.ilp.problem import Effort, Outcome
from tests.contract.test_optimum_equals_brute_force import assert_places_every_layer
from tests.draws import drawn, of_drawn
from tests.oracle import least_step
from tests.small_chains import seeded_instance

ONE_OF = 7
SEEDS = drawn(range(200), one_of=ONE_OF)
TURNS_MOST = 60


def is_left_alone(instance: Instance) -> bool:
    """Return whether branching says that it cannot be done."""
    has_cuts = instance.is_in_order and len(instance.free_kinds) > 1
    return instance.extras is not None and not has_cuts


def run_to_the_end(branching: Branching, best: float) -> Outcome:
    """Turns of one look each until nothing is left; no bound on the way exceeds the best step.

    The outcome has the last plan that a turn has found.
    """
    plan = None
    for _ in range(TURNS_MOST):
        outcome = branching.run(limit=float("inf"), enough=float("inf"), effort=Effort(most=0.0))
        assert outcome.bound_seconds <= best * (1.0 + 1e-9)
        plan = outcome.assignment or plan
        if outcome.is_done or outcome.is_stuck:
            break
    return replace(outcome, assignment=plan)


def assert_found_the_best(instance: Instance, outcome: Outcome, best: float) -> None:
    """What was found is a plan that fits, as fast as the best, and the bound is its step."""
    assert outcome.assignment is not None
    assert_places_every_layer(instance, outcome.assignment)
    evaluation = evaluate(instance, outcome.assignment)
    assert fits(instance, evaluation)
    assert evaluation.step_seconds == pytest.approx(best, rel=1e-9)
    assert outcome.bound_seconds == evaluation.step_seconds


@pytest.mark.parametrize("above", [0.0, 0.02, 0.5])
def test_branching_finds_the_optimum_below_a_cutoff(above: float) -> None:
    """At the optimum, a little above it and far above it."""
    seen: Counter[bool] = Counter()
    for seed in SEEDS:
        instance = seeded_instance(seed)
        best = least_step(instance)
        if best is None or is_left_alone(instance):
            continue
        branching = branching_of(instance, cutoff_seconds=best * (1.0 + above))
        assert branching is not None
        outcome = run_to_the_end(branching, best)
        seen[outcome.is_done] += 1
        if outcome.is_done:
            assert_found_the_best(instance, outcome, best)
    assert seen[True] > 9 * seen[False]


def test_branching_finds_the_optimum_where_nothing_is_repeated() -> None:
    """Fills and ends are all of a step there."""
    settled = 0
    for seed in SEEDS:
        instance = replace(seeded_instance(seed), repeat_count=0.0)
        best = least_step(instance)
        if best is None or is_left_alone(instance):
            continue
        branching = branching_of(instance, cutoff_seconds=best * 1.5)
        assert branching is not None
        outcome = run_to_the_end(branching, best)
        if outcome.is_done:
            settled += 1
            assert_found_the_best(instance, outcome, best)
    assert settled > of_drawn(20, one_of=ONE_OF)


@pytest.mark.parametrize("below", [1e-6, 0.01])
def test_branching_finds_nothing_below_the_optimum(below: float) -> None:
    settled = 0
    for seed in SEEDS:
        instance = seeded_instance(seed)
        best = least_step(instance)
        if best is None or is_left_alone(instance):
            continue
        branching = branching_of(instance, cutoff_seconds=best * (1.0 - below))
        assert branching is not None
        outcome = run_to_the_end(branching, best)
        assert outcome.assignment is None, f"instance {seed}"
        settled += outcome.is_done
    assert settled > of_drawn(40, one_of=ONE_OF)


def test_the_same_effort_gives_the_same_answer_whenever_it_is_given() -> None:
    """Work is counted: turns of the same effort end where they ended before."""
    for seed in SEEDS[:20]:
        instance = seeded_instance(seed)
        best = least_step(instance)
        if best is None or is_left_alone(instance):
            continue
        ends = []
        for _ in range(2):
            branching = branching_of(instance, cutoff_seconds=1.5 * best)
            assert branching is not None
            effort = Effort(most=5000.0)
            outcome = branching.run(limit=1.5 * best, enough=float("inf"), effort=effort)
            ends.append((outcome.bound_seconds, outcome.is_done, effort.spent))
        assert ends[0] == ends[1], f"instance {seed}"
