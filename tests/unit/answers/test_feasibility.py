"""The nearest number that fits is looked for by halves, and nothing is asked twice."""

from __future__ import annotations

import pytest

from planner.answers.feasibility import fewest_above, most_below, most_count_below


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


@pytest.mark.parametrize(
    ("fitting", "fewest"), [({112, 128}, 112), ({88, 128}, 88), ({60, 88, 128}, 60)]
)
def test_the_fewest_nodes_may_be_any_number(fitting: set[int], fewest: int) -> None:
    """Eleven pipelines of eight fit on 88 nodes, where 128 were found by doubling."""
    asked: list[int] = []

    def fits(count: int) -> bool:
        asked.append(count)
        return count in fitting

    assert fewest_above(fits, 1, 4096) == fewest
    assert len(asked) == len(set(asked))


def test_no_nodes_are_found_where_none_fit() -> None:
    assert fewest_above(lambda _: False, 1, 4096) is None
    assert most_count_below(lambda _: False, 96) is None


@pytest.mark.parametrize("nearest", [88, 24])
def test_fewer_nodes_may_be_any_number_next_below_and_halves_from_there(nearest: int) -> None:
    """Of 96, next below are looked at down to 32, and 24 is a quarter."""
    assert most_count_below(lambda count: count == nearest, 96) == nearest
