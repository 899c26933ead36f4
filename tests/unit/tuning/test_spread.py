"""Spread: how far layouts differ by their trials, and whether claims of others hold."""

from __future__ import annotations

import math

import numpy as np
import pytest

from planner.cost.intervals import P90_DEVIATIONS
from planner.cost.learnt import Learnt, points_of_runs
from planner.tuning.spread import DEGREES_OF_FREEDOM, learnt_together, student_deviations
from tests.learnt_runs import a_learnt_run

LAYOUTS = [
    a_learnt_run(tensor_parallel_degree=tensor, pipeline_parallel_degree=pipeline)
    for tensor, pipeline in ((1, 1), (2, 1), (4, 1), (1, 2), (1, 4), (2, 2), (8, 1), (1, 8))
]
DRAWS = 2000


@pytest.mark.parametrize(
    ("degrees", "deviations"),
    [(1.0, 3.0777), (3.0, 1.6377), (10.0, 1.3722), (1000.0, 1.2824)],
)
def test_a_tenth_of_students_distribution_lies_beyond_as_tables_have_it(degrees, deviations):
    assert student_deviations(degrees) == pytest.approx(deviations, abs=1e-4)


def test_one_trial_says_all_of_the_machine_and_nothing_of_the_spread():
    """Degrees of freedom stay 1.9; another layout is expected to be as far off, within 0.2 %."""
    (run,) = [a_learnt_run(log_error=1.0)]
    found = learnt_together([run], name="here")
    assert found.spread_ratio == pytest.approx(
        student_deviations(DEGREES_OF_FREEDOM) / P90_DEVIATIONS, rel=0.05
    )
    factors = Learnt.of(found.runs).log_factors(points_of_runs(LAYOUTS), deviation=0.2)
    assert factors == pytest.approx(1.0, abs=0.006)


def test_two_trials_that_differ_widen_what_is_claimed_and_two_alike_narrow_it():
    """Two of the same kind and d = 1.9, of which each has 0.1 for its own.

    Q = 0.6^2 / (2 x 0.1^2) = 18, so that r^2 = (1.9 + 18) / 2.9 = 6.86; alike Q is 0 and r^2 0.655.
    The quantile of 0.9 at 2.9 degrees of freedom is 1.6535.
    """
    for error, variance in ((0.6, 6.862), (0.0, 0.655)):
        runs = [a_learnt_run(), a_learnt_run(log_error=error)]
        expected = math.sqrt(variance) * 1.6535 / P90_DEVIATIONS
        found = learnt_together(runs, name="here").spread_ratio
        assert found == pytest.approx(expected, rel=5e-3)


def test_runs_that_a_job_had_learnt_from_have_no_say_of_this_machine():
    earlier = [a_learnt_run(log_error=-0.4)]
    found = learnt_together([a_learnt_run(log_error=1.0)], name="here", earlier=earlier)
    assert [run.common_deviation for run in found.runs] == [0.0, 3.0]
    points = points_of_runs([LAYOUTS[1]])
    factor = Learnt.of(found.runs).log_factors(points, deviation=0.2).item()
    assert factor == pytest.approx(1.0, abs=0.1)


@pytest.mark.parametrize("measured", [1, 2, 4])
def test_one_in_ten_is_faster_than_its_optimistic_end(measured):
    """Of 2,000 machines drawn as the model has them, whatever their speed and their spread.

    The standard error of a tenth is 0.7 % of each layout that was not tried.
    """
    beyond = [_is_faster(np.random.default_rng(seed), measured) for seed in range(DRAWS)]
    assert np.mean(beyond) == pytest.approx(0.1, abs=0.015)


def test_a_spread_that_is_taken_for_known_is_too_sure():
    """What the same draws say of one measured layout where its spread is not learnt."""
    beyond = [_is_faster(np.random.default_rng(s), 1, is_learnt=False) for s in range(DRAWS)]
    assert np.mean(beyond) > 0.15


def _is_faster(random, measured, *, is_learnt=True):
    """Return whether each layout that was not measured is below its p10, of one drawn machine."""
    points = points_of_runs(LAYOUTS)
    covariance = 0.2**2 * points.correlations(points) + np.diag([0.1**2] * len(LAYOUTS))
    spread = math.sqrt(DEGREES_OF_FREEDOM / random.chisquare(DEGREES_OF_FREEDOM))
    errors = random.uniform(-1.0, 1.0) + spread * (
        np.linalg.cholesky(covariance) @ random.standard_normal(len(LAYOUTS))
    )
    order = random.permutation(len(LAYOUTS))
    known, others = order[:measured], order[measured:]
    runs = [
        LAYOUTS[place].model_copy(update={"log_error": float(errors[place])}) for place in known
    ]
    found = learnt_together(runs, name="here")
    left = points_of_runs([LAYOUTS[place] for place in others])
    learnt = Learnt.of(found.runs)
    variances = np.diag(learnt.covariance(left, deviation=0.2)) + 0.1**2
    ratio = found.spread_ratio if is_learnt else 1.0
    optimistic = learnt.log_factors(left, deviation=0.2) - P90_DEVIATIONS * ratio * np.sqrt(
        variances
    )
    return np.mean(errors[others] < optimistic)
