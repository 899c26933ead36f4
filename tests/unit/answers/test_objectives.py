"""A job's objective decides what is best, which part of the cluster is used, and what is proven."""

from __future__ import annotations

from typing import Any

import pytest

from planner.errors import InputError, VerificationError
from planner.planning import (
    estimate,
    plan,
    request_id,
    resolved_cluster,
    resolved_model,
)
from planner.proof.verify import verify
from planner.requests.resolution import resolved_request
from planner.schema.job import DegreeLimit, Job, Objective
from planner.schema.plan import Infeasible, Plan
from tests.tight_requests import FEW_CHOICES, a_tight_request

REQUEST = a_tight_request()
OTHERS = (Objective.COST, Objective.DEVICES, Objective.MEMORY)


def a_job(objective: str, **limits: Any) -> Job:
    return REQUEST.job.resolved.model_copy(
        update={"objective": Objective(objective), "limits": FEW_CHOICES.model_copy(update=limits)}
    )


def planned(objective: str, **limits: Any) -> Plan:
    found = plan(REQUEST.model, REQUEST.cluster, a_job(objective, **limits))
    assert isinstance(found, Plan)
    return found


@pytest.fixture(scope="module")
def plans() -> dict[str, Plan]:
    return {objective.value: planned(objective) for objective in Objective}


def peak_bytes(found: Plan) -> float:
    return max(stage.peak_memory_bytes for stage in found.prediction.stages)


def with_certificate(found: Plan, **changes: Any) -> Plan:
    certificate = found.certificate.model_copy(update=changes)
    return found.model_copy(update={"certificate": certificate})


def test_every_objective_is_best_at_what_it_asks_for(plans):
    assert all(
        plans["throughput"].prediction.step_seconds.p50 <= other.prediction.step_seconds.p50
        for other in plans.values()
    )
    assert all(
        plans["cost"].prediction.cost_per_million_tokens
        <= other.prediction.cost_per_million_tokens * (1 + 1e-9)
        for other in plans.values()
    )
    counts = {name: found.cluster.resolved.device_count for name, found in plans.items()}
    assert counts["devices"] == min(counts.values()) == 2
    whole = [found for name, found in plans.items() if counts[name] == 4]
    assert peak_bytes(plans["memory"]) == min(peak_bytes(found) for found in whole)


@pytest.mark.parametrize("objective", list(Objective))
def test_the_certificate_says_what_was_proven_of_the_objective(plans, objective):
    found = plans[objective.value]
    said = found.certificate
    assert said.objective is objective
    assert said.status == "optimal"
    assert said.objective_value == said.objective_lower_bound
    values = {
        "throughput": found.prediction.step_seconds.p50,
        "cost": found.prediction.cost_per_million_tokens,
        "devices": 2.0,
        "memory": peak_bytes(found),
    }
    assert said.objective_value == pytest.approx(values[objective.value], rel=1e-9)


def test_a_plan_for_a_part_keeps_what_was_given_and_says_what_it_uses(plans):
    found = plans["devices"]
    assert found.cluster.given == REQUEST.cluster.given
    assert found.cluster.resolved.node_groups[0].devices_per_node == 2
    assert found.cluster.digest == found.cluster.resolved.digest()
    assert found.cluster.digest != REQUEST.cluster.digest
    assert found.job.resolved == a_job("devices")
    assert found.explanation.assumptions[-1] == (
        "uses 2 of 4 devices of one node of group h100: the fewest devices that a plan was found "
        "for, of 4 parts of the cluster"
    )


@pytest.mark.parametrize("objective", OTHERS)
def test_estimating_on_the_plans_own_cluster_returns_its_prediction(plans, objective):
    found = plans[objective.value]
    again = estimate(found.model, found.cluster, found.job.resolved, found.strategy)
    assert again.prediction == found.prediction
    verify(Plan.from_fields(found.model_dump(mode="json"), source="test"))


def test_ids_name_the_original_request_and_differ_by_objective(plans):
    assert len({found.id for found in plans.values()}) == len(plans)
    for name, found in plans.items():
        request = resolved_request(REQUEST.model, REQUEST.cluster, a_job(name))
        assert found.id == request_id(request)


def test_the_same_request_gives_the_same_part_and_strategy(plans):
    for name in ("cost", "devices", "memory"):
        again = planned(name)
        assert (again.id, again.strategy) == (plans[name].id, plans[name].strategy)
        assert again.cluster == plans[name].cluster


@pytest.mark.parametrize(
    ("changes", "named"),
    [
        ({"objective_lower_bound": 3.0}, "below its lower bound 3.0"),
        ({"objective_value": 4.0, "objective_lower_bound": 4.0}, "objective_value says 4.0"),
        ({"objective_lower_bound": 1.0}, "gap_ratio says 0.0, bound gives 0.5"),
        ({"objective_lower_bound": None}, "gap_ratio says 0.0, bound gives 1.0"),
        ({"objective": Objective.MEMORY}, "certificate.objective says memory"),
    ],
)
def test_a_false_claim_about_the_objective_is_named(plans, changes, named):
    with pytest.raises(VerificationError) as caught:
        verify(with_certificate(plans["devices"], **changes))
    assert named in str(caught.value)


def test_an_open_gap_of_the_objective_is_feasible_and_no_more(plans):
    open_gap = {"objective_lower_bound": 1.0, "gap_ratio": 0.5, "status": "feasible"}
    verify(with_certificate(plans["devices"], **open_gap))


def test_documents_of_before_say_nothing_of_the_objective_and_hold(plans):
    fields = plans["throughput"].model_dump(mode="json")
    for name in ("objective", "objective_value", "objective_lower_bound"):
        del fields["certificate"][name]
    old = Plan.from_fields(fields, source="test")
    assert old.certificate.objective_value is None
    verify(old)


@pytest.mark.parametrize("objective", OTHERS)
def test_what_fits_on_no_part_is_infeasible_with_what_would_help(objective):
    limits = FEW_CHOICES.model_copy(update={"pipeline_parallel_degree": DegreeLimit(max=1)})
    job = Job(global_batch_size=16, sequence_length=4096, objective=objective, limits=limits)
    cluster = resolved_cluster("2x1xa100-sxm4-40gb")
    found = plan(resolved_model("llama-3-8b"), cluster, job)
    assert isinstance(found, Infeasible)
    assert found.binding[0].required_bytes > found.binding[0].capacity_bytes
    assert "cluster.node_groups.0.node_count" in {change.field for change in found.relaxations}


@pytest.mark.parametrize("objective", list(Objective))
def test_no_time_at_all_is_an_error_that_names_the_limit(objective):
    with pytest.raises(InputError, match=r"job\.limits\.solver_seconds: ran out"):
        plan(REQUEST.model, REQUEST.cluster, a_job(objective, solver_seconds=1e-6))


def test_of_a_mixed_cluster_the_groups_left_out_are_named():
    groups = [
        {"name": "fast", "device": "h100-sxm5-80gb", "node_count": 1, "devices_per_node": 8},
        {"name": "slow", "device": "a100-sxm4-80gb", "node_count": 1, "devices_per_node": 8},
    ]
    cluster = resolved_cluster({"name": "mixed", "node_groups": groups})
    job = Job(global_batch_size=16, sequence_length=1024, objective="devices")
    found = plan(resolved_model("gpt2"), cluster, job)
    assert isinstance(found, Plan)
    assert found.cluster.resolved.device_count == 1
    assert "no node of group" in found.explanation.assumptions[-1]
