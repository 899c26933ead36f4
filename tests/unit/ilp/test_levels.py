"""Levels of chains small enough to be cut by hand."""

from __future__ import annotations

from collections.abc import Iterator, Sequence
from dataclasses import replace
from itertools import product

import numpy as np
import pytest

from planner.ilp.instance import Instance, Kind
from planner.ilp.lagrangian_bound import (
    ChainLevels,
    PoolLevels,
    PricedChain,
    everything,
    intersected,
    levels_of,
    objective_bounds,
    windows_at,
)

Table = Sequence[Sequence[float]]


def a_kind(count: int, ranks: int, pinned: int | None = None) -> Kind:
    """Layers without any numbers: the prices of the chain have those."""
    none = np.zeros((ranks, 1))
    columns = ("pace", "fill", "end", "memory", "transient", "host", "kept")
    return Kind(count=count, pinned_stage=pinned, choice=(0,), **dict.fromkeys(columns, none))


def a_chain(
    prices: Sequence[Table],
    offset: Table,
    *,
    chain: Sequence[tuple[int, int]],
    holders: tuple[int, ...] | None = None,
) -> PricedChain:
    """Prices of each kind [ranks][grid] and offsets [ranks][grid]; `chain` names kinds from 0."""
    ranks = len(offset)
    places = holders or tuple(range(ranks))
    counts = [sum(n for k, n in chain if k == kind) for kind in range(len(prices))]
    nothing = np.zeros(ranks)
    instance = Instance(
        repeat_count=1.0,
        stage_pace=nothing,
        stage_fill=nothing,
        stage_bytes=nothing,
        stage_end=nothing,
        capacity_bytes=nothing + 1.0,
        host_capacity_bytes=nothing,
        least_blocks=len(places) // ranks,
        holders=places,
        kinds=(
            a_kind(1, ranks, pinned=places[0]),
            *(a_kind(count, ranks) for count in counts),
            a_kind(1, ranks, pinned=places[-1]),
        ),
        chain=tuple((kind + 1, count) for kind, count in chain),
    )
    grid = np.array(offset, dtype=np.float64)
    free = [np.array(price, dtype=np.float64)[:, :, None] for price in prices]
    edge = np.zeros((*grid.shape, 1))
    return PricedChain(instance=instance, prices=(edge, *free, edge), offset=grid)


def alike(price: float, ranks: int) -> Table:
    """One price on every rank, at one grid point."""
    return [[price]] * ranks


def least_reached(chain: PricedChain, level: float) -> bool:
    """Whether chains have windows at a level, and none at any lower one."""
    levels = levels_of(chain)
    return levels.windows(level) is not None and levels.windows(0.99 * level) is None


def test_seven_layers_on_three_ranks_make_one_of_three() -> None:
    chain = a_chain([alike(2.0, 3)], alike(0.0, 3), chain=[(0, 7)])
    assert isinstance(levels_of(chain), ChainLevels)
    assert levels_of(chain).least_level <= 6.0
    assert least_reached(chain, 6.0)


def test_a_heavy_offset_takes_layers_from_its_rank() -> None:
    """Rank 0 starts at 4: of 5 layers of 2 it holds 1 (6) and rank 1 four (8), not 2 and 3."""
    assert least_reached(a_chain([alike(2.0, 2)], [[4.0], [0.0]], chain=[(0, 5)]), 8.0)


def test_a_faster_rank_takes_more_layers() -> None:
    """Layers of 3 and of 1: two and six make 6 and 6."""
    chain = a_chain([[[3.0], [1.0]]], alike(0.0, 2), chain=[(0, 8)])
    assert levels_of(chain).least_level == 6.0
    assert least_reached(chain, 6.0)


def test_every_rank_holds_a_layer_for_each_of_its_virtual_stages() -> None:
    """Two each, whatever the offset: 10 + 2."""
    chain = a_chain([alike(1.0, 2)], [[10.0], [0.0]], chain=[(0, 6)], holders=(0, 1, 1, 0))
    assert levels_of(chain).least_level == 12.0


def test_the_least_sum_puts_layers_where_they_are_cheapest() -> None:
    """Three of four layers on the rank of 1, where the other needs one of 3: no less than 4."""
    chain = a_chain([[[3.0], [1.0]]], alike(0.0, 2), chain=[(0, 4)])
    assert 4.0 <= levels_of(chain).least_sum() <= 6.0


def test_the_dearest_grid_point_counts() -> None:
    """Four layers cost 4 x 1 at the first point and 4 x 2 - 3 at the second."""
    chain = a_chain([[[1.0, 2.0]]], [[0.0, -3.0]], chain=[(0, 4)])
    assert levels_of(chain).least_level == 5.0
    assert least_reached(chain, 5.0)


def test_kinds_keep_their_order() -> None:
    """1, 1, 9, 1 on two ranks: under 10 the 9 has one neighbour at most, under 9.5 none."""
    chain = a_chain([alike(1.0, 2), alike(9.0, 2)], alike(0.0, 2), chain=[(0, 2), (1, 1), (0, 1)])
    levels = levels_of(chain)
    assert isinstance(levels, ChainLevels)
    assert levels.least_level <= 10.0
    windows = levels.windows(10.0)
    assert windows is not None
    assert windows.cuts is not None
    assert windows.cuts.tolist() == [[0, 2, 4], [0, 2, 4]]
    assert levels.windows(9.5) is None


def test_a_rank_that_cannot_take_the_next_layer_is_not_proof() -> None:
    """Filled greedily, rank 0 takes all light layers and rank 1 meets one too heavy for it.

    With two light layers on each of the first ranks and the heavy ones on the last, all is under
    12: a bound that refused this would prune the optimum.
    """
    chain = a_chain(
        [alike(1.0, 3), [[15.0], [10.0], [5.0]]],
        [[3.0], [4.0], [1.0]],
        chain=[(0, 4), (1, 2)],
    )
    assert levels_of(chain).windows(12.0) is not None


