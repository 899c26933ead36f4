"""In fp32 layouts come as close to fp64 as the unsharded model does, which rounds as often."""

from __future__ import annotations

from typing import Any

import pytest

from tests.distributed.group import RankGroup
from tests.distributed.parity import cases, check_parity
from tests.distributed.test_parity import ON_TWO_RANKS, TIED
from tests.distributed.test_parity_experts import ON_FOUR_RANKS as EXPERTS_ON_FOUR
from tests.distributed.test_parity_experts import ON_TWO_RANKS as EXPERTS_ON_TWO

pytestmark = pytest.mark.distributed

Case = tuple[str, dict[str, Any]]
ON_TWO: dict[str, Case] = {
    **{name: ("decoder", ON_TWO_RANKS[name]) for name in ("zero3", "tp2-sp", "pp2-gpipe")},
    "experts-tp2": ("mixture", EXPERTS_ON_TWO["tp2-sp"]),
    "ring2": ("tied", {"context_parallel_degree": 2, "micro_batch_size": 2, "zero_stage": 1}),
}
ON_FOUR: dict[str, Case] = {
    **{f"tied-{name}": ("tied", TIED[name]) for name in ("tp4", "tp2-sp-zero2", "tp2-pp2")},
    "experts-tp4": ("mixture", EXPERTS_ON_FOUR["tp4-sp-half-experts-zero2"]),
}


@pytest.mark.parametrize(("kind", "strategy"), ON_TWO.values(), ids=ON_TWO.keys())
def test_two_ranks_in_fp32(two_ranks: RankGroup, kind: str, strategy: dict[str, Any]) -> None:
    check_parity(two_ranks.run("parity", strategy=strategy, kind=kind, bits=32))


@pytest.mark.parametrize("case", cases(ON_FOUR, always={"tied-tp2-pp2"}))
def test_four_ranks_in_fp32(four_ranks: RankGroup, case: Case) -> None:
    kind, strategy = case
    check_parity(four_ranks.run("parity", strategy=strategy, kind=kind, bits=32))


@pytest.mark.parametrize("precision", ["bf16", "fp16"])
def test_what_is_computed_in_16_bits_is_kept_in_fp32(two_ranks: RankGroup, precision: str) -> None:
    strategy = {"data_parallel_degree": 2, "zero_stage": 2}
    answer = two_ranks.run("state_parity", strategy=strategy, precision=precision, steps=1, bits=32)
    assert answer["differences"] == []
    assert answer["formats"] == ["torch.float32"]
