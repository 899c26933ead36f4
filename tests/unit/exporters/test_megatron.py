"""Megatron-LM: what a plan becomes, what is lost of it, and what is refused."""

from __future__ import annotations

import pytest

from planner.errors import InputError
from planner.exporters.registry import export
from planner.importers.training.config import Setting
from planner.importers.training.files import config_from_text
from planner.schema.job import Job
from planner.schema.strategy import (
    ActivationCheckpointing,
    ContextParallelKind,
    LayerGroup,
    Offload,
    PipelineSchedule,
    Stage,
    Strategy,
)
from planner.space.frameworks import framework_limits
from tests.unit.exporters.plans import plan_of


def text(plan):
    """The script that the plan becomes."""
    (file,) = export(plan, "megatron-lm").files
    return file.text


def two_stages(first: tuple[LayerGroup, ...], second: tuple[LayerGroup, ...]) -> Strategy:
    """Two pipeline ranks with four data-parallel ones, of eight."""
    return Strategy(
        pipeline_parallel_degree=2,
        data_parallel_shard_degree=4,
        stages=(Stage(stage=0, layers=first), Stage(stage=1, layers=second)),
    )


def test_degrees_and_batch_are_flags():
    strategy = Strategy(
        tensor_parallel_degree=2,
        sequence_parallel=True,
        context_parallel_degree=2,
        context_parallel_kind=ContextParallelKind.ALL_TO_ALL,
        data_parallel_shard_degree=2,
        micro_batch_size=4,
        zero_stage=1,
    )
    lines = text(plan_of(strategy)).splitlines()
    assert [line.strip() for line in lines if line.startswith("  --")] == [
        "--tensor-model-parallel-size 2",
        "--pipeline-model-parallel-size 1",
        "--sequence-parallel",
        "--context-parallel-size 2",
        "--cp-comm-type a2a",
        "--micro-batch-size 4",
        "--global-batch-size 64",
        "--seq-length 8192",
        "--attention-dropout 0.0",
        "--hidden-dropout 0.0",
        "--bf16",
        "--use-distributed-optimizer",
        "--overlap-grad-reduce",
        "--overlap-param-gather",
    ]


def test_uneven_stages_are_a_layout():
    strategy = two_stages(
        (LayerGroup(first_block=0, block_count=17),), (LayerGroup(first_block=17, block_count=15),)
    )
    assert "--pipeline-model-parallel-layout 'Et*17|t*15L'" in text(plan_of(strategy))


def test_even_virtual_stages_are_a_number():
    strategy = Strategy(
        pipeline_parallel_degree=2,
        virtual_pipeline_degree=4,
        pipeline_schedule=PipelineSchedule.INTERLEAVED,
        data_parallel_shard_degree=4,
    )
    found = text(plan_of(strategy))
    assert "--num-virtual-stages-per-pipeline-rank 4" in found
    assert "layout" not in found


def test_mixture_with_experts_of_their_own():
    strategy = Strategy(
        tensor_parallel_degree=2,
        sequence_parallel=True,
        expert_parallel_degree=4,
        expert_tensor_parallel_degree=1,
        data_parallel_shard_degree=4,
    )
    found = text(plan_of(strategy, model="mixtral-8x7b"))
    assert "--expert-model-parallel-size 4" in found
    assert "--expert-tensor-parallel-size 1" in found
    assert "--moe-token-dispatcher-type alltoall" in found


def test_a_job_whose_tokens_cross_once_a_node_gets_the_flex_dispatcher():
    plan = plan_of(
        Strategy(expert_parallel_degree=8, data_parallel_shard_degree=8), model="mixtral-8x7b"
    )
    job = plan.job.resolved.model_copy(update={"deduplicated_dispatch": True})
    flex = plan.model_copy(update={"job": plan.job.model_copy(update={"resolved": job})})
    assert "--moe-token-dispatcher-type flex" in text(flex)
    assert "--moe-flex-dispatcher-backend deepep" in text(flex)


def test_different_zero_stages_become_the_least_that_shards_as_much():
    groups = (
        LayerGroup(first_block=0, block_count=8, zero_stage=0),
        LayerGroup(first_block=8, block_count=8, zero_stage=1),
    )
    rest = (LayerGroup(first_block=16, block_count=16, zero_stage=1),)
    made = export(plan_of(two_stages(groups, rest)), "megatron-lm")
    assert "--use-distributed-optimizer" in made.files[0].text
    assert len(made.losses) == 1
    assert "ZeRO stage 1 everywhere" in made.losses[0]
    assert "8 of 32 blocks" in made.losses[0]


