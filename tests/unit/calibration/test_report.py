"""Report: what runs teach, whether they bear one another out, and which are less trusted."""

from __future__ import annotations

import math

import pytest

from planner.calibration.report import Origin, _gains, calibration_report, learnt_runs
from planner.calibration.row import Row, Sorting, sorted_rows
from planner.cost.intervals import SHARED_RATIO, WIDTH
from planner.cost.learnt import Learnt
from planner.schema.calibration import CalibrationReport
from planner.schema.measured_run import MeasuredRun
from planner.schema.scalars import Scalars
from planner.validation.case import case_of
from tests.calibration_rows import TRUTH, measured_fields, rows_of
from tests.learnt_runs import a_learnt_run
from tests.measured_rows import TORCHTITAN, a_run

NOISE = 0.03
ORIGIN = Origin(name="ours", date="2026-11-25", source="runs", source_digest="0" * 64)


def reported(rows: list[Row]) -> CalibrationReport:
    """Return the report on rows of one device and stack."""
    return calibration_report(Sorting(rows={rows[0].pair: rows}), ORIGIN)


def test_runs_held_out_come_closer_where_there_is_something_to_find():
    found = reported(rows_of(measured_fields(TRUTH, noise=NOISE)))
    assert found.accepted
    assert found.profile.held_out.mean_before_ratio > 0.15
    assert found.profile.held_out.mean_after_ratio < 0.08


@pytest.mark.parametrize("seed", range(3))
def test_noise_around_shipped_values_is_refused(seed):
    found = reported(rows_of(measured_fields(Scalars(), noise=0.2, seed=seed)))
    assert not found.accepted
    assert "knowing the other runs" in found.reason


def test_runs_that_are_as_predicted_narrow_what_is_left_open():
    """Of noise of 3 % the mean error cannot fall, but it is known to be no more."""
    found = reported(rows_of(measured_fields(Scalars(), noise=0.03)))
    assert found.accepted
    (effect,) = found.profile.effects
    assert effect.factor == pytest.approx(1.0, abs=0.03)
    assert effect.left_ratio < 0.06 < 0.5 * effect.prior_ratio


def test_a_gain_is_of_density_as_a_normal_distribution_has_it():
    """Of two alike at 0.2, each said to be at 0.16 with a variance of 0.018, not at 0 with 0.05."""
    runs = [a_learnt_run(log_error=0.2, shared_deviation=0.2, own_deviation=0.1)] * 2
    gain = 0.5 * (math.log(0.05 / 0.018) + 0.2**2 / 0.05 - 0.04**2 / 0.018)
    assert _gains(runs, Learnt.of(runs)) == pytest.approx([gain, gain])


def test_a_single_run_is_taken_at_what_it_says_beside_others():
    """Where its own deviation is n and t is shared, t^2 / (t^2 + n^2) of it: what runs share."""
    case = case_of(a_run(TORCHTITAN))
    found = reported([Row(case=case, measured_seconds=1.5 * case.price().step_seconds.p50)])
    ((run,), (effect,)) = found.profile.runs, found.profile.effects
    assert found.accepted
    assert math.log(effect.factor) == pytest.approx(SHARED_RATIO * math.log(1.5))
    assert effect.said_ratio == pytest.approx(SHARED_RATIO)
    shared = WIDTH * math.sqrt(SHARED_RATIO)
    assert math.log1p(effect.prior_ratio) == pytest.approx(shared)
    assert math.log1p(effect.left_ratio) == pytest.approx(shared * math.sqrt(1.0 - SHARED_RATIO))
    assert math.hypot(run.shared_deviation, run.own_deviation) * 1.281552 == pytest.approx(
        WIDTH, rel=1e-5
    )


def test_one_run_that_is_far_off_does_not_drag_the_others():
    fields = measured_fields(Scalars(), noise=0.0)
    fields[5] = {**fields[5], "step_time_s": 10.0 * fields[5]["step_time_s"]}
    runs = learnt_runs(rows_of(fields))
    assert runs[5].log_error == pytest.approx(math.log(10.0))
    assert runs[5].own_deviation > 0.8
    assert max(run.own_deviation for place, run in enumerate(runs) if place != 5) < 0.15
    (effect,) = reported(rows_of(fields)).profile.effects
    assert effect.factor == pytest.approx(1.0, abs=0.05)


def test_steps_that_differ_make_a_run_say_less():
    """Logarithms of steps of 0.5 and 2 seconds differ by log 2 from their mean."""
    steady, restless = (
        MeasuredRun.from_fields({**TORCHTITAN, "step_time_s": 1.0, "steps_s": steps}, source="test")
        for steps in ([1.0, 1.0], [0.5, 2.0])
    )
    own = [learnt_runs(sorted_rows([run]).rows.popitem()[1])[0] for run in (steady, restless)]
    assert own[1].own_deviation == pytest.approx(math.hypot(own[0].own_deviation, math.log(2.0)))
