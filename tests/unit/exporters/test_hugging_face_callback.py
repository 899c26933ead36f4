"""The callback of the Trainer: runs that are not the plan's end before their first step."""

from __future__ import annotations

import importlib
import sys
from contextlib import nullcontext
from types import SimpleNamespace
from typing import Any

import pytest

pytest.importorskip("accelerate", reason="no package accelerate")
pytest.importorskip("torch", reason="the executor's tests need torch")
pytest.importorskip("peft", reason="no package peft")

import peft
import torch
from torch import nn

from meshwright.integrations.hugging_face import PlanCallback, planned_arguments
from planner.errors import InputError, MissingExtraError
from tests.distributed.families import hugging_face_graph, hugging_face_model
from tests.distributed.plans import SEQUENCE_LENGTH, cpu_plan

# peft asks a model of transformers by an older name.
pytestmark = pytest.mark.filterwarnings("ignore:`is_gradient_checkpointing`:FutureWarning")
SHARDED: dict[str, Any] = {"data_parallel_degree": 2, "micro_batch_size": 2, "zero_stage": 3}
FIRST = SimpleNamespace(is_world_process_zero=True)


def plan_of(**strategy: Any):
    """A plan for the small Llama."""
    return cpu_plan(model=hugging_face_graph("llama", tied=False), **strategy)


def begun(plan: Any, *, model: Any = None, **changes: Any) -> None:
    """Begin a run under the plan, of which `changes` are to the arguments."""
    own = {
        "world_size": plan.strategy.world_size,
        "auto_find_batch_size": False,
        "do_eval": False,
        "per_device_eval_batch_size": 8,
    }
    arguments = {**own, **planned_arguments(plan), **changes}
    model = hugging_face_model("llama", tied=False) if model is None else model
    PlanCallback(plan).on_train_begin(SimpleNamespace(**arguments), FIRST, None, model=model)


@pytest.mark.parametrize(
    ("changes", "field"),
    [
        ({"world_size": 4}, "world size"),
        ({"gradient_accumulation_steps": 4}, "gradient_accumulation_steps"),
        ({"bf16": True}, "bf16"),
        ({"auto_find_batch_size": True}, "auto_find_batch_size"),
        ({"activation_checkpointing": True}, "activation_checkpointing"),
        ({"fsdp_config": {"reshard_after_forward": False}}, "fsdp_config.version"),
        ({"parallelism_config": None}, "parallelism_config.dp_replicate_size"),
    ],
    ids=lambda value: value if isinstance(value, str) else "",
)
def test_arguments_that_are_not_the_plans_end_the_run(changes: dict[str, Any], field: str):
    with pytest.raises(InputError, match="the plan") as refused:
        begun(plan_of(**SHARDED), **changes)
    assert refused.value.field == field


def test_another_model_ends_the_run():
    narrow = hugging_face_model("llama", tied=False, hidden_size=16)
    with pytest.raises(InputError, match="which has 32") as refused:
        begun(plan_of(**SHARDED), model=narrow)
    assert refused.value.field == "model.hidden_size"


def test_a_model_that_lies_otherwise_ends_the_run():
    with pytest.raises(InputError, match="model: is not sharded over ranks"):
        begun(plan_of(**SHARDED))


def test_a_model_that_is_not_split_ends_the_run():
    """Its parameters lie on a mesh of shards alone, as Accelerate leaves them with a warning."""
    model = hugging_face_model("llama", tied=False)
    for parameter in model.parameters():
        parameter.device_mesh = SimpleNamespace(mesh_dim_names=("dp_shard_cp",))
    plan = plan_of(tensor_parallel_degree=2, data_parallel_shard_degree=2, zero_stage=3)
    with pytest.raises(InputError, match=r"model: is not split over 2 tensor-parallel ranks"):
        begun(plan, model=model)


def test_replicas_begin(capsys: pytest.CaptureFixture[str]):
    begun(plan_of(data_parallel_degree=2, micro_batch_size=2))
    assert capsys.readouterr().out == ""


def test_evaluation_of_more_rows_than_a_step_has_is_said(capsys: pytest.CaptureFixture[str]):
    begun(plan_of(data_parallel_degree=2, micro_batch_size=2), do_eval=True)
    assert "evaluation takes 8 rows at once, where a step has 2" in capsys.readouterr().out


@pytest.mark.parametrize("is_trained", [True, False])
def test_rows_longer_than_planned_end_a_step_and_no_evaluation(is_trained: bool):
    model = hugging_face_model("llama", tied=False).train(is_trained)
    begun(plan_of(data_parallel_degree=2, micro_batch_size=2), model=model)
    model(input_ids=torch.zeros(2, SEQUENCE_LENGTH, dtype=torch.long))
    longer = torch.zeros(2, SEQUENCE_LENGTH + 1, dtype=torch.long)
    expected = pytest.raises(InputError, match="more than the 16 tokens that were planned")
    with expected if is_trained else nullcontext():
        model(input_ids=longer)


def adapted(family: str, rank: int, **fields: Any) -> nn.Module:
    """A model with adapters of its queries' products."""
    config = peft.LoraConfig(r=rank, target_modules=["q_proj"], **fields)
    return peft.get_peft_model(hugging_face_model(family, tied=False), config)


@pytest.mark.parametrize(
    ("planned", "rank"), [(None, 4), (8, 4), (4, None)], ids=["unplanned", "other rank", "none"]
)
def test_adapters_that_are_not_the_plans_end_the_run(planned: int | None, rank: int | None):
    model = hugging_face_model("llama", tied=False) if rank is None else adapted("llama", rank)
    plan = plan_of(adapters=None if planned is None else {"rank": planned}, micro_batch_size=2)
    with pytest.raises(InputError) as refused:
        begun(plan, model=model)
    assert refused.value.field == "adapters"


def test_planned_adapters_begin(capsys: pytest.CaptureFixture[str]):
    begun(plan_of(adapters={"rank": 4}, micro_batch_size=2), model=adapted("llama", 4))
    assert capsys.readouterr().out == ""


def test_adapters_of_experts_are_said(capsys: pytest.CaptureFixture[str]):
    model = adapted("mixtral", 4, target_parameters=["mlp.experts.down_proj"])
    graph = hugging_face_graph("mixtral", tied=False)
    begun(cpu_plan(model=graph, adapters={"rank": 4}, micro_batch_size=2), model=model)
    said = capsys.readouterr().out
    assert said.startswith("not as planned: adapters of mlp.experts.down_proj are trained")


def test_checkpointing_has_the_name_of_this_release_alone():
    plan = plan_of(data_parallel_degree=2, activation_checkpointing="full")
    arguments = planned_arguments(plan)
    assert arguments["activation_checkpointing"] is True
    assert "gradient_checkpointing" not in arguments


def test_pipelines_are_refused():
    with pytest.raises(InputError, match="Accelerate has no such parallelism") as refused:
        planned_arguments(plan_of(pipeline_parallel_degree=2))
    assert refused.value.field == "strategy.pipeline_parallel_degree"


def test_a_framework_that_is_not_installed_is_named(monkeypatch: pytest.MonkeyPatch):
    home = PlanCallback.__module__
    monkeypatch.delitem(sys.modules, home)
    monkeypatch.setitem(sys.modules, "accelerate", None)
    with pytest.raises(MissingExtraError, match=r"pip install 'meshwright\[hugging-face\]'"):
        importlib.import_module(home)
