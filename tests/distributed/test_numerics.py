"""What a step does to numbers is what the script or the job has asked for, as is reported."""

from __future__ import annotations

from typing import Any

import pytest

from tests.distributed.group import RankGroup
from tests.distributed.parity import EXACT

pytestmark = pytest.mark.distributed

Fields = dict[str, Any]
DP2: Fields = {"data_parallel_degree": 2, "micro_batch_size": 2}
PP2: Fields = {"pipeline_parallel_degree": 2, "micro_batch_size": 2}


@pytest.mark.parametrize(("strategy", "rank"), [(DP2, 0), ({**DP2, "zero_stage": 3}, 1), (PP2, 1)])
def test_a_step_without_a_loss_is_left_out_where_the_script_asks(
    two_ranks: RankGroup, strategy: Fields, rank: int
) -> None:
    answer = two_ranks.run("undefined_loss", strategy=strategy, reaction="skip", rank=rank)
    first, second, third = answer["losses"]
    assert second is None
    assert [first, third] == pytest.approx(answer["without"], rel=EXACT)
    assert answer["parameter_error"] <= EXACT
    assert answer["skipped"] == [False, True, False]
    assert answer["found"] == {"first_step": 2, "ranks": [rank], "step_count": 1}


def test_a_run_goes_on_without_a_loss_as_plain_torch_does(two_ranks: RankGroup) -> None:
    answer = two_ranks.run("undefined_loss", strategy=DP2, reaction="continue", rank=1)
    assert answer["losses"][1:] == [None, None]
    assert answer["skipped"] == [False] * 3
    assert answer["found"] == {"first_step": 2, "ranks": [1], "step_count": 2}


def test_a_run_stops_without_a_loss_where_the_script_asks(two_ranks: RankGroup) -> None:
    answer = two_ranks.run("undefined_loss", strategy=DP2, reaction="stop", rank=1)
    assert len(answer["losses"]) == 1
    for message in answer["messages"]:
        assert "is not a finite number in step 2, on rank 1" in message


def test_another_reaction_is_refused(two_ranks: RankGroup) -> None:
    with pytest.raises(AssertionError, match="on_undefined_loss: is not a reaction"):
        two_ranks.run("undefined_loss", strategy=DP2, reaction="ignore", rank=1)


@pytest.mark.parametrize("declared", [True, False])
@pytest.mark.parametrize(
    "strategy", [DP2, {**DP2, "zero_stage": 3, "activation_checkpointing": "full"}]
)
def test_bf16_beside_tables_in_fp32_has_the_loss_of_autocast(
    two_ranks: RankGroup, strategy: Fields, declared: bool
) -> None:
    """Each of 13 products is rounded to 8 bits in either, in another order: 13 x 2^-9 of 1 at most.

    A loss in bf16 would be a multiple of 1/32.
    """
    run = {"strategy": strategy, "precision": "bf16", "declared": declared}
    answer = two_ranks.run("formats", **run)
    assert answer["seen"] == ["torch.float32"]
    assert answer["loss"] == pytest.approx(answer["autocast"], abs=2.0**-9)
    assert answer["loss"] * 32 != round(answer["loss"] * 32)
    assert answer["applied"]["logits_format"] == "float32"


def test_a_script_may_have_logits_as_they_are_computed(two_ranks: RankGroup) -> None:
    answer = two_ranks.run("formats", strategy=DP2, precision="bf16", output="bfloat16")
    assert answer["seen"] == ["torch.bfloat16"]
    assert answer["applied"] == {
        "precision": "bf16",
        "logits_format": "bfloat16",
        "largest_gradient_norm": None,
        "loss_scale": None,
        "ignored_target": None,
    }
