"""What settles ranks of several parts finds what trying everything finds, where cuts differ.

That is branching on loads with their edges, and placing where these are too many. Their bounds
never exceed the optimum on the way, and windows of the cuts lose no plan.
"""

from __future__ import annotations

from collections import Counter
from collections.abc import Callable
from functools import cache

import numpy as np
import pytest

from planner.ilp.branching import Branching
from planner.ilp.instance import Instance
from planner.ilp.places import at_cuts, everywhere, halves, placed
from planner.ilp.placing import Placing, placing_of
from planner.ilp.settling import branching_of
from tests.contract.test_branching_equals_brute_force import assert_found_the_best
from tests.draws import drawn, of_drawn
from tests.oracle import least_step
from tests.small_chains import seeded_instance

ONE_OF = 3
SEEDS = drawn(range(1200), one_of=ONE_OF)
ROUNDS_MOST = 400

Settle = Callable[[Instance, float], Branching | Placing]


@cache
def several_parts() -> list[tuple[int, Instance, float]]:
    """Return the instances with a plan whose ranks hold several parts and whose cuts differ."""
    found = []
    for seed in SEEDS:
        instance = seeded_instance(seed)
        if instance.extras is None or instance.is_in_order:
            continue
        best = least_step(instance)
        if best is not None:
            found.append((seed, instance, best))
    return found


def branched(instance: Instance, cutoff_seconds: float) -> Branching:
    """Branching on loads with their edges, of which there are few here."""
    found = branching_of(instance, cutoff_seconds=cutoff_seconds)
    assert found is not None
    return found


def placed_by_windows(instance: Instance, cutoff_seconds: float) -> Placing:
    return placing_of(instance, cutoff_seconds=cutoff_seconds)


WAYS = pytest.mark.parametrize("settle", [branched, placed_by_windows])


@WAYS
@pytest.mark.parametrize("above", [0.0, 0.02, 0.5])
def test_the_optimum_is_found_below_a_cutoff(settle: Settle, above: float) -> None:
    seen: Counter[str] = Counter()
    for seed, instance, best in several_parts():
        found = settle(instance, best * (1.0 + above))
        for _ in range(ROUNDS_MOST):
            if not np.isfinite(found.lower()) or not found.waiting:
                break
            assert found.lower() <= best * (1.0 + 1e-9), f"instance {seed}"
            found.run(seconds=0.0)
        seen["left" if np.isfinite(found.lower()) else "settled"] += 1
        if np.isfinite(found.lower()):
            continue
        assert_found_the_best(instance, found, best)
    assert seen["settled"] > max(9 * seen["left"], of_drawn(40, one_of=ONE_OF))


@WAYS
@pytest.mark.parametrize("below", [1e-6, 0.01])
def test_nothing_is_found_below_the_optimum(settle: Settle, below: float) -> None:
    settled = 0
    for seed, instance, best in several_parts():
        found = settle(instance, best * (1.0 - below))
        for _ in range(ROUNDS_MOST):
            if not np.isfinite(found.lower()) or not found.waiting:
                break
            found.run(seconds=0.0)
        assert found.assignment is None, f"instance {seed}"
        settled += not np.isfinite(found.lower())
    assert settled > of_drawn(40, one_of=ONE_OF)


def test_windows_that_are_split_hold_every_cut_once() -> None:
    """All cuts of a chain lie in exactly one of the windows that splitting to the end leaves."""
    generator = np.random.default_rng(0)
    tried = 0
    for _, instance, _ in several_parts():
        leaves, waiting = [], [everywhere(instance)]
        while waiting:
            places = waiting.pop()
            parts = halves(instance, places)
            if parts is None:
                leaves.append(places)
            else:
                waiting += [part for part in parts if (part[0] <= part[1]).all()]
        inner = np.arange(1, instance.block_count)
        for _ in range(20):
            chosen = np.sort(generator.choice(inner, len(instance.holders) - 1, replace=False))
            cuts = np.array([0, *chosen, instance.block_count])
            inside = [((part[0] <= cuts) & (cuts <= part[1])).all() for part in leaves]
            assert sum(inside) == 1
            tried += 1
    assert tried > of_drawn(500, one_of=ONE_OF)


def test_a_cut_adds_in_its_windows_no_more_than_where_it_is() -> None:
    generator = np.random.default_rng(1)
    for _, instance, _ in several_parts():
        wide = placed(instance, everywhere(instance))
        inner = np.arange(1, instance.block_count)
        chosen = np.sort(generator.choice(inner, len(instance.holders) - 1, replace=False))
        exact = at_cuts(instance, (0, *chosen.tolist(), instance.block_count))
        for name in ("stage_pace", "stage_fill", "stage_bytes"):
            assert (getattr(wide, name) <= getattr(exact, name) + 1e-12).all()
            assert (getattr(instance, name) <= getattr(wide, name) + 1e-12).all()
