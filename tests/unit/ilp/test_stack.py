"""No bound of a load on a rank exceeds what all ways to hold it cost."""

from __future__ import annotations

from dataclasses import replace

import numpy as np
import pytest

from planner.ilp.instance import Instance
from planner.ilp.joint_bounds import Cost, Likeness, Stack, layout_of
from planner.ilp.lagrangian_decomposition import rank_of
from tests.small_chains import seeded_instance
from tests.unit.ilp.random_ranks import all_ways

ROUNDING = 1e-9
LAYERS_MOST = 5


def least_costs(instance: Instance, rank: int, load: tuple[int, ...]) -> dict[str, float]:
    """The least fill, pace, end and omega of all ways to hold a load, inf where none fits."""
    every = [np.full(kind.pace.shape, 99) for kind in instance.kinds]
    ways = list(all_ways(rank_of(instance, rank, loads=[load], most=every)))
    repeats = instance.repeat_count
    parts = {
        "fill": [way.fill for way in ways],
        "pace": [repeats * way.pace for way in ways],
        "end": [way.end for way in ways],
        "both": [repeats * way.pace + way.end for way in ways],
    }
    return {name: min(values, default=np.inf) for name, values in parts.items()}


def costs_of(stack: Stack) -> dict[str, Cost]:
    return {
        "fill": stack.fills(),
        "pace": stack.paces(),
        "end": stack.ends(),
        "both": stack.both(),
    }


@pytest.mark.parametrize("seed", range(120))
def test_bounds_of_loads_exceed_no_way_to_hold_them(seed: int) -> None:
    """And those with all transients eased do not exceed the others."""
    instance = replace(seeded_instance(seed), extras=None)
    layout = layout_of(Likeness.of(instance))
    assert layout is not None
    stack = Stack.of([instance, instance])
    loads = layout.loads[layout.loads.sum(axis=1) <= LAYERS_MOST]
    for rank in range(instance.stage_count):
        exact = [least_costs(instance, rank, tuple(load)) for load in loads.tolist()]
        member = np.full(len(loads), instance.stage_count + rank)
        for name, cost in costs_of(stack).items():
            (found,) = stack.tables([stack.priced(cost)], member, loads)
            least = np.array([each[name] for each in exact])
            assert (found <= least + ROUNDING * np.abs(least)).all()
        eased = stack.eased()
        for name, cost in costs_of(eased).items():
            linear = eased.priced(cost).linear(loads)[instance.stage_count + rank]
            (table,) = stack.tables([stack.priced(costs_of(stack)[name])], member, loads)
            assert (linear <= table + ROUNDING * np.abs(table)).all()


def test_bounds_of_loads_are_near_the_least_and_know_what_does_not_fit() -> None:
    ratios, agreed, count = [], 0, 0
    for seed in range(120):
        instance = replace(seeded_instance(seed), extras=None)
        layout = layout_of(Likeness.of(instance))
        assert layout is not None
        stack = Stack.of([instance])
        few = layout.loads[layout.loads.sum(axis=1) <= LAYERS_MOST]
        member = np.zeros(len(few), dtype=np.int64)
        (found,) = stack.tables([stack.priced(stack.both())], member, few)
        least = np.array([least_costs(instance, 0, tuple(load))["both"] for load in few.tolist()])
        fits = np.isfinite(least)
        ratios += (found[fits] / np.maximum(least[fits], 1e-9)).tolist()
        agreed, count = agreed + int((np.isfinite(found) == fits).sum()), count + len(few)
    assert np.mean(ratios) > 0.9
    assert agreed > 0.9 * count


def test_rows_without_some_choices_are_those_instances_without_them() -> None:
    """Rows keep their order, and bounds rise where choices are left out."""
    instances = [seeded_instance(3)] * 3
    stack = Stack.of(instances)
    layout = layout_of(Likeness.of(instances[0]))
    assert layout is not None
    none = (np.zeros(len(stack.free.member), dtype=bool), np.zeros(len(stack.pinned.member), bool))
    some = stack.of_rows(np.array([0, 2]), none)
    alone = Stack.of(instances[:2])
    assert some.shape == alone.shape
    assert (some.free.member == alone.free.member).all()
    assert (some.fits(layout.loads) == alone.fits(layout.loads)).all()
    dead = (stack.free.memory < np.median(stack.free.memory), none[1])
    lean = stack.of_rows(np.array([0, 1, 2]), dead)
    before, after = (
        each.priced(each.both()).least[..., -1, 0].sum(axis=1) for each in (stack, lean)
    )
    assert (after >= before).all()
    assert (after > before).any()
