"""What a few runs are worth: deviations are found again, and draws come to what is worked out."""

from __future__ import annotations

import math

import numpy as np
import pytest

from benchmarks.calibration import outcome_of, pools_of, with_deviations
from benchmarks.intervals import likeliest
from planner.cost.learnt import points_of_runs
from planner.schema.job import Stack
from tests.learnt_runs import a_learnt_run


def test_the_deviations_that_made_errors_are_the_likeliest() -> None:
    """A hundred sources of six runs, 0.2 shared and 0.1 their own, of which 0.05 was expected."""
    random = np.random.default_rng(0)
    runs = [a_learnt_run(device_count=2**n, own_deviation=0.05) for n in range(3, 9)]
    points = points_of_runs(runs)
    shared = np.linalg.cholesky(0.04 * points.correlations(points))
    errors = [shared @ random.normal(size=6) + 0.1 * random.normal(size=6) for _ in range(100)]
    sources = [
        [run.model_copy(update={"log_error": float(e)}) for run, e in zip(runs, own, strict=True)]
        for own in errors
    ]
    assert likeliest(sources) == pytest.approx((0.2, 2.0), rel=0.1)


def test_runs_that_are_all_alike_are_off_by_what_shrinkage_leaves() -> None:
    """Of 0.3, n runs leave 0.01 / (0.01 + 0.04 n): 1/13, 1/21 and 1/41."""
    runs = [a_learnt_run(log_error=0.3, shared_deviation=0.2, own_deviation=0.1)] * 20
    found = outcome_of(runs)
    left = [1.0, 1 / 13, 1 / 21, 1 / 41]
    assert found.errors == pytest.approx([1.0 - math.exp(-0.3 * ratio) for ratio in left])
    assert found.held == (0.0, 1.0, 1.0, 1.0)  # 0.3 is beyond 1.28 sqrt(0.05)


def test_pools_are_of_one_device_and_stack_and_large_enough() -> None:
    own = (a_learnt_run(),) * 15
    few = (a_learnt_run(stack=Stack.MEGATRON),) * 14
    ((name, runs),) = pools_of({"ours": (*own, *few)})
    assert (name, len(runs)) == ("ours, a100-sxm4-80gb torch", 15)


def test_deviations_are_put_in_and_scaled() -> None:
    found = with_deviations({"ours": (a_learnt_run(own_deviation=0.1),)}, 0.3, 0.5)
    assert (found["ours"][0].shared_deviation, found["ours"][0].own_deviation) == (0.3, 0.05)
