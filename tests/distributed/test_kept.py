"""What a script keeps beside its model goes on where a run stopped, in any layout."""

from __future__ import annotations

from pathlib import Path
from typing import Any

import pytest

from tests.distributed.group import RankGroup
from tests.distributed.parity import EXACT

pytestmark = pytest.mark.distributed

Fields = dict[str, Any]
ZERO3: Fields = {"data_parallel_degree": 2, "micro_batch_size": 2, "zero_stage": 3}
OFFLOADED: Fields = {**ZERO3, "offload": ["optimizer", "parameters"]}
PP2: Fields = {"pipeline_parallel_degree": 2, "micro_batch_size": 2}


@pytest.mark.parametrize("second", [PP2, OFFLOADED], ids=["pipeline", "offloaded"])
def test_counts_rates_and_draws_go_on_in_another_layout(
    two_ranks: RankGroup, tmp_path: Path, second: Fields
) -> None:
    """The optimizer counts in its group and for each parameter, and its rate halves each step."""
    saved = str(tmp_path / "saved")
    before = two_ranks.run("kept", strategy=ZERO3, steps=2, save=saved)
    after = two_ranks.run("kept", strategy=second, steps=2, load=saved)
    assert [*before["losses"], *after["losses"]] == pytest.approx(after["plain_losses"], rel=EXACT)
    assert after["parameter_error"] <= EXACT
    assert after["rates"] == [0.1 * 0.5**4]
    assert after["record"] == [*before["losses"], *after["losses"]]
    undisturbed = two_ranks.run("kept", strategy=ZERO3, steps=4)
    assert [*before["draws"], *after["draws"]] == undisturbed["draws"]
    assert after["differences"] == []


def test_what_cannot_be_kept_is_refused(two_ranks: RankGroup, tmp_path: Path) -> None:
    answer = two_ranks.run("keep_refusals", strategy=ZERO3, directory=str(tmp_path / "saved"))
    stateless, taken, unsaved, unwritable = answer["messages"]
    assert "numbers: has no state_dict() and load_state_dict()" in stateless
    assert "is the name of an object that is kept already" in taken
    assert "holds no state of record" in unsaved
    assert "trainer.keep odd: has a state that cannot be written and read safely" in unwritable


def test_states_that_differ_by_rank_are_each_ranks_own_under_the_same_strategy(
    two_ranks: RankGroup, tmp_path: Path
) -> None:
    """What is equal on all ranks goes on in any layout."""
    saved = str(tmp_path / "saved")
    answer = two_ranks.run("kept_by_rank", first=ZERO3, second=PP2, directory=saved)
    assert answer["found"] == [[0.0], [7.0], [1.0], [7.0]]
    assert "trainer.keep record: had another state on each rank" in answer["refusal"]


@pytest.mark.parametrize(("kind", "steps_of_a_pass"), [("shuffled", 2), ("streamed", 4)])
def test_a_loader_that_tells_no_place_goes_on_with_the_batches_that_are_left(
    two_ranks: RankGroup, tmp_path: Path, kind: str, steps_of_a_pass: int
) -> None:
    """It shuffles by the script's generator; a pass may be left, and a stream have workers."""
    answer = two_ranks.run(
        "plain_loader",
        strategy=ZERO3,
        kind=kind,
        steps_of_a_pass=steps_of_a_pass,
        directory=str(tmp_path / "saved"),
    )
    assert answer["parts"] == answer["whole"]
    assert len(set(answer["whole"])) == 7
    assert "loader: has other batches than the run had" in answer["refusal"]


def test_torchdatas_loader_goes_on_at_its_place(two_ranks: RankGroup, tmp_path: Path) -> None:
    pytest.importorskip("torchdata", reason="no package torchdata")
    saved = str(tmp_path / "saved")
    answer = two_ranks.run("loader_position", strategy=ZERO3, directory=saved)
    assert answer["parts"] == answer["whole"]
    assert len(set(answer["whole"])) == 4