def test_what_no_cut_allows_is_refused() -> None:
    """3, 3, 4, 4 on two ranks: 3 + 3 and 8, or more."""
    chain = a_chain([alike(3.0, 2), alike(4.0, 2)], alike(0.0, 2), chain=[(0, 2), (1, 2)])
    assert levels_of(chain).windows(8.0) is not None
    assert levels_of(chain).windows(7.9) is None


def test_ranks_with_virtual_stages_share_kinds_as_they_like() -> None:
    """Four layers of 1 and four of 3 on two ranks weigh 8 each at the best."""
    chain = a_chain(
        [alike(1.0, 2), alike(3.0, 2)], alike(0.0, 2), chain=[(0, 4), (1, 4)], holders=(0, 1, 0, 1)
    )
    levels = levels_of(chain)
    assert isinstance(levels, PoolLevels)
    assert levels.least_level == 8.0
    assert levels.least_sum() == 16.0
    assert levels.windows(7.9) is None


def shared_out(counts: Sequence[int], ranks: int) -> Iterator[np.ndarray]:
    """All ways to share layers out, [ranks, kinds], two blocks at the least on each rank."""
    ways = [
        [held for held in product(range(count + 1), repeat=ranks) if sum(held) == count]
        for count in counts
    ]
    for chosen in product(*ways):
        held = np.array(chosen).T
        if (held.sum(axis=1) >= 2).all():
            yield held


@pytest.mark.parametrize("seed", range(150))
def test_no_way_to_share_kinds_is_below_the_level_or_outside_the_windows(seed: int) -> None:
    """By all ways, on two or three ranks of two virtual stages each."""
    numbers = np.random.default_rng(seed)
    ranks, kinds, grid = numbers.integers(2, 4), numbers.integers(1, 4), numbers.integers(1, 3)
    counts = numbers.integers(1, 4, size=kinds)
    counts[0] += max(2 * ranks - counts.sum(), 0)
    prices = numbers.integers(0, 12, size=(kinds, ranks, grid)).astype(float)
    offset = numbers.integers(-15, 10, size=(ranks, grid)).astype(float)
    chain = a_chain(
        prices.tolist(),
        offset.tolist(),
        chain=[(k, int(count)) for k, count in enumerate(counts)],
        holders=(*range(ranks), *range(ranks)),
    )
    every = list(shared_out(counts.tolist(), ranks))
    largest = [
        float((offset + np.einsum("rk,krg->rg", held, prices)).max(axis=1).max()) for held in every
    ]
    assert levels_of(chain).least_level <= min(largest)
    level = sorted(largest)[len(largest) // 2]
    windows = levels_of(chain).windows(level)
    assert windows is not None
    for held, own in zip(every, largest, strict=True):
        if own <= level:
            blocks = held.sum(axis=1)
            assert (windows.sure[:, 1:-1] <= held).all()
            assert (held <= windows.room[:, 1:-1]).all()
            assert ((windows.least <= blocks) & (blocks <= windows.most)).all()


def test_whole_layers_of_the_dearest_kind_raise_a_level() -> None:
    """Of three layers of 10 one of two ranks has two, beside one of 1 or none."""
    chain = a_chain(
        [alike(10.0, 2), alike(1.0, 2)], alike(0.0, 2), chain=[(0, 3), (1, 2)], holders=(0, 1, 0, 1)
    )
    assert levels_of(chain).least_level == 20.0
    windows = levels_of(chain).windows(21.0)
    assert windows is not None
    assert windows.room[:, 1].tolist() == [2, 2]
    assert windows.sure[:, 1].tolist() == [1, 1]


def test_one_rank_holds_all_layers_wherever_the_chain_is_cut() -> None:
    """What a window at cuts leaves of one without is all of it."""
    instance = a_chain([alike(1.0, 1)], alike(0.0, 1), chain=[(0, 4)]).instance
    windows = intersected(windows_at(instance, (0, 4)), everything(instance), instance)
    assert windows is not None
    assert windows.sure[0, 1] == windows.room[0, 1] == 4


def test_what_spares_fill_and_adds_to_the_end_is_bounded_together() -> None:
    """Two ranks, the second four times as fast, hold 10 blocks of one of two choices.

    On the first a block takes 1 of fill and 8 at the end, or 3 and 0.4; on the second 1 and 2, or 2
    and 0.1. Fills alone are 10, and the largest end 0.8: 1/5 of 10 times 0.4, or 4/5 of 10 times
    0.1. With these shares of the ends a block takes 2.6 or 2.08: 20.8 in all on the second.
    """
    fill, end = np.array([[1.0, 3.0], [1.0, 2.0]]), np.array([[8.0, 0.4], [2.0, 0.1]])
    nothing, free = np.zeros(2), a_kind(1, 2)
    empty = np.zeros((2, 2))
    blocks = replace(
        free,
        count=10,
        choice=(0, 1),
        **dict.fromkeys(("pace", "memory", "transient", "host", "kept"), empty),
        fill=fill,
        end=end,
    )
    instance = replace(
        a_chain([alike(0.0, 2)], alike(0.0, 2), chain=[(0, 10)]).instance,
        repeat_count=0.0,
        host_capacity_bytes=nothing,
    )
    bounds = objective_bounds(
        replace(instance, kinds=(instance.kinds[0], blocks, instance.kinds[2]))
    )
    assert bounds is not None
    assert (bounds.fill_sum, bounds.omega) == pytest.approx((10.0, 0.8))
    assert bounds.step_seconds() == pytest.approx(20.8)
