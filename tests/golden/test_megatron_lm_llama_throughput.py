"""Megatron-LM's own examples: Llama 3 of 8B, 70B and 405B in 8 bits on H100.

NVIDIA/Megatron-LM examples/llama/README.md@d98e8a64dd: model TFLOP/s a GPU (copied by hand).
Tolerance: 10 %.
"""

from __future__ import annotations

from typing import Any

import pytest

from planner.validation.case import case_of
from planner.validation.measurement import step_seconds
from tests.measured_rows import TORCHTITAN, a_run

TOLERANCE = 0.1
COMMON = {
    "family": "megatron-lm",
    "framework": "Megatron-LM (NeMo perf scripts)",
    "gpu": "H100-SXM",
    "precision": "fp8",
    "zero_stage": 1,
    "sharding": "distributed_optimizer",
    "recompute": None,
    "tokens_per_s_per_gpu": None,
    "tflops_counts": "model",
}
LLAMA_70B = {
    "model": "llama3-70b",
    "layers": 80,
    "hidden_size": 8192,
    "ffn_size": 28672,
    "heads": 64,
    "tp": 4,
    "pp": 8,
    "vpp": 5,
    "dp": 2,
    "sequence_parallel": True,
    "num_gpus": 64,
    "gbs": 128,
}
LLAMA_405B = {
    "model": "llama3.1-405b",
    "layers": 126,
    "hidden_size": 16384,
    "ffn_size": 53248,
    "heads": 128,
    "tp": 8,
    "pp": 8,
    "vpp": 8,
    "cp": 2,
    "dp": 8,
    "sequence_parallel": True,
    "num_gpus": 1024,
    "gbs": 512,
}
ROWS = (
    ({"cp": 2, "dp": 4, "num_gpus": 8, "gbs": 128}, 800.0),
    ({**LLAMA_70B, "cp": 1}, 780.0),
    (LLAMA_405B, 834.0),
)


@pytest.mark.parametrize(("changes", "published"), ROWS)
def test_rates_are_as_published(changes: dict[str, Any], published: float) -> None:
    case = case_of(a_run(TORCHTITAN, **{**COMMON, **changes}, tflops_per_gpu=published))
    measured = step_seconds(case)
    assert measured is not None
    assert case.price().step_seconds.p50 == pytest.approx(measured, rel=TOLERANCE)
