"""The exact least cost of layers on one rank, against all multisets of choices."""

from __future__ import annotations

from itertools import combinations_with_replacement, product

import numpy as np
import pytest

from planner.ilp.stage_knapsack import Knapsack, least_cost
from tests.draws import drawn, of_drawn

ONE_OF = 9
INFINITE = float("inf")
PLENTY = 1e4


def a_knapsack(**changes: object) -> Knapsack:
    """Layers of one kind, kept (2 s, 4 bytes) or recomputed (3 s, 1 byte)."""
    fields: dict[str, object] = {
        "kind": np.array([0, 0]),
        "cost": np.array([2.0, 3.0]),
        "memory": np.array([4.0, 1.0]),
        "transient": np.zeros(2),
        "host": np.zeros(2),
        "capacity": 100.0,
        "host_capacity": 0.0,
    }
    return Knapsack(**{**fields, **changes})  # type: ignore[arg-type]


def a_random_knapsack(seed: int) -> tuple[Knapsack, tuple[int, ...]]:
    """One to three kinds with up to four choices and five layers each, in tight memory."""
    numbers = np.random.default_rng(seed)
    choices = [int(n) for n in numbers.integers(1, 5, size=int(numbers.integers(1, 4)))]
    layers = tuple(int(n) for n in numbers.integers(0, 6, size=len(choices)))
    layers = (max(layers[0], 1), *layers[1:])
    count = sum(choices)
    knapsack = Knapsack(
        kind=np.repeat(np.arange(len(choices)), choices),
        cost=numbers.integers(1, 15, size=count).astype(float),
        memory=numbers.integers(0, 12, size=count).astype(float),
        transient=numbers.choice([0.0, 1.0, 4.0], size=count),
        host=numbers.choice([0.0, 0.0, 2.0, 3.0], size=count),
        capacity=float(numbers.integers(5, 60)),
        host_capacity=float(numbers.integers(0, 12)),
        **further_limits(numbers, count, number=seed % 3),
    )
    return knapsack, layers


def further_limits(
    numbers: np.random.Generator, count: int, *, number: int
) -> dict[str, np.ndarray]:
    """Some more limits of the form of the host's, or none."""
    if not number:
        return {}
    taken = numbers.integers(0, 9, size=(number, count)).astype(float)
    return {"further": taken, "ceilings": numbers.integers(3, 40, size=number).astype(float)}


def least_of_all(knapsack: Knapsack, layers: tuple[int, ...]) -> float:
    """Every way to choose, by hand; inf where none fits."""
    own = [np.flatnonzero(knapsack.kind == kind).tolist() for kind in range(len(layers))]
    ways = [
        list(combinations_with_replacement(own[kind], count)) for kind, count in enumerate(layers)
    ]
    best = INFINITE
    for way in product(*ways):
        used = [column for part in way for column in part]
        largest = max((float(knapsack.transient[column]) for column in used), default=0.0)
        if sum(float(knapsack.memory[c]) for c in used) + largest > knapsack.capacity:
            continue
        if sum(float(knapsack.host[c]) for c in used) > knapsack.host_capacity:
            continue
        if knapsack.further is not None and knapsack.ceilings is not None:
            total = knapsack.further[:, used].sum(axis=1)
            if (total > knapsack.ceilings).any():
                continue
        best = min(best, sum(float(knapsack.cost[c]) for c in used))
    return best


def test_bounds_hold_of_every_packing() -> None:
    """One for each largest transient: the least of them is no more than the least of all."""
    for seed in drawn(range(400), one_of=ONE_OF):
        knapsack, layers = a_random_knapsack(seed)
        best, held = least_of_all(knapsack, layers), np.array(layers)
        assert knapsack.bounds(held)[0].min() <= best * (1.0 + 1e-9), f"knapsack {seed}"


def test_a_largest_transient_is_that_of_a_layer() -> None:
    """Kept layers cost 2 and recomputed ones 3: under 5 bytes one at least is recomputed."""
    knapsack = a_knapsack(transient=np.array([0.0, 5.0]))
    assert knapsack.bounds(np.array([4]))[0].tolist() == [8.0, 9.0]


