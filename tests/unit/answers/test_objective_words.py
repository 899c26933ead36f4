"""What a plan is best at is said in the objective's own unit, and the proof is of the objective."""

from __future__ import annotations

import pytest

from planner.answers.objective_words import (
    alternative_words,
    excess_words,
    proof_words,
    value_words,
)
from planner.planning import plan
from planner.schema.job import Objective
from planner.schema.plan import Alternative, ClosedForm, Plan
from planner.units import GIB
from tests.builders import a_certificate
from tests.tight_requests import a_tight_request


@pytest.mark.parametrize(
    ("objective", "value", "words"),
    [
        (Objective.THROUGHPUT, 1.5, "1.5 s a step"),
        (Objective.COST, 0.25, "$0.25 per million tokens"),
        (Objective.MEMORY, 3.0 * GIB, "3 GiB on the fullest device"),
        (Objective.DEVICES, 1.0, "1 device"),
        (Objective.DEVICES, 4.0, "4 devices"),
    ],
)
def test_a_value_is_said_in_the_objectives_unit(objective, value, words):
    assert value_words(objective, value) == words


def test_a_difference_is_more_of_the_objective():
    assert excess_words(Objective.THROUGHPUT, 0.25, 0.5) == "250 ms (50.00%) slower"
    assert excess_words(Objective.DEVICES, 1.0, 0.5) == "1 device (50.00%) more"


@pytest.mark.parametrize(
    ("objective", "value", "words"),
    [
        (Objective.THROUGHPUT, 2.0, "no configuration is under 2 s"),
        (
            Objective.MEMORY,
            3.0 * GIB,
            (
                "no plan has less than 3 GiB on the fullest device, and none that takes no more is "
                "under 2 s a step"
            ),
        ),
        (
            Objective.COST,
            0.25,
            (
                "no plan has less than $0.25 per million tokens, and none on the same devices is "
                "under 2 s a step"
            ),
        ),
        (
            Objective.DEVICES,
            1.0,
            "no plan has less than 1 device, and none on as many is under 2 s a step",
        ),
    ],
)
def test_the_proof_is_of_the_objective(objective, value, words):
    certificate = a_certificate(
        lower_bound_seconds=2.0,
        objective=objective,
        objective_value=value,
        objective_lower_bound=value,
    )
    assert proof_words(certificate) == words


@pytest.mark.parametrize(
    ("lower_seconds", "count", "words"),
    [
        (2.0, 1, "no configuration is under 2 s"),
        (2.1, 1, "no configuration is under 2 s by the closed form"),
        (
            1.5,
            3,
            (
                "of 3 kinds of plans the best was simulated, and no other is under 2 s by the "
                "closed form"
            ),
        ),
        (2.0, 0, "no configuration is under 2 s; the pipeline is too long to be simulated"),
    ],
)
def test_the_proof_says_which_steps_it_is_about(lower_seconds, count, words):
    proven = ClosedForm(step_seconds=2.1, lower_bound_seconds=lower_seconds, simulated_count=count)
    certificate = a_certificate(lower_bound_seconds=2.0, closed_form=proven)
    assert proof_words(certificate) == words


def test_a_gap_of_the_two_models_is_told_from_one_of_the_search():
    """A plan takes 3 s, and the least closed form, which none reaches by simulation, is 2 s."""
    known = ClosedForm(
        step_seconds=2.5, lower_bound_seconds=2.0, simulated_count=3, least_seconds=2.0
    )
    said = a_certificate(
        status="feasible", gap_ratio=0.3, lower_bound_seconds=2.1, closed_form=known
    )
    assert proof_words(said).endswith(
        "no other is under 2.1 s by the closed form; the least closed form, 2 s, is proven"
    )
    unknown = said.model_copy(
        update={"closed_form": known.model_copy(update={"least_seconds": 2.2})}
    )
    assert proof_words(unknown).endswith("no other is under 2.1 s by the closed form")


def test_a_plan_of_before_objectives_is_proven_by_its_step():
    certificate = a_certificate(objective=Objective.COST, objective_value=None)
    assert proof_words(certificate) == "no configuration is under 1 s"


def test_a_dearer_configuration_is_said_with_its_cost():
    other = Alternative(
        description="DP 2", step_seconds=1.5, is_lower_bound=True, objective_value=0.5
    )
    assert alternative_words(Objective.COST, other) == (
        "at least $0.5 per million tokens, at least 1.5 s a step"
    )
    assert alternative_words(Objective.MEMORY, other) == "at least 1.5 s"


def a_plan_for(objective: Objective) -> Plan:
    request = a_tight_request(objective=objective)
    found = plan(request.model, request.cluster, request.job.resolved)
    assert isinstance(found, Plan)
    return found


def test_the_cost_of_a_runner_up_grows_with_its_step():
    found = a_plan_for(Objective.COST)
    other = found.explanation.runners_up[0]
    assert found.prediction.cost_per_million_tokens is not None
    assert other.objective_value / found.prediction.cost_per_million_tokens == pytest.approx(
        other.step_seconds / found.prediction.step_seconds.p50
    )


def test_the_summary_begins_with_what_the_plan_was_made_for():
    assert ": 2 devices, " in a_plan_for(Objective.DEVICES).explanation.summary
