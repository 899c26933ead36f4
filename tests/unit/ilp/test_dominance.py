"""What is left out is equalled or beaten by something that is kept."""

from __future__ import annotations

import numpy as np
import pytest

from planner.ilp.stage_patterns import unbeaten_of

SEEDS = range(60)


def random_measures(seed: int) -> np.ndarray:
    """Three to five measures of up to 400 columns, with many that are equal but for rounding."""
    numbers = np.random.default_rng(seed)
    shape = (int(numbers.integers(3, 6)), int(numbers.integers(1, 400)))
    measures = numbers.integers(0, 9, size=shape).astype(float)
    measures[0] *= 1.0 + 1e-15 * numbers.integers(-3, 4, size=shape[1])
    return measures


def assert_all_are_matched(measures: np.ndarray, kept: np.ndarray) -> None:
    """Each column is equalled or beaten by one that is kept."""
    eased = measures * (1.0 + 1e-12)
    for column in eased.T:
        assert (measures[:, kept] <= column[:, None]).all(axis=0).any()


def test_none_of_those_kept_beats_another() -> None:
    for seed in SEEDS:
        measures = random_measures(seed)
        measures = measures[:, np.lexsort(measures[::-1])]
        kept = unbeaten_of(measures)
        assert_all_are_matched(measures, kept)
        for place in kept.tolist():
            others = measures[:, kept[kept != place]]
            beats = (others <= measures[:, [place]]).all(axis=0)
            assert not beats.any(), f"measures {seed}"


def test_of_many_no_earlier_one_that_is_kept_matches_another() -> None:
    numbers = np.random.default_rng(7)
    for count in (129, 1024, 2500):
        measures = np.round(numbers.random((6, count)), 2)
        measures[0] *= 1.0 + 1e-15 * numbers.integers(-3, 4, size=count)
        measures = measures[:, np.lexsort(measures[::-1])]
        expected: list[int] = []
        for place, column in enumerate(measures.T):
            most = column + np.where(np.arange(6) < 3, 1e-13, 0.0)
            if not (measures[:, expected] <= most[:, None]).all(axis=0).any():
                expected.append(place)
        assert 50 < len(expected) < count
        assert unbeaten_of(measures).tolist() == expected


def test_a_check_may_end_it() -> None:
    def too_late() -> None:
        raise TimeoutError

    with pytest.raises(TimeoutError):
        unbeaten_of(np.ones((3, 5)), check=too_late)
