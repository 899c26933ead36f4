"""torchtitan 0.3 reads the function with its own ConfigManager, 0.2.2 the TOML."""

# ruff: noqa: PLC0415 - the frameworks are imported where they are known to be there

from __future__ import annotations

import importlib
import json
import subprocess
import sys
from pathlib import Path

import pytest

from tests.exports.conftest import imports_again, needed, unpacked

needed("torchtitan")

BASES = {
    "llama-3-8b": "torchtitan.models.llama3.config_registry:llama3_8b",
    "mixtral-8x7b": "torchtitan.models.qwen3.config_registry:qwen3_30b_a3b",
}
LEGACY = Path(__file__).with_name("torchtitan_legacy.py")


@pytest.fixture
def manager(tmp_path, monkeypatch):
    """Parses the module that was written into the folder last."""
    from torchtitan.config import ConfigManager

    monkeypatch.syspath_prepend(str(tmp_path))

    def parsed(text: str, base: str):
        (tmp_path / "plan_config.py").write_text(text)
        monkeypatch.setenv("BASE_CONFIG", base)
        sys.modules.pop("plan_config", None)
        importlib.invalidate_caches()
        # two modules of one name within a second would share their byte code
        monkeypatch.setattr(sys, "dont_write_bytecode", True)
        return ConfigManager().parse_args(["--module", "plan_config", "--config", "plan"])

    return parsed


def test_torchtitan_reads_what_the_plan_says(manager, exports_to):
    for made, plan in exports_to("torchtitan", count=12):
        config = manager(made.files[0].text, BASES[plan.model.resolved.name])
        own, said = made.strategy, config.parallelism
        assert said.tensor_parallel_degree == own.tensor_parallel_degree
        assert said.pipeline_parallel_degree == own.pipeline_parallel_degree
        assert said.context_parallel_degree == own.context_parallel_degree
        assert said.expert_parallel_degree == own.expert_parallel_degree
        assert said.data_parallel_shard_degree == own.shard_degree
        assert said.data_parallel_replicate_degree == own.replicate_degree
        assert config.training.global_batch_size == 64
        parts = said.module_fqns_per_model_part
        blocks = [sum(name.startswith("layers.") for name in part) for part in parts or ()]
        assert not blocks or blocks == [stage.block_count for stage in own.stages]
        assert imports_again(made, plan, ".py")


def test_torchtitans_mesh_takes_the_degrees(manager, exports_to):
    from torchtitan.distributed import ParallelDims

    for made, plan in exports_to("torchtitan", count=6):
        config = manager(made.files[0].text, BASES[plan.model.resolved.name])
        assert ParallelDims.from_config(config.parallelism, 16).world_size == 16


def test_torchtitan_of_before_reads_the_toml(tmp_path, exports_to):
    folder = unpacked("torchtitan")
    made = exports_to("torchtitan-0.2", count=8)
    for index, (one, _) in enumerate(made):
        (tmp_path / f"{index}.toml").write_text(one.files[0].text)
    files = [str(tmp_path / f"{index}.toml") for index in range(len(made))]
    done = subprocess.run(
        [sys.executable, str(LEGACY), str(folder), *files],
        capture_output=True, text=True, check=False, timeout=600,
    )  # fmt: skip
    assert done.returncode == 0, done.stderr[-2000:]
    for (one, plan), line in zip(made, done.stdout.splitlines(), strict=True):
        said = json.loads(line)
        assert said["tensor_parallel_degree"] == one.strategy.tensor_parallel_degree
        assert said["data_parallel_shard_degree"] == one.strategy.shard_degree
        assert said["expert_parallel_degree"] == one.strategy.expert_parallel_degree
        assert imports_again(one, plan, ".toml")
