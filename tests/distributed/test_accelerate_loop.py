"""A loop of Accelerate's runs plans: steps equal the same loop in plain torch."""

from __future__ import annotations

from typing import Any

import pytest

from tests.distributed.group import RankGroup
from tests.distributed.parity import EXACT

pytest.importorskip("accelerate", reason="no package accelerate")
pytestmark = pytest.mark.distributed

Fields = dict[str, Any]
REPLICAS: Fields = {
    "data_parallel_degree": 2,
    "micro_batch_size": 2,
    "activation_checkpointing": "full",
}
ZERO3: Fields = {**REPLICAS, "zero_stage": 3}
MAXIMUM_NORM = 0.5  # below the norms of all steps, so that all are clipped


@pytest.mark.parametrize(
    ("strategy", "kind"), [(REPLICAS, "Parameter"), (ZERO3, "DTensor")], ids=["replicas", "zero3"]
)
def test_a_loop_trains_as_plain_torch_does(
    two_ranks: RankGroup, strategy: Fields, kind: str
) -> None:
    """Two micro-batches of two sequences a rank and step, with clipping and a schedule."""
    answer = two_ranks.run("accelerate_loop", strategy=strategy, maximum_norm=MAXIMUM_NORM)
    assert answer["parameter_error"] <= EXACT
    assert min(answer["plain_norms"]) > MAXIMUM_NORM
    assert answer["norms"] == pytest.approx(answer["plain_norms"], rel=EXACT)
    assert answer["kinds"] == [kind]
    (last,) = answer["said"]
    assert last.startswith("step: measured ")
    assert ", predicted " in last
