"""The nearest number that fits is looked for by halves, and nothing is asked twice."""

from __future__ import annotations

import pytest

from planner.answers.feasibility import most_below


@pytest.mark.parametrize(
    ("limit", "nearest"), [(95_500, 95_488), (131_071, 130_816), (65_536, 65_536), (600, 512)]
)
def test_the_largest_multiple_that_fits_is_found_with_each_asked_once(
    limit: int, nearest: int
) -> None:
    """Below 131,072 in steps of 256."""
    asked: list[int] = []

    def fits(number: int) -> bool:
        asked.append(number)
        return number <= limit

    assert most_below(fits, 131_072, floor=128, finest=256) == nearest
    assert len(asked) == len(set(asked))


def test_nothing_is_found_where_nothing_fits() -> None:
    assert most_below(lambda _: False, 1024, floor=128) is None
