"""QLoRA: adapters on weights in 4 or 8 bits train as plain torch, PEFT and bitsandbytes do."""

from __future__ import annotations

from pathlib import Path
from typing import Any

import pytest

pytest.importorskip("bitsandbytes", reason="no package bitsandbytes")

from tests.distributed.group import RankGroup
from tests.distributed.parity import cases

pytestmark = pytest.mark.distributed

NESTED = {
    "load_in_4bit": True,
    "bnb_4bit_quant_type": "nf4",
    "bnb_4bit_use_double_quant": True,
}
IN_8_BITS = {"load_in_8bit": True}
LAYOUTS: dict[str, tuple[dict[str, Any], dict[str, Any]]] = {
    "dp4": ({"data_parallel_degree": 4}, {}),
    "zero3": ({"data_parallel_degree": 4, "zero_stage": 3}, {}),
    "zero3-nested-narrow": (
        {"data_parallel_degree": 4, "zero_stage": 3},
        {"fields": NESTED, "is_wide": False},
    ),
    "tp2-sp-zero3": (
        {
            "tensor_parallel_degree": 2,
            "sequence_parallel": True,
            "data_parallel_degree": 2,
            "zero_stage": 3,
        },
        {},
    ),
    "pp2-zero1-loaded": (
        {
            "pipeline_parallel_degree": 2,
            "data_parallel_degree": 2,
            "zero_stage": 1,
            "micro_batch_size": 2,
        },
        {"fields": NESTED, "is_loaded": True},
    ),
    "cp2-zero2-8-bits": (
        {"context_parallel_degree": 2, "data_parallel_degree": 2, "zero_stage": 2},
        {"fields": IN_8_BITS},
    ),
    "tp4-nested-narrow": (
        {"tensor_parallel_degree": 4},
        {"fields": NESTED, "is_wide": False},
    ),
    "tp2-sp-zero3-8-bits": (
        {
            "tensor_parallel_degree": 2,
            "sequence_parallel": True,
            "data_parallel_degree": 2,
            "zero_stage": 3,
        },
        {"fields": IN_8_BITS},
    ),
    "tp2-pp2-nested": (
        {"tensor_parallel_degree": 2, "pipeline_parallel_degree": 2, "micro_batch_size": 2},
        {"fields": NESTED, "is_loaded": True},
    ),
    "tp2-pp2": (
        {"tensor_parallel_degree": 2, "pipeline_parallel_degree": 2, "micro_batch_size": 2},
        {},
    ),
}


@pytest.mark.parametrize(
    "name",
    cases(
        {n: n for n in LAYOUTS},
        always={
            "zero3-nested-narrow",
            "tp4-nested-narrow",
            "tp2-sp-zero3-8-bits",
            "pp2-zero1-loaded",
        },
    ),
)
def test_adapters_on_packed_weights_train_as_plain_torch_does(
    name: str, four_ranks: RankGroup, tmp_path: Path
) -> None:
    """Losses, adapters, what is exported and what is saved; whole weights give other losses."""
    strategy, how = LAYOUTS[name]
    folder, out = (tmp_path / part for part in ("in", "out"))
    answer = four_ranks.run(
        "quantized", strategy=dict(strategy), folder=str(folder), out=str(out), **how
    )
    assert answer["differences"] == []
    assert answer["losses"] == pytest.approx(answer["exact_losses"], rel=answer["loss_bar"])
    assert answer["loss_bar"] < 1e-5
    assert abs(answer["unpacked_loss"] / answer["losses"][0] - 1.0) > 10 * answer["loss_bar"]
    assert answer["adapter_error"] <= answer["adapter_bar"]
    assert answer["merged_error"] < 1e-5
    assert answer["evaluated"] == pytest.approx(answer["plain_evaluated"], rel=answer["loss_bar"])
    assert answer["reloaded"]


def test_rows_in_8_bits_are_scaled_as_they_are_whole(four_ranks: RankGroup) -> None:
    """Scaling by the largest element of each rank's part would give other numbers."""
    errors = four_ranks.run("rows_in_8_bits")
    assert errors["scaled"] > 1e-3
    assert errors["product"] < 1e-6
    assert errors["gradient"] < 1e-6
