"""Kubeflow's models and SkyPilot's schema take the manifests without losing a field."""

from __future__ import annotations

import re
import sys

import pytest
import yaml

from planner.exporters.registry import export
from planner.schema.strategy import Strategy
from tests.exports.conftest import unpacked
from tests.unit.exporters.plans import plan_of

PLANS = [
    plan_of(Strategy(data_parallel_shard_degree=8)),
    plan_of(Strategy(data_parallel_shard_degree=16), cluster="2x8xh100-sxm5-80gb"),
]


@pytest.mark.parametrize("plan", PLANS, ids=["one node", "two nodes"])
def test_kubeflow_takes_the_train_job_whole(plan):
    models = pytest.importorskip("kubeflow_trainer_api.models", reason="make test-exports")
    text = export(plan, "kubeflow").files[0].text
    held, job = yaml.safe_load_all(text)
    said = models.TrainerV1alpha1TrainJob.from_dict(job)
    assert yaml.safe_load(yaml.safe_dump(said.to_dict())) == job
    assert held["data"]["plan.json"] == plan.to_json()


@pytest.mark.parametrize("plan", PLANS, ids=["one node", "two nodes"])
def test_skypilots_schema_takes_the_task(plan):
    jsonschema = pytest.importorskip("jsonschema", reason="make test-exports")
    folder = unpacked("skypilot")
    source = (folder / "sky/utils/schemas.py").read_text()
    body = re.search(r"^def get_task_schema\(\):\n.*?(?=^def )", source, re.MULTILINE | re.DOTALL)[
        0
    ]
    called = set(re.findall(r"\b(_?[a-z_]+_schema)\b", body)) - {"get_task_schema"}
    scope: dict[str, object] = {name: (lambda *_, **__: {}) for name in called}
    scope["constants"] = _Anything()
    exec(body, scope)  # noqa: S102 - the function alone: the module needs clouds' libraries
    task = yaml.safe_load(export(plan, "skypilot").files[0].text)
    jsonschema.validate(task, scope["get_task_schema"]())
    assert task["num_nodes"] * 8 == plan.strategy.world_size
    assert "sky" not in sys.modules


class _Anything:
    """Stands for constants that the task's own fields do not use."""

    def __getattr__(self, name):
        return [] if name.isupper() else ""
