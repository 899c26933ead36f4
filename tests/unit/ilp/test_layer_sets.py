"""Sets of layers beside the bases: what is left out is in no packing that is sought."""

from __future__ import annotations

from collections.abc import Iterator
from itertools import combinations_with_replacement

import numpy as np
import pytest

from planner.ilp.problem import Effort, TooManyError
from planner.ilp.stage_knapsack import Knapsack, least_cost
from planner.ilp.stage_patterns import Enumeration, LayerSets, sets_within

LAYERS, CHOICES = 8, 6


def a_knapsack_of_one_kind(seed: int, *, host_share: float) -> Knapsack:
    """Eight layers of six choices; of memory there is less than the cheapest take."""
    numbers = np.random.default_rng(seed)
    memory = numbers.uniform(1.0, 9.0, size=CHOICES)
    host = numbers.uniform(0.0, 3.0, size=CHOICES)
    return Knapsack(
        kind=np.zeros(CHOICES, dtype=np.int64),
        cost=numbers.uniform(1.0, 9.0, size=CHOICES),
        memory=memory,
        transient=numbers.choice([0.0, 2.0], size=CHOICES),
        host=host,
        capacity=float(LAYERS * np.median(memory) + 2.0),
        host_capacity=float(LAYERS * host.max() * host_share),
    )


def least_of_all(knapsack: Knapsack) -> float:
    """Every multiset by hand; inf where none fits."""
    best = float("inf")
    for way in combinations_with_replacement(range(CHOICES), LAYERS):
        used = list(way)
        room = knapsack.capacity - knapsack.transient[used].max()
        fits = knapsack.memory[used].sum() <= room
        if fits and knapsack.host[used].sum() <= knapsack.host_capacity:
            best = min(best, float(knapsack.cost[used].sum()))
    return best


@pytest.mark.parametrize("host_share", [2.0, 0.4], ids=["host is plenty", "host binds"])
def test_the_best_of_hundreds_of_sets_is_found(host_share: float) -> None:
    for seed in range(20):
        knapsack = a_knapsack_of_one_kind(seed, host_share=host_share)
        best = least_of_all(knapsack)
        found = least_cost(knapsack, [LAYERS], upper=1e6, most=100_000)
        assert found.cost == pytest.approx(best, rel=1e-12), seed
        if np.isfinite(best):
            assert found.lower == pytest.approx(best, rel=1e-9), seed


def test_bounds_are_below_the_best_however_few_sets_are_looked_at() -> None:
    for seed in range(20):
        knapsack = a_knapsack_of_one_kind(seed, host_share=0.4)
        best = least_of_all(knapsack)
        for effort in (4, 16, 64):
            found = least_cost(knapsack, [LAYERS], upper=1e6, most=effort)
            assert found.lower <= best * (1.0 + 1e-9), seed
            assert found.cost >= best * (1.0 - 1e-12), seed


def layers_of_one_kind(**changes: object) -> Enumeration:
    """Twenty layers, kept for 1 s and 9 bytes, or lighter in five ways for one second more each."""
    cost = np.arange(1.0, 7.0)
    fields: dict[str, object] = {
        "kind": np.zeros(6, dtype=np.int64),
        "reduced": cost - 1.0,
        "most": np.full(6, 20),
        "memory": np.array([9.0, 8.0, 6.5, 5.0, 3.5, 2.0]),
        "compared": cost[None],
        "taken": np.arange(6.0)[None],
        "limits": np.array([1e9]),
        "held": np.array([20]),
        "room": 170.0,
        "price": 0.0,
        "bases": {0: 0},
        "needed": np.zeros(0, dtype=np.int64),
    }
    return Enumeration(**{**fields, **changes})  # type: ignore[arg-type]


def sets_of(
    own: Enumeration, gap: float, *, most: int = 10**6, narrows: bool = False
) -> tuple[LayerSets, set[tuple[int, ...]]]:
    """Return the sets within a gap, and their layers."""
    sets = sets_within(own, gap, most=most, effort=Effort(), narrows=narrows)
    counts = sets.counts(np.arange(len(sets.rows)))
    return sets, set(map(tuple, counts.tolist()))


def ways_within(own: Enumeration, gap: float) -> Iterator[tuple[int, ...]]:
    """Yield every multiset that fits within the gap and the limit, by hand."""
    for way in combinations_with_replacement(range(6), 20):
        counts = np.bincount(way, minlength=6)
        fits = counts @ own.memory <= own.room and counts @ own.taken[0] <= own.limits[0]
        if fits and counts @ own.reduced <= gap:
            yield tuple(counts.tolist())


def test_every_set_that_fits_is_there_or_beaten() -> None:
    """In cost and memory, by one that is."""
    own = layers_of_one_kind()
    _, found = sets_of(own, 12.0)
    cost, known = own.compared[0], np.array(sorted(found))
    every = list(ways_within(own, 12.0))
    assert found <= set(every)
    for way in every:
        beaten = (known @ cost <= way @ cost) & (known @ own.memory <= way @ own.memory)
        assert beaten.any()


def test_sets_have_a_layer_of_a_needed_choice() -> None:
    """They are those of all that have one, where so few are not compared."""
    _, every = sets_of(layers_of_one_kind(limits=np.array([10.0]), room=180.0), 6.0)
    own = layers_of_one_kind(limits=np.array([10.0]), room=180.0, needed=np.array([2, 4]))
    assert sets_of(own, 6.0)[1] == {counts for counts in every if counts[2] or counts[4]} != set()


@pytest.mark.parametrize("limit", [1e9, 8.0])
def test_no_set_exceeds_a_limit(limit: float) -> None:
    """One that nothing can exceed is not looked at, and changes nothing."""
    own = layers_of_one_kind(limits=np.array([limit]))
    _, found = sets_of(own, 9.0)
    assert found
    assert all(np.array(counts) @ own.taken[0] <= limit for counts in found)
    assert (found == sets_of(layers_of_one_kind(), 9.0)[1]) == (limit > 20.0)


def test_where_there_are_too_many_those_within_a_smaller_gap_are_left() -> None:
    """All of them, but for what is beaten; or it is refused."""
    own = layers_of_one_kind()
    sets, found = sets_of(own, 60.0, most=20, narrows=True)
    assert 0.0 < sets.gap < 60.0
    known = np.array(sorted(found))
    for way in ways_within(own, sets.gap * (1.0 - 1e-9)):
        beaten = (known @ own.reduced <= way @ own.reduced) & (
            known @ own.memory <= way @ own.memory
        )
        assert beaten.any()
    with pytest.raises(TooManyError):
        sets_of(own, 60.0, most=20)
