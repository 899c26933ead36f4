"""The patterns of a load, against all multisets of choices."""

from __future__ import annotations

from collections.abc import Iterator
from dataclasses import replace
from itertools import combinations_with_replacement, product

import numpy as np
import pytest

from planner.ilp.problem import Effort, TooManyError
from planner.ilp.stage_patterns import Ceilings, Columns, patterns_of_load
from tests.draws import drawn, of_drawn

ONE_OF = 7
SEEDS = drawn(range(300), one_of=ONE_OF)


def a_random_rank(seed: int) -> tuple[Columns, np.ndarray, Ceilings]:
    """One or two kinds with up to five choices and six layers each, in tight memory."""
    numbers = np.random.default_rng(seed)
    choices = [int(n) for n in numbers.integers(1, 6, size=int(numbers.integers(1, 3)))]
    count = sum(choices)
    kind = np.repeat(np.arange(len(choices)), choices)
    held = numbers.integers(1, 7, size=len(choices))
    pace = numbers.integers(1, 15, size=count).astype(float)
    end = numbers.integers(0, 9, size=count).astype(float)
    memory = numbers.integers(0, 12, size=count).astype(float)
    price = float(numbers.choice([0.0, 0.5, 2.0]))
    cost = 3.0 * pace + end + price * memory
    least = np.array([cost[kind == k].min() for k in range(len(choices))])
    columns = Columns(
        kind=kind,
        reduced=cost - least[kind],
        most=np.full(count, 99),
        pace=pace,
        fill=pace + numbers.integers(0, 3, size=count),
        end=end,
        memory=memory,
        transient=np.zeros(count),
        host=numbers.choice([0.0, 0.0, 2.0], size=count),
    )
    ceilings = Ceilings(
        gap=float(numbers.integers(10, 150)),
        memory_price=price,
        capacity=float(numbers.integers(20, 80)),
        host=float(numbers.integers(4, 20)),
        pace=float(numbers.choice([60.0, 1e9])),
        end=float(numbers.choice([30.0, 1e9])),
        both=float(numbers.choice([250.0, 1e9])),
        repeats=3.0,
        own_pace=1.0,
        own_end=2.0,
    )
    return columns, held, ceilings


def all_patterns(columns: Columns, held: np.ndarray, ceilings: Ceilings) -> Iterator[np.ndarray]:
    """Yield fill, pace and end of every multiset within the ceilings, by hand."""
    for _, measures in ways_within(columns, held, ceilings):
        yield measures


def ways_within(
    columns: Columns, held: np.ndarray, ceilings: Ceilings
) -> Iterator[tuple[list[int], np.ndarray]]:
    """Yield every multiset within the ceilings with its fill, pace and end, by hand."""
    own = [np.flatnonzero(columns.kind == kind).tolist() for kind in range(len(held))]
    ways = [list(combinations_with_replacement(own[k], int(n))) for k, n in enumerate(held)]
    for way in product(*ways):
        used = [column for part in way for column in part]
        memory = columns.memory[used].sum()
        pace = ceilings.own_pace + columns.pace[used].sum()
        end = ceilings.own_end + columns.end[used].sum()
        free = ceilings.memory_price * (ceilings.capacity - memory)
        if (
            memory <= ceilings.capacity
            and columns.host[used].sum() <= ceilings.host
            and pace <= ceilings.pace
            and end <= ceilings.end
            and ceilings.repeats * pace + end <= ceilings.both
            and columns.reduced[used].sum() + free <= ceilings.gap + 1e-9
        ):
            yield used, np.array([columns.fill[used].sum(), pace, end])


def test_every_pattern_is_listed_or_matched_by_one_that_is() -> None:
    listed = 0
    for seed in SEEDS:
        columns, held, ceilings = a_random_rank(seed)
        found = patterns_of_load(columns, held, ceilings, most=10_000, effort=Effort())
        measures = np.stack([found.fill, found.pace, found.end], axis=1)
        every = np.array(list(all_patterns(columns, held, ceilings))).reshape(-1, 3)
        for one in every:
            assert (measures <= one + 1e-9).all(axis=1).any(), f"rank {seed}"
        for one in measures:
            assert (np.abs(every - one) < 1e-9).all(axis=1).any(), f"rank {seed}"
        listed += len(measures)
    assert listed > of_drawn(300, one_of=ONE_OF)


