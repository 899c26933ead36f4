"""Who accepts a gap gets a plan within it, sooner, and is told the gap that is left."""

from __future__ import annotations

import pytest

from planner.errors import DocumentError
from planner.planning import plan, resolved_cluster, resolved_model
from planner.schema.job import Job
from planner.schema.plan import Plan
from planner.verify import verify


def answered(model: str, cluster: str, **limits: float) -> Plan:
    fields = {"global_batch_size": 64, "limits": limits}
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
    said, least = found.certificate, best.certificate.lower_bound_seconds
    assert best.certificate.status == "optimal"
    assert said.status == "feasible"
    assert 0.0 < said.gap_ratio <= accepted
    assert said.lower_bound_seconds <= least
    step = found.prediction.step_seconds.p50
    assert least <= step <= least / (1.0 - accepted)
    verify(found)


def test_a_gap_of_everything_is_refused() -> None:
    with pytest.raises(DocumentError, match=r"accepted_gap_ratio: .*less than 1"):
        Job.from_fields({"limits": {"accepted_gap_ratio": 1.0}}, source="job")
