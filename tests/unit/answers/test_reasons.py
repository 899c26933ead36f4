"""The reasons of a plan agree with the plan and with solving again."""

from __future__ import annotations

from itertools import product

import pytest

from planner.answers.reasons import planned_of, reasons
from planner.errors import VerificationError
from planner.planning import plan
from planner.requests.inquiry import Inquiry
from planner.schema.job import DegreeLimit, Limits
from planner.schema.plan import Infeasible, Plan
from tests.tight_requests import FEW_CHOICES, a_tight_request


def a_tight_answer(limits: Limits = FEW_CHOICES) -> Plan | Infeasible:
    request = a_tight_request(limits=limits)
    return plan(request.model, request.cluster, request.job.resolved)


def a_tight_plan(limits: Limits = FEW_CHOICES) -> Plan:
    found = a_tight_answer(limits)
    assert isinstance(found, Plan)
    return found


def with_degrees(tensor: int, pipeline: int) -> Limits:
    fixed = {
        "tensor_parallel_degree": DegreeLimit(min=tensor, max=tensor),
        "pipeline_parallel_degree": DegreeLimit(min=pipeline, max=pipeline),
    }
    return FEW_CHOICES.model_copy(update=fixed)


def test_the_runner_up_is_the_next_best_of_other_degrees():
    """Each other pair of degrees solved alone, where it fits."""
    planned = a_tight_plan()
    found = reasons(planned, inquiry=Inquiry.within(60.0))
    own = (planned.strategy.tensor_parallel_degree, planned.strategy.pipeline_parallel_degree)
    pairs = [pair for pair in product((1, 2, 4), repeat=2) if pair != own]
    answers = [a_tight_answer(with_degrees(*pair)) for pair in pairs]
    rivals = [a.prediction.step_seconds.p50 for a in answers if isinstance(a, Plan)]
    assert len(rivals) >= 2
    assert found.runner_up.step_seconds == pytest.approx(min(rivals), rel=1e-9)
    assert found.runner_up.slower_seconds == pytest.approx(min(rivals) - found.step_seconds)
    assert found.runner_up.proven


def test_a_plan_without_other_degrees_has_no_runner_up():
    one = {"min": 1, "max": 1}
    limits = FEW_CHOICES.model_copy(
        update={
            "tensor_parallel_degree": DegreeLimit(**one),
            "pipeline_parallel_degree": DegreeLimit(**one),
            "context_parallel_degree": DegreeLimit(**one),
        }
    )
    assert reasons(a_tight_plan(limits), inquiry=Inquiry.within(60.0)).runner_up is None


def test_the_document_says_which_plan_it_explains():
    planned = a_tight_plan()
    found = reasons(planned, inquiry=Inquiry.within(60.0), axes=None)
    assert (found.plan_id, found.step_seconds) == (
        planned.id,
        planned.prediction.step_seconds.p50,
    )
    assert found.heatmap is None
    assert found.schema_version == 1


def test_a_plan_that_does_not_hold_is_not_explained():
    planned = a_tight_plan()
    step = planned.prediction.step_seconds.model_copy(update={"p50": 0.001})
    false = planned.model_copy(
        update={"prediction": planned.prediction.model_copy(update={"step_seconds": step})}
    )
    with pytest.raises(VerificationError):
        planned_of(false)
