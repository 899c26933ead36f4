"""torchtitan trains under a plan on gloo as it does on one rank, on the same batches."""

from __future__ import annotations

import json
from pathlib import Path
from typing import Any

import pytest

from planner.errors import InputError
from tests.distributed.plans import GLOBAL_BATCH_SIZE, SEQUENCE_LENGTH, cpu_plan, small_model
from tests.exports.conftest import needed, ran_on_ranks

needed("torchtitan")

DEBUG_BLOCKS = 6  # of torchtitan's debug model
TOKENS = GLOBAL_BATCH_SIZE * SEQUENCE_LENGTH
SUMMED = TOKENS * 2.0**-24  # the losses of as many tokens are added in fp32
ZERO3 = {"data_parallel_degree": 2, "zero_stage": 3, "activation_checkpointing": "full"}
STRATEGIES = {
    "zero3": {**ZERO3, "micro_batch_size": 2},
    "tensor": {"tensor_parallel_degree": 2, "micro_batch_size": 4},
}


def plan_of(strategy: dict[str, Any], *, width: int = 256):
    """A plan for torchtitan's debug model, or one of another width."""
    model = small_model(block_count=DEBUG_BLOCKS, vocabulary_size=2048)
    return cpu_plan(model=model.model_copy(update={"hidden_size": width}), **strategy)


def losses_of(folder: Path, function: str, *, ranks: int, plan: str = "") -> list[float]:
    """The losses that the job logs on rank 0."""
    folder.mkdir()
    ran_on_ranks(
        ranks,
        "-m", "tests.exports.titan_on_cpu", "--module", "tests.exports.titan_job",
        "--config", function, "--dump_folder", str(folder / "dump"),
        TITAN_OUT=str(folder), TITAN_PLAN=plan,
    )  # fmt: skip
    lines = (folder / "0").read_text(encoding="utf-8").splitlines()
    return [json.loads(line)["loss"] for line in lines]


@pytest.fixture(scope="module")
def plain_losses(tmp_path_factory: pytest.TempPathFactory) -> list[float]:
    """The losses of the job on one rank, without a plan."""
    return losses_of(tmp_path_factory.mktemp("titan") / "plain", "plain", ranks=1)


@pytest.mark.full
@pytest.mark.parametrize("name", ["zero3", "tensor"])
def test_torchtitan_trains_under_the_plan_as_on_one_rank(plain_losses, tmp_path: Path, name: str):
    path = tmp_path / "plan.json"
    path.write_text(plan_of(STRATEGIES[name]).to_json(), encoding="utf-8")
    losses = losses_of(tmp_path / name, "under_plan", ranks=2, plan=str(path))
    assert losses == pytest.approx(plain_losses, rel=SUMMED)
    assert losses[-1] < losses[0] - 0.5


def test_a_plan_for_another_model_is_refused():
    from meshwright.integrations.torchtitan import planned  # noqa: PLC0415
    from tests.exports.titan_job import plain  # noqa: PLC0415

    with pytest.raises(InputError, match="which has 512") as refused:
        planned(plain(), plan_of(STRATEGIES["tensor"], width=512))
    assert refused.value.field == "model.dim"
