"""However short the limit, a job that fits has a plan."""

from __future__ import annotations

import time

import numpy as np
import pytest

from planner.ilp.pricing import Pricing
from planner.planning import plan
from planner.requests.references import read_cluster, read_model
from planner.schema.job import Job, Limits
from planner.schema.plan import Plan
from tests.small_jobs import small_jobs


def test_a_limit_that_is_over_before_anything_is_bounded_has_a_plan_without_a_bound(
    monkeypatch: pytest.MonkeyPatch,
) -> None:
    """Bounds of all configurations take longer than the limit, as those of 155,025 may."""
    honest = Pricing.quick_bounds

    def late(pricing: Pricing, *asked: object, deadline: float = float("inf")) -> object:
        while time.perf_counter() <= deadline < float("inf"):
            pass
        return honest(pricing, *asked, deadline=deadline)  # type: ignore[arg-type]

    monkeypatch.setattr(Pricing, "quick_bounds", late)
    job = Job(global_batch_size=64, sequence_length=4096, limits=Limits(solver_seconds=0.2))
    found = plan(read_model("llama-3-8b"), read_cluster("8xh100-sxm5-80gb"), job)
    assert isinstance(found, Plan)
    assert found.prediction.fits
    assert (found.certificate.status, found.certificate.gap_ratio) == ("feasible", 1.0)


def test_bounds_are_nothing_past_a_deadline_and_the_same_before_it() -> None:
    (_, job), *_ = small_jobs(range(200, 210))
    whole, past = job.pricing.quick_bounds(), job.pricing.quick_bounds(deadline=0.0)
    assert (whole > 0.0).all()
    assert (past[np.isfinite(whole)] == 0.0).all()
    later = time.perf_counter() + 60.0
    assert (job.pricing.quick_bounds(deadline=later) == whole).all()
