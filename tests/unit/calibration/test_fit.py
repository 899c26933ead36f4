"""The fit finds the scalars that made the runs, and keeps to shipped values without evidence."""

from __future__ import annotations

import math

import numpy as np
import pytest

from planner.calibration.fit import PRIOR_DEVIATIONS, fitted
from planner.calibration.held_out import HeldOut
from planner.calibration.parts import (
    COUNT,
    NAMES,
    factors_of,
    parts_of,
    priced_seconds,
    scalars_of,
)
from planner.calibration.report import verdict_of
from planner.schema.scalars import Scalars
from tests.calibration_rows import TRUTH, measured_fields, rows_of
from tests.measured_rows import TORCHTITAN

NOISE = 0.03


def test_scalars_and_factors_are_each_others_inverse():
    assert scalars_of(factors_of(TRUTH)).model_dump() == pytest.approx(TRUTH.model_dump())
    assert factors_of(Scalars(compute_efficiency_ratio=0.5))[0] == pytest.approx(math.log(2.0))
    assert factors_of(Scalars(host_overhead_ratio=2.0))[3] == pytest.approx(math.log(2.0))


def test_parts_give_the_step_of_other_scalars_without_pricing_it():
    """Where nothing else comes to bound a run, the sum of scaled parts is the price itself."""
    rows = rows_of(measured_fields(Scalars(), noise=0.0))
    moved = factors_of(Scalars(compute_efficiency_ratio=0.95, memory_efficiency_ratio=0.95))
    errors, _ = parts_of(rows, np.zeros(COUNT)).log_errors(moved)
    exact = [math.log(priced_seconds(row, moved) / row.measured_seconds) for row in rows]
    assert errors == pytest.approx(exact, abs=0.004)


@pytest.mark.parametrize("precision", ["bf16", "fp8"])
def test_slopes_of_the_sum_are_those_of_prices(precision):
    fields = {**TORCHTITAN, "gpu": "H100-SXM", "precision": precision}
    (row,) = rows_of([fields])
    _, slopes = parts_of([row], np.zeros(COUNT)).log_errors(np.zeros(COUNT))
    for place in range(COUNT):
        moved = np.zeros(COUNT)
        moved[place] = 0.01
        rise = math.log(priced_seconds(row, moved) / priced_seconds(row, np.zeros(COUNT)))
        assert slopes[0, place] == pytest.approx(rise / 0.01, abs=0.01)
    assert (slopes[0, NAMES.index("fp8_efficiency_ratio")] > 0.3) == (precision == "fp8")


def test_parts_of_the_rate_alone_price_other_rates_as_all_parts_do():
    """In 8 bits, whose products and attention go with two factors each."""
    rows = rows_of([{**TORCHTITAN, "gpu": "H100-SXM", "precision": "fp8"}])
    rate = np.zeros(COUNT)
    rate[NAMES.index("compute_efficiency_ratio")] = 0.2
    every, alone = (
        parts_of(rows, np.zeros(COUNT), moved=moved).log_errors(rate)[0]
        for moved in (range(COUNT), [NAMES.index("compute_efficiency_ratio")])
    )
    assert alone == pytest.approx(every, abs=1e-9)
    assert alone[0] > parts_of(rows, np.zeros(COUNT)).log_errors(np.zeros(COUNT))[0][0] + 0.05


def test_the_fit_finds_the_scalars_that_made_the_runs():
    rows = rows_of(measured_fields(TRUTH, noise=NOISE))
    fit, _ = fitted(rows)
    found = scalars_of(fit.factors)
    assert found.compute_efficiency_ratio == pytest.approx(0.85, abs=0.05)
    assert found.memory_efficiency_ratio == pytest.approx(0.75, abs=0.08)
    assert found.communication_efficiency_ratio == pytest.approx(0.6, abs=0.08)


def test_the_fit_tells_attention_from_products():
    """More than half of the way to the truth, in logarithms, where products hardly move."""
    truth = Scalars(attention_efficiency_ratio=0.75)
    fit, _ = fitted(rows_of(measured_fields(truth, noise=NOISE)))
    found = scalars_of(fit.factors)
    assert 0.7 < found.attention_efficiency_ratio < math.sqrt(0.75)
    assert found.compute_efficiency_ratio == pytest.approx(1.0, abs=0.04)


def test_intervals_narrow_to_what_runs_held_out_are_off_by():
    """Of noise of 0.03, 80 % lies within 1.28 x 0.03; shipped intervals are several times wider."""
    verdict = verdict_of(rows_of(measured_fields(TRUTH, noise=NOISE)))
    assert 0.25 <= verdict.pair.scalars.step_interval_ratio < 0.6


def test_too_few_runs_leave_intervals_as_they_are():
    """Of three no one is surely farther off than 80 % of runs."""
    verdict = verdict_of(rows_of(measured_fields(TRUTH, noise=NOISE)[:3]))
    assert verdict.pair.scalars.step_interval_ratio == 1.0


def test_the_interval_holds_the_ninth_of_ten_runs_held_out():
    widths = np.array([0.1, 0.5, 0.2, 0.9, 0.4, 0.3, 0.8, 0.6, 0.7, 3.0])
    left = HeldOut(by="run", groups=("",) * 10, before=widths, after=widths, widths=widths)
    assert left.interval_ratio == 0.9


def test_runs_held_out_come_closer_where_there_is_something_to_find():
    verdict = verdict_of(rows_of(measured_fields(TRUTH, noise=NOISE)))
    assert verdict.accepted
    assert verdict.pair.held_out.by == "model"
    assert verdict.pair.held_out.mean_before_ratio > 0.15
    assert verdict.pair.held_out.mean_after_ratio < 0.06


@pytest.mark.parametrize("seed", range(3))
def test_noise_around_shipped_values_is_refused(seed):
    verdict = verdict_of(rows_of(measured_fields(Scalars(), noise=0.2, seed=seed)))
    assert not verdict.accepted
    assert "runs left out" in verdict.reason


def test_a_single_run_hardly_moves_the_scalars_and_is_refused():
    (row, *_) = rows_of(measured_fields(Scalars(), noise=0.0))
    slow = [{**row.case.run.model_dump(), "step_time_s": 2.0 * row.measured_seconds}]
    verdict = verdict_of(rows_of(slow))
    assert not verdict.accepted
    assert "single run" in verdict.reason
    moved = np.abs(factors_of(verdict.pair.scalars))
    assert (moved <= PRIOR_DEVIATIONS).all()
    assert moved.max() > 0.0


def test_one_run_that_is_far_off_does_not_drag_the_others():
    fields = measured_fields(Scalars(), noise=0.0)
    fields[5] = {**fields[5], "step_time_s": 10.0 * fields[5]["step_time_s"]}
    fit, _ = fitted(rows_of(fields))
    assert np.abs(fit.factors).max() < 0.1


def test_a_scalar_that_no_run_says_anything_of_keeps_its_prior():
    pair = verdict_of(rows_of(measured_fields(TRUTH, noise=NOISE))).pair
    assert pair.scalars.fp8_efficiency_ratio == pytest.approx(1.0)
    width = math.log(pair.intervals.fp8_efficiency_ratio.p90)
    assert width == pytest.approx(1.2816 * 0.15, rel=1e-3)
    known = pair.intervals.compute_efficiency_ratio
    assert math.log(known.p90 / known.p10) < 0.75 * 2 * 1.2816 * 0.1
