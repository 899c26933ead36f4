"""Batches of transformers' collators train a model as transformers itself does, in every layout."""

from __future__ import annotations

from itertools import product
from pathlib import Path
from typing import Any

import pytest

from tests.distributed.group import RankGroup
from tests.distributed.parity import EXACT, cases, some_of

pytestmark = pytest.mark.distributed

DP2 = {"data_parallel_degree": 2, "micro_batch_size": 2}
LAYOUTS: dict[str, dict[str, Any]] = {
    "dp2": DP2,
    "zero3-full": {**DP2, "zero_stage": 3, "activation_checkpointing": "full"},
    "tp2-sp": {"tensor_parallel_degree": 2, "sequence_parallel": True, "micro_batch_size": 4},
    "pp2": {"pipeline_parallel_degree": 2, "micro_batch_size": 2},
    "ring2": {"context_parallel_degree": 2, "micro_batch_size": 4},
    "exchange2-full": {
        "context_parallel_degree": 2,
        "context_parallel_kind": "all_to_all",
        "micro_batch_size": 4,
        "activation_checkpointing": "full",
    },
}


def _check(answer: dict[str, Any]) -> None:
    assert answer["losses"] == pytest.approx(answer["plain_losses"], rel=EXACT)
    assert answer["losses"][0] != answer["losses"][-1]
    assert answer["parameter_error"] <= EXACT


@pytest.mark.parametrize(
    ("layout", "shape"),
    some_of(
        product(LAYOUTS, ("right", "left", "longest", "packed")),
        always={
            ("dp2", "right"),
            ("dp2", "longest"),
            ("pp2", "left"),
            ("pp2", "longest"),
            ("tp2-sp", "packed"),
            ("ring2", "longest"),
        },
    ),
)
def test_masks_positions_and_labels_are_those_of_transformers(
    two_ranks: RankGroup, layout: str, shape: str
) -> None:
    _check(two_ranks.run("batch_parity", strategy=LAYOUTS[layout], shape=shape))


@pytest.mark.parametrize(
    ("family", "layout", "shape"),
    some_of(
        [("gpt2", "pp2", "packed"), ("gpt2", "ring2", "right"), ("mistral", "pp2", "right")],
        always={("gpt2", "pp2", "packed")},
    ),
)
def test_so_are_those_of_other_families(
    two_ranks: RankGroup, family: str, layout: str, shape: str
) -> None:
    answer = two_ranks.run("batch_parity", strategy=LAYOUTS[layout], shape=shape, family=family)
    _check(answer)


@pytest.mark.parametrize(
    ("layout", "rows"),
    some_of(
        product(("dp2", "zero3-full", "pp2", "ring2"), (1, 5)),
        always={("zero3-full", 5), ("pp2", 1)},
    ),
)
def test_the_last_batch_may_be_short(two_ranks: RankGroup, layout: str, rows: int) -> None:
    answer = two_ranks.run("batch_parity", strategy=LAYOUTS[layout], shape="right", last_rows=rows)
    _check(answer)


@pytest.mark.parametrize(
    ("kind", "layout", "by_name"),
    some_of(
        [
            ("taking", "pp2", True),
            ("taking", "pp2", False),
            ("taking", "zero3-full", True),
            ("translating", "zero3", True),
            ("translating", "dp2", False),
        ],
        always={("taking", "pp2", True), ("translating", "zero3", True)},
    ),
)
def test_a_users_own_module_takes_what_its_forward_names(
    two_ranks: RankGroup, kind: str, layout: str, by_name: bool
) -> None:
    strategy = {**LAYOUTS, "zero3": {**DP2, "zero_stage": 3}}[layout]
    answer = two_ranks.run("own_batch_parity", strategy=strategy, kind=kind, by_name=by_name)
    _check(answer)


FORWARD: dict[str, dict[str, Any]] = {
    "zero3": LAYOUTS["zero3-full"],
    "zero1": {**DP2, "zero_stage": 1},
    "tp2-sp": LAYOUTS["tp2-sp"],
    "ring2": LAYOUTS["ring2"],
    "pp2": LAYOUTS["pp2"],
    "zb_v": {
        "pipeline_parallel_degree": 2,
        "pipeline_schedule": "zb_v",
    },
}


@pytest.mark.parametrize("strategy", cases(FORWARD, always={"zero3", "pp2"}))
def test_a_model_is_evaluated_and_generates_between_steps(
    two_ranks: RankGroup, strategy: dict[str, Any]
) -> None:
    answer = two_ranks.run("forward_parity", strategy=strategy)
    assert answer["losses"] == pytest.approx(answer["plain_losses"], rel=EXACT)
    assert answer["logits_error"] <= EXACT
    assert answer["text"] == answer["plain_text"]
    assert answer["drawn"] == [True, True]
    assert answer["batches"] == 2


@pytest.mark.parametrize("layout", ["zero3-full", "pp2"])
def test_ranks_may_have_loaders_of_their_own(
    two_ranks: RankGroup, layout: str, tmp_path: Path
) -> None:
    answer = two_ranks.run("own_loaders", strategy=LAYOUTS[layout], directory=str(tmp_path / "at"))
    assert len(answer["losses"]) == 4
    assert answer["losses"] == pytest.approx(answer["global_losses"], rel=EXACT)
    assert "loaders that read rows of one of" in answer["mixed"]
    is_other = any("2 loaders shared the data out before" in said for said in answer["warned"])
    assert is_other is ("data_parallel_degree" in LAYOUTS[layout])


FLATTENED: dict[str, tuple[dict[str, Any], bool]] = {
    "zero2": ({"data_parallel_degree": 2, "micro_batch_size": 1, "zero_stage": 2}, True),
    "ring2": ({"context_parallel_degree": 2, "micro_batch_size": 1}, False),
    "pp2": (
        {"pipeline_parallel_degree": 2, "micro_batch_size": 1, "pipeline_schedule": "gpipe"},
        False,
    ),
}


@pytest.mark.parametrize("name", cases({n: n for n in FLATTENED}, always={"zero2", "ring2"}))
def test_documents_that_a_collator_puts_into_one_row_do_not_see_one_another(
    two_ranks: RankGroup, name: str
) -> None:
    """The collator tells them by lengths for kernels, and each token's document, as well."""
    layout, per_rank = FLATTENED[name]
    _check(two_ranks.run("flattened_parity", strategy=layout, per_rank=per_rank))


def test_ranks_at_one_place_read_the_same_rows(two_ranks: RankGroup) -> None:
    said = two_ranks.run("own_loader_refusals", strategy=LAYOUTS["pp2"])
    assert "the same rows on ranks with the same session.data_index" in said["other rows"]
    assert "session.sampler(dataset)" in said["other rows"]
    assert "loaders have other numbers of batches" in said["other number"]
    assert "the same global batches on every rank" in said["other evaluation"]


def test_what_a_model_cannot_take_is_refused_by_name(two_ranks: RankGroup) -> None:
    said = two_ranks.run("batch_refusals", strategy=DP2)
    assert "nothing else of a batch" in said["unknown"]
    assert "token_type_ids" in said["unknown"]
    assert "targets under 'labels'" in said["no labels"]
    assert "attention_mask of shape (4, 1, 16, 16)" in said["mask of scores"]
    assert "position_ids: list" in said["no tensor"]
