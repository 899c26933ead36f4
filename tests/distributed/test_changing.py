"""What scripts change between steps, and read of sharded weights, is as in plain torch."""

from __future__ import annotations

from typing import Any

import pytest

from tests.distributed.group import RankGroup
from tests.distributed.parity import EXACT, some_of

pytestmark = pytest.mark.distributed

Fields = dict[str, Any]
DP2: Fields = {"data_parallel_degree": 2, "micro_batch_size": 2}
LAYOUTS: dict[str, Fields] = {
    "zero0": DP2,
    "zero1-offloaded": {**DP2, "zero_stage": 1, "offload": ["optimizer"]},
    "zero3": {**DP2, "zero_stage": 3},
    "zero3-streamed": {**DP2, "zero_stage": 3, "offload": ["parameters"]},
    "tp2": {"tensor_parallel_degree": 2, "micro_batch_size": 4},
    "pp2": {"pipeline_parallel_degree": 2, "micro_batch_size": 2},
}
ALWAYS = {
    ("clamped", "zero1-offloaded"),
    ("unfrozen", "zero0"),
    ("unfrozen", "zero3"),
    ("by-norms", "zero3"),
    ("by-one-norm", "zero3"),
    ("slowed", "zero3-streamed"),
}
KINDS = ("clamped", "unfrozen", "by-norms", "slowed")
CELLS = [(kind, layout) for kind in KINDS for layout in LAYOUTS] + [("by-one-norm", "zero3")]


@pytest.mark.parametrize(("kind", "layout"), some_of(CELLS, always=ALWAYS))
def test_it_trains_as_the_plain_script_does(two_ranks: RankGroup, kind: str, layout: str) -> None:
    answer = two_ranks.run("changing_parity", strategy=LAYOUTS[layout], kind=kind)
    assert answer["losses"] == pytest.approx(answer["plain_losses"], rel=EXACT)
    assert answer["parameter_error"] <= EXACT


@pytest.mark.parametrize(
    ("kind", "layout", "message"),
    [
        ("by-one-norm", "pp2", "optimizer_function: updates a parameter by what all others have"),
        ("reentered", "zero0", "build_model: has a gradient in several parts of one backward"),
        ("reentered", "zero3", "build_model: has a gradient in several parts of one backward"),
        ("unfrozen-late", "zero3", "requires_grad: was frozen when optimizers were made"),
        ("other-rows", "tp2", "trainer.step: must be given the same rows"),
    ],
)
def test_what_no_layout_could_train_so_is_refused(
    two_ranks: RankGroup, kind: str, layout: str, message: str
) -> None:
    answer = two_ranks.run("changing_refusal", strategy=LAYOUTS[layout], kind=kind)
    assert message in answer["message"]
