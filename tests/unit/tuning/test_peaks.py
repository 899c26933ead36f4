"""Peaks: what trials say of others' memory, by hand, and of machines that are drawn.

Logarithms of two plans' true over predicted peaks have a correlation of one half. Both leaving no
room, P(both fit) = 1/4 + asin(1/2) / (2 pi) = 1/3.
"""

import math

import numpy as np
import pytest

from planner.calibration.peaks import PeakTrial, log_room
from planner.tuning.peaks import DEGREES_OF_FREEDOM, SCALE, Peaks, learnt_peaks

ERROR = 0.134
ROOMY = 1.0
MACHINES = 2000


def ended(room, *, fitted):
    return PeakTrial(room=room, fitted=fitted)


def measured(log_ratio):
    return PeakTrial(room=ROOMY, fitted=True, log_ratio=log_ratio)


@pytest.mark.parametrize(("room", "chance"), [(0.0, 0.5), (0.134, 0.8413447), (-0.134, 0.1586553)])
def test_without_trials_the_chance_is_the_predicted_one(room, chance):
    assert Peaks.of((), error_ratio=ERROR).chance(room) == pytest.approx(chance, abs=1e-5)


@pytest.mark.parametrize(("fitted", "chance"), [(False, 1.0 / 3.0), (True, 2.0 / 3.0)])
def test_a_trial_without_room_moves_the_chance_of_its_like(fitted, chance):
    peaks = Peaks.of([ended(0.0, fitted=fitted)], error_ratio=ERROR)
    assert peaks.chance(0.0) == pytest.approx(chance, abs=1e-4)


def test_a_trial_that_had_to_fit_says_next_to_nothing():
    peaks = Peaks.of([ended(1.0, fitted=True)], error_ratio=ERROR)
    assert peaks.chance(0.0) == pytest.approx(0.5, abs=1e-4)


def test_the_room_that_is_needed_has_the_chance_and_grows_with_what_ran_out():
    untried = Peaks.of((), error_ratio=ERROR)
    ran_out = Peaks.of([ended(0.22, fitted=False)], error_ratio=ERROR)
    assert untried.least_room(0.95) == pytest.approx(1.6448536 * ERROR, rel=1e-3)
    assert ran_out.least_room(0.95) > 0.22 + untried.deviations.item()
    assert ran_out.chance(ran_out.least_room(0.95)) == pytest.approx(0.95, abs=1e-9)


def test_one_measured_peak_is_believed_by_half_where_plans_differ_as_stated():
    """A machine's factor and a plan's own ratio vary alike, as stated, so that each is half of it.

    Plans of most machines differ by less than is stated, and then more of it is the machine's.
    """
    mean = Peaks.of([measured(0.05)], error_ratio=ERROR).mean
    assert 0.5 * 0.05 < mean < 0.05


def test_what_is_learnt_has_the_mean_and_the_quantile_of_the_chance():
    trials = [measured(0.1), measured(0.12), measured(0.09)]
    found, peaks = (
        learnt_peaks(trials, error_ratio=ERROR, chance=0.99),
        Peaks.of(trials, error_ratio=ERROR),
    )
    assert found.trial_count == 3
    assert found.log_ratio == pytest.approx(0.0917, abs=2e-3)
    room = found.log_ratio + 2.3263479 * found.error_ratio
    assert peaks.chance(room) == pytest.approx(0.99, abs=1e-6)
    assert learnt_peaks((), error_ratio=ERROR, chance=0.95) is None


def test_peaks_that_are_alike_leave_ever_less_open_and_such_that_differ_more():
    alike = [learnt_peaks([measured(0.0)] * n, error_ratio=ERROR, chance=0.95) for n in (1, 3, 10)]
    errors = [one.error_ratio for one in alike]
    assert ERROR > errors[0] > errors[1] > errors[2]
    assert errors[1] < 0.5 * ERROR
    apart = [measured(y) for y in (-0.3, 0.3, 0.0)]
    assert learnt_peaks(apart, error_ratio=ERROR, chance=0.95).error_ratio > 1.5 * ERROR


@pytest.mark.parametrize("log_ratio", [-0.1, -0.5, -2.0])
def test_less_than_was_predicted_never_asks_for_more_room(log_ratio):
    shipped = Peaks.of((), error_ratio=ERROR).least_room(0.95)
    one = Peaks.of([measured(log_ratio)], error_ratio=ERROR).least_room(0.95)
    both = Peaks.of([measured(0.0), measured(log_ratio)], error_ratio=ERROR).least_room(0.95)
    assert max(one, both) < shipped


@pytest.mark.parametrize("count", [1, 3])
def test_plans_with_a_chance_of_95_percent_fit_as_often_on_drawn_machines(count):
    """Machines have a factor, and a spread of plans about it; both are drawn as stated.

    The peak of the next plan is within its quantile of 0.95 where its own quantile is at most that.
    The standard error is 0.5 points. That peaks far below predicted are not believed costs a point.
    """
    random, fits = np.random.default_rng(7), []
    for _ in range(MACHINES):
        factor = random.normal(0.0, ERROR * math.sqrt(0.5))
        spread = math.sqrt(SCALE * DEGREES_OF_FREEDOM / random.chisquare(DEGREES_OF_FREEDOM))
        own = random.normal(0.0, spread * ERROR * math.sqrt(0.5), size=count + 1)
        trials = [measured(float(factor + one)) for one in own[:-1]]
        fits.append(Peaks.of(trials, error_ratio=ERROR).chance(factor + own[-1]) <= 0.95)
    assert 0.93 <= np.mean(fits) <= 0.96


def test_room_is_what_the_chance_was_made_of():
    assert log_room(0.8413447460685429, error_ratio=ERROR) == pytest.approx(ERROR)
    assert log_room(1.0, error_ratio=ERROR) > 7.0 * ERROR
    assert log_room(0.0, error_ratio=ERROR) < -7.0 * ERROR
