"""Megatron-Bridge: Llama 3 in 8 bits on H100 and B200, as its performance summary has it.

NVIDIA-NeMo/Megatron-Bridge docs/performance-summary-archive.md@067f987df0 (figures copied by hand).
Tolerance: 10 %.
"""

from __future__ import annotations

from typing import Any

import pytest

from planner.validation.case import case_of
from tests.measured_rows import TORCHTITAN, a_run

TOLERANCE = 0.1
COMMON = {
    "family": "megatron-bridge",
    "framework": "Megatron-Bridge/Megatron-Core",
    "precision": "fp8",
    "zero_stage": 1,
    "sharding": "distributed_optimizer",
    "recompute": "none",
}
LLAMA_70B = {
    "model": "llama3-70b",
    "layers": 80,
    "hidden_size": 8192,
    "ffn_size": 28672,
    "heads": 64,
    "gpu": "H100-SXM",
    "tp": 4,
    "dp": 2,
    "vpp": 5,
    "sequence_parallel": True,
}
ROWS = (
    ({"gpu": "B200", "num_gpus": 8, "dp": 8, "mbs": 2, "gbs": 128}, 29994.0),
    ({**LLAMA_70B, "num_gpus": 32, "pp": 4, "seq_len": 4096, "gbs": 32}, 1638.0),
    ({**LLAMA_70B, "num_gpus": 64, "pp": 8, "gbs": 256}, 1664.0),
)


@pytest.mark.parametrize(("changes", "published"), ROWS)
def test_tokens_a_second_are_as_published(changes: dict[str, Any], published: float) -> None:
    run = a_run(TORCHTITAN, **{**COMMON, **changes}, tokens_per_s_per_gpu=published)
    predicted = case_of(run).price().tokens_per_second_per_device
    assert predicted == pytest.approx(published, rel=TOLERANCE)
