"""A plan is proven, repeatable, and priced by the cost model alone."""

from __future__ import annotations

import pytest

from planner.errors import InputError
from planner.planning import estimate, estimates, plan, resolved_cluster, resolved_model
from planner.proof.verify import verify
from planner.requests.resolution import cluster_document
from planner.schema.cluster import Cluster, NodeGroup
from planner.schema.job import DegreeLimit, Job, Limits
from planner.schema.plan import Estimate, Infeasible, Plan
from planner.schema.strategy import Strategy
from planner.units import GIB
from tests.tight_requests import a_tight_cluster, a_tight_request

LLAMA = resolved_model("llama-3-8b")
EIGHT_H100 = resolved_cluster("8xh100-sxm5-80gb")


def a_job(**changes) -> Job:
    fields = {"global_batch_size": 128, "sequence_length": 8192}
    return Job(**{**fields, **changes})


@pytest.fixture(scope="module")
def planned() -> Plan:
    found = plan(LLAMA, EIGHT_H100, a_job())
    assert isinstance(found, Plan)
    return found


def test_a_number_of_devices_has_the_plan_of_its_nodes() -> None:
    """64 H100 are 8 nodes of 8; as one board they had a step that no machine reaches."""
    limits = Limits(zero_stages=(1,), activation_checkpointing=("none",), offload=())
    job = a_job(global_batch_size=64, sequence_length=512, limits=limits)
    short, long = (plan(LLAMA, resolved_cluster(text), job) for text in ("64xh100", "8x8xh100"))
    assert isinstance(short, Plan)
    assert isinstance(long, Plan)
    assert short.strategy == long.strategy
    assert short.prediction == long.prediction
    assert "64 x h100-sxm5-80gb were taken as 8 nodes of 8" in short.explanation.assumptions[1]


def test_the_best_plan_may_have_more_tensor_parallel_ranks_than_key_value_heads() -> None:
    """A hybrid of two, whose states keep ranks from sharing its one sequence."""
    nano, two_nodes = resolved_model("nemotron-3-nano-30b-a3b"), resolved_cluster("2x8xh100")
    job = a_job(global_batch_size=1, stack="megatron")
    found = plan(nano, two_nodes, job)
    assert isinstance(found, Plan)
    assert found.strategy.tensor_parallel_degree == 8
    assert found.certificate.status == "optimal"
    assert "8 tensor-parallel ranks share 2 key-value heads" in found.explanation.assumptions[-1]
    verify(found)
    two_ranks = Limits(tensor_parallel_degree=DegreeLimit(max=2))
    fewer = plan(nano, two_nodes, job.model_copy(update={"limits": two_ranks}))
    assert isinstance(fewer, Plan)
    least = fewer.certificate.lower_bound_seconds
    assert found.prediction.step_seconds.p50 < 0.8 * least


def test_the_best_plan_may_come_back_to_a_kind_of_device() -> None:
    """A node of A10G between two of H100, which have room for embedding, head and logits."""
    groups = (
        NodeGroup(name="h100", device="h100-sxm5-80gb", node_count=2, devices_per_node=8),
        NodeGroup(name="a10g", device="a10g-24gb", node_count=1, devices_per_node=8),
    )
    cluster = cluster_document("mixed", Cluster(name="mixed", node_groups=groups))
    job = a_job(global_batch_size=8)
    usual = plan(LLAMA, cluster, job)
    found = plan(LLAMA, cluster, job.model_copy(update={"limits": Limits(device_returns=1)}))
    assert isinstance(usual, Plan)
    assert isinstance(found, Plan)
    assert "device_returns" in usual.certificate.not_searched[-1]
    assert "device_returns" not in " ".join(found.certificate.not_searched)
    stages = [stage.device_group for stage in found.strategy.stages or ()]
    assert stages == ["h100", "a10g", "h100"]
    assert found.prediction.step_seconds.p50 < 0.7 * usual.certificate.lower_bound_seconds
    verify(found)
    again = estimate(LLAMA, cluster, job, found.strategy)
    assert again.prediction == found.prediction


def test_llama_on_eight_h100_is_proven_optimal(planned):
    assert planned.certificate.status == "optimal"
    assert planned.certificate.gap_ratio == 0.0
    assert planned.prediction.fits


def test_the_plan_survives_its_own_recomputation(planned):
    verify(planned)


def test_estimating_the_plans_strategy_returns_the_plans_prediction(planned):
    again = estimate(LLAMA, EIGHT_H100, a_job(), planned.strategy)
    assert again.prediction.step_seconds.p50 == pytest.approx(
        planned.prediction.step_seconds.p50, rel=1e-9
    )
    assert again.prediction == planned.prediction


def test_the_same_request_gives_the_same_plan(planned):
    again = plan(LLAMA, EIGHT_H100, a_job())
    assert again.id == planned.id
    assert again.strategy == planned.strategy


def test_another_batch_is_another_request(planned):
    other = plan(LLAMA, EIGHT_H100, a_job(global_batch_size=64))
    assert other.id != planned.id


def test_a_fixed_degree_is_kept():
    limits = Limits(tensor_parallel_degree=DegreeLimit(min=4, max=4))
    found = plan(LLAMA, EIGHT_H100, a_job(limits=limits))
    assert found.strategy.tensor_parallel_degree == 4


def test_narrower_limits_never_give_a_faster_plan(planned):
    limits = Limits(zero_stages=(3,), activation_checkpointing=("full",), offload=())
    found = plan(LLAMA, EIGHT_H100, a_job(limits=limits))
    assert found.prediction.step_seconds.p50 >= planned.prediction.step_seconds.p50


