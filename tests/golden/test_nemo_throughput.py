"""NeMo 24.07: Llama in 8 bits on H100.

NVIDIA/NeMo docs/source/performance/performance_summary.md@f78d98691f (figures copied by hand).
Tolerance: 6 %.
"""

from __future__ import annotations

from typing import Any

import pytest

from planner.validation.case import case_of
from tests.measured_rows import TORCHTITAN, a_run

TOLERANCE = 0.06
COMMON = {
    "family": "nemo",
    "framework": "NeMo 24.07",
    "gpu": "H100-SXM",
    "precision": "fp8",
    "zero_stage": 1,
    "sharding": "distributed_optimizer",
    "mbs": 1,
    "recompute": None,
}
LLAMA_2 = {
    "model": "llama2-7b",
    "ffn_size": 11008,
    "kv_heads": 32,
    "vocab": 32000,
    "attention_kind": "mha",
    "seq_len": 4096,
}
LLAMA_70B = {
    "model": "llama3-70b",
    "layers": 80,
    "hidden_size": 8192,
    "ffn_size": 28672,
    "heads": 64,
    "tp": 4,
    "pp": 4,
    "vpp": 5,
    "cp": 2,
    "dp": 2,
    "sequence_parallel": True,
}
ROWS = (
    ({**LLAMA_2, "num_gpus": 8, "dp": 8, "gbs": 128}, 16934.0),
    ({"num_gpus": 8, "dp": 4, "cp": 2, "gbs": 128}, 12273.0),
    ({**LLAMA_70B, "num_gpus": 64, "gbs": 128}, 1524.0),
)


@pytest.mark.parametrize(("changes", "published"), ROWS)
def test_tokens_a_second_are_as_published(changes: dict[str, Any], published: float) -> None:
    run = a_run(TORCHTITAN, **{**COMMON, **changes}, tokens_per_s_per_gpu=published)
    predicted = case_of(run).price().tokens_per_second_per_device
    assert predicted == pytest.approx(published, rel=TOLERANCE)
