"""The least of priced choices, with those left out that can never be it."""

from __future__ import annotations

import numpy as np

from planner.cost.configuration import Floats
from planner.ilp.batched_chains import Linear, Options, Plain, Ranks, undominated

SEEDS = range(200)
CHOICES, GROUPS, ROWS, GRID, PRICES, DEVICES = 9, 3, 7, 4, 5, 2


def few_numbers(numbers: np.random.Generator, *shape: int) -> Floats:
    """Few different numbers make choices that are equal, and some that beat others everywhere."""
    found = numbers.integers(0, 3, shape).astype(float)
    if numbers.integers(0, 2):  # most choices are one of two with something on top
        found = found[:2][numbers.integers(0, 2, shape[0])] + numbers.integers(0, 2, shape)
    return found


def ranks_on(devices: np.ndarray, rows: np.ndarray) -> Ranks:
    """Ranks of which only the place in the tables and the kind of device matter."""
    fields = dict.fromkeys(Ranks.__slots__, np.zeros((1, 1)))
    return Ranks(**{**fields, "devices": devices, "table_rows": rows})


def test_the_least_price_is_that_of_all_choices() -> None:
    for seed in SEEDS:
        numbers = np.random.default_rng(seed)
        groups = 1 if numbers.integers(0, 2) else GROUPS
        cost = few_numbers(numbers, CHOICES, groups, ROWS)
        memory = few_numbers(numbers, CHOICES, GROUPS, ROWS)
        grid = numbers.integers(0, 3, (GRID, ROWS)).astype(float)
        found = Options.of(Plain(values=cost), Plain(values=memory)).least(grid)
        for i, g, row in np.ndindex(GRID, GROUPS, ROWS):
            priced = [
                cost[c, g % groups, row] + grid[i, row] * memory[c, g, row] for c in range(CHOICES)
            ]
            assert found[i, g, row] == min(priced), f"seed {seed}"


def test_what_grows_with_a_rank_is_compared_at_all_prices_and_ranks() -> None:
    """Base and slope say which choices matter, whatever they are multiplied with."""
    for seed in SEEDS:
        numbers = np.random.default_rng(seed)
        devices = 1 + int(numbers.integers(0, DEVICES))
        ranks = ranks_on(
            numbers.integers(0, devices, (GROUPS, ROWS)), numbers.integers(0, PRICES, ROWS)
        )
        base = [few_numbers(numbers, CHOICES, PRICES) for _ in range(devices)]
        slope = [few_numbers(numbers, CHOICES, PRICES) for _ in range(devices)]
        times = numbers.integers(0, 4, (GROUPS, ROWS)).astype(float)
        column = Linear(base=base, slope=slope, times=times, ranks=ranks)
        nothing = Plain(values=np.zeros((CHOICES, GROUPS, ROWS)))
        found = Options.of(column, nothing).least(np.zeros((1, ROWS)))
        for g, row in np.ndindex(GROUPS, ROWS):
            device, price = ranks.devices[g, row], ranks.table_rows[row]
            each = base[device][:, price] + times[g, row] * slope[device][:, price]
            assert found[0, g, row] == each.min(), f"seed {seed}"


def test_of_equal_choices_one_stays_and_beaten_ones_go() -> None:
    columns = [np.array([[1.0, 1.0], [1.0, 1.0], [2.0, 1.0], [0.0, 3.0]])]
    assert undominated(columns).tolist() == [0, 3]
