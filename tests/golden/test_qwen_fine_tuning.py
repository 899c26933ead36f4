"""Qwen's profile of memory and speed: adapters of 7B and 14B on one A100, PEFT.

QwenLM/Qwen README.md@03cd81f5e4 (figures copied by hand): one sequence a micro-batch, eight a step.
Tolerances: 9 % of a peak, the mean error over the whole table; 21 % of a step from 1,024 tokens on,
all of which are too fast, less so the longer they are. Shorter ones wait for a host that takes
less than is assumed, and are predicted 25 to 53 % too slow. Weights in 4 bits, which auto_gptq
unpacks: 27 % of a step, hardly any of which is too slow, 6 % at 8,192 tokens. Their adapters have
32 bits; beyond 2,048 tokens their peaks are 10 to 26 % too high, which is not understood.
"""

from __future__ import annotations

from typing import Any

import pytest

from planner.validation.case import case_of
from planner.validation.comparison import Pair, compare
from tests.measured_rows import a_run

COMMON = {
    "family": "qwen-finetune",
    "task": "lora",
    "vocab": 151936,
    "tied_embeddings": False,
    "activation": "swiglu",
    "attention_kind": "mha",
    "position": "rope",
    "head_dim": 128,
    "framework": "HF Trainer + peft (+DeepSpeed)",
    "gpu": "A100-SXM",
    "gpu_mem_gb": 80,
    "gpus_per_node": 1,
    "num_gpus": 1,
    "precision": "bf16",
    "dp": 1,
    "tp": 1,
    "pp": 1,
    "zero_stage": 0,
    "sharding": "none",
    "mbs": 1,
    "gbs": 8,
    "grad_accum": 8,
    "recompute": "full",
    "flash_attention": True,
}
SMALL = {
    "model": "qwen-7b",
    "layers": 32,
    "hidden_size": 4096,
    "ffn_size": 11008,
    "heads": 32,
    "kv_heads": 32,
}
LARGE = {
    "model": "qwen-14b",
    "layers": 40,
    "hidden_size": 5120,
    "ffn_size": 13696,
    "heads": 40,
    "kv_heads": 40,
}
PACKED = {"task": "qlora", "precision": "w4a16", "precision_raw": "int4 GPTQ weights + fp16"}
LARGEST = {
    "model": "qwen-72b",
    "layers": 80,
    "hidden_size": 8192,
    "ffn_size": 24576,
    "heads": 64,
    "kv_heads": 64,
}
ENDS = {"notes": "method=lora_emb (embedding and output layer trainable)"}
PEAKS = (  # changes, tokens, GiB
    (SMALL, 256, 20.1),
    (SMALL, 512, 20.4),
    (SMALL, 1024, 21.5),
    (SMALL, 2048, 23.8),
    (SMALL, 4096, 29.7),
    (SMALL, 8192, 36.6),
    ({**SMALL, **ENDS}, 4096, 39.2),
    (LARGE, 256, 34.6),
    (LARGE, 2048, 37.4),
    ({**LARGE, **ENDS}, 1024, 51.5),
    ({**LARGE, **ENDS}, 4096, 56.8),
    ({**SMALL, **PACKED}, 256, 11.5),
    ({**SMALL, **PACKED}, 1024, 12.3),
    ({**LARGE, **PACKED}, 512, 18.4),
    ({**LARGEST, **PACKED}, 1024, 62.9),
    ({**LARGEST, **PACKED}, 2048, 64.1),
)
STEPS = (  # changes, tokens, seconds
    (SMALL, 1024, 2.8),
    (SMALL, 2048, 5.2),
    (SMALL, 4096, 10.1),
    (SMALL, 8192, 21.3),
    ({**SMALL, **ENDS}, 4096, 10.3),
    (LARGE, 2048, 8.4),
    ({**LARGE, **ENDS}, 1024, 4.6),
    ({**LARGE, **ENDS}, 4096, 17.2),
)


@pytest.mark.parametrize(("changes", "tokens", "published"), PEAKS)
def test_peaks_are_as_published(changes: dict[str, Any], tokens: int, published: float) -> None:
    row = {**COMMON, **changes, "seq_len": tokens, "peak_mem_gib": published}
    memory = compare(case_of(a_run(row))).memory
    assert isinstance(memory, Pair)
    assert memory.predicted == pytest.approx(memory.measured, rel=0.09)


@pytest.mark.parametrize(("changes", "tokens", "published"), STEPS)
def test_steps_take_as_long_as_published(
    changes: dict[str, Any], tokens: int, published: float
) -> None:
    case = case_of(a_run({**COMMON, **changes, "seq_len": tokens}))
    assert case.price().step_seconds.p50 == pytest.approx(published, rel=0.21)


@pytest.mark.parametrize(
    ("changes", "tokens", "published"),
    [
        (SMALL, 256, 3.0),
        (SMALL, 1024, 3.5),
        (SMALL, 4096, 11.6),
        (SMALL, 8192, 22.3),
        (LARGE, 512, 6.3),
        (LARGE, 8192, 38.3),
        (LARGEST, 1024, 41.4),
        (LARGEST, 2048, 59.5),
        (LARGEST, 8192, 179.8),
    ],
)
def test_steps_of_weights_in_four_bits(
    changes: dict[str, Any], tokens: int, published: float
) -> None:
    case = case_of(a_run({**COMMON, **changes, **PACKED, "seq_len": tokens}))
    ratio = case.price().step_seconds.p50 / published
    assert 0.73 < ratio < 1.01
    assert ratio > 0.94 or tokens < 8192
