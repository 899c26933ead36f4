"""A user's own module trains under a plan as its script alone trains it, or is refused by name."""

from __future__ import annotations

from pathlib import Path
from typing import Any

import pytest

from tests.distributed.group import RankGroup
from tests.distributed.parity import EXACT, cases
from tests.distributed.plans import mixed_stages

pytestmark = pytest.mark.distributed

TP2_SP = {"tensor_parallel_degree": 2, "sequence_parallel": True, "micro_batch_size": 4}
DECLARED: dict[str, tuple[str, dict[str, Any]]] = {
    "dp2": ("words", {"data_parallel_degree": 2}),
    "zero-of-layer-groups": (
        "words",
        {
            "data_parallel_degree": 2,
            "stages": mixed_stages(
                [
                    {"block_count": 1, "zero_stage": 3, "activation_checkpointing": "full"},
                    {"block_count": 1, "zero_stage": 0},
                ]
            ),
        },
    ),
    "tp2": ("words", {"tensor_parallel_degree": 2, "micro_batch_size": 4}),
    "tp2-sp": ("words", TP2_SP),
    "pp2": ("words", {"pipeline_parallel_degree": 2, "micro_batch_size": 2}),
    "adapted-tp2-sp": ("adapted", TP2_SP),
    "ring2-zero3": (
        "told",
        {"context_parallel_degree": 2, "micro_batch_size": 4, "zero_stage": 3},
    ),
    "exchange2-full": (
        "told",
        {
            "context_parallel_degree": 2,
            "context_parallel_kind": "all_to_all",
            "micro_batch_size": 2,
            "activation_checkpointing": "full",
        },
    ),
    "blocks-alone-zero3": ("placed", {"data_parallel_degree": 2, "zero_stage": 3}),
    "blocks-alone-zero0": ("placed", {"data_parallel_degree": 2}),
    "sharing-zero0": ("sharing", {"data_parallel_degree": 2}),
    "sharing-zero3": ("sharing", {"data_parallel_degree": 2, "zero_stage": 3}),
}

UNDECLARED: dict[str, tuple[str, dict[str, Any]]] = {
    "convolutions-dp2": ("pictures", {"data_parallel_degree": 2}),
    "convolutions-zero3": ("pictures", {"data_parallel_degree": 2, "zero_stage": 3}),
    "sharing-zero1": ("sharing-undeclared", {"data_parallel_degree": 2, "zero_stage": 1}),
    "words-zero1": ("undeclared", {"data_parallel_degree": 2, "zero_stage": 1}),
}


# Layer groups have ZeRO stage 0 too, and what is split by sequence is split by columns as well.
IN_PARTS_OF_OTHERS = {"dp2", "tp2"}
ALL = DECLARED | UNDECLARED


@pytest.mark.parametrize("case", cases(ALL, always={*ALL} - IN_PARTS_OF_OTHERS))
def test_it_trains_as_the_plain_script_does(
    two_ranks: RankGroup, case: tuple[str, dict[str, Any]]
) -> None:
    kind, strategy = case
    answer = two_ranks.run("own_parity", strategy=strategy, kind=kind)
    assert answer["losses"] == pytest.approx(answer["plain_losses"], rel=EXACT)
    assert answer["parameter_error"] <= EXACT
    assert answer["differences"] == []


def test_what_an_undeclared_module_cannot_follow_is_stated(two_ranks: RankGroup) -> None:
    groups = mixed_stages(
        [
            {"block_count": 1, "zero_stage": 3, "activation_checkpointing": "full"},
            {"block_count": 1, "zero_stage": 1},
        ]
    )
    strategy = {"data_parallel_degree": 2, "stages": groups}
    answer = two_ranks.run("own_parity", strategy=strategy, kind="undeclared")
    zero, checkpointing = answer["differences"]
    assert "ZeRO stages 1, 3" in zero
    assert "all of it has stage 3" in zero
    assert "activation checkpointing full was not applied: Words declares no blocks" in (
        checkpointing
    )
    assert answer["parameter_error"] <= EXACT


@pytest.mark.parametrize(
    ("kind", "strategy", "said"),
    [
        ("undeclared", {"tensor_parallel_degree": 2}, "strategy.tensor_parallel_degree: needs"),
        ("undeclared", {"pipeline_parallel_degree": 2}, "Words declares none"),
        ("placed", {"pipeline_parallel_degree": 2}, "no embedding declared"),
        ("placed", {"tensor_parallel_degree": 2}, "declaration leaves out"),
        ("words", {"context_parallel_degree": 2}, "the model's tell_sequence_part"),
        (
            "told-bare",
            {"context_parallel_degree": 2, "context_parallel_kind": "all_to_all"},
            "the model's head_count",
        ),
        ("by-hand", {"context_parallel_degree": 2}, "does not call torch's scaled_dot_product"),
    ],
)
def test_a_degree_that_needs_a_declaration_is_refused(
    two_ranks: RankGroup, kind: str, strategy: dict[str, Any], said: str
) -> None:
    refusal = two_ranks.run("own_refusal", strategy=strategy, kind=kind)
    assert refusal["kind"] == "UnsupportedPlanError"
    assert said in refusal["message"]
    assert "limited to 1" in refusal["message"]


