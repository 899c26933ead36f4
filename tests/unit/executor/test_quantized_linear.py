"""A packed linear multiplies as bitsandbytes' own does, and is split only between blocks."""

from __future__ import annotations

from types import SimpleNamespace
from typing import Any

import pytest

pytest.importorskip("torch", reason="no package torch")
pytest.importorskip("bitsandbytes", reason="no package bitsandbytes")

import bitsandbytes
import torch
from torch import nn

from executor.apply.differences import packing_differences
from executor.errors import UnsupportedPlanError
from executor.models.own import Declaration, OwnModel
from executor.models.quantized_linear import (
    QuantizedLinear,
    check_split_quantized,
    quantized_bits,
    replace_floating,
    replace_packed,
)
from tests.builders import a_job

CPU = torch.device("cpu")


def in_4_bits(columns: int, rows: int, **fields: Any) -> nn.Module:
    """A linear that bitsandbytes is to pack."""
    torch.manual_seed(3)
    return bitsandbytes.nn.Linear4bit(columns, rows, **{"compress_statistics": False, **fields})


def in_8_bits(columns: int, rows: int) -> nn.Module:
    """The same in 8 bits."""
    torch.manual_seed(3)
    return bitsandbytes.nn.Linear8bitLt(columns, rows, has_fp16_weights=False)


MADE: dict[str, Any] = {
    "rows of whole blocks": lambda: in_4_bits(128, 24, quant_type="nf4"),
    "blocks over rows": lambda: in_4_bits(40, 24, quant_type="fp4"),
    "scales packed too": lambda: in_4_bits(128, 300, quant_type="nf4", compress_statistics=True),
    "8 bits": lambda: in_8_bits(40, 24),
}


@pytest.mark.parametrize("name", MADE)
@pytest.mark.parametrize("is_packed", [False, True])
def test_products_and_gradients_are_those_of_bitsandbytes(name: str, is_packed: bool) -> None:
    expected = MADE[name]().to(CPU)
    holder = nn.Sequential(MADE[name]().to(CPU) if is_packed else MADE[name]())
    replace_packed(holder)
    made = replace_floating(holder, CPU)
    assert list(made) == ([] if is_packed else ["0"])
    (linear,) = holder
    assert isinstance(linear, QuantizedLinear)
    assert not any(item.is_floating_point() for item in linear.parameters() if item.dim() > 1)
    given = torch.randn(2, 5, linear.in_features, requires_grad=True)
    twin = given.detach().clone().requires_grad_()
    found, wanted = linear(given), expected(twin)
    assert torch.equal(found, wanted)
    found.square().sum().backward()
    wanted.square().sum().backward()
    assert torch.equal(given.grad, twin.grad)
    parts = {name: getattr(linear, name) for name in ("weight", "scales", "scale_scales")}
    whole = linear.unpacked({name: item for name, item in parts.items() if item is not None})
    exact = nn.functional.linear(given, whole, linear.bias)
    torch.testing.assert_close(exact, wanted, rtol=1e-4, atol=1e-4)


@pytest.mark.parametrize(
    ("name", "degree", "is_row", "said"),
    [
        ("rows of whole blocks", 2, False, None),
        ("rows of whole blocks", 2, True, None),
        ("rows of whole blocks", 4, True, "128 inputs in blocks of 64"),
        ("blocks over rows", 2, False, "40 inputs in blocks of 64"),
        ("scales packed too", 2, False, "bnb_4bit_use_double_quant=False"),
        ("8 bits", 2, False, "8 bits"),
    ],
)
def test_what_would_be_cut_is_refused(
    name: str, degree: int, is_row: bool, said: str | None
) -> None:
    holder = nn.Sequential(MADE[name]())
    replace_floating(holder, CPU)
    (linear,) = holder
    if said is None:
        check_split_quantized(linear, degree, path="up", is_row=is_row)
        return
    with pytest.raises(UnsupportedPlanError, match=f"up.*{said}"):
        check_split_quantized(linear, degree, path="up", is_row=is_row)


def test_other_modules_of_bitsandbytes_are_refused() -> None:
    for module in (
        bitsandbytes.nn.EmbeddingNF4(64, 64),
        bitsandbytes.nn.Linear8bitLt(8, 8, has_fp16_weights=True),
    ):
        with pytest.raises(UnsupportedPlanError, match=r"frozen weight in 4 or 8 bits.*0, a "):
            quantized_bits(nn.Sequential(module))
    assert quantized_bits(nn.Sequential(in_4_bits(8, 8), nn.Linear(8, 8))) == {4}
    assert quantized_bits(nn.Sequential(bitsandbytes.nn.StableEmbedding(8, 8))) == set()


def test_weights_that_files_have_the_other_way_round_are_refused() -> None:
    """Transformers turns those of GPT-2 as it packs them."""
    with torch.device("meta"):
        linear = in_4_bits(64, 64)
    linear.source_cls = type("Conv1D", (), {})
    with pytest.raises(UnsupportedPlanError, match="from_pretrained inside"):
        replace_floating(nn.Sequential(linear), CPU)


class Packed(nn.Module):
    """A chain whose blocks bitsandbytes is to pack."""

    def __init__(self) -> None:
        super().__init__()
        self.embed, self.norm = nn.Embedding(16, 64), nn.LayerNorm(64)
        self.blocks = nn.ModuleList(in_4_bits(64, 64) for _ in "ab")
        self.head = nn.Linear(64, 16)

    def forward(self, tokens: torch.Tensor) -> torch.Tensor:
        """Return logits."""
        hidden = self.embed(tokens)
        for block in self.blocks:
            hidden = block(hidden)
        return self.head(self.norm(hidden))


def test_a_forward_is_followed_through_weights_that_are_still_to_be_packed() -> None:
    with torch.device("meta"):
        module = Packed()
    parts = {"embedding": "embed", "blocks": "blocks", "final_norm": "norm", "head": "head"}
    own = OwnModel(module=module, declaration=Declaration(**parts), initial_state=None, seed=0)
    chain = own.pipelined(torch.zeros((1, 4), dtype=torch.long, device="meta"))
    assert quantized_bits(chain) == {4}


def test_blocks_that_are_not_packed_as_planned_are_told() -> None:
    """Norms and adapters are not planned in 4 bits either; a mixture's experts are."""
    module = Packed()
    job = a_job(adapters={"rank": 2, "base_bits": 4})
    replace_floating(module, CPU)
    stage: Any = SimpleNamespace(module=module)
    declared: Any = SimpleNamespace(is_whole=False, blocks="blocks")
    assert list(packing_differences([stage], declaration=declared, job=job)) == []
    module.blocks.append(nn.Linear(64, 2))
    (said,) = packing_differences([stage], declaration=declared, job=job)
    assert said.startswith("128 parameters of blocks, such as those of 2.weight, are no linears")
    assert said.endswith("planned in 4 bits")
    whole = a_job(adapters={"rank": 2})
    assert list(packing_differences([stage], declaration=declared, job=whole)) == []
