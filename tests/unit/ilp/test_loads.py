"""The least maximum, or sum, of ranks that share layers is that of every way to share them."""

from __future__ import annotations

from itertools import product

import numpy as np
import pytest

from planner.ilp.cut_point_graph import best_loads, least_maximum, moves_by_sums, steps_along
from planner.ilp.instance import Instance
from planner.ilp.stage_loads import Load
from tests.small_chains import seeded_instance


def random_tables(instance: Instance, random: np.random.Generator) -> list[dict[Load, float]]:
    """Some loads of every rank, each at a random cost."""
    most = [instance.kinds[k].count for k in instance.free_kinds]
    every = list(product(*(range(count + 1) for count in most)))
    return [
        {load: float(random.integers(1, 30)) for load in every if random.random() < 0.6}
        for _ in range(instance.stage_count)
    ]


def are_all(instance: Instance, loads: tuple[Load, ...]) -> bool:
    """Whether ranks hold all layers together."""
    totals = tuple(instance.kinds[k].count for k in instance.free_kinds)
    return tuple(map(sum, zip(*loads, strict=True))) == totals


@pytest.mark.parametrize("put_together", [np.add, np.maximum])
def test_the_best_loads_are_those_of_every_way_to_share(put_together: np.ufunc) -> None:
    random = np.random.default_rng(11)
    finite = 0
    for seed in range(150):
        instance = seeded_instance(seed)
        tables = random_tables(instance, random)
        if np.prod([float(len(table)) for table in tables]) > 20_000.0 or not all(tables):
            continue
        costs = {
            loads: float(
                put_together.reduce([t[load] for t, load in zip(tables, loads, strict=True)])
            )
            for loads in product(*tables)
            if are_all(instance, loads)
        }
        steps = steps_along(moves_by_sums(instance, [list(table) for table in tables]))
        assert (steps is None) == (not costs), seed
        if steps is None:
            continue
        finite += 1
        values = [np.array(list(table.values())) for table in tables]
        places = best_loads(steps, values, put_together=put_together)
        best = tuple(list(t)[place] for t, place in zip(tables, places, strict=True))
        assert costs[best] == min(costs.values())
        if put_together is np.maximum:
            assert least_maximum(steps, values) == costs[best]
    assert finite > 20
