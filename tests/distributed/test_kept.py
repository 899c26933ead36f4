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


def test_torchdatas_loader_goes_on_at_its_place(two_ranks: RankGroup, tmp_path: Path) -> None:
    pytest.importorskip("torchdata", reason="no package torchdata")
    saved = str(tmp_path / "saved")
    answer = two_ranks.run("loader_position", strategy=ZERO3, directory=saved)
    assert answer["parts"] == answer["whole"]
    assert len(set(answer["whole"])) == 4
