"""What a chance of fitting costs: the most likely plan beside the best that has the chance."""

from __future__ import annotations

import pytest

from planner.answers.reasons import planned_of
from planner.answers.safety import safety
from planner.answers.safety_words import safety_words
from planner.planning import plan
from planner.requests.inquiry import Inquiry
from planner.requests.resolution import resolved_cluster, resolved_model
from planner.schema.job import Job, Limits, Objective
from planner.schema.reasons import Safety

MODEL, CLUSTER = "llama-3-8b", "8xh100-sxm5-80gb"
SECONDS = 60.0


def planned(**limits):
    job = Job(
        global_batch_size=128,
        sequence_length=8192,
        limits=Limits(solver_seconds=SECONDS, simplicity_ratio=0.0, **limits),
    )
    return plan(resolved_model(MODEL), resolved_cluster(CLUSTER), job)


def test_the_most_likely_plan_is_the_one_that_half_a_chance_would_have_given():
    safe, likely = planned(), planned(fits_probability=0.5)

    found = safety(planned_of(safe), inquiry=Inquiry.within(SECONDS))

    gained = safe.prediction.step_seconds.p50 - likely.prediction.step_seconds.p50
    assert found.proven
    assert found.asked_probability == 0.95
    assert found.strategy == likely.strategy
    assert found.fits_probability == likely.prediction.fits_probability
    assert found.cost_seconds == pytest.approx(gained)
    assert gained > 0.0


def test_nothing_is_said_where_no_safety_is_asked_for():
    assert (
        safety(planned_of(planned(fits_probability=0.5)), inquiry=Inquiry.within(SECONDS)) is None
    )


def test_both_plans_and_the_cost_are_said():
    found = Safety(
        asked_probability=0.95,
        proven=True,
        description="PP 2 x DP 4",
        fits_probability=0.829,
        step_seconds=2.0,
        cost_seconds=0.05,
        cost_value=0.05,
        cost_ratio=0.025,
    )
    assert safety_words(found, Objective.THROUGHPUT) == (
        "a chance of fitting of 95% costs 50 ms a step (2.50%): the best plan that is more likely "
        "than not to fit, PP 2 x DP 4, takes 2 s with a chance of 82.9%"
    )


def test_safety_that_costs_nothing_or_was_not_worked_out_is_said_so():
    free = Safety(asked_probability=0.95, proven=False, step_seconds=2.0, cost_value=0.0)
    assert safety_words(free, Objective.THROUGHPUT).startswith(
        "a chance of fitting of 95% costs nothing: "
    )
    assert safety_words(free, Objective.THROUGHPUT).endswith("is better (not proven)")
    late = Safety(asked_probability=0.95, proven=False)
    assert "costs was not solved in time" in safety_words(late, Objective.THROUGHPUT)
