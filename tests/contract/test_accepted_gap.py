"""Who accepts a gap gets a plan within it, sooner, and is told the gap that is left."""

from __future__ import annotations

from functools import cache

import pytest

from planner.errors import DocumentError
from planner.planning import plan, resolved_cluster, resolved_model
from planner.proof.verify import verify
from planner.schema.job import Job
from planner.schema.plan import Plan


@cache
def answered(model: str, cluster: str, **limits: float) -> Plan:
    fields = {"global_batch_size": 64, "limits": {"simplicity_ratio": 0.0, **limits}}
    found = plan(
        resolved_model(model),
        resolved_cluster(cluster),
        Job.from_fields(fields, source="job"),
    )
    assert isinstance(found, Plan)
    return found


@pytest.mark.parametrize("accepted", [0.005, 0.02, 0.1])
@pytest.mark.parametrize(
    ("model", "cluster"),
    [("llama-3-8b", "8xh100-sxm5-80gb"), ("qwen3-30b-a3b", "8xh100-sxm5-80gb")],
)
def test_the_plan_is_within_the_gap_that_is_accepted(
    model: str, cluster: str, accepted: float
) -> None:
    best = answered(model, cluster)
    found = answered(model, cluster, accepted_gap_ratio=accepted)
    said, known = found.certificate, best.certificate.closed_form
    proven = said.closed_form
    assert known is not None
    assert proven is not None
    least = known.lower_bound_seconds
    assert said.gap_ratio <= accepted
    assert (said.status == "optimal") == (said.gap_ratio == 0.0)
    assert proven.lower_bound_seconds <= least
    step = found.prediction.closed_form_seconds
    assert least <= step <= least / (1.0 - accepted)
    verify(found)


@pytest.mark.parametrize(
    ("model", "cluster"),
    [("llama-3-70b", "64xh100-sxm5-80gb"), ("qwen3-30b-a3b", "8xh100-sxm5-80gb")],
)
def test_a_wide_gap_ends_the_search_before_the_proof(model: str, cluster: str) -> None:
    best = answered(model, cluster).certificate
    said = answered(model, cluster, accepted_gap_ratio=0.1).certificate
    assert said.status == "feasible"
    assert said.gap_ratio > 0.0
    assert said.lower_bound_seconds < best.lower_bound_seconds


def test_a_gap_of_everything_is_refused() -> None:
    with pytest.raises(DocumentError, match=r"accepted_gap_ratio: .*less than 1"):
        Job.from_fields({"limits": {"accepted_gap_ratio": 1.0}}, source="job")
