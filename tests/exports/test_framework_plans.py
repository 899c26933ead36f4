"""Plans that are made for a framework are exported to it without a refusal or a loss."""

from __future__ import annotations

import pytest

from planner import planning
from planner.exporters.registry import export
from planner.importers.clusters import read_cluster
from planner.importers.models import read_model
from planner.requests.resolution import cluster_document, model_document
from planner.schema.job import Framework, Job
from tests.exports.conftest import imports_again, needed

TARGETS = {
    Framework.TORCHTITAN: {"torchtitan": ".py", "torchtitan-0.2": ".toml"},
    Framework.MEGATRON_LM: {"megatron-lm": ".sh", "megatron-bridge": ""},
    Framework.DEEPSPEED: {"deepspeed": ".json"},
    Framework.ACCELERATE: {"accelerate": ".yaml", "hf-trainer": ".json"},
    Framework.AXOLOTL: {"axolotl": ".yaml"},
}
GRID = [
    ("llama-3-8b", "2x8xh100-sxm5-80gb", 64, 8192),
    ("mixtral-8x7b", "4x8xh100-sxm5-80gb", 64, 8192),
    ("gemma-3-27b", "2x8xa100-sxm4-80gb", 32, 4096),
    ("gpt2-xl", "8xl4-24gb", 64, 1024),
    ("qwen3-30b-a3b", "4x8xh100-sxm5-80gb", 64, 4096),
    ("llama-3-70b", "8x8xh100-sxm5-80gb", 128, 8192),
]
NOT_OF_THE_PLAN = (
    "torchtitan has no model of architecture",
    "torchtitan up to 0.2.2 has no model of architecture",
    "a tower stands before",
    "Accelerate reduces gradients",
    "Accelerate 1.15 prepares tensor-parallel models",
    "the arguments split no model",
    "the configuration does not switch",
)


@pytest.mark.parametrize("framework", TARGETS)
@pytest.mark.parametrize("case", GRID, ids=[case[0] for case in GRID])
def test_a_plan_for_a_framework_is_said_whole(framework, case):
    needed("torchtitan")
    model, cluster, batch, length = case
    job = Job.model_validate(
        {
            "framework": framework,
            "global_batch_size": batch,
            "sequence_length": length,
            "limits": {"solver_seconds": 120},
        }
    )
    plan = planning.plan(
        model_document(*read_model(model)), cluster_document(*read_cluster(cluster)[:2]), job
    )
    assert plan.status == "planned"
    for target, suffix in TARGETS[framework].items():
        made = export(plan, target)
        assert [loss for loss in made.losses if not loss.startswith(NOT_OF_THE_PLAN)] == []
        assert imports_again(made, plan, suffix)
