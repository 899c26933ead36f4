"""Columns: the least of priced choices, with those left out that can never be it."""

from __future__ import annotations

import numpy as np

from planner.ilp.columns import Layer
from planner.ilp.grouping import Ranks

SEEDS = range(200)


def a_layer(refused: np.ndarray) -> Layer:
    """A layer of which only the refused choices matter."""
    nothing = np.zeros((1, 1))
    ranks = Ranks(**dict.fromkeys(Ranks.__slots__, nothing))
    return Layer(held=(), ranks=ranks, refused=refused, memory=nothing)


def test_the_least_price_is_that_of_all_choices_that_are_not_refused() -> None:
    """Few different numbers make choices that are equal, and some that beat others everywhere."""
    for seed in SEEDS:
        numbers = np.random.default_rng(seed)
        choices, groups, rows, grid = 9, 3, 7, 4
        one = numbers.integers(0, 2) == 1
        cost = numbers.integers(0, 3, (choices, 1 if one else groups, rows)).astype(float)
        memory = numbers.integers(0, 3, (choices, groups, rows)).astype(float)
        if seed % 2:  # most choices are one of two with something on top
            cost = cost[:2][numbers.integers(0, 2, choices)] + numbers.integers(0, 2, cost.shape)
            memory = memory[:2][numbers.integers(0, 2, choices)]
        refused = numbers.random((choices, rows)) < 0.2
        refused[0] = False
        prices = numbers.integers(0, 3, (grid, rows)).astype(float)
        found = a_layer(refused).least(cost, memory, prices)
        for i, g, row in np.ndindex(grid, groups, rows):
            priced = [
                cost[c, 0 if one else g, row] + prices[i, row] * memory[c, g, row]
                for c in range(choices)
                if not refused[c, row]
            ]
            assert found[i, g, row] == min(priced), f"seed {seed}"
