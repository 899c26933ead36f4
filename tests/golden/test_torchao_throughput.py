"""torchao: Llama-3-8B on eight H100, in bf16 and in 8 bits with one scale a tensor or a row.

pytorch/ao docs/source/workflows/training.md@36027d82d1 (figures copied by hand). Tolerance: 9 %.
"""

from __future__ import annotations

from typing import Any

import pytest

from planner.validation.case import case_of
from tests.measured_rows import TORCHTITAN, a_run

TOLERANCE = 0.09
COMMON = {
    "family": "torchao",
    "framework": "torchtitan+torchao",
    "gpu": "H100-SXM",
    "num_gpus": 8,
    "dp": 8,
    "gbs": 8,
    "recompute_detail": "per-op SAC",
    "compile": True,
}
ROWS = (
    ({"precision": "bf16"}, 6150.0),
    ({"precision": "fp8", "precision_raw": "fp8"}, 7689.5),
    ({"precision": "fp8", "precision_raw": "fp8-rowwise"}, 6768.0),
)


@pytest.mark.parametrize(("changes", "published"), ROWS)
def test_tokens_a_second_are_as_published(changes: dict[str, Any], published: float) -> None:
    run = a_run(TORCHTITAN, **{**COMMON, **changes}, tokens_per_s_per_gpu=published)
    predicted = case_of(run).price().tokens_per_second_per_device
    assert predicted == pytest.approx(published, rel=TOLERANCE)
