"""Limits of V and U that ways leave hold the best plan."""

from __future__ import annotations

import pytest

from planner.ilp.branch_and_bound import Branching, branching_of
from planner.ilp.instance import Instance, evaluate
from tests.contract.test_branching_equals_brute_force import is_left_alone, run_to_the_end
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
    if step is None or is_left_alone(instance):
        return None
    branching = branching_of(instance, cutoff_seconds=step * (1.0 + above))
    if branching is None or not branching.waiting:
        return None
    return instance, branching, step


@BLOCKS
def test_the_limits_hold_the_best_plan(block: int) -> None:
    looked_at = 0
    for seed in range(WIDTH * block, WIDTH * (block + 1)):
        known = whole(seed, 0.2)
        if known is None:
            continue
        instance, branching, step = known
        _, _, region = branching.waiting.pop()
        branching.push(region)
        box, fill_sum = region.box, branching.fill_sum
        best = run_to_the_end(branching, step).assignment
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
