"""Moving averages of weights equal torch's own in any layout, and go on in checkpoints."""

from __future__ import annotations

from pathlib import Path
from typing import Any

import pytest

from tests.distributed.group import RankGroup
from tests.distributed.parity import EXACT

pytestmark = pytest.mark.distributed

Fields = dict[str, Any]
ZERO2: Fields = {"data_parallel_degree": 2, "micro_batch_size": 2, "zero_stage": 2}
OFFLOADED: Fields = {**ZERO2, "zero_stage": 3, "offload": ["optimizer", "parameters"]}
TP2: Fields = {"tensor_parallel_degree": 2, "micro_batch_size": 4}
PP2: Fields = {"pipeline_parallel_degree": 2, "micro_batch_size": 2}


@pytest.mark.parametrize(
    ("first", "second"),
    [(ZERO2, PP2), (OFFLOADED, TP2), (TP2, ZERO2), (PP2, OFFLOADED)],
    ids=["pipeline", "tensor", "zero2", "offloaded"],
)
def test_averages_go_on_in_another_layout_as_torchs_own(
    two_ranks: RankGroup, tmp_path: Path, first: Fields, second: Fields
) -> None:
    answer = two_ranks.run("averaged", first=first, second=second, directory=str(tmp_path))
    assert answer["average_error"] <= EXACT
    assert answer["written_error"] <= EXACT
    assert answer["average_loss"] == pytest.approx(answer["plain_average_loss"], rel=EXACT)
    assert answer["parameter_error"] <= EXACT
    assert answer["loss"] == pytest.approx(answer["plain_loss"], rel=EXACT)
    (difference,) = answer["differences"]
    assert difference.startswith("averages of weights take ")
    assert abs(answer["loss"] - answer["average_loss"]) > 1e-4


def test_averages_that_would_be_wrong_or_lost_are_refused(
    two_ranks: RankGroup, tmp_path: Path
) -> None:
    answer = two_ranks.run("average_refusals", strategy=ZERO2, directory=str(tmp_path))
    decay, empty, unsaved, twice, step, save, late = answer["messages"]
    assert decay.startswith("decay: must be at least 0 and less than 1 (got 1.0)")
    assert empty.startswith("averages: are of no step yet")
    assert "holds no averages of weights" in unsaved
    assert "is called a second time" in twice
    assert step.startswith("trainer.step: would take averages for the weights that are trained")
    assert save.startswith("trainer.save: would take averages")
    assert "comes after trainer.load(), which has passed over the saved averages" in late
