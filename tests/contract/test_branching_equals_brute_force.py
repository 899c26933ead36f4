"""What branching on ranks settles is what trying everything finds, and its bounds never exceed it.

It leaves alone chains whose cuts differ in what travels over them where ranks hold several parts,
which `test_placing_equals_brute_force` has.
"""

from __future__ import annotations

from collections import Counter
from dataclasses import replace
from typing import Any

import numpy as np
import pytest

from planner.ilp.branching import Branching
from planner.ilp.fronts import Front, StuckError
from planner.ilp.instance import Instance, evaluate, fits
from planner.ilp.placing import Placing
from planner.ilp.reduction import reduction
from planner.ilp.regions import is_about_ends
from planner.ilp.settling import branching_of
from planner.ilp.sharpening import sharpened
from tests.contract.test_optimum_equals_brute_force import assert_places_every_layer
from tests.draws import drawn, of_drawn
from tests.oracle import least_step
from tests.small_chains import seeded_instance

ONE_OF = 3
SEEDS = drawn(range(200), one_of=ONE_OF)
STEPS_MOST = 60


def branched(instance: Instance, cutoff: float, *, with_tables: bool = False) -> Branching | None:
    """Return the branching below a cutoff, with the exact packings or without."""
    reduced = reduction(instance, cutoff_seconds=cutoff)
    tables = None
    if with_tables and reduced is not None:
        sharp = sharpened(instance, reduced, cutoff_seconds=cutoff)
        tables = None if sharp is None or sharp.bounds is None else sharp.tables
    return branching_of(instance, cutoff_seconds=cutoff, tables=tables)


def is_left_alone(instance: Instance) -> bool:
    """Return whether branching says that it cannot be done."""
    has_cuts = instance.is_in_order and len(instance.free_kinds) > 1
    return instance.extras is not None and not has_cuts


def assert_found_the_best(instance: Instance, found: Branching | Placing, best: float) -> None:
    """What was found is a plan of the instance that fits, and as fast as the best."""
    assert found.assignment is not None
    assert_places_every_layer(instance, found.assignment)
    evaluation = evaluate(instance, found.assignment)
    assert fits(instance, evaluation)
    assert evaluation.step_seconds == pytest.approx(best, rel=1e-9)
    assert found.best_seconds == evaluation.step_seconds


@pytest.mark.parametrize("above", [0.0, 0.02, 0.5])
def test_branching_finds_the_optimum_below_a_cutoff(above: float) -> None:
    """At the optimum, a little above it and far above it; no bound on the way exceeds it."""
    seen: Counter[str] = Counter()
    for seed in SEEDS:
        instance = seeded_instance(seed)
        best = least_step(instance)
        if best is None or is_left_alone(instance):
            continue
        found = branched(instance, best * (1.0 + above), with_tables=bool(seed % 2))
        assert found is not None
        for _ in range(STEPS_MOST):
            if not np.isfinite(found.lower()):
                break
            assert found.lower() <= best * (1.0 + 1e-9), f"instance {seed}"
            if not found.waiting:
                break
            found.look()
        seen["settled" if not np.isfinite(found.lower()) else "left"] += 1
        if np.isfinite(found.lower()):
            continue
        assert_found_the_best(instance, found, best)
    assert seen["settled"] > 9 * seen["left"]


def test_branching_finds_the_optimum_where_nothing_is_repeated(
    monkeypatch: pytest.MonkeyPatch,
) -> None:
    """Sets of plans may be split by the largest end there before loads are certain."""
    splits: Counter[bool] = Counter()

    def counted(*given: Any, **limit: Any) -> bool:
        answer = is_about_ends(*given, **limit)
        splits[answer] += 1
        return answer

    monkeypatch.setattr("planner.ilp.regions.is_about_ends", counted)
    monkeypatch.setattr("planner.ilp.branching._EFFORT_OPEN", 1)
    monkeypatch.setattr("planner.ilp.regions._SPREAD_LEAST", -1.0)
    monkeypatch.setattr("planner.ilp.branching._PATTERNS_MOST", 0)
    for seed in SEEDS:
        instance = replace(seeded_instance(seed), repeat_count=0.0)
        best = least_step(instance)
        if best is None or is_left_alone(instance):
            continue
        found = branched(instance, best * 1.5)
        assert found is not None
        for _ in range(STEPS_MOST):
            if not (np.isfinite(found.lower()) and found.waiting):
                break
            assert found.lower() <= best * (1.0 + 1e-9), f"instance {seed}"
            found.look()
        if not np.isfinite(found.lower()):
            assert_found_the_best(instance, found, best)
    assert splits[True] > 0


@pytest.mark.parametrize("has_rivals", [False, True])
def test_hard_packings_are_put_aside_and_bounded_all_the_same(
    monkeypatch: pytest.MonkeyPatch, *, has_rivals: bool
) -> None:
    """Where the first effort is never enough, whether other configurations wait or not."""
    narrow = Front.narrow

    def reluctant(front: Front, place: int, end: float) -> None:
        if front.strength == 1:
            raise StuckError
        narrow(front, place, end)

    monkeypatch.setattr(Front, "narrow", reluctant)
    stuck = settled = 0
    for seed in SEEDS:
        instance = seeded_instance(seed)
        best = least_step(instance)
        if best is None or is_left_alone(instance):
            continue
        found = branched(instance, best * 1.5)
        assert found is not None
        for _ in range(STEPS_MOST):
            if not (np.isfinite(found.lower()) and found.waiting):
                break
            assert found.lower() <= best * (1.0 + 1e-9), f"instance {seed}"
            found.run(seconds=0.1, enough=best * 1.01 if has_rivals else float("inf"))
            assert not found.hard
            stuck += found.is_stuck
        if not np.isfinite(found.lower()):
            assert_found_the_best(instance, found, best)
            settled += 1
    assert stuck > 0
    assert settled > of_drawn(40, one_of=ONE_OF)


@pytest.mark.parametrize("below", [1e-6, 0.01])
def test_branching_finds_nothing_below_the_optimum(below: float) -> None:
    settled = 0
    for seed in SEEDS:
        instance = seeded_instance(seed)
        best = least_step(instance)
        if best is None or is_left_alone(instance):
            continue
        found = branched(instance, best * (1.0 - below))
        assert found is not None
        for _ in range(STEPS_MOST):
            if not found.waiting:
                break
            found.look()
        assert found.assignment is None, f"instance {seed}"
        settled += not np.isfinite(found.lower())
    assert settled > of_drawn(40, one_of=ONE_OF)
