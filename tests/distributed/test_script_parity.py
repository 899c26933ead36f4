"""Losses that modules add, and groups of parameters by name, are those of a plain script."""

from __future__ import annotations

from typing import Any

import pytest

from tests.distributed.group import RankGroup
from tests.distributed.parity import EXACT, cases

pytestmark = pytest.mark.distributed

Fields = dict[str, Any]
PP2: Fields = {"pipeline_parallel_degree": 2, "micro_batch_size": 2}
LAYOUTS: dict[str, Fields] = {
    "zero0": {"data_parallel_degree": 2, "micro_batch_size": 2},
    "zero3-full-offloaded": {
        "data_parallel_degree": 2,
        "micro_batch_size": 2,
        "zero_stage": 3,
        "activation_checkpointing": "full",
        "offload": ["optimizer", "parameters"],
    },
    "tp2": {"tensor_parallel_degree": 2, "micro_batch_size": 4},
    "pp2-full": {**PP2, "activation_checkpointing": "full"},
    "zb-v": {**PP2, "micro_batch_size": 1, "pipeline_schedule": "zb_v"},
}


@pytest.mark.parametrize("strategy", cases(LAYOUTS, always={"zero3-full-offloaded", "pp2-full"}))
def test_added_losses_and_groups_by_name_are_the_plain_scripts(
    two_ranks: RankGroup, strategy: Fields
) -> None:
    answer = two_ranks.run("script_parity", strategy=strategy)
    assert answer["losses"] == pytest.approx(answer["plain_losses"], rel=EXACT)
    assert answer["parameter_error"] <= EXACT


FORESEEING = {name: fields for name, fields in LAYOUTS.items() if name != "tp2"}


@pytest.mark.parametrize("strategy", cases(FORESEEING, always={"pp2-full", "zb-v"}))
def test_further_tokens_are_predicted_by_the_embedding_of_another_stage(
    two_ranks: RankGroup, strategy: Fields
) -> None:
    """Both ends of a pipeline have it, and its gradient is the sum of theirs."""
    answer = two_ranks.run("script_parity", strategy=strategy, model="foreseeing")
    assert answer["losses"] == pytest.approx(answer["plain_losses"], rel=EXACT)
    assert answer["parameter_error"] <= EXACT


def test_what_is_added_is_scaled_as_an_fp16_loss_is(two_ranks: RankGroup) -> None:
    """AdamW's first steps are as long as the rate, whatever the scale: losses alone tell."""
    strategy = LAYOUTS["zero0"]
    answer = two_ranks.run("script_parity", strategy=strategy, precision="fp16")
    assert answer["losses"] == pytest.approx(answer["plain_losses"], rel=2.0**-8)


@pytest.mark.parametrize("name", ["zero0", "zero3"])
def test_two_optimizers_share_the_parameters(two_ranks: RankGroup, name: str) -> None:
    """Muon's products are in bf16: what differs by rounding there moves parameters by 2^-8."""
    strategy = {**LAYOUTS["zero0"], "zero_stage": 3 if name == "zero3" else 0}
    answer = two_ranks.run("script_parity", strategy=strategy, optimizer="two")
    assert answer["losses"] == pytest.approx(answer["plain_losses"], rel=1e-4)
