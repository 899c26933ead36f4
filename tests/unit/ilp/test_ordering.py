"""Levels of ranks in the order of the chain, and what they hold, against all cuts."""

from __future__ import annotations

from collections.abc import Iterator
from dataclasses import dataclass
from itertools import combinations, pairwise

import numpy as np
import pytest

from planner.ilp.batched_chains import Ordered, Pools
from tests.draws import drawn, of_drawn

ONE_OF = 7
SEEDS = drawn(range(400), one_of=ONE_OF)
ROUNDING = 1e-6
INFINITE = np.array([np.inf])


@dataclass(frozen=True, slots=True, kw_only=True)
class Line:
    """One row: prices [kinds, groups, grid], offsets [groups, grid], and the group of each rank."""

    prices: np.ndarray
    offset: np.ndarray
    runs: tuple[tuple[int, int], ...]
    order: tuple[int, ...]

    @property
    def blocks(self) -> np.ndarray:
        """The kind of every block."""
        return np.repeat([kind for kind, _ in self.runs], [count for _, count in self.runs])

    def pools(self) -> Pools:
        """The same in pools."""
        kinds, groups = len(self.prices), len(self.offset)
        return Pools(
            prices=self.prices.swapaxes(1, 2)[..., None],
            offset=self.offset.T[..., None],
            counts=np.bincount(self.blocks, minlength=kinds),
            size=np.bincount(self.order, minlength=groups).astype(float)[:, None],
            least=np.ones(1),
        )

    def ordered(self, *, is_in_order: bool = True) -> Ordered:
        """The pools, with a place behind the last rank."""
        order = np.array([*self.order, -1])[:, None]
        nothing = np.full_like(order, -1)
        return Ordered(pools=self.pools(), runs=self.runs, order=order if is_in_order else nothing)

    def cuts(self) -> Iterator[tuple[int, ...]]:
        """All places of cuts that leave every rank a block."""
        total = len(self.blocks)
        for inner in combinations(range(1, total), len(self.order) - 1):
            yield (0, *inner, total)

    def held(self, cuts: tuple[int, ...]) -> np.ndarray:
        """The blocks of each kind on every rank, [ranks, kinds]."""
        blocks, kinds = self.blocks, len(self.prices)
        return np.array([np.bincount(blocks[a:b], minlength=kinds) for a, b in pairwise(cuts)])

    def phi(self, cuts: tuple[int, ...]) -> np.ndarray:
        """What every rank costs, [ranks]."""
        group = list(self.order)
        each = self.offset[group] + np.einsum("rk,krg->rg", self.held(cuts), self.prices[:, group])
        return np.asarray(each.max(axis=1))


def line(seed: int) -> Line:
    """Two or three kinds in runs on two to four ranks in up to three groups; prices may be 0."""
    numbers = np.random.default_rng(seed)
    kinds, ranks = int(numbers.integers(2, 4)), int(numbers.integers(2, 5))
    runs = [(kind, int(numbers.integers(1, 5))) for kind in range(kinds)]
    if numbers.integers(0, 3) == 0:
        runs.insert(1, (1, 1))
        runs.insert(2, (0, int(numbers.integers(1, 3))))
    runs[-1] = (runs[-1][0], runs[-1][1] + ranks)
    groups, grid = int(numbers.integers(1, min(ranks, 3) + 1)), int(numbers.integers(1, 4))
    order = [*range(groups), *numbers.integers(0, groups, ranks - groups).tolist()]
    return Line(
        prices=numbers.integers(0, 12, size=(kinds, groups, grid)).astype(float),
        offset=numbers.integers(-15, 10, size=(groups, grid)).astype(float),
        runs=tuple(runs),
        order=tuple(int(group) for group in numbers.permutation(order)),
    )


def test_a_level_is_known_by_hand() -> None:
    """The slow rank comes first, and the light blocks do.

    It has these (4 x 3 = 12) and leaves the heavy ones to the fast rank (4 x 10 = 40), or takes one
    of those as well (12 + 30 = 42): 40 at the least. Pools let the fast rank have light blocks too.
    """
    own = Line(
        prices=np.array([[[1.0], [3.0]], [[10.0], [30.0]]]),
        offset=np.zeros((2, 1)),
        runs=((0, 4), (1, 4)),
        order=(1, 0),
    )
    lowest = min(own.phi(cuts).max() for cuts in own.cuts())
    assert lowest == 40.0
    ordered = own.ordered()
    assert ordered.pools.least_level()[0] == pytest.approx(33.0)
    assert ordered.raised(np.array([33.0]), np.array([39.9]))[0] == pytest.approx(39.9)
    raised = float(ordered.raised(np.array([33.0]), np.array([60.0]))[0])
    assert 39.5 < raised <= 40.0
    assert not ordered.has_room(ordered.rooms(np.array([39.9])))[0]
    rooms = ordered.rooms(np.array([40.0]))
    assert rooms.blocks[:, 0].tolist() == [4.0, 4.0]
    assert rooms.kinds is not None
    assert rooms.kinds[..., 0].tolist() == [[0.0, 4.0], [4.0, 0.0]]


