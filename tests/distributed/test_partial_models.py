"""Parameters that are frozen are left alone, and the others trained as in a plain script."""

from __future__ import annotations

from pathlib import Path
from typing import Any

import pytest

from tests.distributed.group import RankGroup
from tests.distributed.parity import EXACT, cases

pytestmark = pytest.mark.distributed

Fields = dict[str, Any]
DP2: Fields = {"data_parallel_degree": 2, "micro_batch_size": 2}
PP2: Fields = {"pipeline_parallel_degree": 2, "micro_batch_size": 2}
V: Fields = {**PP2, "micro_batch_size": 1}
LAYOUTS: dict[str, Fields] = {
    **{f"zero{stage}": {**DP2, "zero_stage": stage} for stage in range(4)},
    "zero3-offloaded": {
        **DP2,
        "zero_stage": 3,
        "offload": ["optimizer", "parameters", "activations"],
        "activation_checkpointing": "full",
    },
    "zero3-parameters": {**DP2, "zero_stage": 3, "offload": ["parameters"]},
    "zero1-optimizer-selective": {
        **DP2,
        "zero_stage": 1,
        "offload": ["optimizer"],
        "activation_checkpointing": "selective",
    },
    "tp2-sp": {"tensor_parallel_degree": 2, "sequence_parallel": True, "micro_batch_size": 4},
    "pp2": PP2,
    "zb-v": {**V, "pipeline_schedule": "zb_v"},
    "dualpipe-v": {**V, "pipeline_schedule": "dualpipe_v"},
    "interleaved": {
        **PP2,
        "virtual_pipeline_degree": 2,
        "pipeline_schedule": "interleaved_1f1b",
        "activation_checkpointing": "full",
    },
}


@pytest.mark.parametrize(
    "strategy",
    cases(
        LAYOUTS,
        always={"zero0", "zero3-offloaded", "tp2-sp", "zb-v"},
    ),
)
def test_a_frozen_backbone_is_left_alone(two_ranks: RankGroup, strategy: Fields) -> None:
    check_left_alone(two_ranks.run("partial_parity", strategy=strategy, kind="frozen-backbone"))


@pytest.mark.parametrize(
    "strategy",
    cases(LAYOUTS, always={"pp2"}),
)
def test_what_lies_below_frozen_blocks_is_trained(two_ranks: RankGroup, strategy: Fields) -> None:
    check_left_alone(two_ranks.run("partial_parity", strategy=strategy, kind="frozen-top"))


@pytest.mark.parametrize("zero_stage", [0, 3])
def test_an_undeclared_module_may_be_frozen_in_part(two_ranks: RankGroup, zero_stage: int) -> None:
    strategy = {**DP2, "zero_stage": zero_stage}
    check_left_alone(two_ranks.run("partial_parity", strategy=strategy, kind="frozen-undeclared"))


@pytest.mark.parametrize("zero_stage", [0, 3])
def test_frozen_parameters_keep_their_format_and_value_beside_bf16(
    two_ranks: RankGroup, zero_stage: int
) -> None:
    """Losses of some 5.5 are rounded to bf16's 8 bits, the mean of many to less."""
    strategy = {**DP2, "zero_stage": zero_stage}
    run = {"kind": "frozen-backbone", "precision": "bf16"}
    answer = two_ranks.run("partial_parity", strategy=strategy, **run)
    assert answer["losses"] == pytest.approx(answer["plain_losses"], rel=2.0**-8)
    assert answer["frozen_error"] == 0.0
    assert answer["frozen"] == [True] * 2
    assert answer["differences"] == []


def test_checkpoints_of_frozen_parameters_fit_any_layout(
    two_ranks: RankGroup, tmp_path: Path
) -> None:
    run = {"kind": "frozen-backbone"}
    saved = str(tmp_path / "saved")
    two_ranks.run("partial_parity", strategy={**DP2, "zero_stage": 3}, save=saved, **run)
    check_left_alone(two_ranks.run("partial_parity", strategy=PP2, load=saved, **run))


def test_a_model_of_which_nothing_is_trained_is_refused(two_ranks: RankGroup) -> None:
    answer = two_ranks.run("partial_refusal", strategy=DP2, kind="frozen")
    assert len(answer["messages"]) == 2
    for message in answer["messages"]:
        assert "build_model: has no parameter that requires a gradient" in message


def check_left_alone(answer: dict[str, Any]) -> None:
    """Fail unless a run is the plain one, and nothing is kept for what is not trained."""
    assert answer["losses"] == pytest.approx(answer["plain_losses"], rel=EXACT)
    assert answer["parameter_error"] <= EXACT
    assert answer["differences"] == []
    assert answer["frozen"] == [True] * 2


SPARSE: dict[str, tuple[str, Fields]] = {
    **{f"zero{stage}": ("branching", {**DP2, "zero_stage": stage}) for stage in range(4)},
    "zero3-offloaded-full": (
        "branching",
        {
            **DP2,
            "zero_stage": 3,
            "offload": ["optimizer", "parameters"],
            "activation_checkpointing": "full",
        },
    ),
    "undeclared-zero0": ("branching-undeclared", DP2),
    "undeclared-zero1": ("branching-undeclared", {**DP2, "zero_stage": 1}),
}


@pytest.mark.parametrize(
    "case", cases(SPARSE, always={"zero0", "zero2", "zero3-offloaded-full", "undeclared-zero1"})
)
def test_parameters_that_a_rank_does_not_use_are_averaged_with_zeros(
    two_ranks: RankGroup, case: tuple[str, Fields]
) -> None:
    kind, strategy = case
    answer = two_ranks.run("partial_parity", strategy=strategy, kind=kind)
    assert answer["losses"] == pytest.approx(answer["plain_losses"], rel=EXACT)
    assert answer["parameter_error"] <= EXACT
    assert "trunk.layers.2.never.weight" in answer["unused"]


@pytest.mark.parametrize("zero_stage", [0, 2])
def test_norms_that_some_data_parallel_ranks_do_not_use_are_summed_over_the_sequence(
    four_ranks: RankGroup, zero_stage: int
) -> None:
    strategy = {
        **DP2,
        "tensor_parallel_degree": 2,
        "sequence_parallel": True,
        "zero_stage": zero_stage,
    }
    answer = four_ranks.run("partial_parity", strategy=strategy, kind="switched")
    assert answer["losses"] == pytest.approx(answer["plain_losses"], rel=EXACT)
    assert answer["parameter_error"] <= EXACT
