"""BLOOM's prequel: memory in use of A100-80 on the first and last nodes, Megatron-DeepSpeed.

https://github.com/bigscience-workshop/bigscience at 9e64edec2a, train/tr11-176B-ml/
chronicles-prequel.md: nvidia-smi in whole GB (copied by hand). GPT models with full recomputation,
unfused attention and ZeRO-1; in bf16 whole gradients are kept in fp32 as well.
Tolerance: 8 %, the 90th percentile of the page's 88 peaks; runs of one layout lie up to 7 % apart.
"""

from __future__ import annotations

from typing import Any

import pytest

from planner.validation.case import case_of
from planner.validation.comparison import Pair, compare
from tests.measured_rows import a_run

GPT: dict[str, Any] = {
    "family": "bigscience-a100",
    "model": "bloom-prequel",
    "layers": 72,
    "hidden_size": 14336,
    "ffn_size": 57344,
    "heads": 64,
    "vocab": 250880,
    "tied_embeddings": True,
    "activation": "gelu",
    "attention_kind": "mha",
    "position": "alibi",
    "seq_len": 2048,
    "framework": "Megatron-DeepSpeed",
    "gpu": "A100-SXM",
    "gpu_mem_gb": 80,
    "gpus_per_node": 8,
    "num_gpus": 384,
    "precision": "fp16",
    "tp": 8,
    "pp": 12,
    "sequence_parallel": False,
    "zero_stage": 1,
    "gbs": 2048,
    "optimizer": "adam",
    "recompute": "full",
    "flash_attention": False,
    "pp_schedule": "1f1b",
    "mem_class": "device_used",
    "mem_scope": "first/last nodes",
}
NARROW = {"layers": 106, "hidden_size": 12288, "ffn_size": 49152, "heads": 96, "tp": 4}
ROWS = [
    ({"mbs": 1}, 29),
    ({"mbs": 2}, 37),
    ({"mbs": 8}, 69),
    ({"mbs": 1, "pp": 2, "gbs": 2016}, 65),
    ({**NARROW, "precision": "bf16", "mbs": 2}, 65),
]


@pytest.mark.parametrize(("changes", "peak_gib"), ROWS)
def test_memory_in_use_is_as_published(changes: dict[str, Any], peak_gib: float) -> None:
    pair = compare(case_of(a_run(GPT, **changes, peak_mem_gib=peak_gib))).memory
    assert isinstance(pair, Pair)
    assert abs(pair.error_ratio) < 0.08


def test_bf16_pipelines_hold_four_bytes_a_parameter_more_than_fp16() -> None:
    """Whole gradients in fp32, of which fp16 has an eighth; the allocator's slack on top."""

    def peak(precision: str) -> float:
        changes = {**NARROW, "mbs": 2, "precision": precision}
        pair = compare(case_of(a_run(GPT, **changes, peak_mem_gib=65))).memory
        assert isinstance(pair, Pair)
        return pair.predicted

    parameters = (106 / 12 * 12 * 12288**2 + 250880 * 12288) / 4  # of the first stage, a rank
    assert peak("bf16") - peak("fp16") == pytest.approx(1.12 * 3.5 * parameters, rel=0.02)
