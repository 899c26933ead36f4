"""What moving rows to experts and back takes: of whose tokens, by hand."""

from __future__ import annotations

from dataclasses import replace
from typing import Any

import pytest

from planner.cost.compute import compute_seconds
from planner.workload.layer import ElementwiseTraffic
from tests.unit.cost.test_model_parallel import MIXTURE, TOKENS, a_setting

PASSES = 6.0 * 4 * 1000  # of 4 chosen rows of 1000 elements
FOUR_RANKS = {"tensor_parallel_degree": 4}


def moved_bytes(**degrees: Any) -> float:
    """Return the bytes that routed rows move in forward on one rank."""
    here = a_setting(**degrees)
    routed = ElementwiseTraffic(replicated=0.0, sharded=0.0, kernel_count=0, routed=PASSES)
    layers = (MIXTURE, replace(MIXTURE, elementwise=routed))
    plain, moving = (compute_seconds(layer, here).forward.item() for layer in layers)
    pace = here.hardware.memory_bytes_per_second / here.stack.elementwise_ratio
    return (moving - plain) * pace


@pytest.mark.parametrize(
    ("degrees", "share"),
    [
        ({}, 1.0),
        # A rank's own tokens leave for experts elsewhere
        ({**FOUR_RANKS, "sequence_parallel": True, "expert_parallel_degree": 2}, 0.25),
        ({**FOUR_RANKS, "sequence_parallel": True, "expert_tensor_parallel_degree": 1}, 0.25),
        ({**FOUR_RANKS, "expert_tensor_parallel_degree": 1, "expert_parallel_degree": 2}, 0.25),
        # All ranks have all tokens, and a part of each expert
        (FOUR_RANKS, 1.0),
        ({**FOUR_RANKS, "sequence_parallel": True}, 1.0),
    ],
)
def test_rows_are_moved_on_every_rank_that_has_them(degrees: dict[str, Any], share: float) -> None:
    """Of a million tokens in 16 bits."""
    whole = TOKENS * PASSES * 2
    assert moved_bytes(**degrees) == pytest.approx(share * whole)
