"""Climbing gives whole plans that fit, and no worse ones than where it starts."""

from __future__ import annotations

from planner.ilp.construction_heuristic import climbed, filling_of_cuts, starting_cuts
from planner.ilp.engine import Effort
from planner.ilp.instance import evaluate, fits
from tests.contract.test_optimum_equals_brute_force import assert_places_every_layer
from tests.oracle import least_step
from tests.small_chains import seeded_instance


def test_climbed_plans_fit_place_every_layer_and_beat_no_optimum() -> None:
    found = 0
    for seed in range(400):
        instance = seeded_instance(seed)
        cuts = starting_cuts(instance)
        if cuts is None or instance.stage_count == 1:
            continue
        plan = climbed(instance, cuts, effort=Effort())
        if plan is None:
            continue
        evaluation = evaluate(instance, plan)
        best = least_step(instance)
        if not fits(instance, evaluation):
            continue
        found += 1
        assert_places_every_layer(instance, plan)
        assert best is not None
        assert evaluation.step_seconds >= best * (1.0 - 1e-12)
    assert found > 30


def test_climbing_lowers_fills_and_the_largest_rank() -> None:
    """Their sum falls; a norm stands for the largest, off by the root of the ranks at most."""
    better = 0
    for seed in range(400):
        instance = seeded_instance(seed)
        cuts = starting_cuts(instance)
        if cuts is None or instance.stage_count == 1 or instance.extras is not None:
            continue
        start = filling_of_cuts(instance, cuts)
        plan = climbed(instance, cuts, effort=Effort())
        if not start.fits.all() or plan is None:
            continue
        top = filling_of_cuts(instance, plan.cuts)
        root = instance.stage_count ** (1.0 / 24.0)
        before = start.fill.sum() + start.omega.max()
        most = start.fill.sum() + start.omega.max() * root
        after = top.fill.sum() + top.omega.max()
        assert after <= most * (1.0 + 1e-9)
        better += bool(after < before * (1.0 - 1e-9))
    assert better > 0
