"""Limits of V and U that ways leave hold the best plan, and sketches are plans like any other."""

from __future__ import annotations

import numpy as np
import pytest

from planner.ilp.branching import Branching
from planner.ilp.instance import Assignment, Instance, evaluate
from planner.ilp.settling import branching_of
from planner.ilp.sketching import sketched
from tests.draws import drawn
from tests.oracle import least_step
from tests.small_chains import seeded_instance

ONE_OF = 3
BLOCKS = pytest.mark.parametrize("block", drawn(range(6), one_of=ONE_OF))
WIDTH = 100
ROUNDING = 1.0 + 1e-9


def whole(seed: int, above: float) -> tuple[Instance, Branching, float] | None:
    """An instance with what is to be looked into above its best step, and that step."""
    instance = seeded_instance(seed)
    step = least_step(instance)
    if step is None:
        return None
    branching = branching_of(instance, cutoff_seconds=step * (1.0 + above))
    if branching is None or not branching.waiting:
        return None
    return instance, branching, step


def best_of(branching: Branching) -> Assignment | None:
    """What branching ends with."""
    for _ in range(400):
        if not branching.waiting or not np.isfinite(branching.lower()):
            break
        branching.run(seconds=0.0)
    return branching.assignment


@BLOCKS
def test_the_limits_hold_the_best_plan(block: int) -> None:
    looked_at = 0
    for seed in range(WIDTH * block, WIDTH * (block + 1)):
        known = whole(seed, 0.2)
        if known is None:
            continue
        instance, branching, step = known
        _, region = branching.waiting.pop()
        branching.push(region)
        box, fill_sum = region.box, branching.fill_sum
        best = best_of(branching)
        assert best is not None
        found = evaluate(instance, best)
        assert found.step_seconds == pytest.approx(step, rel=1e-9)
        pace, end = instance.repeat_count * found.pace.max(), found.end.max()
        assert box.least_pace <= pace * ROUNDING
        assert box.least_end <= end * ROUNDING
        assert box.least_both <= (pace + end) * ROUNDING
        assert pace <= box.most_pace * ROUNDING
        assert end <= box.most_end * ROUNDING
        assert fill_sum <= (step - pace - end) * ROUNDING + 1e-9 * step
        looked_at += 1
    assert looked_at > 10


@BLOCKS
def test_sketches_hold_every_layer_once_and_beat_no_optimum(block: int) -> None:
    seen = 0
    for seed in range(WIDTH * block, WIDTH * (block + 1)):
        known = whole(seed, 0.5)
        if known is None:
            continue
        instance, branching, step = known
        decomposition, region = branching.decomposition, branching.waiting.pop()[1]
        bounded = decomposition.bounded(region.weights, region.box, region.allowed)
        for path, counts in sketched(instance, decomposition, bounded):
            held = [own[load] for own, load in zip(branching.loads, path, strict=True)]
            free = len(instance.free_kinds)
            placed = np.sum([load[:free] for load in held], axis=0)
            assert placed.tolist() == [instance.kinds[k].count for k in instance.free_kinds]
            parts = [
                rank.parts(own.astype(np.float64))
                for rank, own in zip(decomposition.ranks, counts, strict=True)
            ]
            sketch = sum(part.fill for part in parts)
            sketch += instance.repeat_count * max(part.pace for part in parts)
            sketch += max(part.end for part in parts)
            if instance.is_in_order or instance.extras is not None:
                assert sketch >= step * (1.0 - 1e-9)
            seen += 1
    assert seen > 10
