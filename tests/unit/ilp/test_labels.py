"""Sets of layers beside the bases: what is left out is in no packing that is sought."""

from __future__ import annotations

from dataclasses import replace
from itertools import combinations_with_replacement

import numpy as np
import pytest

from planner.ilp.stage_knapsack import Knapsack, Shelf, labels_within, least_cost

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
        found = least_cost(knapsack, [LAYERS], upper=1e6, effort=100_000)
        assert found.cost == pytest.approx(best, rel=1e-12), seed
        if np.isfinite(best):
            assert found.lower == pytest.approx(best, rel=1e-9), seed


def test_bounds_are_below_the_best_however_few_sets_are_looked_at() -> None:
    for seed in range(20):
        knapsack = a_knapsack_of_one_kind(seed, host_share=0.4)
        best = least_of_all(knapsack)
        for effort in (4, 16, 64):
            found = least_cost(knapsack, [LAYERS], upper=1e6, effort=effort)
            assert found.lower <= best * (1.0 + 1e-9), seed
            assert found.cost >= best * (1.0 - 1e-12), seed


def a_shelf(*, limit: float) -> Shelf:
    """Twenty layers, kept for 1 s and 9 bytes, or lighter in five ways for one second more each."""
    memory = np.array([9.0, 8.0, 6.5, 5.0, 3.5, 2.0])
    cost = np.arange(1.0, 7.0)
    return Shelf(
        kinds=np.zeros(6, dtype=np.int64),
        cost=cost,
        memory=memory,
        taken=np.ones((1, 6)) * np.arange(6.0),
        limits=np.array([limit]),
        reduced=cost - 1.0,
        held=np.array([20]),
        room=100.0,
        price=0.0,
        bases=np.array([0]),
        filler=0,
        light=0,
    )


def test_of_sets_with_as_many_layers_only_those_that_none_beats_are_kept() -> None:
    """With no limit to exceed, of any two with one memory the dearer is dropped."""
    labels, gap = labels_within(a_shelf(limit=1e9), 200.0, most=10**6)
    assert gap == 200.0
    assert not len(labels.binding)
    number, cost, memory = 20.0 - labels.filled(), labels.cost(), labels.memory()
    for first in range(len(cost)):
        beaten = (number == number[first]) & (cost < cost[first] - 1e-9) & (memory <= memory[first])
        assert not beaten.any()


def test_labels_have_a_layer_of_a_needed_choice() -> None:
    """They are those of all labels that have one, but for what another beats."""
    every, _ = labels_within(a_shelf(limit=10.0), 6.0, most=10**6)
    needed = replace(a_shelf(limit=10.0), needed=np.array([2, 4]))
    labels, gap = labels_within(needed, 6.0, most=10**6)
    some = {tuple(labels.counts(label).tolist()) for label in range(len(labels.cost()))}
    counts = (every.counts(label).tolist() for label in range(len(every.cost())))
    assert gap == 6.0
    assert some == {tuple(own) for own in counts if own[2] or own[4]}
    for label in range(len(labels.cost())):
        assert labels.counts(label) @ needed.cost == pytest.approx(labels.cost()[label])


def test_labels_are_the_layers_that_they_say() -> None:
    shelf = a_shelf(limit=10.0)
    labels, _ = labels_within(shelf, 12.0, most=10**6)
    assert labels.binding.tolist() == [0]
    for label in range(len(labels.cost())):
        counts = labels.counts(label)
        assert counts.sum() == 20
        assert counts @ shelf.cost == pytest.approx(labels.cost()[label])
        assert counts @ shelf.memory == pytest.approx(labels.memory()[label])
        assert counts @ shelf.taken[0] == pytest.approx(labels.taken()[0, label])


def test_a_limit_that_nothing_within_the_gap_exceeds_does_not_bind() -> None:
    """Three seconds pay three layers that take 1 each, or one that takes 3: never 4."""
    assert labels_within(a_shelf(limit=4.0), 3.0, most=10**6)[0].binding.tolist() == []
    assert labels_within(a_shelf(limit=2.0), 3.0, most=10**6)[0].binding.tolist() == [0]
