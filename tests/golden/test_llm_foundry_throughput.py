"""MosaicML's llm-foundry: tokens a second and GPU of MPT models under FSDP.

mosaicml/llm-foundry scripts/train/benchmarking/README.md@8c8dd48f72 (figures copied by hand).
Tolerance: 14 %.
"""

from __future__ import annotations

import pytest

from planner.validation.case import case_of
from tests.measured_rows import TORCHTITAN, a_run

MPT = {
    "family": "mosaic-mpt",
    "vocab": 50368,
    "tied_embeddings": True,
    "activation": "gelu",
    "attention_kind": "mha",
    "position": "learned",
    "seq_len": 2048,
    "framework": "composer/llm-foundry (PyTorch FSDP)",
    "optimizer": None,
}
SIZES: dict[str, dict[str, int]] = {
    "mpt-7b": {"layers": 32, "hidden_size": 4096, "ffn_size": 16384, "heads": 32, "kv_heads": 32},
    "mpt-30b": {"layers": 48, "hidden_size": 7168, "ffn_size": 28672, "heads": 56, "kv_heads": 56},
}


ROWS: dict[str, dict[str, object]] = {
    "mpt-7b": {"gpu": "H100-SXM", "num_gpus": 512, "mbs": 6, "gbs": 3072, "recompute": "none"},
    "mpt-30b": {"gpu": "A100-SXM", "num_gpus": 8, "mbs": 3, "gbs": 504, "recompute": "full"},
}


@pytest.mark.parametrize(("model", "published"), [("mpt-7b", 9670), ("mpt-30b", 916)])
def test_throughput_is_as_published(model: str, published: float) -> None:
    row = {**MPT, **SIZES[model], **ROWS[model], "model": model, "dp": ROWS[model]["num_gpus"]}
    case = case_of(a_run(TORCHTITAN, **row, tokens_per_s_per_gpu=published))
    rate = case.price().tokens_per_second_per_device
    assert rate == pytest.approx(published, rel=0.14)
