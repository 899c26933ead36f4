"""Why not X: the rule, the bytes or the milliseconds that speak against it."""

from __future__ import annotations

from typing import Any

import pytest

from planner.answers.finalists import fastest_plan
from planner.answers.objection import step_causes, why_not_degrees, why_not_strategy
from planner.errors import InputError
from planner.planning import estimate
from planner.requests.fixed_limits import fields_outside, limits_with
from planner.requests.inquiry import Inquiry, Solution
from planner.requests.planned import Planned
from planner.requests.variation import with_limits
from planner.schema.job import DegreeLimit, Limits
from planner.schema.reasons import Objection
from planner.schema.strategy import EdgeChoice, Strategy
from planner.units import GIB
from tests.builders import a_prediction
from tests.tight_requests import FEW_CHOICES, a_tight_cluster, a_tight_request


def planned_with(limits: Limits = FEW_CHOICES) -> Planned:
    request = a_tight_request(limits=limits)
    answer = fastest_plan(request, inquiry=Inquiry.within(30.0))
    assert isinstance(answer, Solution)
    return Planned(request=request, strategy=answer.strategy, prediction=answer.prediction)


@pytest.fixture(scope="module")
def planned() -> Planned:
    return planned_with()


def against(planned: Planned, **fixed: Any) -> Objection:
    return why_not_degrees(planned, fixed, asked="x", inquiry=Inquiry.within(30.0))


def test_an_illegal_strategy_is_answered_with_every_rule_that_it_breaks(planned):
    found = why_not_strategy(planned, Strategy(tensor_parallel_degree=3), asked="mine.json")
    assert (found.verdict, found.asked) == ("illegal", "mine.json")
    assert any("does not use the cluster's 4 devices" in rule for rule in found.rules)
    assert any("does not divide the model's 16 attention heads" in rule for rule in found.rules)


def test_a_strategy_for_another_model_is_illegal(planned):
    stages = [{"stage": 0, "layers": [{"first_block": 0, "block_count": 5}]}]
    other = Strategy.from_fields({"stages": stages, "data_parallel_degree": 4}, source="s")
    found = why_not_strategy(planned, other, asked="mine.json")
    assert found.verdict == "illegal"
    assert "the model has 24" in found.answer


def test_a_strategy_that_does_not_fit_is_answered_with_stage_and_bytes(planned):
    found = why_not_strategy(planned, Strategy(data_parallel_degree=4), asked="mine.json")
    assert found.verdict == "does_not_fit"
    excess = found.excesses[0]
    assert (excess.stage, excess.resource) == (0, "device_memory")
    assert excess.capacity_bytes == pytest.approx(19.0 * GIB)
    assert excess.excess_bytes == pytest.approx(excess.required_bytes - excess.capacity_bytes)
    assert excess.memory_bytes.total_bytes() == pytest.approx(excess.required_bytes)


def test_a_slower_strategy_is_answered_with_the_causes(planned):
    slow = Strategy(tensor_parallel_degree=4, activation_checkpointing="full")
    found = why_not_strategy(planned, slow, asked="mine.json")
    request = planned.request
    price = estimate(request.model, request.cluster, request.job.resolved, slow).prediction
    assert found.verdict == "slower"
    assert found.step_seconds == price.step_seconds.p50
    assert found.slower_seconds == pytest.approx(price.step_seconds.p50 - planned.step_seconds)
    tensor = next(cause for cause in found.causes if cause.name == "tensor_parallel")
    assert tensor.other_seconds == price.breakdown_seconds.tensor_parallel
    assert tensor.difference_seconds > 0.0
    sizes = [abs(cause.difference_seconds) for cause in found.causes if cause.name != "other"]
    assert sizes == sorted(sizes, reverse=True)


def test_the_plans_own_strategy_is_as_fast(planned):
    found = why_not_strategy(planned, planned.strategy, asked="plan.json")
    assert (found.verdict, found.causes, found.outside_limits) == ("as_fast", (), ())


@pytest.mark.parametrize("degree", [1, 2, 4])
def test_fixed_degrees_are_answered_with_the_best_plan_that_has_them(planned, degree):
    found = against(planned, tensor_parallel_degree=degree)
    fixed = with_limits(planned.request, tensor_parallel_degree=DegreeLimit(min=degree, max=degree))
    alone = fastest_plan(fixed, inquiry=Inquiry.within(30.0))
    assert found.strategy.tensor_parallel_degree == degree
    assert found.step_seconds == pytest.approx(alone.step_seconds, rel=1e-9)
    assert found.certificate.status == "optimal"
    own = planned.strategy.tensor_parallel_degree
    assert found.verdict == ("as_fast" if degree == own else "slower")


def test_fixed_degrees_that_nothing_legal_has_are_answered_with_the_rule(planned):
    found = against(planned, tensor_parallel_degree=3)
    assert found.verdict == "illegal"
    assert any("does not divide the model's 16 attention heads" in rule for rule in found.rules)


