"""Frameworks: a job that names one has only that planned which its configuration can say."""

from __future__ import annotations

import itertools

import pytest
from pydantic import ValidationError

from planner import planning
from planner.errors import InputError
from planner.exporters.registry import export
from planner.importers.clusters import read_cluster
from planner.importers.models import read_model
from planner.requests.resolution import cluster_document, model_document
from planner.schema.job import DegreeLimit, Framework, Job, Limits, Stack
from planner.schema.strategy import ActivationCheckpointing, ContextParallelKind, Offload
from planner.space.choices import block_choices, edge_choices
from planner.space.frameworks import framework_limits, splits_experts_as_it_must

LLAMA = read_model("llama-3-8b")[1]
OPTIMIZER = (Offload.OPTIMIZER,)
STATES = (Offload.OPTIMIZER, Offload.PARAMETERS)
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


def test_llama_factory_splits_no_sequence_and_shards_no_weights_of_8_bits():
    adapters = {"rank": 8, "base_bits": 8}
    parts = framework_limits(job_for("llama-factory", adapters=adapters), LLAMA)
    assert {part.context_parallel_degree.max for part in parts} == {1}
    assert {part.zero_stages for part in parts} == {(0,), (1,), (2,)}
    whole = framework_limits(job_for("llama-factory", adapters={"rank": 8, "base_bits": 4}), LLAMA)
    assert (3,) in {part.zero_stages for part in whole}


@pytest.mark.parametrize(
    ("fields", "narrow"),
    [
        ({}, True),
        ({"precision": "fp32"}, False),
        ({"adapters": {"rank": 8}}, False),
        ({"states_in_16_bits": False}, False),
    ],
)
def test_axolotl_trains_whole_models_in_the_format_that_it_loads(fields, narrow):
    assert job_for("axolotl", **fields).states_in_16_bits is narrow


def test_no_framework_is_one_part_with_the_jobs_own_limits():
    job = Job(global_batch_size=8)
    assert framework_limits(job, LLAMA) == (job.limits,)


@pytest.mark.parametrize("framework", list(Framework))
def test_every_part_treats_all_layers_alike(framework):
    for limits in framework_limits(job_for(framework), LLAMA):
        assert len(limits.zero_stages) == len(limits.activation_checkpointing) == 1


@pytest.mark.parametrize(
    ("framework", "expected"),
    [
        ("torchtitan", {(3, STATES)}),
        ("megatron-lm", {(1, OPTIMIZER)}),
        ("deepspeed", {(1, OPTIMIZER), (2, OPTIMIZER), (3, OPTIMIZER), (3, STATES)}),
        ("accelerate", {(3, STATES)}),
        ("axolotl", {(3, STATES)}),
        ("llama-factory", {(1, OPTIMIZER), (2, OPTIMIZER), (3, OPTIMIZER), (3, STATES)}),
    ],
)
def test_parts_offload_what_the_framework_does_together(framework, expected):
    parts = framework_limits(job_for(framework), LLAMA)
    assert {(part.zero_stages[0], part.offload) for part in parts if part.offload} == expected


def test_drives_take_only_states_that_are_sharded_whole():
    parts = framework_limits(job_for("deepspeed", offload_to="nvme"), LLAMA)
    assert {part.zero_stages for part in parts if part.offload} == {(3,)}


def test_a_job_that_offloads_nothing_has_no_part_that_does():
    parts = framework_limits(job_for("deepspeed", limits=Limits(offload=())), LLAMA)
    assert {part.offload for part in parts} == {()}


def test_where_all_offload_alike_there_is_one_choice_of_offload():
    limits = Limits(zero_stages=(3,), offload=STATES)
    assert {choice.offload for choice in block_choices(limits, offloads_all=True)} == {STATES}
    assert [choice.offload for choice in edge_choices(limits, offloads_all=True)] == [STATES]


@pytest.mark.parametrize(
    ("framework", "model"),
    [
        *itertools.product(["torchtitan", "megatron-lm"], ["qwen2-vl-7b", "flan-t5-xxl"]),
        ("torchtitan", "nemotron-h-56b"),
    ],
)
def test_no_pipeline_is_planned_that_the_framework_has_not(framework, model):
    parts = framework_limits(job_for(framework), read_model(model)[1])
    assert {part.pipeline_parallel_degree.max for part in parts} <= {1}
    assert parts


def test_one_decoder_may_have_a_pipeline():
    parts = framework_limits(job_for("megatron-lm"), LLAMA)
    assert max(part.pipeline_parallel_degree.max for part in parts) > 1


@pytest.mark.parametrize("framework", ["torchtitan", "megatron-lm"])
def test_adapters_are_refused_before_they_are_planned_for(framework):
    with pytest.raises(InputError, match="trains all parameters"):
        framework_limits(job_for(framework, adapters={"rank": 16}), LLAMA)


def test_contexts_and_replicas_of_shard_groups_are_in_accelerates_space():
    parts = framework_limits(job_for("accelerate"), LLAMA)
    sharded = [part for part in parts if part.zero_stages == (3,) and not part.offload]
    assert all(part.context_parallel_degree.max > 1 for part in sharded)
    assert all(part.context_parallel_kinds == (ContextParallelKind.RING,) for part in sharded)
    assert all(part.data_parallel_replicate_degree.max > 1 for part in sharded)


def test_limits_of_the_job_narrow_the_parts():
    full = Limits(
        zero_stages=(1,),
        activation_checkpointing=(ActivationCheckpointing.FULL,),
        pipeline_parallel_degree=DegreeLimit(min=1, max=4),
    )
    (one,) = framework_limits(job_for("torchtitan", limits=full), LLAMA)
    assert one.pipeline_parallel_degree == DegreeLimit(min=2, max=4)


def test_limits_that_the_framework_cannot_keep_leave_nothing():
    pipelined = Limits(pipeline_parallel_degree=DegreeLimit(min=2))
    assert framework_limits(job_for("deepspeed", limits=pipelined), LLAMA) == ()


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
