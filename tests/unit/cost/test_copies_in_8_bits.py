"""Weights of 16 bits beside copies in 8, as Transformer Engine keeps them, by hand."""

from __future__ import annotations

from typing import Any

import numpy as np
import pytest

from planner.cost.configuration import Choice, Choices, Configuration, Configurations
from planner.cost.layers import layer_bytes, no_extras
from planner.cost.setting import Setting, setting
from planner.cost.states import LocalParameters, sync_seconds
from planner.hardware import cluster_hardware
from planner.importers.clusters import cluster_from_short_form
from planner.importers.models import read_model
from planner.workload.model import model_workload
from tests.builders import a_job

LLAMA = model_workload(read_model("llama-3-8b")[1])
BLOCK_PARAMETERS = 218_112_000


def a_setting(**job: Any) -> Setting:
    """Eight H100 that share the optimizer of Megatron's fp8."""
    (kind,) = cluster_hardware(cluster_from_short_form("1x8xh100-sxm5-80gb")).kinds
    rows = Configurations.of([Configuration(data_parallel_shard_degree=8)])
    return setting(a_job(stack="megatron", precision="fp8", **job), kind, rows)


def parameter_bytes(*, is_end: bool = False, zero_stage: int = 1, **job: Any) -> float:
    here = a_setting(**job)
    layer = LLAMA.embedding if is_end else LLAMA.runs[0][0]
    found = layer_bytes(
        layer,
        choices=Choices.of([Choice(zero_stage=zero_stage)]),
        setting=here,
        extras=no_extras(here, is_end=is_end),
    )
    return found.parameters.item()


def test_a_block_has_two_copies_of_a_byte_and_embedding_and_head_none() -> None:
    """Without copies two bytes are a weight in 8 bits and its transpose, or 16 bits in the ends."""
    assert parameter_bytes() == pytest.approx(2 * BLOCK_PARAMETERS)
    assert parameter_bytes(copies_in_8_bits=True) == pytest.approx(4 * BLOCK_PARAMETERS)
    ends = [parameter_bytes(is_end=True, copies_in_8_bits=copied) for copied in (False, True)]
    assert ends == pytest.approx([2 * 128_256 * 4096] * 2)


def test_what_is_sharded_whole_has_no_copies_that_stay() -> None:
    assert parameter_bytes(zero_stage=3, copies_in_8_bits=True) == parameter_bytes(zero_stage=3)


def test_parameters_are_gathered_in_16_bits_beside_copies() -> None:
    """A bucket of 80 million takes twice as long, latency aside."""
    local = LocalParameters(dense=np.array([[80e6]]), expert=np.zeros((1, 1)))
    seconds = []
    for copied in (False, True):
        here = a_setting(copies_in_8_bits=copied)
        seconds.append(sync_seconds(local, here).gather_trained.item())
        taken = here.groups.shard.all_gather(np.array([[80e6 * (1 + copied)]])).item()
        assert seconds[-1] == pytest.approx(taken)
    assert seconds[1] > seconds[0]


def test_copies_in_8_bits_are_of_fp8_alone() -> None:
    with pytest.raises(ValueError, match=r"copies_in_8_bits is of products in fp8.*precision fp8"):
        a_job(precision="bf16", copies_in_8_bits=True)
