"""Rates chosen on other families: what is left out does not choose."""

from __future__ import annotations

import numpy as np
import pytest

from benchmarks.leave_out import errors_of, errors_together
from planner.calibration.row import Row
from planner.validation.case import case_of
from tests.measured_rows import TORCHTITAN, a_run


def a_row(family: str, ratio: float, gpu: str = "A100-SXM") -> Row:
    """A run that takes `ratio` times what is predicted of it."""
    case = case_of(a_run(TORCHTITAN, family=family, gpu=gpu))
    return Row(case=case, measured_seconds=ratio * case.price().step_seconds.p50)


def test_a_family_alone_is_held_against_what_is_shipped() -> None:
    ((_, shipped, left),) = errors_of([a_row("one", 1.25)])
    assert (shipped, left) == pytest.approx((-0.2, -0.2))


def test_the_others_choose_the_rate_each_family_alike() -> None:
    """Two that take 1.2 times as long, many runs or few, make the third 1.2 times as long."""
    slow = [a_row("many", 1.2), a_row("many", 1.2), a_row("few", 1.2)]
    found = {row.family: left for row, _, left in errors_of([*slow, a_row("right", 1.0)])}
    assert found["right"] == pytest.approx(0.2, abs=0.02)
    assert found["many"] < -0.05
    assert np.abs(list(found.values())).max() < 0.25


def test_devices_of_one_number_choose_it_together_and_others_do_not() -> None:
    """Torch has 0.90 for A100 and A800, another for H100, whose families do not meet here."""
    rows = [[a_row("slow", 1.2)], [a_row("right", 1.0, "A800")], [a_row("alone", 1.1, "H100")]]
    found = {row.family: left for row, _, left in errors_together(rows)}
    assert found["right"] == pytest.approx(0.2, abs=0.02)
    assert found["alone"] == pytest.approx(1 / 1.1 - 1, abs=1e-3)
