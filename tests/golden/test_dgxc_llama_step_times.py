"""NVIDIA's DGX Cloud recipes: steps of Llama 3 in bf16 on H100 with NeMo 2 and Megatron-Core.

NVIDIA/dgxc-benchmarking llama3.1/README.md@v25.04 (figures copied by hand). Tolerance: 8 %.
"""

from __future__ import annotations

from typing import Any

import pytest

from planner.validation.case import case_of
from tests.measured_rows import TORCHTITAN, a_run

COMMON = {
    "family": "dgxc-benchmarking",
    "framework": "NeMo 2 / Megatron-Core (DGX Cloud benchmarking recipe)",
    "gpu": "H100-SXM",
    "zero_stage": 1,
    "sharding": "distributed_optimizer",
    "mbs": 1,
    "recompute": None,
    "tokens_per_s_per_gpu": None,
}
LLAMA_70B = {
    "model": "llama3-70b",
    "layers": 80,
    "hidden_size": 8192,
    "ffn_size": 28672,
    "heads": 64,
}


@pytest.mark.parametrize(
    ("row", "published"),
    [
        ({"num_gpus": 8, "dp": 4, "cp": 2, "gbs": 128}, 12.27),
        (
            {
                **LLAMA_70B,
                "num_gpus": 64,
                "dp": 2,
                "tp": 4,
                "pp": 4,
                "vpp": 5,
                "cp": 2,
                "sequence_parallel": True,
                "gbs": 128,
            },
            14.66,
        ),
    ],
)
def test_a_step_takes_as_long_as_published(row: dict[str, Any], published: float) -> None:
    case = case_of(a_run(TORCHTITAN, **{**COMMON, **row}, step_time_s=published))
    assert case.price().step_seconds.p50 == pytest.approx(published, rel=0.08)
