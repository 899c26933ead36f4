"""Hugging Face's Trainer runs plans: steps equal plain torch's."""

from __future__ import annotations

from typing import Any

import pytest

from tests.distributed.group import RankGroup
from tests.distributed.parity import EXACT
from tests.distributed.plans import GLOBAL_BATCH_SIZE, SEQUENCE_LENGTH

pytest.importorskip("accelerate", reason="no package accelerate")
pytestmark = pytest.mark.distributed

Fields = dict[str, Any]
REPLICAS: Fields = {"data_parallel_degree": 2, "micro_batch_size": 2}
ZERO3: Fields = {**REPLICAS, "zero_stage": 3, "activation_checkpointing": "full"}
TOKENS = GLOBAL_BATCH_SIZE * (SEQUENCE_LENGTH - 1)
SUMMED = TOKENS * 2.0**-24  # transformers adds the losses of as many tokens in fp32


@pytest.mark.parametrize(
    ("strategy", "kind"), [(REPLICAS, "Parameter"), (ZERO3, "DTensor")], ids=["replicas", "zero3"]
)
def test_the_trainer_trains_as_plain_torch_does(
    two_ranks: RankGroup, strategy: Fields, kind: str
) -> None:
    """A step has two micro-batches of two sequences on each rank."""
    answer = two_ranks.run("hugging_face_trainer", strategy=strategy)
    assert answer["parameter_error"] <= EXACT
    assert answer["losses"] == pytest.approx(answer["plain_losses"], rel=SUMMED)
    assert answer["kinds"] == [kind]
    *losses, last = answer["said"]
    assert last.startswith("step: measured ")
    assert ", predicted " in last
    reduced_late = any("reduces gradients after the last micro-batch" in line for line in losses)
    assert reduced_late is (kind == "DTensor")


def test_the_trainer_trains_a_model_that_is_split_at_load(four_ranks: RankGroup) -> None:
    """Transformers splits over two ranks and shards over two; the callback lets it run."""
    strategy = {**ZERO3, "data_parallel_degree": 2, "tensor_parallel_degree": 2}
    answer = four_ranks.run("hugging_face_trainer", strategy=strategy)
    assert answer["parameter_error"] <= EXACT
    assert answer["losses"] == pytest.approx(answer["plain_losses"], rel=SUMMED)
    assert answer["kinds"] == ["DTensor"]


@pytest.mark.parametrize("strategy", [REPLICAS, ZERO3], ids=["replicas", "zero3"])
def test_rows_grouped_by_length_train_and_evaluate_as_in_plain_torch(
    two_ranks: RankGroup, strategy: Fields
) -> None:
    """Steps have other numbers of tokens; the last has one micro-batch, and a row is left out."""
    answer = two_ranks.run("trainer_of_varied_rows", strategy=strategy)
    assert answer["row_counts"] == [GLOBAL_BATCH_SIZE, GLOBAL_BATCH_SIZE, GLOBAL_BATCH_SIZE // 2]
    assert len(set(answer["token_counts"])) > 1
    assert answer["parameter_error"] <= EXACT
    assert answer["losses"] == pytest.approx(answer["plain_losses"], rel=SUMMED)
    assert answer["eval_losses"] == pytest.approx(answer["plain_eval_losses"], rel=SUMMED)


@pytest.mark.parametrize("strategy", [REPLICAS, ZERO3], ids=["replicas", "zero3"])
def test_adapters_of_experts_train_as_with_plain_peft(
    two_ranks: RankGroup, strategy: Fields
) -> None:
    answer = two_ranks.run("hugging_face_trainer", strategy=strategy, adapted=True)
    assert answer["parameter_error"] <= EXACT
    assert answer["losses"] == pytest.approx(answer["plain_losses"], rel=SUMMED)
    assert len(set(answer["losses"])) == 3
    assert answer["said"][-2].startswith("not as planned: adapters of mlp.experts.")
