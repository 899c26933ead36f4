"""What a few runs are worth: deviations are found again, and draws come to what is worked out."""

from __future__ import annotations

import math

import numpy as np
import pytest

from benchmarks.calibration import outcome_of, pools_of
from benchmarks.intervals import as_left_out, likeliest
from planner.cost.intervals import UNLEARNT_WIDTH
from planner.cost.learnt import points_of_runs
from planner.schema.job import Stack
from tests.learnt_runs import a_learnt_run


def test_the_deviations_that_made_errors_are_the_likeliest() -> None:
    """A hundred sources of six runs, 0.2 shared and 0.1 their own, where 0.4 and 0.05 ship."""
    random = np.random.default_rng(0)
    stated = {"shared_deviation": 0.4, "own_deviation": 0.05}
    runs = [a_learnt_run(device_count=2**n, **stated) for n in range(3, 9)]
    points = points_of_runs(runs)
    shared = np.linalg.cholesky(0.04 * points.correlations(points))
    errors = [shared @ random.normal(size=6) + 0.1 * random.normal(size=6) for _ in range(100)]
    sources = [
        [run.model_copy(update={"log_error": float(e)}) for run, e in zip(runs, own, strict=True)]
        for own in errors
    ]
    assert likeliest(sources) == pytest.approx((0.5, 2.0), rel=0.1)


def test_runs_that_are_all_alike_are_off_by_what_shrinkage_leaves() -> None:
    """Of 0.3, n runs leave 0.01 / (0.01 + 0.04 n): 1/13, 1/21 and 1/41, all others 1/77."""
    runs = [a_learnt_run(log_error=0.3, shared_deviation=0.2, own_deviation=0.1)] * 20
    found = outcome_of(runs)
    left = [1.0, 1 / 13, 1 / 21, 1 / 41, 1 / 77]
    assert found.errors == pytest.approx([1.0 - math.exp(-0.3 * ratio) for ratio in left])
    assert found.held == (0.0, 1.0, 1.0, 1.0)  # 0.3 is beyond 1.28 sqrt(0.05)


def test_pools_are_of_one_device_and_stack_and_large_enough() -> None:
    own = (a_learnt_run(),) * 15
    few = (a_learnt_run(stack=Stack.MEGATRON),) * 14
    ((name, runs),) = pools_of({"ours": (*own, *few)})
    assert (name, len(runs)) == ("ours, a100-sxm4-80gb torch", 15)


def test_a_source_without_another_of_its_chip_and_stack_is_as_little_known() -> None:
    """An A800 is an A100 for that, a V100 is none; 0.24 / 1.28 is added."""
    own = [a_learnt_run(device=f"{name}-80gb") for name in ("a100-sxm4", "a800-sxm4")]
    other = [a_learnt_run(device="v100-sxm2-32gb")]
    assert as_left_out(own[:1], [own[1:]]) == (own[0],)
    (alone,) = as_left_out(own[:1], [other])
    assert alone.shared_deviation == pytest.approx(math.hypot(0.2, UNLEARNT_WIDTH / 1.281552))
