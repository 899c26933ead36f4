"""Annealed plans fit, beat no optimum, and mostly are the best that filling makes of any cuts."""

from __future__ import annotations

from collections.abc import Iterator

from planner.ilp.annealing import annealed
from planner.ilp.climbing import starting_cuts
from planner.ilp.heuristic import filling_of_cuts
from planner.ilp.instance import Assignment, Instance, evaluate, fits
from tests.contract.test_optimum_equals_brute_force import assert_places_every_layer
from tests.draws import drawn, of_drawn
from tests.oracle import every_cut, least_step
from tests.small_chains import seeded_instance

MOVES = 40_000
FOREVER = float("inf")
ONE_OF = 3
WEIGHTS = (1.0, 0.3, 0.1)


def instances_with_parts() -> Iterator[tuple[int, Instance]]:
    """Instances whose ranks hold two parts of a chain of several kinds."""
    for seed in drawn(range(600), one_of=ONE_OF):
        instance = seeded_instance(seed)
        if instance.has_several_parts and instance.stage_count > 1:
            yield seed, instance


def least_of_fillings(instance: Instance) -> float:
    """The least step of fillings that fit, over all ways to cut the chain."""
    steps = []
    for cuts in every_cut(instance.block_count, len(instance.holders)):
        for weight in (*WEIGHTS, 1.0 / instance.stage_count):
            filling = filling_of_cuts(instance, cuts, weight=weight)
            evaluation = evaluate(instance, Assignment(counts=filling.counts, cuts=cuts))
            if fits(instance, evaluation):
                steps.append(evaluation.step_seconds)
    return min(steps, default=float("inf"))


def test_annealed_plans_fit_beat_no_optimum_and_are_the_best_fillings() -> None:
    found = same = 0
    for seed, instance in instances_with_parts():
        cuts, best = starting_cuts(instance), least_step(instance)
        if cuts is None or best is None:
            continue
        plan = annealed(
            instance, cuts, limit_seconds=1.5 * best, move_count=MOVES, deadline=FOREVER
        )
        if plan is None:
            continue
        found += 1
        evaluation = evaluate(instance, plan)
        assert fits(instance, evaluation), seed
        assert_places_every_layer(instance, plan)
        assert evaluation.step_seconds >= best * (1.0 - 1e-12), seed
        least = least_of_fillings(instance)
        assert evaluation.step_seconds >= least * (1.0 - 1e-12), seed
        same += evaluation.step_seconds <= least * (1.0 + 1e-12)
    assert found > of_drawn(60, one_of=ONE_OF)
    assert same > 0.9 * found


def test_the_same_seed_gives_the_same_plan() -> None:
    _, instance = next(instances_with_parts())
    cuts = starting_cuts(instance)
    best = least_step(instance)
    assert cuts is not None
    assert best is not None
    plans = [
        annealed(
            instance, cuts, limit_seconds=2.0 * best, move_count=MOVES, deadline=FOREVER, seed=3
        )
        for _ in range(2)
    ]
    assert plans[0] is not None
    assert plans[1] is not None
    assert plans[0].cuts == plans[1].cuts


def test_a_deadline_that_is_over_leaves_the_first_cuts() -> None:
    found = 0
    for _, instance in instances_with_parts():
        cuts, best = starting_cuts(instance), least_step(instance)
        if cuts is None or best is None:
            continue
        plan = annealed(instance, cuts, limit_seconds=2.0 * best, move_count=MOVES, deadline=0.0)
        if plan is not None:
            found += 1
            assert plan.cuts == cuts
    assert found > of_drawn(20, one_of=ONE_OF)
