"""What ways of many instances say of tables is what all their cuts say."""

from __future__ import annotations

from itertools import product

import numpy as np
import pytest

from planner.ilp import joint_bounds as crowd_ways
from planner.ilp.instance import Instance, load_of_cuts
from planner.ilp.joint_bounds import Layout, Likeness, layout_of, ways_of
from tests.oracle import every_cut
from tests.small_chains import seeded_instance

ROWS = 3
SEEDS = range(240)
Combined = list[tuple[int, ...]]


def cut_ways(instance: Instance, layout: Layout) -> Combined:
    """The loads of every way to cut the chain, by rank."""
    number = {tuple(load): place for place, load in enumerate(layout.loads.tolist())}
    cuts = every_cut(instance.block_count, len(instance.holders))
    held = (load_of_cuts(instance, each) for each in cuts)
    return [tuple(number[tuple(own)] for own in loads) for loads in held]


def sum_ways(layout: Layout) -> Combined:
    """The loads that add up to the chain, in whatever order."""
    by_rank = [np.flatnonzero(own).tolist() for own in layout.allowed]
    return [
        way
        for way in product(*by_rank)
        if (layout.loads[list(way)].sum(axis=0) == layout.counts).all()
    ]


def a_case(seed: int) -> tuple[Layout, Combined, np.ndarray, np.ndarray]:
    """A layout with its ways by hand, and random tables and masks of a few rows."""
    instance = seeded_instance(seed)
    layout = layout_of(Likeness.of(instance))
    assert layout is not None
    ways = cut_ways(instance, layout) if instance.is_in_order else sum_ways(layout)
    numbers = np.random.default_rng(seed)
    shape = (ROWS, *layout.allowed.shape)
    table = numbers.integers(0, 30, size=shape).astype(float)
    return layout, ways, table, layout.allowed & (numbers.random(shape) < 0.8)


def values(way: tuple[int, ...], row: int, table: np.ndarray) -> list[float]:
    return [float(table[row, rank, load]) for rank, load in enumerate(way)]


def left(ways: Combined, row: int, mask: np.ndarray) -> Combined:
    """The ways whose loads a mask has."""
    return [way for way in ways if all(values(way, row, mask))]


@pytest.mark.parametrize("seed", SEEDS)
def test_least_maxima_and_sums_are_those_of_all_ways(seed: int) -> None:
    """In rows with other masks; with each load of a rank as well."""
    layout, every, table, mask = a_case(seed)
    ways = ways_of(layout, mask)
    assert ways is not None
    highest, (sums, through) = ways.least_maximum(table), ways.sums_through(table)
    for row in range(ROWS):
        some = left(every, row, mask)
        parts = [values(way, row, table) for way in some]
        assert highest[row] == min(map(max, parts), default=np.inf)
        assert sums[row] == min(map(sum, parts), default=np.inf)
        expected = np.full(table.shape[1:], np.inf)
        for way, own in zip(some, parts, strict=True):
            for rank, load in enumerate(way):
                expected[rank, load] = min(expected[rank, load], sum(own))
        assert (through[row] == expected).all()


def test_cases_are_of_every_sort() -> None:
    """Else the test above would say little."""
    cases = [(seeded_instance(seed), *a_case(seed)) for seed in SEEDS]
    gone = sum(not left(ways, row, mask) for _, _, ways, _, mask in cases for row in range(ROWS))
    assert 100 < gone < 500
    assert sum(layout.between is None for _, layout, *_ in cases) > 20
    assert sum(one.is_in_order and len(one.free_kinds) > 1 for one, *_ in cases) > 30
    assert sum(one.stage_count > 2 for one, *_ in cases) > 30


def test_ways_that_are_too_many_are_not_looked_for(monkeypatch: pytest.MonkeyPatch) -> None:
    """Whether places along the chain are states or sums."""
    monkeypatch.setattr(crowd_ways, "JOINT_MOVES", 1)
    layouts = [a_case(seed)[0] for seed in SEEDS]
    large = [one for one in layouts if len(one.loads) > 1 and one.allowed.all(axis=1)[0]]
    assert {one.between is None for one in large} == {True, False}
    for layout in large:
        assert ways_of(layout, np.repeat(layout.allowed[None], ROWS, axis=0)) is None


def test_loads_that_are_too_many_have_no_layout(monkeypatch: pytest.MonkeyPatch) -> None:
    instance = next(i for i in map(seeded_instance, SEEDS) if i.block_count > i.stage_count > 1)
    layout_of.cache_clear()
    monkeypatch.setattr(crowd_ways, "JOINT_LOADS", 0)
    assert layout_of(Likeness.of(instance)) is None
    layout_of.cache_clear()
