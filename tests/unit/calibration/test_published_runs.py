"""Ten published runs of a stack bring the model closer to the others."""

from __future__ import annotations

from pathlib import Path

import numpy as np
import pytest

from planner.calibration.fit import fitted
from planner.calibration.parts import COUNT, priced_seconds
from planner.calibration.row import Row, sorted_rows
from planner.importers.measured_runs import read_measured_runs

PUBLISHED = Path(__file__).parents[4] / "shared" / "data" / "measured_runs.jsonl"


def mean_error(rows: list[Row], factors: np.ndarray) -> float:
    """Return the mean of |predicted / measured - 1|."""
    return float(
        np.mean([abs(priced_seconds(row, factors) / row.measured_seconds - 1.0) for row in rows])
    )


@pytest.mark.skipif(not PUBLISHED.exists(), reason="the published runs lie outside the checkout")
@pytest.mark.parametrize("family", ["vtrain-multi", "internevo", "amp-homogeneous"])
def test_ten_runs_lessen_the_error_of_the_rest_by_a_tenth(family: str) -> None:
    runs = (run for run in read_measured_runs(PUBLISHED) if run.family == family)
    rows = max(sorted_rows(runs).rows.values(), key=len)
    chosen = set(range(0, len(rows), -(-len(rows) // 10)))
    assert len(chosen) <= 10
    rest = [row for place, row in enumerate(rows) if place not in chosen]
    fit, _ = fitted([rows[place] for place in sorted(chosen)])
    assert mean_error(rest, fit.factors) < 0.9 * mean_error(rest, np.zeros(COUNT))
