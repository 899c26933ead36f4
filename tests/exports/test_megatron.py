"""Megatron-LM's own parse_args and validate_args read the arguments, its layout the stages."""

from __future__ import annotations

import json
import shlex
import subprocess
import sys
from pathlib import Path

from planner.exporters.registry import export
from planner.schema.strategy import LayerGroup, Stage, Strategy
from tests.exports.conftest import imports_again, needed, unpacked
from tests.unit.exporters.plans import plan_of

needed("torch")
PARSER = Path(__file__).with_name("megatron_parser.py")


def words_of(text: str) -> list[str]:
    """The words between the parentheses of the script's array."""
    inner = text.split("PLAN_ARGUMENTS=(", 1)[1].split("\n)\n", 1)[0]
    return shlex.split(inner)


def parsed(made, folder: Path) -> list[dict]:
    """What Megatron makes of each script's arguments, each in an environment of the script's."""
    requests = [
        {"words": words_of(one.files[0].text), "connections": "export CUDA" in one.files[0].text,
         "experts": plan.model.resolved.name == "mixtral-8x7b"}
        for one, plan in made
    ]  # fmt: skip
    done = subprocess.run(
        [sys.executable, str(PARSER), str(folder)],
        input=json.dumps(requests), capture_output=True, text=True, check=False, timeout=600,
    )  # fmt: skip
    assert done.returncode == 0, done.stderr[-3000:]
    return json.loads(done.stdout.splitlines()[-1])


def test_megatron_reads_the_stages_of_a_hybrid_by_their_letters():
    stages = [
        Stage(stage=i, layers=(LayerGroup(first_block=16 * i, block_count=16),)) for i in range(4)
    ]
    spread = Strategy(pipeline_parallel_degree=4, data_parallel_shard_degree=4, stages=stages)
    plan = plan_of(spread, model="nemotron-h-56b", cluster="2x8xh100-sxm5-80gb")
    (said,) = parsed([(export(plan, "megatron-lm"), plan)], unpacked("megatron-core"))
    assert "error" not in said, said
    assert said["pipeline_model_parallel_size"] == 4
    assert [len(stage) for stage in said["hybrid_layer_pattern"].split("|")] == [29, 30, 29, 30]


def test_megatron_reads_what_the_plan_says(exports_to):
    folder = unpacked("megatron-core")
    made = exports_to("megatron-lm", count=12)
    for (one, plan), said in zip(made, parsed(made, folder), strict=True):
        own = one.strategy
        assert "error" not in said, said
        assert said["tensor_model_parallel_size"] == own.tensor_parallel_degree
        assert said["pipeline_model_parallel_size"] == own.pipeline_parallel_degree
        assert (said["virtual_pipeline_model_parallel_size"] or 1) == own.virtual_degree
        assert said["context_parallel_size"] == own.context_parallel_degree
        assert said["expert_model_parallel_size"] == own.expert_parallel_degree
        assert said["data_parallel_size"] == own.shard_degree * own.replicate_degree
        assert said["micro_batch_size"] == own.micro_batch_size
        assert said["stage_blocks"] in (None, [stage.block_count for stage in own.stages])
        assert imports_again(one, plan, ".sh")
