"""Verify accepts what planning finds, and names whatever was changed since."""

from __future__ import annotations

from typing import Any

import pytest

from planner.errors import InputError, VerificationError
from planner.planning import plan, resolved_cluster, resolved_model
from planner.proof.verify import verify
from planner.schema.job import Job
from planner.schema.plan import Plan

REQUESTS = (
    ("llama-3-8b", "8xh100-sxm5-80gb", {"global_batch_size": 128, "sequence_length": 8192}),
    ("qwen3-30b-a3b", "2x8xh100-sxm5-80gb", {"global_batch_size": 64, "sequence_length": 4096}),
    (
        "llama-3-8b",
        "8xa100-sxm4-40gb",
        {"global_batch_size": 32, "limits": {"pipeline_parallel_degree": 4}},
    ),
    (
        "llama-3-8b",
        "8xa100-sxm4-40gb",
        {"global_batch_size": 16, "stack": "megatron", "limits": {"pipeline_schedules": ["gpipe"]}},
    ),
)


def planned(model: str, cluster: str, job: dict[str, Any]) -> Plan:
    """The plan of a request that has one."""
    found = plan(resolved_model(model), resolved_cluster(cluster), Job(**job))
    assert isinstance(found, Plan)
    return found


@pytest.fixture(scope="module")
def true_plan() -> Plan:
    return planned(*REQUESTS[0])


def with_field(document: Plan, path: str, value: object) -> Plan:
    """The plan with one field overwritten, read again from its JSON."""
    fields = document.model_dump(mode="json")
    *parents, last = path.split(".")
    part: Any = fields
    for key in parents:
        part = part[int(key)] if isinstance(part, list) else part[key]
    part[last] = value
    return Plan.from_fields(fields, source="test")


@pytest.mark.parametrize(("model", "cluster", "job"), REQUESTS)
def test_what_planning_finds_is_accepted_after_a_round_trip(
    model: str, cluster: str, job: dict[str, Any]
) -> None:
    found = planned(model, cluster, job)
    verify(Plan.from_fields(found.model_dump(mode="json"), source="test"))


@pytest.mark.parametrize(
    ("path", "value", "named"),
    [
        ("prediction.step_seconds.p50", 1.0, "prediction.step_seconds.p50 says 1.0"),
        ("prediction.breakdown_seconds.compute", 0.0, "breakdown_seconds.compute"),
        ("prediction.stages.0.peak_memory_bytes", 1.0, "stages.0.peak_memory_bytes"),
        ("prediction.stages.0.memory_bytes.optimizer", 0.0, "memory_bytes.optimizer"),
        ("prediction.fits", False, "prediction.fits"),
        ("prediction.simulated.step_seconds", 1.0, "prediction.simulated.step_seconds says 1.0"),
        ("certificate.lower_bound_seconds", 1e6, "below its lower bound"),
        ("certificate.lower_bound_seconds", 0.0, "certificate.status says optimal"),
        ("certificate.gap_ratio", 0.5, "certificate.gap_ratio says 0.5"),
        ("certificate.status", "feasible", "certificate.status says feasible"),
        ("certificate.configurations_pruned", 10**6, "configurations_pruned"),
        ("certificate.configurations_branched", 10**6, "configurations_branched"),
        ("certificate.configurations_programmed", 10**6, "configurations_programmed"),
        ("certificate.simplicity.techniques", [], "simplicity.techniques has 0"),
        ("certificate.simplicity.fastest_techniques", [], "simplicity.fastest_techniques has 0"),
        ("certificate.simplicity.fastest_step_seconds", 1.0, "certificate.simplicity.fastest: "),
        ("certificate.simplicity.tolerance_ratio", 0.0, "is beyond the tolerance of"),
        ("certificate.simplicity.least_technique_count", 0, "0 are proven to be needed"),
        ("certificate.simplicity.fastest.tensor_parallel_degree", 3, "tensor_parallel_degree 3"),
        ("certificate.simplicity.fastest.head.zero_stage", 0, "certificate.simplicity.fastest: "),
        ("certificate.closed_form.step_seconds", 1.0, "closed_form.step_seconds says 1.0"),
        ("certificate.closed_form.lower_bound_seconds", 1e6, "closed_form.step_seconds"),
        ("certificate.closed_form.least_seconds", 0.0, "closed_form.least_seconds 0.0 is below"),
        ("certificate.closed_form.least_seconds", 1e6, "closed_form.least_seconds 1000000.0 is a"),
        ("model.digest", "0" * 64, "model.digest"),
        ("cluster.resolved.node_groups.0.memory_bytes", 2**50, "cluster.digest"),
        ("job.resolved.sequence_length", 1024, "job.digest"),
        ("strategy.micro_batch_count", 3, "micro_batch_count"),
        ("strategy.tensor_parallel_degree", 3, "tensor_parallel_degree 3"),
        ("strategy.head.offload", ["optimizer"], "prediction."),
    ],
)
def test_a_changed_field_is_named(true_plan: Plan, path: str, value: object, named: str) -> None:
    with pytest.raises(VerificationError) as caught:
        verify(with_field(true_plan, path, value))
    assert named in str(caught.value)


def test_a_plan_that_does_not_fit_is_refused(true_plan: Plan) -> None:
    """All activations kept and states whole: repriced, it needs more than a device has."""
    stages = true_plan.strategy.model_dump(mode="json")["stages"]
    for group in (group for stage in stages for group in stage["layers"]):
        group.update(zero_stage=0, activation_checkpointing="none", offload=[])
    with pytest.raises(VerificationError, match=r"prediction\.fits says True, recomputed False"):
        verify(with_field(true_plan, "strategy.stages", stages))


def test_every_difference_is_listed(true_plan: Plan) -> None:
    twice = with_field(true_plan, "prediction.tokens_per_second_per_device", 1.0)
    twice = with_field(twice, "certificate.gap_ratio", 0.5)
    with pytest.raises(VerificationError) as caught:
        verify(twice)
    assert "tokens_per_second_per_device" in str(caught.value)
    assert "gap_ratio" in str(caught.value)


def test_a_job_that_is_not_what_was_given_is_refused(true_plan: Plan) -> None:
    false = with_field(true_plan, "job.given.global_batch_size", 64)
    with pytest.raises(VerificationError, match=r"job\.given says global_batch_size 64"):
        verify(false)


def test_what_was_left_open_may_be_anything(true_plan: Plan) -> None:
    verify(with_field(true_plan, "job.given.global_batch_size", None))


def test_limits_that_were_left_open_may_be_those_of_another_default() -> None:
    """Plans of before a chance of fitting was asked for say none, and were given other limits."""
    model, cluster, job = REQUESTS[0]
    before = planned(model, cluster, {**job, "limits": {"fits_probability": None}})
    verify(with_field(before, "job.given.limits", {"solver_seconds": 20.0}))
    with pytest.raises(VerificationError, match=r"job\.given says limits"):
        verify(with_field(before, "job.given.limits", {"fits_probability": 0.8}))


def test_what_was_given_must_be_a_job(true_plan: Plan) -> None:
    with pytest.raises(VerificationError, match=r"job\.given is no job"):
        verify(with_field(true_plan, "job.given.optimizer", "lion"))


@pytest.mark.parametrize("name", ["milp_count", "configurations_total", "configurations_pruned"])
def test_a_negative_count_is_refused(true_plan: Plan, name: str) -> None:
    with pytest.raises(InputError, match=name):
        with_field(true_plan, f"certificate.{name}", -1)
