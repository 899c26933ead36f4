"""Buffers that change as tokens pass are those of one rank, or a mean, and outlive the run."""

from __future__ import annotations

from pathlib import Path
from typing import Any

import pytest

from tests.distributed.group import RankGroup
from tests.distributed.parity import EXACT

pytestmark = pytest.mark.distributed

Fields = dict[str, Any]
DP2: Fields = {"data_parallel_degree": 2, "micro_batch_size": 4}
ALONE: Fields = {"pipeline_parallel_degree": 2, "micro_batch_size": 8, "pipeline_schedule": "gpipe"}
ZERO3: Fields = {**DP2, "zero_stage": 3}


def check_buffers(answer: dict[str, Any]) -> None:
    """Fail unless a run and its buffers are the plain ones."""
    assert answer["losses"] == pytest.approx(answer["plain_losses"], rel=EXACT)
    assert answer["parameter_error"] <= EXACT
    assert answer["buffer_error"] <= EXACT


@pytest.mark.parametrize(
    ("strategy", "declared"),
    [(DP2, True), (ZERO3, True), (ZERO3, False), (ALONE, True)],
    ids=["zero0", "zero3", "undeclared", "pipeline"],
)
def test_a_mean_over_ranks_is_that_of_the_whole_batch(
    two_ranks: RankGroup, strategy: Fields, declared: bool
) -> None:
    """A running mean moves by a share of what it meets, so that means of ranks are its own."""
    averaged = ["*.running"]
    check_buffers(two_ranks.run("buffers", strategy=strategy, averaged=averaged, declared=declared))


@pytest.mark.parametrize("strategy", [DP2, ZERO3], ids=["zero0", "zero3"])
def test_ranks_take_the_buffers_of_the_first_unless_told_otherwise(
    two_ranks: RankGroup, strategy: Fields
) -> None:
    """The first rank has the first four of eight rows."""
    check_buffers(two_ranks.run("buffers", strategy=strategy, averaged=[], rows=4))


def test_buffers_go_on_in_another_layout(two_ranks: RankGroup, tmp_path: Path) -> None:
    saved = str(tmp_path / "saved")
    averaged = ["*.running"]
    two_ranks.run("buffers", strategy=ZERO3, averaged=averaged, save=saved)
    check_buffers(two_ranks.run("buffers", strategy=ALONE, averaged=averaged, load=saved))


@pytest.mark.parametrize(
    ("pattern", "said"),
    [("*.forwards", "has no mean"), ("*.passing", "names no persistent buffer")],
)
def test_what_has_no_mean_is_refused(two_ranks: RankGroup, pattern: str, said: str) -> None:
    answer = two_ranks.run("averaged_refusal", strategy=DP2, pattern=pattern)
    assert "averaged_buffers: " in answer["message"]
    assert said in answer["message"]