@pytest.mark.parametrize(
    ("kind", "name"),
    [
        ("words", "embed.weight"),
        ("llama", "model.embed_tokens.weight"),
        ("weights", "embed.weight"),
    ],
)
def test_ranks_that_would_begin_with_other_values_are_refused(
    two_ranks: RankGroup, kind: str, name: str
) -> None:
    """DDP would take the first rank's; here replicas would differ for ever."""
    message = two_ranks.run("own_beginnings", kind=kind)["message"]
    assert f"begins with other values on other ranks (got {name}); seed all ranks" in message


def test_a_forward_that_writes_to_its_parameters_is_refused(two_ranks: RankGroup) -> None:
    """Ranks gather copies of them for a forward, in which what it writes is lost."""
    refusal = two_ranks.run("own_refusal", strategy={"data_parallel_degree": 2}, kind="clamping")
    assert "build_model: is written to in forward" in refusal["message"]
    assert "(got head.weight)" in refusal["message"]


BESIDE_CONTEXT: dict[str, tuple[str, dict[str, Any]]] = {
    "ring2-pp2": ("told", {"context_parallel_degree": 2, "pipeline_parallel_degree": 2}),
    "exchange2-tp2-zero2": (
        "unplaced",
        {
            "context_parallel_degree": 2,
            "context_parallel_kind": "all_to_all",
            "tensor_parallel_degree": 2,
            "zero_stage": 2,
        },
    ),
    "ring2-dp2-zero1": (
        "told",
        {"context_parallel_degree": 2, "data_parallel_degree": 2, "zero_stage": 1},
    ),
}


@pytest.mark.parity_full
@pytest.mark.parametrize("name", BESIDE_CONTEXT)
def test_sequences_are_shared_beside_other_dimensions(four_ranks: RankGroup, name: str) -> None:
    kind, strategy = BESIDE_CONTEXT[name]
    fields = {"micro_batch_size": 2, **strategy}
    answer = four_ranks.run("own_parity", strategy=fields, kind=kind)
    assert answer["losses"] == pytest.approx(answer["plain_losses"], rel=EXACT)
    assert answer["parameter_error"] <= EXACT
    assert answer["differences"] == []


@pytest.mark.parametrize(
    ("kind", "strategy"),
    [
        ("dropping", {"data_parallel_degree": 2, "zero_stage": 3, "micro_batch_size": 1}),
        ("gpt2-dropping", {"pipeline_parallel_degree": 2, "micro_batch_size": 2}),
    ],
)
def test_what_is_computed_again_draws_what_it_drew_before(
    two_ranks: RankGroup, kind: str, strategy: dict[str, Any]
) -> None:
    answer = two_ranks.run("own_recomputed_draws", strategy=strategy, kind=kind)
    assert answer["selective"] == pytest.approx(answer["none"], rel=EXACT)
    assert answer["full"] == pytest.approx(answer["none"], rel=EXACT)


def test_gpt2_drops_as_its_configuration_says(two_ranks: RankGroup) -> None:
    strategy = {"data_parallel_degree": 2}
    dropping = two_ranks.run("own_recomputed_draws", strategy=strategy, kind="gpt2-dropping")
    whole = two_ranks.run("own_recomputed_draws", strategy=strategy, kind="gpt2")
    assert dropping["none"][0] != pytest.approx(whole["none"][0], rel=1e-4)


def test_dropped_attention_is_not_shared_between_ranks(two_ranks: RankGroup) -> None:
    strategy = {"context_parallel_degree": 2}
    refusal = two_ranks.run("own_refusal", strategy=strategy, kind="gpt2-dropping")
    assert refusal["kind"] == "UnsupportedPlanError"
    assert "without attention dropout" in refusal["message"]


def test_a_window_shorter_than_the_sequence_is_not_shared_between_ranks(
    two_ranks: RankGroup,
) -> None:
    strategy = {"context_parallel_degree": 2}
    refusal = two_ranks.run("own_refusal", strategy=strategy, kind="mistral")
    assert refusal["kind"] == "UnsupportedPlanError"
    assert "a mask of its own" in refusal["message"]
    assert "without sliding windows shorter than the sequence" in refusal["message"]


@pytest.mark.parametrize(
    "strategy",
    cases(
        {
            "dp2": {"data_parallel_degree": 2},
            "zero3-full": {
                "data_parallel_degree": 2,
                "zero_stage": 3,
                "activation_checkpointing": "full",
            },
        },
        always={"zero3-full"},
    ),
)
def test_a_run_that_goes_on_draws_as_one_that_never_stopped(
    two_ranks: RankGroup, strategy: dict[str, Any], tmp_path: Path
) -> None:
    answer = two_ranks.run("own_draws", strategy=strategy, directory=str(tmp_path / "saved"))
    assert answer["parts"] == answer["whole"]
    assert answer["undisturbed"]
    assert answer["whole"][0] != pytest.approx(answer["without"][0], rel=1e-4)
