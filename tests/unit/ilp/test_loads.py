"""What ranks may hold of each kind of layers, and what is best where they share them as they like.

The least maximum, or sum, is that of every way to share.
"""

from __future__ import annotations

from itertools import product

import numpy as np
import pytest

from planner.ilp.cut_point_graph import best_loads, least_maximum, moves_by_sums, rank_moves_along
from planner.ilp.instance import Instance
from planner.ilp.lagrangian_bound import everything
from planner.ilp.stage_loads import Load, held_of
from tests.small_chains import seeded_instance
from tests.unit.ilp.test_cuts_of_several_parts import an_instance


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
        rank_moves = rank_moves_along(moves_by_sums(instance, [list(table) for table in tables]))
        assert (rank_moves is None) == (not costs), seed
        if rank_moves is None:
            continue
        finite += 1
        values = [np.array(list(table.values())) for table in tables]
        places = best_loads(rank_moves, values, put_together=put_together)
        best = tuple(list(t)[place] for t, place in zip(tables, places, strict=True))
        assert costs[best] == min(costs.values())
        if put_together is np.maximum:
            assert least_maximum(rank_moves, values) == costs[best]
    assert finite > 20


def test_a_load_of_twelve_kinds_is_told_from_one_with_a_layer_more() -> None:
    """63 blocks in order on two ranks: 62 places of the cut, each with loads of its own.

    With 64^11 for the last kind's layer, which is 0 in 64 bits, a cut before the only one and a cut
    behind it would be the same.
    """
    instance = an_instance((0, 1), [0] * 30 + [11] + [0] * 22 + list(range(1, 11)))
    held = held_of(instance, everything(instance), most=1000)
    assert held is not None
    assert [len(own) for own in held] == [62, 62]


def test_ranks_share_eighty_layers_of_twelve_kinds() -> None:
    """One has all of the first kind, the other one of each: there is this way and no other."""
    instance = an_instance((0, 1, 0, 1), [0] * 69 + list(range(1, 12)))
    loads = [[(69, *[0] * 11)], [(0, *[1] * 11)]]
    rank_moves = rank_moves_along(moves_by_sums(instance, loads))
    assert rank_moves is not None
    assert best_loads(rank_moves, [np.zeros(1), np.zeros(1)]) == (0, 0)


@pytest.mark.parametrize("holders", [(0, 1), (0, 1, 0, 1)])
def test_more_kinds_than_64_bits_tell_apart_are_too_many(holders: tuple[int, ...]) -> None:
    """70 kinds of one layer have 2^70 loads."""
    instance = an_instance(holders, list(range(70)))
    assert held_of(instance, everything(instance), most=10**9) is None
