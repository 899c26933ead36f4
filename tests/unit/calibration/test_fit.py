"""The fit finds the scalars that made the runs of a machine, and keeps to its profile else."""

from __future__ import annotations

import math

import numpy as np
import pytest

from planner.calibration.fit import Prior, fitted
from planner.calibration.parts import (
    COUNT,
    NAMES,
    parts_of,
    priced_seconds,
    scalars_of,
)
from planner.schema.scalars import Scalars
from tests.calibration_rows import TRUTH, factors_of, measured_fields, rows_of
from tests.measured_rows import TORCHTITAN

NOISE = 0.03
PRIOR = Prior(deviations=np.full(COUNT, 0.3), noise_deviation=0.1)


def test_a_factor_on_time_is_one_over_a_rate_and_an_overhead_itself():
    factors = np.zeros(COUNT)
    factors[NAMES.index("compute_efficiency_ratio")] = math.log(2.0)
    factors[NAMES.index("host_overhead_ratio")] = math.log(3.0)
    expected = Scalars(compute_efficiency_ratio=0.5, host_overhead_ratio=3.0)
    assert scalars_of(factors).model_dump() == pytest.approx(expected.model_dump())


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
    factors, _ = fitted(rows, PRIOR)
    found = scalars_of(factors)
    assert found.compute_efficiency_ratio == pytest.approx(0.85, abs=0.05)
    assert found.memory_efficiency_ratio == pytest.approx(0.75, abs=0.08)
    assert found.communication_efficiency_ratio == pytest.approx(0.6, abs=0.08)


def test_the_fit_tells_attention_from_products():
    """More than half of the way to the truth, in logarithms, where products hardly move."""
    truth = Scalars(attention_efficiency_ratio=0.75)
    factors, _ = fitted(rows_of(measured_fields(truth, noise=NOISE)), PRIOR)
    found = scalars_of(factors)
    assert 0.7 < found.attention_efficiency_ratio < math.sqrt(0.75)
    assert found.compute_efficiency_ratio == pytest.approx(1.0, abs=0.04)


def test_one_run_that_is_far_off_does_not_drag_the_others():
    fields = measured_fields(Scalars(), noise=0.0)
    fields[5] = {**fields[5], "step_time_s": 10.0 * fields[5]["step_time_s"]}
    factors, _ = fitted(rows_of(fields), PRIOR)
    assert np.abs(factors).max() < 0.1
