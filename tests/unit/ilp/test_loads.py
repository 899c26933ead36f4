"""The least level of ranks that share layers is that of every way to share them."""

from __future__ import annotations

from itertools import accumulate, product

import numpy as np

from planner.ilp.instance import Instance
from planner.ilp.stage_loads import Load, least_level
from tests.small_chains import seeded_instance


def random_tables(instance: Instance, random: np.random.Generator) -> list[dict[Load, float]]:
    """Some loads of every rank, each at a random cost."""
    most = [instance.kinds[k].count for k in instance.free_kinds]
    every = list(product(*(range(count + 1) for count in most)))
    return [
        {load: float(random.integers(1, 30)) for load in every if random.random() < 0.6}
        for _ in range(instance.stage_count)
    ]


def may_follow(instance: Instance, loads: tuple[Load, ...]) -> bool:
    """Whether ranks hold all layers together, and what some cuts leave where order matters."""
    totals = tuple(instance.kinds[k].count for k in instance.free_kinds)
    sums = list(accumulate(loads, lambda a, b: tuple(x + y for x, y in zip(a, b, strict=True))))
    if sums[-1] != totals:
        return False
    if instance.is_uniform or not instance.is_in_order:
        return True
    prefixes = {tuple(row) for row in instance.prefix_counts[:, list(instance.free_kinds)].tolist()}
    return all(one in prefixes for one in sums)


def test_the_least_level_is_that_of_every_way_to_share() -> None:
    random = np.random.default_rng(11)
    finite = 0
    for seed in range(150):
        instance = seeded_instance(seed)
        tables = random_tables(instance, random)
        if np.prod([float(len(table)) for table in tables]) > 20_000.0:
            continue
        levels = {
            loads: max(table[load] for table, load in zip(tables, loads, strict=True))
            for loads in product(*tables)
            if may_follow(instance, loads)
        }
        level, loads = least_level(instance, tables)
        assert level == min(levels.values(), default=float("inf")), seed
        if np.isfinite(level):
            finite += 1
            assert levels[loads] == level
        else:
            assert loads == ()
    assert finite > 20
