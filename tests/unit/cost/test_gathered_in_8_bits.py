"""Weights that fully_shard gathers in 8 bits, as torchao casts them before, by hand."""

from __future__ import annotations

from typing import Any

import pytest

from planner.cost.configuration import Choice, Choices, Configuration, Configurations
from planner.cost.layers import local_states, no_extras
from planner.cost.setting import Setting, setting
from planner.cost.states import state_memory, sync_seconds
from planner.hardware import cluster_hardware
from planner.importers.clusters import cluster_from_short_form
from planner.importers.models import read_model
from planner.workload.layer import LayerWorkload
from planner.workload.model import model_workload
from tests.builders import a_job

LLAMA = model_workload(read_model("llama-3-8b")[1])
BLOCK: LayerWorkload = LLAMA.runs[0][0]
PARAMETERS = 218_112_000  # of a block
TABLE = 128_256 * 4096
MIXTURE: LayerWorkload = model_workload(read_model("mixtral-8x7b")[1]).runs[0][0]
EXPERTS = 8 * 3 * 4096 * 14336
# Queries and outputs, keys and values, two norms and the router
BESIDE_EXPERTS = 2 * 4096 * 4096 + 2 * 4096 * 1024 + 2 * 4096 + 8 * 4096


def a_setting(**job: Any) -> Setting:
    """Eight H100 that share all states of fp8."""
    (kind,) = cluster_hardware(cluster_from_short_form("1x8xh100-sxm5-80gb")).kinds
    rows = Configurations.of([Configuration(data_parallel_shard_degree=8)])
    return setting(a_job(precision="fp8", **job), kind, rows)


def states(layer: LayerWorkload, zero_stage: int, *, is_end: bool = False, **job: Any) -> Any:
    here = a_setting(**job)
    local = local_states(layer, here, no_extras(here, is_end=is_end))
    return state_memory(local, Choices.of([Choice(zero_stage=zero_stage)]), here)


@pytest.mark.parametrize(
    ("layer", "is_end", "usual", "narrow"),
    [
        (BLOCK, False, 2 * PARAMETERS, PARAMETERS),
        (LLAMA.embedding, True, 2 * TABLE, 2 * TABLE),
        (MIXTURE, False, 2 * (EXPERTS + BESIDE_EXPERTS), 2 * EXPERTS + BESIDE_EXPERTS),
    ],
)
def test_blocks_but_their_experts_are_gathered_in_a_byte(
    layer: LayerWorkload, is_end: bool, usual: int, narrow: int
) -> None:
    found = [
        states(layer, 3, is_end=is_end, gathered_in_8_bits=narrower).gathered.item()
        for narrower in (False, True)
    ]
    assert found == pytest.approx([usual, narrow])


@pytest.mark.parametrize("zero_stage", [1, 2])
def test_copies_that_stay_gathered_have_a_byte_beside_their_shards(zero_stage: int) -> None:
    """An eighth of 4 bytes is each rank's; stage 3 keeps nothing else, stage 0 gathers nothing."""
    usual, narrow = (
        states(BLOCK, zero_stage, gathered_in_8_bits=one).parameters.item() for one in (False, True)
    )
    assert usual == pytest.approx((2 + 4 / 8) * PARAMETERS)
    assert narrow == pytest.approx((1 + 4 / 8) * PARAMETERS)


@pytest.mark.parametrize("zero_stage", [0, 3])
def test_what_is_held_otherwise_stays(zero_stage: int) -> None:
    usual, narrow = (
        states(BLOCK, zero_stage, gathered_in_8_bits=one).parameters.item() for one in (False, True)
    )
    assert narrow == usual


def test_a_byte_is_gathered_of_each_parameter() -> None:
    seconds = []
    for narrower in (False, True):
        here = a_setting(gathered_in_8_bits=narrower)
        local = local_states(BLOCK, here, no_extras(here))
        sync = sync_seconds(local, here)
        taken = here.groups.shard.all_gather(0.0 * local.dense + (2 - narrower) * PARAMETERS)
        assert sync.gather.item() == pytest.approx(taken.item())
        assert sync.gather_trained.item() == pytest.approx(taken.item())
        seconds.append(sync.gather.item())
    assert seconds[1] < seconds[0]


@pytest.mark.parametrize(
    ("fields", "said"),
    [
        ({"precision": "bf16"}, "precision is bf16; leave it out, or set precision fp8"),
        ({"stack": "megatron"}, "stack is megatron; leave it out, or set stack torch"),
        ({"row_scaled_fp8": True}, "leave it out, or row_scaled_fp8"),
        ({"adapters": {"rank": 8}}, "leave it out, or adapters"),
    ],
)
def test_gathers_in_8_bits_are_of_trained_weights_in_fp8(fields: dict[str, Any], said: str) -> None:
    with pytest.raises(ValueError, match=f"gathered_in_8_bits is of.*{said}"):
        a_job(**{"precision": "fp8", "gathered_in_8_bits": True, **fields})
