"""Frameworks: a job that names one has only that planned which its configuration can say."""

from __future__ import annotations

import pytest
from pydantic import ValidationError

from planner import planning
from planner.exporters.registry import export
from planner.ilp.certificate import search_parts
from planner.ilp.problem import Found, NotFound
from planner.importers.clusters import read_cluster
from planner.importers.models import read_model
from planner.resolution import cluster_document, model_document
from planner.schema.job import DegreeLimit, Framework, Job, Limits, Stack
from planner.schema.strategy import ActivationCheckpointing
from planner.space.frameworks import framework_limits, splits_experts_as_it_must

NOT_OF_THE_FILE = ("Accelerate reduces gradients", "the configuration does not switch")


def job_for(framework, **fields):
    """A small job for a framework."""
    return Job.model_validate(
        {"framework": framework, "global_batch_size": 16, "sequence_length": 64, **fields}
    )


def planned(framework):
    """The plan of a tiny model for a framework."""
    model = model_document(*read_model("tiny-llama-cpu"))
    cluster = cluster_document(*read_cluster("4xcpu-gloo")[:2])
    return planning.plan(
        model, cluster, job_for(framework, precision="fp32", limits={"solver_seconds": 600})
    )


@pytest.mark.parametrize("framework", list(Framework))
def test_plans_for_a_framework_lose_nothing_when_exported(framework):
    plan = planned(framework)
    losses = export(plan, framework.value).losses
    assert [loss for loss in losses if not loss.startswith(NOT_OF_THE_FILE)] == []
    assert plan.job.resolved.stack is framework.stack
    assert plan.certificate.status == "optimal"


def test_no_framework_is_one_part_with_the_jobs_own_limits():
    job = Job(global_batch_size=8)
    assert framework_limits(job) == (job.limits,)


def test_every_part_treats_all_layers_alike():
    for limits in framework_limits(job_for("torchtitan")):
        assert len(limits.zero_stages) == len(limits.activation_checkpointing) == 1
        assert limits.offload == ()


def test_limits_of_the_job_narrow_the_parts():
    full = Limits(
        zero_stages=(1,),
        activation_checkpointing=(ActivationCheckpointing.FULL,),
        pipeline_parallel_degree=DegreeLimit(min=1, max=4),
    )
    (one,) = framework_limits(job_for("torchtitan", limits=full))
    assert one.pipeline_parallel_degree == DegreeLimit(min=2, max=4)


def test_limits_that_the_framework_cannot_keep_leave_nothing():
    pipelined = Limits(pipeline_parallel_degree=DegreeLimit(min=2))
    assert framework_limits(job_for("deepspeed", limits=pipelined)) == ()


def test_a_framework_is_of_its_stack():
    assert job_for("megatron-lm").stack is Stack.MEGATRON
    with pytest.raises(ValidationError, match="leave one of them out"):
        job_for("megatron-lm", stack="deepspeed")


@pytest.mark.parametrize(
    ("framework", "expert", "split", "runs"),
    [
        (Framework.TORCHTITAN, 1, 4, True),
        (Framework.TORCHTITAN, 1, 1, False),
        (Framework.TORCHTITAN, 2, 1, True),
        (Framework.TORCHTITAN, 2, 4, False),
        (Framework.MEGATRON_LM, 2, 4, True),
        (Framework.DEEPSPEED, 1, 1, False),
        (None, 1, 1, True),
    ],
)
def test_how_experts_are_split_beside_four_tensor_ranks(framework, expert, split, runs):
    assert splits_experts_as_it_must(framework, tensor=4, expert=expert, split=split) is runs


def test_the_first_part_with_a_plan_says_that_there_is_one():
    asked = []
    plan = Found.__new__(Found)

    def search(limits, _):
        asked.append(limits.zero_stages)
        return plan

    parts = [Limits(zero_stages=(0,)), Limits(zero_stages=(1,))]
    assert search_parts(parts, search, seconds=1.0, only_whether=True) is plan
    assert asked == [(0,)]


def test_parts_without_a_plan_are_all_proven_or_none_is():
    def search(limits, _):
        proven = limits.zero_stages == (0,)
        return NotFound(configurations_total=2, refused={"r": 1}, shortfalls=(), proven=proven)

    parts = [Limits(zero_stages=(0,)), Limits(zero_stages=(1,))]
    both = search_parts(parts, search, seconds=1.0)
    assert (both.configurations_total, both.refused, both.proven) == (4, {"r": 2}, False)
