"""Nemotron-H-56B, whose layers are mostly Mamba-2, in fp8 on H100: iteration times of NVIDIA.

NVIDIA/dgxc-benchmarking nemotronh/README.md@v25.05.05 (figures copied by hand): tensor parallel 8,
24 micro-batches of one sequence of 8,192 tokens. No rate was chosen on these runs: the scan's is
that of a published benchmark of its kernel, and what it moves is counted in its code.
Tolerance: 15 %; all are predicted too fast, by 11 % in the mean. Its first and last layers, which
stay in 16 bits, are priced in 8.
"""

from __future__ import annotations

import pytest

from planner.validation.case import case_of
from tests.measured_rows import a_run

NEMOTRON_H = {
    "family": "dgxc-benchmarking",
    "model": "nemotron-h-56b",
    "arch_note": "hybrid: 54 mamba + 54 mlp + 10 attention layers",
    "framework": "NeMo 2 / Megatron-Core (DGX Cloud benchmarking recipe)",
    "gpu": "H100-SXM",
    "gpus_per_node": 8,
    "seq_len": 8192,
    "precision": "fp8",
    "tp": 8,
    "pp": 1,
    "cp": 1,
    "sequence_parallel": True,
    "zero_stage": 1,
    "sharding": "distributed_optimizer",
    "mbs": 1,
    "optimizer": "adam",
    "outcome": "ok",
}


@pytest.mark.parametrize(
    ("devices", "seconds"),
    [
        (32, 15.119),
        (64, 15.058),
        (128, 15.496),
        (256, 15.892),
        (512, 15.586),
        (1024, 15.678),
        (2048, 15.723),
    ],
)
def test_iteration_time(devices: int, seconds: float) -> None:
    row = {**NEMOTRON_H, "num_gpus": devices, "dp": devices // 8, "gbs": 3 * devices}
    ratio = case_of(a_run(row)).price().step_seconds.p50 / seconds
    assert 0.85 < ratio < 1.0
