"""The Ultra-Scale Playbook: nanotron's Llama of 3.6B, tensor parallel on 2 to 32 H100.

Hugging Face, The Ultra-Scale Playbook, "Tensor parallelism": model TFLOP/s a GPU at the largest
micro-batch that fits (figures copied by hand). Tolerance: 11 %.
"""

from __future__ import annotations

import pytest

from planner.validation.case import case_of
from planner.validation.measurement import step_seconds
from tests.measured_rows import TORCHTITAN, a_run

TOLERANCE = 0.11
SHAPE = {
    "family": "playbook-tp-sp",
    "model": "nanotron-llama-3.57b",
    "framework": "nanotron",
    "layers": 28,
    "hidden_size": 3072,
    "ffn_size": 8192,
    "heads": 32,
    "kv_heads": 32,
    "head_dim": 96,
    "vocab": 131072,
    "attention_kind": "mha",
    "seq_len": 4096,
    "gpu": "H100-SXM",
    "dp": 1,
    "zero_stage": 0,
    "sharding": None,
    "sequence_parallel": True,
    "recompute": "none",
    "tokens_per_s_per_gpu": None,
    "tflops_counts": "model",
}


@pytest.mark.parametrize(
    ("tp", "mbs", "published"),
    [(2, 3, 363.66), (4, 9, 345.51), (8, 18, 279.5), (16, 40, 158.1), (32, 90, 92.66)],
)
def test_rates_are_as_published(tp: int, mbs: int, published: float) -> None:
    layout = {"tp": tp, "num_gpus": tp, "mbs": mbs, "gbs": mbs}
    case = case_of(a_run(TORCHTITAN, **SHAPE, **layout, tflops_per_gpu=published))
    measured = step_seconds(case)
    assert measured is not None
    rate = published * measured / case.price().step_seconds.p50
    assert rate == pytest.approx(published, rel=TOLERANCE)


@pytest.mark.parametrize(
    ("tp", "mbs", "sequence_parallel"),
    [
        (2, 4, True),
        (4, 10, True),
        (8, 20, True),
        (16, 40, True),
        (32, 100, True),
        (2, 3, False),
        (4, 8, False),
        (8, 12, False),
        (16, 16, False),
        (32, 20, False),
    ],
)
def test_the_largest_published_micro_batches_fit(
    tp: int, mbs: int, sequence_parallel: bool
) -> None:
    """Its figures "TP" and "TP with sequence parallelism" state the largest that do."""
    layout = {"tp": tp, "num_gpus": tp, "mbs": mbs, "gbs": mbs}
    changes = {**SHAPE, **layout, "tied_embeddings": True, "sequence_parallel": sequence_parallel}
    case = case_of(a_run(TORCHTITAN, **changes))
    assert case.price().fits_probability > 0.5
