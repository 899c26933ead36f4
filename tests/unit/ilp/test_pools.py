"""Levels and sums of ranks in groups exceed no split of the blocks, found by trying all."""

from __future__ import annotations

from collections.abc import Iterator
from dataclasses import dataclass

import numpy as np

from planner.ilp.batched_chains import Pools

SEEDS = range(400)
ROUNDING = 1.0 + 1e-9


@dataclass(frozen=True, slots=True, kw_only=True)
class Chain:
    """One row: prices [kinds, groups, grid], offsets [groups, grid], ranks of each group."""

    prices: np.ndarray
    offset: np.ndarray
    counts: np.ndarray
    size: np.ndarray
    least: int

    def pools(self) -> Pools:
        """The same in pools, with a group without ranks at the end."""
        return Pools(
            prices=np.concatenate([self.prices, self.prices[:, -1:]], axis=1).swapaxes(1, 2)[
                ..., None
            ],
            offset=np.concatenate([self.offset, self.offset[-1:]]).T[..., None],
            counts=self.counts,
            size=np.append(self.size, 0).astype(float)[:, None],
            least=np.array([float(self.least)]),
        )

    def splits(self) -> Iterator[np.ndarray]:
        """All ways to share the layers out, [ranks, kinds], each rank with its least blocks."""
        ranks = int(self.size.sum())
        ways = [list(_parts(int(count), ranks)) for count in self.counts]
        for place in np.ndindex(*[len(way) for way in ways]):
            held = np.array([way[i] for way, i in zip(ways, place, strict=True)]).T
            if (held.sum(axis=1) >= self.least).all():
                yield held

    def phi(self, held: np.ndarray) -> np.ndarray:
        """What every rank costs, [ranks]."""
        group = np.repeat(np.arange(len(self.size)), self.size)
        each = self.offset[group] + np.einsum("rk,krg->rg", held, self.prices[:, group])
        return np.asarray(each.max(axis=1))


def _parts(total: int, parts: int) -> Iterator[tuple[int, ...]]:
    if parts == 1:
        yield (total,)
        return
    for first in range(total + 1):
        for rest in _parts(total - first, parts - 1):
            yield (first, *rest)


def chain(seed: int) -> Chain:
    """A chain of one to three kinds on two to four ranks; a price of 0 is among them."""
    numbers = np.random.default_rng(seed)
    kinds, groups, grid = numbers.integers(1, 4), numbers.integers(1, 4), numbers.integers(1, 4)
    size = np.ones(groups, dtype=np.int64)
    size[-1] += numbers.integers(1, 3) if groups < 3 else 0
    least = int(numbers.integers(1, 3))
    counts = numbers.integers(1, 4, size=kinds)
    counts[0] += max(least * int(size.sum()) - int(counts.sum()), 0) + numbers.integers(0, 4)
    return Chain(
        prices=numbers.integers(0, 12, size=(kinds, groups, grid)).astype(float),
        offset=numbers.integers(-15, 10, size=(groups, grid)).astype(float),
        counts=counts,
        size=size,
        least=least,
    )


def test_no_level_exceeds_the_lowest_largest_rank() -> None:
    """And some are reached, as a level of 0 would be no bound either."""
    reached = 0
    for seed in SEEDS:
        own = chain(seed)
        lowest = min(own.phi(held).max() for held in own.splits())
        level = float(own.pools().least_level()[0])
        assert level <= lowest + 1e-6, f"chain {seed}"
        reached += level >= lowest - 1e-3
    assert reached > 200


def test_no_sum_exceeds_the_least_sum_of_ranks() -> None:
    """And some are reached."""
    reached = 0
    for seed in SEEDS:
        own = chain(seed)
        least = min(own.phi(held).sum() for held in own.splits())
        found = float(own.pools().least_sum()[0])
        assert found <= least + 1e-6, f"chain {seed}"
        reached += found >= least - 1e-6
    assert reached > 100


def test_rooms_are_those_of_the_cheapest_kind() -> None:
    """No split within a level has more blocks on a rank; what has no room has no split."""
    without = 0
    for seed in SEEDS:
        own = chain(seed)
        group = np.repeat(np.arange(len(own.size)), own.size)
        level = float(np.random.default_rng(seed).integers(-5, 40))
        pools = own.pools()
        rooms = pools.rooms(np.array([level]))
        inside = [held for held in own.splits() if own.phi(held).max() <= level]
        for held in inside:
            assert (held.sum(axis=1) <= rooms[group, 0]).all(), f"chain {seed}"
        if not pools.has_room(rooms)[0]:
            assert not inside, f"chain {seed}"
            without += 1
    assert without > 100
