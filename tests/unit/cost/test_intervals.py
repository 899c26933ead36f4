"""Intervals: the spread of a step, and the chance that a peak fits."""

from __future__ import annotations

import pytest

from planner.cost.intervals import fits_probability, step_interval


def test_an_interval_is_symmetric_in_ratio() -> None:
    interval = step_interval(10.0, interval_ratio=0.25)
    assert (interval.p10, interval.p50, interval.p90) == pytest.approx((8.0, 10.0, 12.5))


def test_a_peak_at_capacity_fits_in_half_of_all_runs() -> None:
    assert fits_probability(80.0, device_bytes=80.0, error_ratio=0.06) == pytest.approx(0.5)


def test_one_standard_deviation_below_capacity_fits_in_84_of_100() -> None:
    """exp(0.1) above the peak, with 0.1 as the logarithm's standard deviation."""
    chance = fits_probability(1.0, device_bytes=1.1051709, error_ratio=0.1)
    assert chance == pytest.approx(0.8413, abs=1e-4)


def test_nothing_always_fits() -> None:
    assert fits_probability(0.0, device_bytes=1.0, error_ratio=0.06) == 1.0


def test_a_device_without_memory_holds_nothing() -> None:
    assert fits_probability(1.0, device_bytes=0.0, error_ratio=0.06) == 0.0