def test_patterns_with_a_needed_choice_are_listed_or_matched() -> None:
    """Of a needed choice there is a layer in every one, unless it is a base."""
    listed = 0
    for seed in SEEDS:
        columns, held, ceilings = a_random_rank(seed)
        needed = np.array([len(columns.kind) - 1])
        limits = {"most": 10_000, "effort": Effort()}
        found = patterns_of_load(columns, held, ceilings, needed=needed, **limits)
        measures = np.stack([found.fill, found.pace, found.end], axis=1)
        for used, one in ways_within(columns, held, ceilings):
            if needed[0] in used:
                assert (measures <= one + 1e-9).all(axis=1).any(), f"rank {seed}"
        if columns.reduced[needed[0]] > 0.0:
            assert (found.counts[:, needed[0]] > 0).all(), f"rank {seed}"
            listed += len(found.load)
    assert listed > of_drawn(50, one_of=ONE_OF)


def a_rank_of_an_enumeration(seed: int) -> tuple[Columns, np.ndarray, Ceilings]:
    """The same with kinds none of whose choices is for nothing, and one that is out."""
    columns, held, ceilings = a_random_rank(seed)
    numbers = np.random.default_rng(1000 + seed)
    count = len(columns.kind)
    reduced = columns.reduced + numbers.integers(0, 6, size=len(held))[columns.kind]
    if count > 2:
        reduced[int(numbers.integers(count))] = np.inf
    return replace(columns, reduced=reduced), held, ceilings


def feasible_ways(
    columns: Columns, held: np.ndarray, ceilings: Ceilings
) -> Iterator[tuple[float, np.ndarray]]:
    """Yield the excess of every multiset within all ceilings but the gap, with fill, pace, end."""
    loose = replace(ceilings, gap=float("inf"))
    plain = replace(columns, reduced=np.zeros(len(columns.kind)))
    for used, measures in ways_within(plain, held, loose):
        memory = columns.memory[used].sum()
        reduced = columns.reduced[used].sum()
        if memory <= ceilings.capacity and np.isfinite(reduced):
            yield reduced + ceilings.memory_price * (ceilings.capacity - memory), measures


def test_a_pattern_is_listed_or_no_better_than_one_that_is_or_exceeds_the_gap() -> None:
    listed = 0
    for seed in SEEDS:
        columns, held, ceilings = a_rank_of_an_enumeration(seed)
        found = patterns_of_load(columns, held, ceilings, most=10_000, effort=Effort())
        every = list(feasible_ways(columns, held, ceilings))
        measures = np.stack([found.fill, found.pace, found.end], axis=1)
        beyond = [one for excess, one in every if excess > ceilings.gap]
        known = np.concatenate([measures, np.array(beyond).reshape(-1, 3)])
        for _, one in every:
            assert (known <= one + 1e-9).all(axis=1).any(), f"rank {seed}"
        for one in measures:
            same = [e for e, each in every if (np.abs(each - one) < 1e-9).all()]
            assert min(same) <= ceilings.gap + 1e-9, f"rank {seed}"
        listed += len(measures)
    assert listed > of_drawn(300, one_of=ONE_OF)


def a_rank_with_much_to_list() -> tuple[Columns, np.ndarray, Ceilings]:
    """Return a rank of which two sets of layers at least are looked at."""
    for seed in SEEDS:
        columns, held, ceilings = a_random_rank(seed)
        found = patterns_of_load(columns, held, ceilings, most=10_000, effort=Effort())
        if len(found.load) > 1:
            return columns, held, ceilings
    raise AssertionError("no rank has two patterns")


def test_too_many_sets_are_refused() -> None:
    columns, held, ceilings = a_rank_with_much_to_list()
    with pytest.raises(TooManyError):
        patterns_of_load(columns, held, ceilings, most=1, effort=Effort())


def test_nothing_is_listed_without_effort() -> None:
    columns, held, ceilings = a_rank_with_much_to_list()
    with pytest.raises(TooManyError):
        patterns_of_load(columns, held, ceilings, most=10_000, effort=Effort(most=0.0))
