"""Plan: breakdowns add up, and every part is closed to what it does not know."""

import json

import pytest

from planner.errors import DocumentError
from planner.schema.plan import Plan
from planner.units import GIB
from tests.builders import a_plan, a_prediction, a_stage_prediction


def test_breakdown_total_is_the_sum_of_its_parts():
    assert a_prediction().breakdown_seconds.total_seconds() == pytest.approx(1.0)


def test_memory_total_is_the_sum_of_its_parts():
    assert a_stage_prediction().memory_bytes.total_bytes() == 10.0 * GIB


@pytest.mark.parametrize(
    ("path", "value"),
    [
        (("prediction", "step_seconds", "p50"), -1.0),
        (("prediction", "fits_probability"), 1.5),
        (("certificate", "status"), "perfect"),
        (("status",), "infeasible"),
        (("strategy", "tensor_parallel_degree"), 0),
        (("prediction", "breakdown_seconds", "luck"), 0.1),
    ],
)
def test_plan_with_a_bad_field_names_it(path, value):
    fields = json.loads(a_plan().to_json())
    inner = fields
    for key in path[:-1]:
        inner = inner[key]
    inner[path[-1]] = value
    with pytest.raises(DocumentError) as caught:
        Plan.from_fields(fields, source="plan.json")
    assert caught.value.field == ".".join(path)


def test_plan_without_a_certificate_is_refused():
    fields = json.loads(a_plan().to_json())
    del fields["certificate"]
    with pytest.raises(DocumentError, match="certificate: is required; add the field"):
        Plan.from_fields(fields, source="plan.json")
