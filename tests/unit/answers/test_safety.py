"""What a chance of fitting costs: the most likely plan beside the best that has the chance."""

from __future__ import annotations

import pytest

from planner.answers.explain import describe_strategy
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
        limits=Limits(**{"solver_seconds": SECONDS, "simplicity_ratio": 0.0, **limits}),
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
    assert found.asked_step_seconds == safe.prediction.step_seconds.p50
    assert gained > 0.0


def test_the_cost_of_safety_is_held_against_the_fastest_where_the_plan_is_a_simpler_one():
    """What simplicity takes beside, up to a fifth here, is no cost of safety."""
    fastest, simple = planned(), planned(simplicity_ratio=0.2)

    found = safety(planned_of(simple), inquiry=Inquiry.within(SECONDS))

    assert simple.strategy != fastest.strategy
    assert found.asked_description == describe_strategy(fastest.strategy)
    assert found.asked_step_seconds == pytest.approx(fastest.prediction.step_seconds.p50)
    assert found.cost_seconds < simple.prediction.step_seconds.p50 - found.step_seconds


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
        asked_description="TP 2 x DP 4",
        asked_step_seconds=2.05,
        cost_seconds=0.05,
        cost_value=0.05,
        cost_ratio=0.025,
    )
    said = (
        "a chance of fitting of 95% costs 50 ms a step (2.50%): the fastest plan that is more "
        "likely than not to fit, PP 2 x DP 4, takes 2 s with a chance of 82.9%, the fastest with "
        "the chance asked for, TP 2 x DP 4, 2.05 s"
    )
    assert safety_words(found, Objective.THROUGHPUT, step_seconds=2.05) == said
    simpler = safety_words(found, Objective.THROUGHPUT, step_seconds=2.08)
    assert simpler == f"{said}; this plan is a simpler one, of 2.08 s"
    cheap = safety_words(found, Objective.COST, step_seconds=2.05)
    assert "the best plan that is more likely" in cheap
    assert "the best with the chance asked for" in cheap


def test_safety_that_costs_nothing_or_was_not_worked_out_is_said_so():
    free = Safety(asked_probability=0.95, proven=False, step_seconds=2.0, cost_value=0.0)
    assert safety_words(free, Objective.THROUGHPUT, step_seconds=2.0).startswith(
        "a chance of fitting of 95% costs nothing: "
    )
    assert safety_words(free, Objective.THROUGHPUT, step_seconds=2.0).endswith(
        "is better (not proven)"
    )
    late = Safety(asked_probability=0.95, proven=False)
    assert "costs was not solved in time" in safety_words(
        late, Objective.THROUGHPUT, step_seconds=2.0
    )
