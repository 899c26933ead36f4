"""Gradients of an embedding whose rows tensor-parallel ranks share, by hand."""

from __future__ import annotations

from typing import Any

import pytest

from planner.cost.configuration import Choice, Choices, Configuration, Configurations
from planner.cost.layers import local_states, no_extras
from planner.cost.setting import setting
from planner.cost.states import StateMemory, state_memory
from planner.hardware import cluster_hardware
from planner.importers.clusters import cluster_from_short_form
from planner.importers.models import read_model
from planner.workload.layer import LayerWorkload
from planner.workload.model import model_workload
from tests.builders import a_job

LLAMA = model_workload(read_model("llama-3-8b")[1])
TABLE = 128_256 * 4096


def states(
    zero_stage: int = 1,
    layer: LayerWorkload = LLAMA.embedding,
    *,
    sequence_parallel: bool = True,
    **job: Any,
) -> StateMemory:
    """Tensor parallel 4, two shards, two micro-batches."""
    (kind,) = cluster_hardware(cluster_from_short_form("1x8xh100-sxm5-80gb")).kinds
    row = Configuration(
        tensor_parallel_degree=4,
        sequence_parallel=sequence_parallel,
        data_parallel_shard_degree=2,
        micro_batch_count=2,
    )
    here = setting(a_job(**job), kind, Configurations.of([row]))
    local = local_states(layer, here, no_extras(here, is_end=True))
    return state_memory(local, Choices.of([Choice(zero_stage=zero_stage)]), here)


@pytest.mark.parametrize("zero_stage", [0, 1])
def test_dtensors_accumulate_gradients_of_all_rows(zero_stage: int) -> None:
    """In 32 bits; of the parameters a quarter is there."""
    found = states(zero_stage)
    assert found.gradients.item() == pytest.approx(4 * TABLE)
    assert found.optimizer.item() == pytest.approx(8 * TABLE / 4 / (1 + zero_stage))


@pytest.mark.parametrize(
    "where",
    [
        {"sequence_parallel": False},  # what comes in is whole, and may be split by columns
        {"copied_rows": False},  # no DTensors
        {"stack": "megatron"},
        {"layer": LLAMA.head.layer},
    ],
)
def test_others_have_gradients_of_their_own_rows(where: dict[str, Any]) -> None:
    assert states(**where).gradients.item() == pytest.approx(4 * TABLE / 4, rel=1e-4)


def test_what_is_reduced_at_once_is_made_whole_and_held_in_shards() -> None:
    """In 16 bits as backward makes it, a quarter in 32 as it is reduced, and an eighth stays."""
    found = states(3)
    assert found.gradients.item() == pytest.approx(4 * TABLE / 8)
    assert found.made.item() == pytest.approx(2 * TABLE)
    assert found.unreduced.item() == pytest.approx(2 * TABLE + 4 * TABLE / 4)


@pytest.mark.parametrize(("trains_ends", "made"), [(False, 0), (True, 4 * TABLE)])
def test_a_frozen_embedding_has_none_and_its_trained_copy_has(trains_ends: bool, made: int) -> None:
    found = states(adapters={"rank": 8, "trains_ends": trains_ends})
    assert found.gradients.item() == pytest.approx(made)


def test_states_in_16_bits_have_gradients_of_all_rows_in_16() -> None:
    assert states(states_in_16_bits=True).gradients.item() == pytest.approx(2 * TABLE)
