"""Lightning's Trainer runs plans on two gloo ranks: steps equal plain torch's."""

from __future__ import annotations

import json
from typing import Any

import pytest

from planner.errors import InputError
from tests.distributed.plans import GLOBAL_BATCH_SIZE, SEQUENCE_LENGTH, cpu_plan
from tests.distributed.rounding import EXACT
from tests.exports.conftest import needed, ran_on_ranks

needed("lightning")
from meshwright.integrations.lightning import planned_trainer  # noqa: E402 - where it is there

TOKENS = GLOBAL_BATCH_SIZE * (SEQUENCE_LENGTH - 1)
SUMMED = TOKENS * 2.0**-24  # transformers adds the losses of as many tokens in fp32


@pytest.fixture(scope="module")
def answers(tmp_path_factory: pytest.TempPathFactory) -> dict[str, Any]:
    """What came of each training."""
    out = tmp_path_factory.mktemp("lightning") / "answers.json"
    ran_on_ranks(2, "-m", "tests.exports.lightning_training", str(out))
    return json.loads(out.read_text(encoding="utf-8"))


@pytest.mark.parametrize(
    ("run", "are_shards"), [("replicas", False), ("zero3", True), ("tensor", True)]
)
def test_lightning_trains_as_plain_torch_does(answers, run: str, are_shards: bool):
    """A step has two micro-batches on each rank."""
    answer = answers[run]
    assert answer["parameter_error"] <= EXACT
    assert answer["losses"] == pytest.approx(answer["plain_losses"], rel=SUMMED)
    assert answer["are_shards"] is are_shards
    (last,) = answer["said"]
    assert last.startswith("step: measured ")
    assert ", predicted " in last


@pytest.mark.parametrize(
    ("run", "refusal"),
    [
        ("accumulation", "accumulate_grad_batches: is not the plan's, which has 2 (got 4)"),
        ("batch", "micro-batch size: is not the plan's, which has 2 (got 4)"),
        ("unsplit", "model: is not split over 2 tensor-parallel ranks, as planned"),
    ],
)
def test_another_run_than_the_plans_ends(answers, run: str, refusal: str):
    assert answers[run]["refusal"].startswith(refusal)


@pytest.mark.parametrize(
    ("strategy", "field"),
    [
        ({"pipeline_parallel_degree": 2}, "strategy.pipeline_parallel_degree"),
        ({"context_parallel_degree": 2}, "strategy.context_parallel_degree"),
        (
            {"zero_stage": 3, "data_parallel_degree": 2, "offload": ["optimizer"]},
            "strategy.offload",
        ),
    ],
    ids=["pipeline", "context", "offload"],
)
def test_what_lightning_cannot_run_is_refused(strategy: dict[str, Any], field: str):
    with pytest.raises(InputError) as refused:
        planned_trainer(cpu_plan(**strategy))
    assert refused.value.field == field


def test_shards_of_fewer_states_are_said():
    plan = cpu_plan(data_parallel_degree=2, zero_stage=1)
    (loss,) = planned_trainer(plan)["strategy"].run.draft.losses
    assert loss.startswith(
        "Lightning reduces each micro-batch's gradients: ZeRO stage 2 everywhere"
    )
