"""Megatron-LM's functional tests: peaks of live tensors on the last rank, Transformer Engine.

https://github.com/NVIDIA/Megatron-LM at d98e8a64dd, `tests/functional_tests/test_cases`, keys
`mem-max-allocated-bytes` of golden_values_dev_dgx_{h100,a100}.json, in GiB here (copied by hand).
A GPT of 12 layers in bf16: hidden 512, 8 heads, sequences of 1,024, micro-batches of 4, batch 32,
dropout. Models so small hold the states, logits and scores apart: 18 bytes a parameter, 6 a logit,
34 s b h, 5 a s^2 b where attention is not fused, and 0.1 GiB of workspaces.
Tolerance: 3 %; 6 % with experts, whose router and imbalance keep more than is counted.
"""

from __future__ import annotations

from typing import Any

import pytest

from planner.validation.case import case_of
from planner.validation.comparison import Pair, compare
from tests.measured_rows import a_run

GPT: dict[str, Any] = {
    "family": "megatron-ci",
    "model": "gpt",
    "layers": 12,
    "hidden_size": 512,
    "ffn_size": 2048,
    "heads": 8,
    "kv_heads": 8,
    "vocab": 50304,
    "tied_embeddings": True,
    "activation": "gelu",
    "attention_kind": "mha",
    "position": "learned",
    "seq_len": 1024,
    "framework": "Megatron-LM",
    "gpu": "H100-SXM",
    "gpus_per_node": 8,
    "num_gpus": 8,
    "precision": "bf16",
    "tp": 1,
    "pp": 1,
    "sequence_parallel": False,
    "zero_stage": 0,
    "mbs": 4,
    "gbs": 32,
    "optimizer": "adam",
    "recompute": "none",
    "mem_class": "torch_allocated",
    "mem_scope": "last_global_rank",
}
UNFUSED = {"gpu": "A100-SXM", "flash_attention": False}
DENSE = [
    ({"pp": 4}, 2.060),
    ({"pp": 2, "position": "rope"}, 2.420),
    ({"tp": 2, "pp": 2, "vocab": 50432}, 1.323),
    ({"tp": 2, "pp": 2, "cp": 2, "sequence_parallel": True, "vocab": 50432}, 0.871),
    ({"tp": 4, "zero_stage": 1, "vocab": 50688}, 0.971),
    ({"pp": 2, "position": "rope", **UNFUSED}, 3.325),
    ({"pp": 4, "vpp": 3, **UNFUSED}, 3.840),
    ({"pp": 1, "recompute": "full", **UNFUSED}, 2.360),
]
EXPERTS = {"moe_experts": 4, "moe_top_k": 1, "moe_ffn": 2048, "vocab": 50688, "ep": 2}
MIXTURES = [
    (
        {
            **EXPERTS,
            "tp": 4,
            "pp": 2,
            "etp": 2,
            "sequence_parallel": True,
            "flash_attention": False,
        },
        1.142,
    ),
]


def error_ratio(changes: dict[str, Any], peak_gib: float) -> float:
    """Return predicted over published peak, less 1."""
    pair = compare(case_of(a_run(GPT, **changes, peak_mem_gib=peak_gib))).memory
    assert isinstance(pair, Pair)
    return pair.error_ratio


@pytest.mark.parametrize(("changes", "peak_gib"), DENSE)
def test_peaks_of_dense_models_are_as_published(changes: dict[str, Any], peak_gib: float) -> None:
    assert abs(error_ratio(changes, peak_gib)) < 0.03


@pytest.mark.parametrize(("changes", "peak_gib"), MIXTURES)
def test_peaks_of_mixtures_are_as_published(changes: dict[str, Any], peak_gib: float) -> None:
    assert abs(error_ratio(changes, peak_gib)) < 0.06