def test_full_recomputing_of_some_blocks_is_that_of_the_first_of_every_stage():
    full = ActivationCheckpointing.FULL
    first = (
        LayerGroup(first_block=0, block_count=10),
        LayerGroup(first_block=10, block_count=6, activation_checkpointing=full),
    )
    second = (LayerGroup(first_block=16, block_count=16),)
    made = export(plan_of(two_stages(first, second)), "megatron-lm")
    assert "--recompute-method block\n  --recompute-num-layers 6" in made.files[0].text
    assert "6 blocks more than the plan" in made.losses[0]
    assert made.strategy.stages[1].layers[0].block_count == 6
    assert made.strategy.stages[1].layers[0].activation_checkpointing is full


def test_fully_sharded_parameters_need_another_number_of_connections():
    found = text(plan_of(Strategy(data_parallel_shard_degree=8, zero_stage=3)))
    assert "--data-parallel-sharding-strategy optim_grads_params" in found
    assert "unset CUDA_DEVICE_MAX_CONNECTIONS" in found


@pytest.mark.parametrize(
    ("strategy", "field"),
    [
        (
            Strategy(
                pipeline_parallel_degree=2,
                pipeline_schedule=PipelineSchedule.ZB_V,
                data_parallel_shard_degree=4,
            ),
            "strategy.pipeline_schedule",
        ),
        (
            Strategy(data_parallel_shard_degree=8, zero_stage=3, offload=(Offload.PARAMETERS,)),
            "strategy.offload",
        ),
        (
            Strategy(pipeline_parallel_degree=2, data_parallel_shard_degree=4, zero_stage=2),
            "strategy.zero_stage",
        ),
        (
            Strategy(
                pipeline_parallel_degree=8,
                virtual_pipeline_degree=2,
                pipeline_schedule=PipelineSchedule.INTERLEAVED,
                micro_batch_size=16,
            ),
            "strategy.micro_batch_count",
        ),
    ],
)
def test_what_megatron_cannot_run_is_refused_by_its_field(strategy, field):
    with pytest.raises(InputError) as caught:
        export(plan_of(strategy), "megatron-lm")
    assert caught.value.field == field
    assert caught.value.remedy.endswith("or plan with --framework megatron-lm")


@pytest.mark.parametrize("degree", [{"data_parallel_replicate_degree": 8}, {}])
def test_an_offloaded_optimizer_is_the_distributed_one(degree):
    cluster = "8xh100-sxm5-80gb" if degree else "1xh100-sxm5-80gb"
    plan = plan_of(Strategy(offload=(Offload.OPTIMIZER,), **degree), cluster=cluster)
    made = export(plan, "megatron-lm")
    assert "--optimizer-cpu-offload" in made.files[0].text
    assert "--use-distributed-optimizer" in made.files[0].text
    assert any("ZeRO stage 1" in loss for loss in made.losses) is bool(degree)


@pytest.mark.parametrize("name", ["sgd", "muon"])
def test_an_optimizer_that_megatron_has_is_written_and_read(name):
    plan = plan_of(Strategy(data_parallel_shard_degree=8, zero_stage=0), optimizer=name)
    assert f"  --optimizer {name}\n" in text(plan)
    assert not [loss for loss in export(plan, "megatron-lm").losses if "optimizer" in loss]
    setting = Setting(graph=plan.model.resolved, device_count=8)
    config = config_from_text(text(plan), setting, source="m.sh", suffix=".sh")
    assert config.job["optimizer"] == name


def test_sgd_is_not_sharded_by_megatrons_distributed_optimizer():
    plan = plan_of(Strategy(data_parallel_shard_degree=8, zero_stage=1), optimizer="sgd")
    with pytest.raises(InputError, match="does not take SGD"):
        export(plan, "megatron-lm")
    job = Job(global_batch_size=64, framework="megatron-lm", optimizer="sgd")
    limits = framework_limits(job, plan.model.resolved)
    assert {one.zero_stages for one in limits} == {(0,)}
    assert {one.offload for one in limits} == {()}
