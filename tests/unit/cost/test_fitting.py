"""How full a device a plan may fill: the headroom, or the chance of fitting that is asked for."""

from __future__ import annotations

import pytest

from planner.cost.fitting import capacity_ratio
from planner.errors import DocumentError
from planner.planning import plan, resolved_cluster, resolved_model
from planner.schema.job import Job, Limits
from planner.schema.plan import Plan
from tests.builders import a_job


def test_the_headroom_alone_where_no_chance_is_asked_for() -> None:
    job = a_job(limits=Limits(memory_headroom_ratio=0.1))
    assert capacity_ratio(job) == pytest.approx(0.9)


def test_a_likely_fit_takes_more_room_than_the_headroom() -> None:
    """exp(-1.645 x 0.134) = 0.802, where the headroom leaves 0.95."""
    job = a_job(limits=Limits(fits_probability=0.95))
    assert capacity_ratio(job) == pytest.approx(0.80219, abs=1e-5)


def test_a_wide_headroom_binds_before_an_even_chance() -> None:
    job = a_job(limits=Limits(memory_headroom_ratio=0.1, fits_probability=0.5))
    assert capacity_ratio(job) == pytest.approx(0.9)


def test_a_plan_fits_with_the_chance_that_was_asked_for() -> None:
    limits = Limits(fits_probability=0.99)
    job = Job(global_batch_size=128, sequence_length=8192, limits=limits)
    found = plan(resolved_model("llama-3-8b"), resolved_cluster("8xh100-sxm5-80gb"), job)
    assert isinstance(found, Plan)
    assert found.prediction.fits_probability >= 0.99


def test_certainty_is_refused() -> None:
    with pytest.raises(DocumentError, match="less than 1"):
        Job.from_fields({"limits": {"fits_probability": 1.0}}, source="job")