def test_layers_take_the_cheapest_choice_where_memory_is_no_limit() -> None:
    packing = least_cost(a_knapsack(), [5], upper=PLENTY)
    assert packing.cost == 10.0
    assert packing.counts is not None
    assert packing.counts.tolist() == [5, 0]


def test_as_few_layers_as_needed_take_the_smaller_choice() -> None:
    """Five kept layers need 20 bytes; in 14, two are recomputed: 3 x 2 + 2 x 3 = 12 s."""
    packing = least_cost(a_knapsack(capacity=14.0), [5], upper=PLENTY)
    assert packing.cost == 12.0
    assert packing.lower == 12.0


def test_the_largest_transient_counts_once() -> None:
    """Three kept layers and their transient of 5 need 17 bytes."""
    tight = a_knapsack(transient=np.array([5.0, 0.0]), capacity=17.0)
    assert least_cost(tight, [3], upper=PLENTY).cost == 6.0
    tighter = a_knapsack(transient=np.array([5.0, 0.0]), capacity=16.0)
    assert least_cost(tighter, [3], upper=PLENTY).cost == 7.0


def test_nothing_is_found_below_an_upper_bound_that_none_reaches() -> None:
    packing = least_cost(a_knapsack(), [5], upper=9.5)
    assert packing.counts is None
    assert packing.cost == INFINITE
    assert packing.lower >= 9.5


def test_a_further_limit_is_kept() -> None:
    """Of three layers kept at 5 of 12 that may be taken, one is recomputed at none."""
    limited = a_knapsack(further=np.array([[5.0, 0.0]]), ceilings=np.array([12.0]))
    assert least_cost(limited, [3], upper=PLENTY).cost == 2.0 + 2.0 + 3.0


@pytest.mark.parametrize(("effort", "exact_share"), [(4, 0.5), (3000, 1.0)])
@pytest.mark.parametrize("upper_share", [0.0, 1.2, 0.9])
def test_packings_equal_trying_all(upper_share: float, effort: int, exact_share: float) -> None:
    """Bounds never exceed the least cost, or the upper bound, and reach it with some effort."""
    exact = found_count = 0
    for seed in drawn(range(400), one_of=ONE_OF):
        knapsack, layers = a_random_knapsack(seed)
        best = least_of_all(knapsack, layers)
        upper = best * upper_share if upper_share else PLENTY
        found = least_cost(knapsack, layers, upper=upper, most=effort)
        name = f"knapsack {seed}"
        assert found.lower <= max(best, upper) * (1.0 + 1e-9), name
        if best < upper:
            assert found.lower <= best * (1.0 + 1e-9), name
            assert found.cost >= best * (1.0 - 1e-9), name
            found_count += 1
            exact += abs(found.cost - best) + abs(found.lower - best) < 1e-9 * max(best, 1.0)
        else:
            assert found.counts is None, name
    assert exact >= exact_share * found_count
    assert (found_count > of_drawn(150, one_of=ONE_OF)) == (upper_share != 0.9)


def test_where_any_packing_will_do_one_is_found_or_there_is_none() -> None:
    """What will do is within its price, and no bound exceeds the least cost."""
    found_count = 0
    for seed in drawn(range(400), one_of=ONE_OF):
        knapsack, layers = a_random_knapsack(seed)
        best = least_of_all(knapsack, layers)
        will_do = 1.5 * best if np.isfinite(best) else PLENTY
        found = least_cost(knapsack, layers, upper=PLENTY, will_do=will_do)
        name = f"knapsack {seed}"
        assert found.lower <= best * (1.0 + 1e-9) or not np.isfinite(best), name
        assert np.isfinite(found.cost) == np.isfinite(best), name
        if np.isfinite(best):
            assert found.cost <= will_do * (1.0 + 1e-9), name
            found_count += 1
    assert found_count > of_drawn(100, one_of=ONE_OF)
