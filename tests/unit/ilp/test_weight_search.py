"""The weights of a decomposition, and the small programs that find them."""

from __future__ import annotations

import numpy as np
import pytest

from planner.ilp.branch_and_bound import Branching, Region, branching_of
from planner.ilp.lagrangian_decomposition import Master, WeightSearch
from planner.ilp.problem import Effort
from tests.draws import drawn
from tests.oracle import least_step
from tests.small_chains import seeded_instance

ONE_OF = 5
FAR = 1.3


def test_a_master_is_solved_again_with_every_row() -> None:
    """Maximise x + y with x + 2y <= 4 and 3x + y <= 6 ends in (1.6, 1.2); y <= 1 moves it."""
    master = Master(np.array([1.0, 1.0]), least=np.zeros(2), most=np.full(2, np.inf))
    assert master.best() is None
    master.require(np.array([1.0, 2.0]), 4.0)
    master.require(np.array([3.0, 1.0]), 6.0)
    value, columns = master.best() or (0.0, np.zeros(2))
    assert value == pytest.approx(2.8)
    assert columns.tolist() == pytest.approx([1.6, 1.2])
    master.require(np.array([0.0, 1.0]), 1.0)
    value, _ = master.best() or (0.0, np.zeros(2))
    assert value == pytest.approx(1.0 + 5.0 / 3.0)


def _whole(seed: int) -> tuple[Branching, Region, float] | None:
    """Return a branching far above the best plan with its one region, and the best step."""
    instance = seeded_instance(seed)
    step = least_step(instance)
    if step is None:
        return None
    branching = branching_of(instance, cutoff_seconds=FAR * step)
    if branching is None or not branching.waiting:
        return None
    return branching, branching.waiting.pop()[2], step


@pytest.mark.parametrize("block", drawn(range(10), one_of=ONE_OF))
def test_no_weights_bound_a_plan_from_above(block: int) -> None:
    """However good the weights, the best plan of an instance is no less than their bound."""
    looked_at = 0
    for seed in range(60 * block, 60 * block + 60):
        known = _whole(seed)
        if known is None:
            continue
        looked_at += 1
        branching, region, step = known
        decomposition = branching.decomposition
        search = WeightSearch(decomposition=decomposition, box=region.box, allowed=region.allowed)
        start = decomposition.bounded(region.weights, region.box, region.allowed)
        found = search.best(start, target=branching.limit, rounds=24, effort=Effort())
        assert start.lower <= found.lower
        assert min(found.lower, branching.limit) <= step * (1.0 + 1e-9)
    assert looked_at > 10


def test_planes_find_better_weights_than_even_ones() -> None:
    """Over many instances a good part of what even weights leave below the best plan is closed."""
    left_before, left_after = 0.0, 0.0
    for seed in drawn(range(150), one_of=ONE_OF):
        known = _whole(seed)
        if known is None:
            continue
        branching, region, step = known
        search = WeightSearch(
            decomposition=branching.decomposition, box=region.box, allowed=region.allowed
        )
        start = branching.decomposition.bounded(region.weights, region.box, region.allowed)
        found = search.best(start, target=branching.limit, rounds=24, effort=Effort())
        left_before += 1.0 - min(start.lower / step, 1.0)
        left_after += 1.0 - min(found.lower / step, 1.0)
    assert left_after < 0.8 * left_before
