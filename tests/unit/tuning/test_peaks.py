"""Peaks: what out-of-memory trials say of others, against the bivariate normal by hand.

Logarithms of two plans' true over predicted peaks have a correlation of one half. Both leaving no
room, P(both fit) = 1/4 + asin(1/2) / (2 pi) = 1/3.
"""

import pytest

from planner.tuning.peaks import Peaks, log_room

ERROR = 0.134


@pytest.mark.parametrize(("room", "chance"), [(0.0, 0.5), (0.134, 0.8413447), (-0.134, 0.1586553)])
def test_without_trials_the_chance_is_the_predicted_one(room, chance):
    assert Peaks.of((), error_ratio=ERROR).chance(room) == pytest.approx(chance, abs=1e-5)


@pytest.mark.parametrize(("fitted", "chance"), [(False, 1.0 / 3.0), (True, 2.0 / 3.0)])
def test_a_trial_without_room_moves_the_chance_of_its_like(fitted, chance):
    peaks = Peaks.of([(0.0, fitted)], error_ratio=ERROR)
    assert peaks.chance(0.0) == pytest.approx(chance, abs=1e-4)


def test_a_trial_that_had_to_fit_says_next_to_nothing():
    peaks = Peaks.of([(1.0, True)], error_ratio=ERROR)
    assert peaks.chance(0.0) == pytest.approx(0.5, abs=1e-4)


def test_the_room_that_is_needed_has_the_chance_and_grows_with_what_ran_out():
    untried = Peaks.of((), error_ratio=ERROR)
    ran_out = Peaks.of([(0.22, False)], error_ratio=ERROR)
    assert untried.least_room(0.95) == pytest.approx(1.6448536 * ERROR, rel=1e-3)
    assert ran_out.least_room(0.95) > 0.22 + untried.own_deviation
    assert ran_out.chance(ran_out.least_room(0.95)) == pytest.approx(0.95, abs=1e-9)


def test_room_is_what_the_chance_was_made_of():
    assert log_room(0.8413447460685429, error_ratio=ERROR) == pytest.approx(ERROR)
    assert log_room(1.0, error_ratio=ERROR) > 7.0 * ERROR
    assert log_room(0.0, error_ratio=ERROR) < -7.0 * ERROR
