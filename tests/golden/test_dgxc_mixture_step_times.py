"""NVIDIA's DGX Cloud benchmarking recipes: Grok-1 and Llama 4 Maverick on GB200 and H100.

NVIDIA/dgxc-benchmarking grok1/README.md and llama4/README.md@v25.05.05 (figures copied by hand).
Tolerance: 20 %. Routing is of untrained routers there, and is priced as even.
"""

from __future__ import annotations

from typing import Any

import pytest

from planner.validation.case import case_of
from tests.measured_rows import MIXTURE, a_run

TOLERANCE = 0.2
COMMON = {
    "family": "dgxc-benchmarking",
    "framework": "NeMo 2 / Megatron-Core (DGX Cloud benchmarking recipe)",
    "head_dim": 128,
    "kv_heads": 8,
    "position": "rope",
    "seq_len": 8192,
    "mbs": 1,
    "zero_stage": 1,
    "sharding": "distributed_optimizer",
    "recompute": None,
    "flash_attention": True,
}
GROK = {
    **COMMON,
    "model": "grok-1-314b",
    "layers": 64,
    "hidden_size": 6144,
    "ffn_size": 32768,
    "heads": 48,
    "vocab": 128256,
    "activation": "geglu",
    "moe_experts": 8,
    "moe_top_k": 2,
    "moe_ffn": 32768,
    "sequence_parallel": True,
    "tp": 4,
    "ep": 8,
}
MAVERICK = {
    **COMMON,
    "model": "llama4-maverick",
    "layers": 48,
    "hidden_size": 5120,
    "ffn_size": 16384,
    "heads": 40,
    "vocab": 202048,
    "activation": "swiglu",
    "moe_experts": 128,
    "moe_top_k": 1,
    "moe_ffn": 8192,
    "moe_shared_ffn": 8192,
    "moe_dense_layers": 24,
}
GB200 = {"gpu": "GB200", "gpu_mem_gb": None, "gpus_per_node": 4, "num_gpus": 128}
H100 = {"gpu": "H100-SXM", "gpu_mem_gb": 80, "gpus_per_node": 8, "num_gpus": 512, "gbs": 1024}
GROK_GB200 = {**GROK, **GB200, "pp": 1, "dp": 32, "etp": 4, "gbs": 256}
GROK_H100 = {**GROK, **H100, "pp": 8, "vpp": 8, "cp": 2, "dp": 8, "etp": 1}
MAVERICK_GB200 = {**MAVERICK, **GB200, "tp": 1, "pp": 2, "vpp": 12, "dp": 64, "ep": 64, "etp": 1}
MAVERICK_H100 = {**MAVERICK, **H100, "tp": 4, "pp": 1, "dp": 128, "ep": 128, "etp": 4}
ROWS = (
    ({**GROK_GB200, "precision": "bf16"}, 7.325),
    ({**GROK_GB200, "precision": "fp8"}, 5.298),
    ({**GROK_H100, "precision": "bf16"}, 15.933),
    ({**GROK_H100, "precision": "fp8"}, 13.433),
    ({**MAVERICK_GB200, "gbs": 1024, "precision": "bf16"}, 7.781),
    ({**MAVERICK_GB200, "gbs": 1024, "precision": "fp8"}, 6.093),
    ({**MAVERICK_H100, "sequence_parallel": True, "precision": "bf16"}, 4.426),
    ({**MAVERICK_H100, "sequence_parallel": True, "precision": "fp8"}, 3.855),
)


@pytest.mark.parametrize(("changes", "published"), ROWS)
def test_steps_are_as_published(changes: dict[str, Any], published: float) -> None:
    run = a_run(MIXTURE, **changes, step_time_s=published)
    predicted = case_of(run).price().step_seconds.p50
    assert predicted == pytest.approx(published, rel=TOLERANCE)
