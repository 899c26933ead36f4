"""Ten published runs of a stack bring the model closer to the others."""

from __future__ import annotations

from itertools import islice
from pathlib import Path

import numpy as np
import pytest

from planner.calibration.report import learnt_runs
from planner.calibration.row import sorted_rows
from planner.cost.learnt import Learnt, points_of_runs
from planner.importers.measured_runs import read_measured_runs

PUBLISHED = Path(__file__).parents[4] / "shared" / "data" / "measured_runs.jsonl"


def mean_error(errors: np.ndarray) -> float:
    """Return the mean of |predicted / measured - 1| of logarithms of measured over predicted."""
    return float(np.abs(np.expm1(-errors)).mean())


@pytest.mark.skipif(not PUBLISHED.exists(), reason="the published runs are not here")
@pytest.mark.parametrize("family", ["vtrain-multi", "internevo", "amp-homogeneous"])
def test_ten_runs_lessen_the_error_of_the_rest_by_a_tenth(family: str) -> None:
    runs = (run for run in read_measured_runs(PUBLISHED) if run.family == family)
    rows = max(sorted_rows(runs).rows.values(), key=len)
    chosen = set(range(0, len(rows), -(-len(rows) // 10)))
    assert len(chosen) <= 10
    rest = [row for place, row in enumerate(rows) if place not in chosen]
    learnt = Learnt.of(learnt_runs([rows[place] for place in sorted(chosen)]))
    others = learnt_runs(rest)
    errors = np.array([run.log_error for run in others])
    left = errors - learnt.log_factors(points_of_runs(others), deviation=others[0].shared_deviation)
    assert mean_error(left) < 0.9 * mean_error(errors)


@pytest.mark.skipif(not PUBLISHED.exists(), reason="the published runs are not here")
def test_intervals_hold_more_of_known_runs_than_of_others() -> None:
    """Of every eighth run, whose sources are known, more than the four in five of unknown ones."""
    runs = (run for run in read_measured_runs(PUBLISHED) if run.tier != "bulk")
    rows = [row for found in sorted_rows(islice(runs, 0, None, 8)).rows.values() for row in found]
    intervals = [row.case.price().step_seconds for row in rows]
    held = [
        interval.p10 <= row.measured_seconds <= interval.p90
        for row, interval in zip(rows, intervals, strict=True)
    ]
    assert len(held) > 90
    assert 0.8 <= float(np.mean(held)) <= 0.95
