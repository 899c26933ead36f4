"""What enumeration settles is what trying everything finds, and it settles most.

It leaves alone chains whose cuts differ in what travels over them.
"""

from __future__ import annotations

from collections import Counter

import pytest

from planner.ilp.instance import evaluate, fits
from planner.ilp.optimise import enumerated
from planner.ilp.reduction import reduction
from planner.ilp.sharpening import sharpened
from planner.ilp.solver import SolverName, Status
from tests.contract.test_optimum_equals_brute_force import assert_places_every_layer
from tests.draws import drawn, of_drawn
from tests.oracle import least_step
from tests.small_chains import seeded_instance

ONE_OF = 3
SEEDS = drawn(range(250), one_of=ONE_OF)


@pytest.mark.parametrize("solver", list(SolverName))
@pytest.mark.parametrize("above", [0.0, 0.02, 0.5])
def test_enumeration_finds_the_optimum_below_a_cutoff(solver: SolverName, above: float) -> None:
    """At the optimum, a little above it and far above it; with the exact packings and without."""
    seen: Counter[str] = Counter()
    for seed in SEEDS[:: 5 if solver is SolverName.CBC else 1]:
        instance = seeded_instance(seed)
        best = least_step(instance)
        if best is None or instance.extras is not None:
            continue
        cutoff = best * (1.0 + above)
        reduced = reduction(instance, cutoff_seconds=cutoff)
        assert reduced is not None
        sharp = sharpened(instance, reduced, cutoff_seconds=cutoff) if seed % 2 else None
        found = enumerated(
            instance,
            cutoff_seconds=cutoff,
            solver=solver,
            tables=None if sharp is None else sharp.tables,
        )
        seen["settled" if found else "left"] += 1
        if found is None:
            continue
        assert found.status is Status.OPTIMAL
        assert found.assignment is not None
        assert_places_every_layer(instance, found.assignment)
        evaluation = evaluate(instance, found.assignment)
        assert fits(instance, evaluation)
        assert evaluation.step_seconds == pytest.approx(best, rel=1e-9)
    assert seen["settled"] > 4 * seen["left"]


@pytest.mark.parametrize("below", [1e-6, 0.01])
def test_enumeration_finds_nothing_below_the_optimum(below: float) -> None:
    settled = 0
    for seed in SEEDS:
        instance = seeded_instance(seed)
        best = least_step(instance)
        if best is None or instance.extras is not None:
            continue
        found = enumerated(instance, cutoff_seconds=best * (1.0 - below), solver=SolverName.HIGHS)
        if found is not None:
            settled += 1
            assert found.status is Status.INFEASIBLE
    assert settled > of_drawn(100, one_of=ONE_OF)
