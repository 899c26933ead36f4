"""A table that grows by decisions."""

from __future__ import annotations

from collections import Counter

import numpy as np

from planner.space.branches import Options, branched


def small_divisors(number: int, bonus: int) -> Options:
    """The divisors up to 3 with the bonus; larger ones are refused."""
    rows = [(d, d + bonus) for d in range(1, 4) if number % d == 0]
    large = sum(number % d == 0 for d in range(4, number + 1))
    return Options(rows=rows, refused=["too large"] * large)


def test_rows_stay_in_order_with_their_own_options() -> None:
    columns = {"number": np.array([4, 3, 4, 5]), "bonus": np.array([0, 10, 20, 0])}
    grown = branched(
        columns,
        ("divisor", "sum"),
        given=("number", "bonus"),
        options=small_divisors,
        refused=Counter(),
    )
    assert grown["number"].tolist() == [4, 4, 3, 3, 4, 4, 5]
    assert grown["divisor"].tolist() == [1, 2, 1, 3, 1, 2, 1]
    assert grown["sum"].tolist() == [1, 2, 11, 13, 21, 22, 1]


def test_a_reason_counts_for_every_row_that_it_holds_for() -> None:
    """4 refuses one divisor, twice; 12 refuses 4, 6 and 12."""
    columns = {"number": np.array([4, 12, 4]), "bonus": np.zeros(3, dtype=np.int64)}
    refused: Counter[str] = Counter()
    branched(
        columns, ("d", "s"), given=("number", "bonus"), options=small_divisors, refused=refused
    )
    assert refused == {"too large": 5}


def test_rows_without_options_end() -> None:
    def even_only(number: int) -> Options:
        return Options(rows=[(number // 2,)] if number % 2 == 0 else [])

    columns = {"number": np.array([1, 2, 3])}
    grown = branched(columns, ("half",), given=("number",), options=even_only, refused=Counter())
    assert grown["number"].tolist() == [2]
    nothing = branched(
        {"number": np.array([1])},
        ("half",),
        given=("number",),
        options=even_only,
        refused=Counter(),
    )
    assert nothing["half"].tolist() == []
    assert (
        branched(nothing, ("again",), given=("half",), options=even_only, refused=Counter())[
            "again"
        ].tolist()
        == []
    )