def test_fixed_techniques_under_which_nothing_fits_are_answered_with_the_bytes(planned):
    found = against(
        planned,
        zero_stage=0,
        activation_checkpointing="none",
        tensor_parallel_degree=1,
        pipeline_parallel_degree=1,
        context_parallel_degree=1,
    )
    assert found.verdict == "does_not_fit"
    assert found.excesses[0].excess_bytes > 0.0
    assert found.outside_limits == ("zero_stage",)


def test_what_is_faster_but_against_the_jobs_limits_is_answered_with_the_limit():
    planned = planned_with(
        FEW_CHOICES.model_copy(update={"tensor_parallel_degree": DegreeLimit(min=4, max=4)})
    )
    found = against(planned, tensor_parallel_degree=1)
    assert found.verdict == "faster"
    assert found.slower_seconds < 0.0
    assert found.outside_limits == ("tensor_parallel_degree",)
    assert "the job's limits rule it out: tensor_parallel_degree" in found.answer


@pytest.mark.parametrize(
    ("groups", "outside"), [("bbs", []), ("bsb", ["device_returns"]), ("bsbs", ["device_returns"])]
)
def test_a_pipeline_that_comes_back_to_devices_is_outside_the_limit_on_that(groups, outside):
    strategy = Strategy(pipeline_parallel_degree=len(groups)).resolved(
        block_count=24, global_batch_size=16
    )
    stages = [
        stage.model_copy(update={"device_group": name})
        for stage, name in zip(strategy.stages, groups, strict=True)
    ]
    placed = strategy.model_copy(update={"stages": tuple(stages)})
    assert list(fields_outside(placed, Limits())) == outside
    assert list(fields_outside(placed, Limits(device_returns=2))) == []


def test_without_time_nothing_is_claimed(planned):
    found = why_not_degrees(
        planned, {"tensor_parallel_degree": 2}, asked="x", inquiry=Inquiry.within(0.0)
    )
    assert (found.verdict, found.step_seconds) == ("out_of_time", None)


@pytest.mark.parametrize(
    ("fixed", "part"),
    [
        ({"colour": 3}, "cannot be fixed"),
        ({"zero_stage": 9}, "is too large"),
        ({"activation_checkpointing": "some"}, "none"),
        ({"tensor_parallel_degree": {"min": 4, "max": 2}}, "exceeds"),
    ],
)
def test_what_cannot_be_fixed_is_refused(fixed, part):
    with pytest.raises(InputError, match=part) as caught:
        limits_with(Limits(), fixed)
    assert caught.value.field.startswith("why_not")


@pytest.mark.parametrize(
    ("limits", "field"),
    [
        ({"tensor_parallel_degree": 1}, "tensor_parallel_degree"),
        ({"data_parallel_shard_degree": 1}, "data_parallel_shard_degree"),
        ({"data_parallel_replicate_degree": 2}, "data_parallel_replicate_degree"),
        ({"sequence_parallel": True}, "sequence_parallel"),
        ({"pipeline_schedules": ["gpipe"]}, "pipeline_schedules"),
        ({"zero_stages": [1, 2]}, "zero_stages"),
        ({"activation_checkpointing": ["full"]}, "activation_checkpointing"),
        ({"offload": ["activations"]}, "offload"),
    ],
)
def test_limits_that_a_strategy_does_not_keep_are_named(limits, field):
    strategy = Strategy(
        tensor_parallel_degree=2,
        pipeline_parallel_degree=2,
        data_parallel_shard_degree=2,
        zero_stage=3,
        head=EdgeChoice(zero_stage=3, offload=("optimizer",)),
    ).resolved(block_count=24, global_batch_size=16)
    assert list(fields_outside(strategy, Limits.model_validate(limits))) == [field]
    assert list(fields_outside(strategy, Limits())) == []


def test_clusters_with_less_memory_name_more_excess():
    small = a_tight_cluster(memory_bytes=10.0 * GIB)
    request = a_tight_request(cluster=small)
    answer = fastest_plan(request, inquiry=Inquiry.within(30.0))
    held = Planned(request=request, strategy=answer.strategy, prediction=answer.prediction)
    found = why_not_strategy(held, Strategy(data_parallel_degree=4), asked="x")
    assert found.excesses[0].capacity_bytes == pytest.approx(9.5 * GIB)


def test_causes_add_up_to_the_difference_of_the_steps():
    """Seven parts differ, of which the two smallest are told together."""
    plan, slow = a_prediction(), a_prediction()
    parts = plan.breakdown_seconds
    names = tuple(type(parts).model_fields)[:7]
    longer = {name: getattr(parts, name) + 7.0 - place for place, name in enumerate(names)}
    slow = slow.model_copy(update={"breakdown_seconds": parts.model_copy(update=longer)})
    causes = step_causes(plan, slow)
    assert [cause.name for cause in causes] == [*names[:5], "other"]
    assert causes[-1].difference_seconds == pytest.approx(2.0 + 1.0)
    assert sum(cause.difference_seconds for cause in causes) == pytest.approx(28.0)