def test_runners_up_are_no_faster_than_the_fastest_plan_which_is_one_of_them():
    """Without copies of split rows the simplest plan has other degrees than the fastest."""
    planned = plan(LLAMA, EIGHT_H100, a_job(copied_rows=False))
    simplicity = planned.certificate.simplicity
    assert planned.strategy != simplicity.fastest
    steps = [runner_up.step_seconds for runner_up in planned.explanation.runners_up]
    assert min(steps) == pytest.approx(simplicity.fastest_step_seconds, rel=1e-9)
    assert planned.prediction.step_seconds.p50 <= min(steps) * 1.02


def test_progress_is_told_while_searching():
    told = []
    model = resolved_model("qwen3-30b-a3b")
    cluster = resolved_cluster("8x8xh100-sxm5-80gb")
    plan(model, cluster, a_job(sequence_length=4096), on_progress=told.append)
    assert told
    assert told[-1].configurations_total > 100


def test_a_job_that_cannot_fit_is_answered_with_what_would():
    limits = Limits(offload=())
    found = plan(LLAMA, resolved_cluster("1xh100-sxm5-80gb"), a_job(limits=limits))
    assert isinstance(found, Infeasible)
    assert found.binding[0].required_bytes > found.binding[0].capacity_bytes
    fields = {relaxation.field for relaxation in found.relaxations}
    assert "cluster.node_groups.0.node_count" in fields
    assert "job.limits.offload" in fields


def test_each_relaxation_offered_does_fit():
    job = a_job(limits=Limits(offload=()))
    found = plan(LLAMA, resolved_cluster("1xh100-sxm5-80gb"), job)
    needed = {item.field: item.needed for item in found.relaxations}
    nodes = needed["cluster.node_groups.0.node_count"]
    assert isinstance(plan(LLAMA, resolved_cluster(f"{nodes}x1xh100-sxm5-80gb"), job), Plan)
    fewer = plan(LLAMA, resolved_cluster(f"{nodes - 1}x1xh100-sxm5-80gb"), job)
    assert isinstance(fewer, Infeasible)
    freed = a_job(limits=Limits(offload=tuple(needed["job.limits.offload"])))
    assert isinstance(plan(LLAMA, resolved_cluster("1xh100-sxm5-80gb"), freed), Plan)


def test_host_memory_that_binds_is_said_in_bytes_of_the_host():
    """The device holds 9 GiB, of which headroom takes some; its share of the host is 0.25 GiB."""
    limits = Limits(zero_stages=(1,), activation_checkpointing=("full",), offload=("optimizer",))
    cluster = a_tight_cluster(memory_bytes=9.0 * GIB, host_memory_bytes=1.0 * GIB)
    request = a_tight_request(cluster=cluster, limits=limits)
    found = plan(request.model, request.cluster, request.job.resolved)
    assert isinstance(found, Infeasible)
    hosts = [item for item in found.binding if item.limit == "host_memory"]
    assert hosts
    assert {item.capacity_bytes for item in hosts} == {0.25 * GIB}
    assert all(item.required_bytes > item.capacity_bytes for item in found.binding)


def test_limits_that_leave_nothing_name_the_rules_that_refused():
    limits = Limits(tensor_parallel_degree=DegreeLimit(min=3, max=3))
    found = plan(LLAMA, EIGHT_H100, a_job(limits=limits))
    assert isinstance(found, Infeasible)
    assert found.configurations_total == 0
    reasons = [item.reason for item in found.binding]
    assert (
        "job.limits.tensor_parallel_degree is 3, which rules these out; "
        "model and devices allow 1, 2, 4, 8"
    ) in reasons


def test_an_illegal_strategy_names_field_value_and_remedy():
    with pytest.raises(InputError) as caught:
        estimate(LLAMA, EIGHT_H100, a_job(), Strategy(tensor_parallel_degree=6))
    assert caught.value.field
    assert caught.value.remedy


def test_a_batch_of_estimates_says_what_each_says_alone():
    """Five hundred strategies that differ in everything, an illegal one among them.

    Alone they have their pipelines simulated, and their steps are these.
    """
    strategies = [
        Strategy(
            tensor_parallel_degree=tensor,
            pipeline_parallel_degree=pipeline,
            data_parallel_shard_degree=8 // (tensor * pipeline),
            zero_stage=zero,
            activation_checkpointing=checkpointing,
            offload=offload,
        )
        for tensor, pipeline in ((1, 1), (2, 1), (1, 2), (2, 2), (4, 2), (1, 8))
        for zero in (1, 2, 3)
        for checkpointing in ("none", "selective", "full")
        for offload in ((), ("optimizer",))
    ]
    strategies.insert(100, Strategy(tensor_parallel_degree=6))
    many = [*strategies] * 5
    refused = [index * len(strategies) + 100 for index in range(5)]
    answers = list(estimates(LLAMA, EIGHT_H100, a_job(), many))
    assert len(answers) == len(many)
    assert [i for i, answer in enumerate(answers) if isinstance(answer, InputError)] == refused
    for index in range(0, len(many), 31):
        if index not in refused:
            alone = estimate(LLAMA, EIGHT_H100, a_job(), many[index])
            answer = answers[index]
            assert isinstance(answer, Estimate)
            assert alone.prediction.simulated is not None
            said = (alone.prediction.closed_form_seconds, alone.prediction.stages)
            assert answer.prediction.step_seconds.p50 == pytest.approx(said[0], rel=1e-12)
            assert answer.prediction.stages == said[1]
            assert answer.strategy == alone.strategy
