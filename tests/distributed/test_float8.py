"""8-bit products: ranks round what linears multiply as one process does, by torchao's emulation.

The unsharded run has torchao's linears in its blocks, and is in 16 bits elsewhere.
"""

from __future__ import annotations

from typing import Any

import pytest

from tests.distributed.group import RankGroup
from tests.distributed.parity import EXACT, LOSS_OF_16_BITS, cases

Fields = dict[str, Any]
EMULATED = "products are rounded to fp8 and computed in 16 bits: this device has none in fp8"
# No operand is divided: ranks round the same numbers by the same scales.
WHOLE_OPERANDS: dict[str, Fields] = {
    "data": {"data_parallel_degree": 2, "micro_batch_size": 4},
    "zero-3": {"data_parallel_degree": 2, "micro_batch_size": 2, "zero_stage": 3},
    "pipeline": {"pipeline_parallel_degree": 2, "micro_batch_size": 4},
    "divided-backward": {
        "pipeline_parallel_degree": 2,
        "pipeline_schedule": "zb_v",
        "virtual_pipeline_degree": 2,
        "micro_batch_size": 2,
    },
    "full-checkpointing": {
        "data_parallel_degree": 2,
        "micro_batch_size": 4,
        "activation_checkpointing": "full",
    },
    "selective-checkpointing": {
        "data_parallel_degree": 2,
        "micro_batch_size": 4,
        "activation_checkpointing": "selective",
    },
}


@pytest.mark.parametrize(
    "strategy",
    cases(WHOLE_OPERANDS, always={"zero-3", "divided-backward", "selective-checkpointing"}),
)
def test_ranks_round_to_8_bits_as_one_process_does(two_ranks: RankGroup, strategy: Fields) -> None:
    answer = two_ranks.run("state_parity", strategy=strategy, precision="fp8")
    assert set(answer["differences"]) == {EMULATED}
    assert answer["losses"] == pytest.approx(answer["reference_losses"], rel=LOSS_OF_16_BITS)
    assert answer["gradient_error"] <= EXACT
    assert answer["parameter_error"] <= EXACT


@pytest.mark.parametrize(
    "sequence_parallel", [True, pytest.param(False, marks=pytest.mark.parity_full)]
)
def test_split_linears_come_as_close_in_8_bits_as_whole_ones(
    two_ranks: RankGroup, *, sequence_parallel: bool
) -> None:
    """What row-split products sum over ranks is rounded to 16 bits once more."""
    strategy = {
        "tensor_parallel_degree": 2,
        "sequence_parallel": sequence_parallel,
        "micro_batch_size": 8,
    }
    answer = two_ranks.run("parity", strategy=strategy, precision="fp8", bits=32)
    bars = answer["bars"]
    assert set(answer["differences"]) == {EMULATED}
    assert answer["losses"] == pytest.approx(answer["reference_losses"], rel=bars["loss"])
    assert answer["gradient_error"] <= bars["gradient"]
    assert answer["parameter_error"] <= bars["parameter"]
    assert bars["gradient"] < 1.0
