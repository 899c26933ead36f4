"""Ranks with one load, small enough for all ways to hold it to be tried."""

from __future__ import annotations

from collections.abc import Iterator
from itertools import combinations_with_replacement, product

import numpy as np

from planner.ilp.lagrangian_decomposition import Parts, Rank
from planner.ilp.stage_patterns import Columns


def a_random_rank(seed: int) -> Rank:
    """One or two kinds with up to five choices and six layers each, in tight memory."""
    numbers = np.random.default_rng(seed)
    choices = [int(n) for n in numbers.integers(1, 6, size=int(numbers.integers(1, 3)))]
    count = sum(choices)
    pace = numbers.integers(1, 15, size=count).astype(float)
    share = float(numbers.choice([0.25, 1.0]))
    columns = Columns(
        kind=np.repeat(np.arange(len(choices)), choices),
        most=np.full(count, 99),
        pace=pace,
        fill=share * pace,
        end=numbers.integers(0, 9, size=count).astype(float),
        memory=numbers.integers(0, 12, size=count).astype(float),
        transient=numbers.choice([0.0, 0.0, 3.0], size=count),
        host=numbers.choice([0.0, 0.0, 2.0], size=count),
    )
    return Rank(
        columns=columns,
        places=np.arange(count),
        held=numbers.integers(1, 7, size=(1, len(choices))),
        own=Parts(fill=1.0, pace=float(numbers.integers(0, 3)), end=2.0),
        repeats=3.0,
        capacity=float(numbers.integers(20, 80)),
        host=float(numbers.integers(4, 20)),
    )


def all_ways(rank: Rank) -> Iterator[Parts]:
    """Yield what every way to hold the load adds up to that fits, by hand."""
    columns, load = rank.columns, rank.held[0].tolist()
    own = [np.flatnonzero(columns.kind == kind).tolist() for kind in range(len(load))]
    ways = [list(combinations_with_replacement(own[k], n)) for k, n in enumerate(load)]
    for way in product(*ways):
        used = [column for part in way for column in part]
        memory = columns.memory[used].sum() + columns.transient[used].max()
        if memory <= rank.capacity and columns.host[used].sum() <= rank.host:
            yield Parts(
                fill=rank.own.fill + columns.fill[used].sum(),
                pace=rank.own.pace + columns.pace[used].sum(),
                end=rank.own.end + columns.end[used].sum(),
            )
