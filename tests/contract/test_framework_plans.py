"""A plan that is made for a framework can be exported to it, whatever the model."""

from __future__ import annotations

from functools import cache

import pytest

from planner import planning
from planner.importers.clusters import read_cluster
from planner.importers.models import read_model
from planner.requests.resolution import cluster_document, model_document
from planner.schema.job import Framework, Job
from planner.schema.plan import Infeasible, Plan
from planner.schema.strategy import Offload

TARGETS = {
    Framework.TORCHTITAN: ("torchtitan", "torchtitan-0.2"),
    Framework.MEGATRON_LM: ("megatron-lm", "megatron-bridge"),
    Framework.DEEPSPEED: ("deepspeed",),
    Framework.ACCELERATE: ("accelerate",),
    Framework.AXOLOTL: ("axolotl",),
    Framework.LLAMA_FACTORY: ("llama-factory", "axolotl-deepspeed"),
}
# A decoder that fits, one that does only with its states on the host, a tower, a hybrid.
CASES = {
    "gpt2": "2xt4-16gb",
    "llama-2-7b": "4xrtx-4090-24gb",
    "qwen2-vl-7b": "8xl4-24gb",
    "nemotron-3-nano-30b-a3b": "8xh100-sxm5-80gb",
}
OF_THE_PROGRAM = (
    "Accelerate reduces gradients",
    "Accelerate 1.15 prepares tensor-parallel models",
    "the configuration does not switch checkpointing on",
    "torchtitan has no model of architecture",
    "torchtitan up to 0.2.2 has no model of architecture",
    "a tower stands before",
)


@cache
def planned(model: str, framework: Framework) -> Plan | Infeasible:
    """The plan of 32 sequences a step for the framework."""
    job = Job.model_validate(
        {
            "framework": framework,
            "global_batch_size": 32,
            "sequence_length": 1024,
            "limits": {"solver_seconds": 300},
        }
    )
    cluster = cluster_document(*read_cluster(CASES[model])[:2])
    return planning.plan(model_document(*read_model(model)), cluster, job)


@pytest.mark.parametrize("framework", list(Framework))
@pytest.mark.parametrize("model", CASES)
def test_a_plan_for_a_framework_goes_to_it_whole(model: str, framework: Framework) -> None:
    plan = planned(model, framework)
    assert isinstance(plan, Plan)
    places = {place.target: place for place in plan.destinations}
    for target in TARGETS[framework]:
        assert places[target].refusal is None
        losses = places[target].losses
        assert [loss for loss in losses if not loss.startswith(OF_THE_PROGRAM)] == []


# Axolotl's states have 16 bits, and fit without.
@pytest.mark.parametrize("framework", [f for f in Framework if f is not Framework.AXOLOTL])
def test_what_fits_with_states_on_the_host_alone_is_planned_so(framework: Framework) -> None:
    # 6.7 G parameters x 16 bytes are 100 GiB, and four devices have 96 of 24
    plan = planned("llama-2-7b", framework)
    assert isinstance(plan, Plan)
    offloads = {group.offload for stage in plan.strategy.stages or () for group in stage.layers}
    assert len(offloads) == 1
    assert Offload.OPTIMIZER in offloads.pop()


@pytest.mark.parametrize("framework", [Framework.TORCHTITAN, Framework.MEGATRON_LM])
@pytest.mark.parametrize("model", ["qwen2-vl-7b", "nemotron-3-nano-30b-a3b"])
def test_no_pipeline_is_planned_where_layers_are_not_blocks(
    model: str, framework: Framework
) -> None:
    plan = planned(model, framework)
    assert isinstance(plan, Plan)
    assert plan.strategy.pipeline_parallel_degree == 1
