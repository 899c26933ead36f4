"""Selective checkpointing runs again the products that the executor's policy runs again.

Torch counts the FLOPs of a step of the executor's own decoder, with and without the policy: the
difference is what ran twice.
"""

from __future__ import annotations

import pytest
import torch
from torch.utils.flop_counter import FlopCounterMode

from executor.apply.checkpointing import apply_checkpointing
from executor.models.decoder import Decoder
from planner.schema.strategy import ActivationCheckpointing, LayerGroup, Stage
from planner.workload.model import model_workload
from tests.builders import a_model

TOKENS = 32


def counted_flop(checkpointing: ActivationCheckpointing) -> float:
    """Return the FLOPs of forward and backward over one sequence of the tiny model."""
    model = Decoder(a_model())
    group = LayerGroup(first_block=0, block_count=4, activation_checkpointing=checkpointing)
    apply_checkpointing(
        model, declaration=model.declaration(), stage=Stage(stage=0, layers=(group,))
    )
    with FlopCounterMode(display=False) as counter:
        model(torch.arange(TOKENS)[None]).sum().backward()
    return float(counter.get_total_flops())


@pytest.fixture(scope="module")
def plain_flop() -> float:
    """What a step takes when all is kept."""
    return counted_flop(ActivationCheckpointing.NONE)


def test_selective_checkpointing_runs_the_predicted_share_again(plain_flop):
    again = counted_flop(ActivationCheckpointing.SELECTIVE) - plain_flop
    ((layer, count),) = model_workload(a_model()).runs
    products = sum(gemm.flop_per_token() for gemm in layer.gemms)
    assert again == pytest.approx(count * TOKENS * layer.selective_recompute_ratio * products)
