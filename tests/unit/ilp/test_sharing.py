"""Cuts found by dynamic programming are the least of all cuts, and make plans that fit."""

from __future__ import annotations

from itertools import combinations, pairwise

import numpy as np

from planner.ilp.instance import evaluate, fits
from planner.ilp.sharing import least_cuts, least_level, shared
from tests.contract.test_optimum_equals_brute_force import assert_places_every_layer
from tests.oracle import least_step
from tests.small_chains import seeded_instance


def costs_of_cuts(costs: np.ndarray) -> dict[tuple[int, ...], list[float]]:
    """Return what every rank costs under every way to cut the chain."""
    stages, blocks, longest = costs.shape
    found = {}
    for inner in combinations(range(1, blocks), stages - 1):
        cuts = (0, *inner, blocks)
        lengths = [after - before for before, after in pairwise(cuts)]
        if max(lengths) <= longest:
            found[cuts] = [
                float(costs[rank, start, length - 1])
                for rank, (start, length) in enumerate(zip(cuts, lengths, strict=False))
            ]
    return found


def test_least_cuts_and_least_level_are_those_of_every_way_to_cut() -> None:
    random = np.random.default_rng(5)
    for _ in range(60):
        stages = int(random.integers(1, 5))
        blocks = int(random.integers(stages, 9))
        costs = random.integers(0, 50, (stages, blocks, int(random.integers(1, blocks + 1))))
        costs = np.where(random.random(costs.shape) < 0.2, np.inf, costs.astype(float))
        every = costs_of_cuts(costs)
        sums = {cuts: sum(own) for cuts, own in every.items()}
        least = min(sums.values(), default=float("inf"))
        found = least_cuts(costs)
        if found is None:
            assert least == float("inf")
        else:
            assert sums[found] == least
        assert least_level(costs) == min(map(max, every.values()), default=float("inf"))


def test_shared_plans_fit_place_every_layer_and_beat_no_optimum() -> None:
    found = best_found = 0
    for seed in range(400):
        instance = seeded_instance(seed)
        if instance.stage_count == 1 or not instance.is_in_order:
            continue
        plan = shared(instance)
        if plan is None:
            continue
        evaluation = evaluate(instance, plan)
        best = least_step(instance)
        assert fits(instance, evaluation)
        assert_places_every_layer(instance, plan)
        assert best is not None
        assert evaluation.step_seconds >= best * (1.0 - 1e-12)
        found += 1
        best_found += evaluation.step_seconds <= best * 1.001
    assert found > 30
    assert best_found > found / 4
