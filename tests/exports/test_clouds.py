"""Kubeflow's models and SkyPilot's own reader take the manifests without losing a field."""

from __future__ import annotations

import json
import os
import subprocess
import sys
from pathlib import Path

import pytest
import yaml

from planner.exporters.registry import export
from planner.schema.strategy import Strategy
from tests.exports.conftest import needed, unpacked
from tests.unit.exporters.plans import plan_of

PARSER = Path(__file__).with_name("skypilot_parser.py")
PLANS = [
    plan_of(Strategy(data_parallel_shard_degree=8)),
    plan_of(Strategy(data_parallel_shard_degree=16), cluster="2x8xh100-sxm5-80gb"),
]


@pytest.mark.parametrize("plan", PLANS, ids=["one node", "two nodes"])
def test_kubeflow_takes_the_train_job_whole(plan):
    models = needed("kubeflow_trainer_api.models")
    text = export(plan, "kubeflow").files[0].text
    held, job = yaml.safe_load_all(text)
    said = models.TrainerV1alpha1TrainJob.from_dict(job)
    assert yaml.safe_load(yaml.safe_dump(said.to_dict())) == job
    assert held["data"]["plan.json"] == plan.to_json()


@pytest.fixture
def read_by_skypilot(tmp_path):
    """What SkyPilot's `Task.from_yaml` makes of each text, in a home of its own."""
    folder = unpacked("skypilot")

    def read(*texts: str) -> list[dict]:
        (tmp_path / "plan.json").write_text("{}")
        names = [f"{index}.yaml" for index in range(len(texts))]
        for name, text in zip(names, texts, strict=True):
            (tmp_path / name).write_text(text)
        done = subprocess.run(
            [sys.executable, str(PARSER), str(folder), *names],
            cwd=tmp_path, env=os.environ | {"HOME": str(tmp_path)},
            capture_output=True, text=True, check=False, timeout=600,
        )  # fmt: skip
        assert done.returncode == 0, done.stderr[-3000:]
        return [json.loads(line) for line in done.stdout.splitlines()]

    return read


def test_skypilot_reads_the_tasks(read_by_skypilot):
    texts = [export(plan, "skypilot").files[0].text for plan in PLANS]
    wrong = texts[0].replace("num_nodes:", "num_nods:")
    *read, refused = read_by_skypilot(*texts, wrong)
    for text, said, nodes in zip(texts, read, (1, 2), strict=True):
        assert said["num_nodes"] == nodes, said
        assert said["accelerators"] == {"H100": 8}
        assert said["run"] == yaml.safe_load(text)["run"]
        assert said["workdir"] == "."
        assert said["run"].startswith('export MESHWRIGHT_PLAN="plan.json"\n')
    assert "num_nods" in refused["error"]
