"""Choice: which plan is worth a trial, by hand."""

import math

import pytest

from planner.schema.plan import Interval
from planner.tuning.choice import Measured, Prospect, ranked

TENTH = 1.2815515655446004 * 0.1  # from p50 to p10 at a deviation of 0.1, in logarithms


def a_prospect(seconds=1.0, *, chance=0.99, width=TENTH, tensor=1):
    interval = Interval(p10=seconds * math.exp(-width), p50=seconds, p90=seconds * math.exp(width))
    return Prospect(degrees=(tensor, 1), step_seconds=interval, fits_probability=chance)


def measured(*seconds):
    """Plans of tensor parallelism by 1, 2, 4, ... that were tried."""
    return [
        Measured(degrees=(2**place, 1), step_seconds=step) for place, step in enumerate(seconds)
    ]


def test_the_expected_saving_of_a_plan_as_fast_as_the_best():
    """Phi(0) - exp(0.005) Phi(-0.1) = 0.5 - 1.0050125 x 0.4601722 = 0.0375212."""
    assert a_prospect(chance=1.0).expected_saving(1.0) == pytest.approx(0.0375212, abs=1e-6)
    assert a_prospect(chance=0.5).expected_saving(1.0) == pytest.approx(0.0187606, abs=1e-6)


def test_the_fastest_that_is_likely_to_fit_comes_first():
    some = [a_prospect(2.0), a_prospect(0.5, chance=0.9), a_prospect(1.0)]
    assert ranked(some, measured=(), likely=0.95) == (2, 0)


def test_where_none_is_likely_to_fit_the_likeliest_is_tried_until_one_was_measured():
    some = [a_prospect(1.0, chance=0.2), a_prospect(3.0, chance=0.6)]
    assert ranked(some, measured=(), likely=0.95) == (1, 0)
    assert ranked(some, measured=measured(2.0), likely=0.95) == ()


def test_what_cannot_be_faster_is_not_tried():
    some = [a_prospect(1.0), a_prospect(1.2)]
    assert ranked(some, measured=measured(1.5, 0.9, 1.6), likely=0.95) == (0,)
    assert ranked(some, measured=measured(1.5, 0.8, 1.6), likely=0.95) == ()


def test_nothing_is_ruled_out_by_fewer_than_three_steps():
    """Two differences are needed to know how far layouts differ."""
    some = [a_prospect(1.0), a_prospect(1.2)]
    assert ranked(some, measured=measured(0.8, 1.5), likely=0.95) == (0, 1)


def test_plans_of_other_degrees_come_first_until_two_were_measured():
    some = [a_prospect(0.9, tensor=1), a_prospect(1.0, tensor=8), a_prospect(0.95, tensor=2)]
    assert ranked(some, measured=measured(1.0), likely=0.95) == (2, 1, 0)
    assert ranked(some, measured=measured(1.0, 1.1), likely=0.95) == (0, 2, 1)


def test_of_two_as_fast_the_less_certain_may_save_more():
    some = [a_prospect(1.0), a_prospect(1.0, width=2.0 * TENTH)]
    assert ranked(some, measured=measured(1.0), likely=0.95) == (1, 0)
