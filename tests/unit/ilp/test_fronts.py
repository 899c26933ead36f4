"""The front of a rank, against all ways to hold its load."""

from __future__ import annotations

from collections import Counter

import numpy as np
import pytest

from planner.ilp import fronts
from planner.ilp.fronts import Front, StuckError, fill_share
from planner.ilp.rank import Caps, Rank
from tests.unit.ilp.random_ranks import a_random_rank, all_ways

SEEDS = range(150)
TURNS_MOST = 300


def every_pair(rank: Rank, caps: Caps) -> np.ndarray:
    """Return rho t and u of all ways below the caps, [ways, 2]."""
    pairs = {(rank.repeats * way.pace, way.end) for way in all_ways(rank)}
    below = [p for p in pairs if p[0] <= rank.repeats * caps.pace and p[1] <= caps.end]
    return np.array(sorted(below)).reshape(-1, 2)


def unbeaten(pairs: np.ndarray) -> list[tuple[float, float]]:
    """Return the pairs that no other equals or beats in both."""
    kept: list[tuple[float, float]] = []
    for pace, end in pairs.tolist():  # in the order of paces
        if not kept or end < kept[-1][1]:
            kept.append((pace, end))
    return kept


def bound_at(front: Front, end: float) -> float:
    """Return the bound of the least pace under an end."""
    pieces = front.pieces()
    place = int(np.searchsorted(pieces.starts, end, side="right")) - 1
    slope = pieces.slope[place]
    return float(pieces.at_zero[place] + (slope * end if slope else 0.0))


def assert_no_bound_exceeds(front: Front, pairs: np.ndarray) -> None:
    """No bound is above the least pace of the ways with an end, at their ends and between."""
    for end in np.unique(pairs[:, 1]).tolist():
        least = pairs[pairs[:, 1] <= end, 0].min()
        for at in (end, end + 0.37):
            assert bound_at(front, at) <= least + 1e-6


def random_caps(rank: Rank, numbers: np.random.Generator) -> Caps:
    """Return caps above all ways, or amid them."""
    ways = list(all_ways(rank))
    if numbers.random() < 0.5 or not ways:
        return Caps(pace=1e4, end=1e4)
    paces, ends = [way.pace for way in ways], [way.end for way in ways]
    return Caps(pace=float(numbers.choice(paces)), end=float(numbers.choice(ends)))


@pytest.mark.parametrize("efforts", [(2000, 3000), (1, 2)])
def test_the_front_is_found_and_no_bound_on_the_way_exceeds_it(
    monkeypatch: pytest.MonkeyPatch, efforts: tuple[int, int]
) -> None:
    """With hardly any effort gaps are halved, and some are stuck: bounds hold all the same."""
    monkeypatch.setattr(fronts, "_EFFORTS", efforts)
    seen: Counter[str] = Counter()
    for seed in SEEDS:
        rank, numbers = a_random_rank(seed), np.random.default_rng(seed)
        caps = random_caps(rank, numbers)
        pairs = every_pair(rank, caps)
        front = Front.of(rank, caps, share=float(numbers.choice([0.0, 0.3, 0.9])))
        try:
            for _ in range(TURNS_MOST):
                assert_no_bound_exceeds(front, pairs)
                if not front.gaps:
                    break
                place = int(numbers.integers(len(front.gaps)))
                front.narrow(place, float(numbers.uniform(0.0, 30.0)))
        except StuckError:
            seen["stuck"] += 1
            continue
        assert not front.gaps, f"rank {seed}"
        found = np.array([(point.pace, point.end) for point in front.points]).reshape(-1, 2)
        expected = unbeaten(pairs)
        assert unbeaten(found[np.lexsort(found.T[::-1])]) == expected, f"rank {seed}"
        for end in np.unique(pairs[:, 1]).tolist():
            least = pairs[pairs[:, 1] <= end, 0].min()
            point = front.point_under(end)
            assert point is not None
            assert point.pace == least == bound_at(front, end)
        seen["several" if len(expected) > 1 else "few"] += 1
    assert seen["several"] > (10 if seen["stuck"] else 40)
    assert (seen["stuck"] > 0) == (efforts == (1, 2))


def test_layers_of_a_point_add_up_to_it() -> None:
    for seed in range(30):
        rank = a_random_rank(seed)
        front = Front.of(rank, Caps(pace=1e4, end=1e4), share=0.5)
        while front.gaps:
            front.narrow(0, 1e4)
        for point in front.points:
            parts = rank.parts(point.counts.astype(float))
            assert (rank.repeats * parts.pace, parts.end) == (point.pace, point.end)
            held = np.bincount(rank.columns.kind, weights=point.counts)
            assert held.tolist() == rank.held[0].tolist()


def test_fills_are_shares_of_paces_or_not() -> None:
    rank = a_random_rank(3)
    share = float(rank.columns.fill[0] / rank.columns.pace[0])
    assert fill_share(rank) == pytest.approx(share)
    rank.columns.fill[0] += 1.0
    assert (fill_share(rank) is None) == (len(rank.columns.pace) > 1)
