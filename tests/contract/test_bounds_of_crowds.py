"""Bounds of many instances below their limits exceed no plan that trying everything finds."""

from __future__ import annotations

from functools import cache

import numpy as np
import pytest

from planner.ilp.instance import Instance
from planner.ilp.joint_bounds import bounds_below
from planner.ilp.lagrangian_bound import memory_bound
from tests.draws import drawn, of_drawn
from tests.oracle import best_plan
from tests.small_chains import seeded_instance

ONE_OF = 18
SEEDS = drawn(range(2000), one_of=ONE_OF)
ROUNDING = 1.0 + 1e-9
FAR = 1000.0


@cache
def solved() -> tuple[list[Instance], np.ndarray]:
    """Instances of every sort with the step of the best plan of each, inf without any."""
    instances = [seeded_instance(seed) for seed in SEEDS]
    plans = [best_plan(instance) for instance in instances]
    return instances, np.array([np.inf if plan is None else plan.step_seconds for plan in plans])


@pytest.mark.parametrize("ratio", [1.0, 1.02, 1.3, 4.0])
def test_no_bound_below_a_limit_exceeds_the_optimum(ratio: float) -> None:
    """One above it would prune the best plan; limits at the optimum itself are the hardest."""
    instances, least = solved()
    limits = np.where(np.isfinite(least), ratio * least, FAR)
    bounds = bounds_below(instances, limits.tolist())
    assert (bounds <= limits).all()
    above = np.flatnonzero(bounds > least * ROUNDING)
    assert not len(above), f"instances {above[:5]}"


def test_limits_that_no_plan_is_below_are_reached_by_most_bounds() -> None:
    """By more than one configuration's bounds alone reach."""
    instances, least = solved()
    limits = np.where(np.isfinite(least), 0.95 * least, 0.0)
    instances = [one for one, limit in zip(instances, limits, strict=True) if limit]
    limits = limits[limits > 0.0]
    alone = np.array([memory_bound(instance) for instance in instances])
    is_closed = bounds_below(instances, limits.tolist()) >= limits
    assert is_closed.mean() > 0.55
    assert is_closed.mean() > (alone >= limits).mean() + 0.25


def test_instances_without_any_plan_are_nearly_all_recognised() -> None:
    instances, least = solved()
    none = [instance for instance, step in zip(instances, least, strict=True) if np.isinf(step)]
    assert len(none) > of_drawn(400, one_of=ONE_OF)
    bounds = bounds_below(none, [FAR] * len(none))
    assert (bounds == FAR).mean() > 0.9


def test_bounds_do_not_depend_on_who_else_is_in_the_crowd() -> None:
    instances, least = solved()
    limits = np.where(np.isfinite(least), 1.05 * least, FAR).tolist()
    together = bounds_below(instances, limits)
    for place in range(0, len(instances), 7):
        alone = bounds_below([instances[place]], [limits[place]])
        assert alone[0] == pytest.approx(together[place], rel=1e-12), f"instance {place}"


def test_nobody_has_no_bounds() -> None:
    assert len(bounds_below([], [])) == 0
