"""Peaks: what measured peaks and known outcomes are worth, worked out by hand."""

from __future__ import annotations

import math
from collections.abc import Sequence

import numpy as np
import pytest

from benchmarks.peaks import (
    Deviations,
    PeakError,
    after,
    chosen_unlearnt_width,
    chosen_width,
    likeliest,
    wrong,
)
from planner.calibration.peaks import Seen, posterior_of
from planner.schema.job import Stack

FITTED, MEASURED, RAN_OUT = 1, 0, -1
BY = Deviations(shared=0.12, own=0.06)


def seen(*known: tuple[float, int], correlation: float = 1.0) -> Seen:
    """Return runs that are alike, with what is known of each."""
    each = np.full((len(known), len(known)), correlation)
    np.fill_diagonal(each, 1.0)
    ratios: Sequence[float] = [ratio for ratio, _ in known]
    sides = np.array([side for _, side in known])
    return Seen(correlations=each, log_ratios=np.array(ratios), sides=sides)


def test_a_measured_peak_is_learnt_as_it_was_measured() -> None:
    found = posterior_of(seen((0.1, MEASURED)), shared=BY.shared, own=BY.own)
    assert (found.values.item(), found.deviations.item()) == pytest.approx((0.1, 0.06))


def test_a_measured_peak_is_as_likely_as_its_normal_distribution_has_it() -> None:
    """0.12^2 + 0.06^2 = 0.018, and 0.018 + 0.08^2 = 0.0244 where its report differs."""
    for reported, variance in ((0.0, 0.018), (0.08, 0.0244)):
        by = Deviations(shared=0.12, own=0.06, reported=reported)
        density = math.exp(-0.01 / (2.0 * variance)) / math.sqrt(2.0 * math.pi * variance)
        found = posterior_of(
            seen((0.1, MEASURED)), shared=by.shared, own=by.own, reported=by.reported
        )
        assert found.log_likelihood == pytest.approx(math.log(density))


def test_a_run_out_of_memory_at_the_limit_is_as_good_as_one_a_tenth_above_it() -> None:
    """With u = f / n, phi(u) / Phi(u) = u / 4 at u = 1.0615: 0.26538, so that f = 0.06369.

    W = 0.26538 x 1.32688 / 0.0036 = 97.81: a deviation of 0.1011, and 0.06369 + 4.423 / 97.81.
    """
    found = posterior_of(seen((0.0, RAN_OUT)), shared=BY.shared, own=BY.own)
    assert found.values.item() == pytest.approx(0.1089, abs=2e-4)
    assert found.deviations.item() == pytest.approx(0.1011, abs=2e-4)


def test_one_that_fitted_and_one_that_did_not_at_one_limit_leave_it_where_it_was() -> None:
    """phi(0) / Phi(0) = 0.797885 each: 0.06 / 0.797885 = 0.075199 to either side."""
    found = posterior_of(seen((0.0, FITTED), (0.0, RAN_OUT)), shared=BY.shared, own=BY.own)
    assert found.values == pytest.approx([-0.075199, 0.075199], abs=1e-6)
    assert found.deviations == pytest.approx([0.075199, 0.075199], abs=1e-6)


def test_a_run_that_fits_by_far_says_nothing() -> None:
    assert posterior_of(seen((2.0, FITTED)), shared=BY.shared, own=BY.own).deviations.item() > 1e3


def test_a_run_far_on_the_wrong_side_is_nearly_one_measured_at_the_limit() -> None:
    """Far below, ln Phi(u) is -u^2 / 2 and little else, whose curvature is 1 / n^2."""
    found = posterior_of(seen((-2.0, FITTED)), shared=BY.shared, own=BY.own)
    assert found.values.item() == pytest.approx(-2.0, abs=0.02)
    assert found.deviations.item() == pytest.approx(0.06, rel=0.02)


def test_what_runs_share_is_found_where_they_are_off_together() -> None:
    """Sources at +-0.2, whose two runs are 0.02 apart: all is shared, and little is their own."""
    sources = [seen((s * 0.2 + 0.01, MEASURED), (s * 0.2 - 0.01, MEASURED)) for s in (-1, 1)]
    found, _ = likeliest(sources, reported=False)
    assert found.shared == pytest.approx(0.2, rel=0.08)
    assert found.own == pytest.approx(0.01 * math.sqrt(2.0), rel=0.08)


def test_chances_of_nine_in_ten_miss_and_refuse_by_how_far_runs_are_from_the_limit() -> None:
    """1.281552 x 0.1 = 0.128155."""
    runs = seen((0.13, RAN_OUT), (0.12, RAN_OUT), (0.2, FITTED), (0.1, FITTED), (-0.1, FITTED))
    assert wrong(runs, deviation=0.1) == pytest.approx((1 / 2, 2 / 3))


def test_runs_of_one_source_teach_of_its_others() -> None:
    """Eleven alike at 0.1: ten say 0.144 / (0.144 + 0.0036) = 0.97561 of it, 0.00244 are left."""
    runs = seen(*[(0.1, MEASURED)] * 11)
    assert after(runs, BY, count=0) == pytest.approx((math.expm1(0.1) * math.exp(-0.1), 1.0))
    left = 1.0 - math.exp(-0.1 * 0.0036 / 0.1476)
    assert after(runs, BY, count=10) == pytest.approx((left, 1.0), rel=1e-4)


def off(source: str, device: str, *errors: float) -> list[PeakError]:
    """Return peaks of one source on one device."""
    return [PeakError(source=source, pair=(device, Stack.TORCH), error=one) for one in errors]


def test_a_width_holds_four_of_five_peaks_and_counts_sources_alike() -> None:
    """Of b's weight of a half 0.3 more is wanted beside a's: its 3rd of 4 at -0.3 has 0.375."""
    peaks = [*off("a", "h100", *[0.01] * 40), *off("b", "h100", 0.1, 0.2, -0.3, 0.4)]
    assert chosen_width(peaks) == pytest.approx(0.3)


def test_what_devices_of_one_source_differ_by_beside_their_runs_is_unlearnt() -> None:
    """Means at +-0.1: a variance of 0.02; runs' of 0.0002, halved by two: 0.0199, 0.14107 x z."""
    spread = [*off("a", "h100", 0.11, 0.09), *off("a", "mi300x", -0.11, -0.09)]
    assert chosen_unlearnt_width(spread) == pytest.approx(1.281552 * math.sqrt(0.0199), rel=1e-5)
    assert chosen_unlearnt_width([*off("a", "h100", 0.2, 0.0), *off("b", "h100", 0.3)]) == 0.0
    alike = [*off("a", "h100", 0.1, -0.1), *off("a", "mi300x", 0.1, -0.1)]
    assert chosen_unlearnt_width(alike) == 0.0