def test_no_level_exceeds_the_lowest_largest_rank() -> None:
    """From whatever limit it is sought below; and many are close where pools are not."""
    closer = close = 0
    for seed in SEEDS:
        own = line(seed)
        numbers = np.random.default_rng(seed)
        lowest = min(own.phi(cuts).max() for cuts in own.cuts())
        ordered = own.ordered()
        pooled = ordered.pools.least_level()
        for limit in (np.inf, lowest * numbers.uniform(0.5, 2.0), lowest + 1e-9):
            raised = ordered.raised(pooled, np.array([limit]))
            assert pooled[0] <= raised[0] <= lowest + ROUNDING, f"line {seed}"
        closer += raised[0] > pooled[0] + ROUNDING
        close += lowest - raised[0] <= 0.05 * (lowest - pooled[0]) + ROUNDING
    assert closer > of_drawn(150, one_of=ONE_OF)
    assert close > of_drawn(300, one_of=ONE_OF)


def test_plans_within_a_level_are_within_its_rooms() -> None:
    """Each rank's blocks, and those of each kind in a group; without room there is no plan."""
    without = 0
    for seed in SEEDS:
        own = line(seed)
        levels = sorted(float(own.phi(cuts).max()) for cuts in own.cuts())
        level = levels[int(np.random.default_rng(seed).integers(0, 1 + len(levels) // 4))]
        for limit in (level, levels[0] - 0.5):
            ordered = own.ordered()
            rooms = ordered.rooms(np.array([limit]))
            inside = [cuts for cuts in own.cuts() if own.phi(cuts).max() <= limit]
            is_left = bool(ordered.has_room(rooms)[0])
            assert is_left or not inside, f"line {seed}"
            without += not is_left
            for cuts in inside:
                held = own.held(cuts)
                most = rooms.blocks[list(own.order), 0]
                assert (held.sum(axis=1) <= most).all(), f"line {seed}"
                if rooms.kinds is not None:
                    group_held = np.zeros((len(own.offset), len(own.prices)))
                    np.add.at(group_held, list(own.order), held)
                    assert (rooms.kinds[..., 0] >= group_held.T).all(), f"line {seed}"
    assert without > of_drawn(300, one_of=ONE_OF)


def test_no_sum_exceeds_that_of_plans_within_a_level() -> None:
    """Ranks that cannot hold the blocks that are cheap on them cost more together."""
    raised = reached = 0
    for seed in SEEDS:
        own = line(seed)
        levels = sorted(float(own.phi(cuts).max()) for cuts in own.cuts())
        level = levels[len(levels) // 10]
        inside = [cuts for cuts in own.cuts() if own.phi(cuts).max() <= level]
        rooms = own.ordered().rooms(np.array([level]))
        numbers = np.random.default_rng(seed)
        fills = Line(
            prices=numbers.integers(0, 12, size=own.prices.shape).astype(float),
            offset=numbers.integers(-15, 10, size=own.offset.shape).astype(float),
            runs=own.runs,
            order=own.order,
        )
        least = min(fills.phi(cuts).sum() for cuts in inside)
        found = float(fills.pools().least_sum(rooms)[0])
        assert found <= least + ROUNDING, f"line {seed}"
        raised += found > float(fills.pools().least_sum()[0]) + ROUNDING
        reached += found >= least - ROUNDING
    assert raised > of_drawn(150, one_of=ONE_OF)
    assert reached > of_drawn(100, one_of=ONE_OF)


def test_rows_without_an_order_and_chains_that_alternate_have_the_levels_of_pools() -> None:
    for seed in SEEDS:
        own = line(seed)
        turns = Line(
            prices=own.prices[:2],
            offset=own.offset,
            runs=((0, 2), (1, 2), (0, 2), (1, 2)),
            order=own.order,
        )
        for ordered in (own.ordered(is_in_order=False), turns.ordered()):
            level = ordered.pools.least_level()
            assert (ordered.raised(level, INFINITE) == level).all()
            rooms = ordered.rooms(2.0 * level)
            assert (rooms.blocks == ordered.pools.rooms(2.0 * level)).all()
            assert rooms.kinds is None


def test_rows_of_all_sorts_are_bounded_as_if_each_were_alone() -> None:
    """Rows differ in how many ranks they have, and in whether these are in order at all."""
    for seed in range(100):
        numbers = np.random.default_rng(seed)
        lines = []
        for row in range(5):
            ranks = int(numbers.integers(1, 5))
            order = numbers.integers(0, 3, ranks)
            lines.append(
                Line(
                    prices=numbers.integers(0, 12, size=(2, 3, 2)).astype(float),
                    offset=numbers.integers(-15, 10, size=(3, 2)).astype(float),
                    runs=((0, 3), (1, 5)),
                    order=tuple(order.tolist()) if row else (),
                )
            )
        pools = [one.pools() for one in lines]
        places = np.full((4, 5), -1)
        for row, one in enumerate(lines):
            places[: len(one.order), row] = one.order
        together = Ordered(
            pools=Pools(
                prices=np.concatenate([one.prices for one in pools], axis=-1),
                offset=np.concatenate([one.offset for one in pools], axis=-1),
                counts=pools[0].counts,
                size=np.concatenate([np.maximum(one.size, 1.0) for one in pools], axis=-1),
                least=np.ones(5),
            ),
            runs=lines[0].runs,
            order=places,
        )
        limits = numbers.integers(5, 60, 5).astype(float)
        level = np.zeros(5)
        found, rooms = together.raised(level, limits), together.rooms(limits)
        for row in range(5):
            alone = together.of_rows(np.array([row]))
            assert alone.raised(level[:1], limits[row : row + 1])[0] == found[row]
            own = alone.rooms(limits[row : row + 1])
            assert (own.blocks[:, 0] == rooms.blocks[:, row]).all()
            if own.kinds is not None and rooms.kinds is not None:
                assert (own.kinds[..., 0] == rooms.kinds[..., row]).all()
