"""Choice: which plan is worth a trial, by hand."""

import math

import pytest

from planner.schema.plan import Interval
from planner.tuning.choice import Prospect, ranked

TENTH = 1.2815515655446004 * 0.1  # from p50 to p10 at a deviation of 0.1, in logarithms


def a_prospect(seconds=1.0, *, chance=0.99, width=TENTH):
    interval = Interval(p10=seconds * math.exp(-width), p50=seconds, p90=seconds * math.exp(width))
    return Prospect(step_seconds=interval, fits_probability=chance)


def test_the_expected_saving_of_a_plan_as_fast_as_the_best():
    """Phi(0) - exp(0.005) Phi(-0.1) = 0.5 - 1.0050125 x 0.4601722 = 0.0375212."""
    assert a_prospect(chance=1.0).expected_saving(1.0) == pytest.approx(0.0375212, abs=1e-6)
    assert a_prospect(chance=0.5).expected_saving(1.0) == pytest.approx(0.0187606, abs=1e-6)


def test_the_fastest_that_is_likely_to_fit_comes_first():
    some = [a_prospect(2.0), a_prospect(0.5, chance=0.9), a_prospect(1.0)]
    assert ranked(some, best_seconds=None, likely=0.95) == (2, 0)


def test_where_none_is_likely_to_fit_the_likeliest_is_tried_until_one_was_measured():
    some = [a_prospect(1.0, chance=0.2), a_prospect(3.0, chance=0.6)]
    assert ranked(some, best_seconds=None, likely=0.95) == (1, 0)
    assert ranked(some, best_seconds=2.0, likely=0.95) == ()


def test_what_cannot_be_faster_is_not_tried():
    some = [a_prospect(1.0), a_prospect(1.2)]
    assert ranked(some, best_seconds=0.9, likely=0.95) == (0,)
    assert ranked(some, best_seconds=0.8, likely=0.95) == ()


def test_of_two_as_fast_the_less_certain_may_save_more():
    some = [a_prospect(1.0), a_prospect(1.0, width=2.0 * TENTH)]
    assert ranked(some, best_seconds=1.0, likely=0.95) == (1, 0)
