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
    # Blocks that reach over rows are divided, and summed in another order.
    bar = {"rtol": 1e-6, "atol": 1e-6} if name == "blocks over rows" else {"rtol": 0.0, "atol": 0.0}
    torch.testing.assert_close(found, wanted, **bar)
    found.square().sum().backward()
    wanted.square().sum().backward()
    torch.testing.assert_close(given.grad, twin.grad, **bar)
    parts = {name: getattr(linear, name) for name in ("weight", "scales", "scale_scales")}
    whole = linear.unpacked({name: item for name, item in parts.items() if item is not None})
    exact = nn.functional.linear(given, whole, linear.bias)
    torch.testing.assert_close(exact, wanted, rtol=1e-4, atol=1e-4)


@pytest.mark.parametrize("dimension", [0, 1])
@pytest.mark.parametrize("name", MADE)
def test_parts_of_a_weight_are_what_the_whole_stands_for(name: str, dimension: int) -> None:
    """Of two ranks each, whatever the blocks that their parts would cut."""
    holder = nn.Sequential(MADE[name]())
    replace_floating(holder, CPU)
    (linear,) = holder
    how, shape = linear.quantization, (linear.out_features, linear.in_features)
    parts = {name: item.data for name, item in linear.named_parameters() if name != "bias"}
    expected, placed = linear.unpacked(parts), how.placements(shape[1], 2, dimension)
    found = []
    for place in range(2):
        local = {
            name: item.chunk(2, placed[name].dim)[place].contiguous()
            if placed[name].is_shard()
            else item
            for name, item in parts.items()
        }
        own = tuple(n // 2 if d == dimension else n for d, n in enumerate(shape))
        begins = [0, 0]
        begins[dimension] = place * own[dimension]
        of_part = how
        if how.bits == 4:
            of_part, local = how.of_part(
                local,
                columns=shape[1],
                begins=(begins[0], begins[1]),
                holds_scales=placed["scales"].is_shard(),
            )
        found.append(of_part.unpacked(local, own))
    assert torch.equal(torch.cat(found, dimension), expected)


def test_blocks_that_no_kernel_has_are_multiplied_as_unpacked() -> None:
    """Rows of 40 weights in blocks of 64 are split in blocks of 8."""
    holder = nn.Sequential(MADE["blocks over rows"]())
    replace_floating(holder, CPU)
    (linear,) = holder
    parts = {name: item.data for name, item in linear.named_parameters() if name != "bias"}
    how, local = linear.quantization.of_part(parts, columns=40, begins=(0, 0), holds_scales=False)
    assert how.block_size == 8
    given = torch.randn(2, 5, 40, requires_grad=True)
    twin = given.detach().clone().requires_grad_()
    found = linear._product(given, local, bias=None, how=how)
    wanted = nn.functional.linear(twin, linear.unpacked(parts))
    torch.testing.assert_close(found, wanted)
    found.square().sum().backward()
    wanted.square().sum().backward()
    torch.testing.assert_close(given.grad, twin.grad)


@pytest.mark.parametrize(
    ("made", "degree", "is_row", "said"),
    [
        (lambda: in_4_bits(40, 24), 2, True, None),
        (lambda: in_4_bits(40, 24), 8, True, "a byte of up, whose rows have 40 weights of 4 bits"),
        (lambda: in_4_bits(39, 24), 2, False, "a byte of up, whose rows have 39 weights"),
        (lambda: in_8_bits(39, 24), 3, True, None),
    ],
)
def test_only_bytes_are_not_split(made: Any, degree: int, is_row: bool, said: str | None) -> None:
    holder = nn.Sequential(made())
    replace_floating(holder, CPU)
    (linear,) = holder
    if said is None:
        check_split_quantized(linear, degree, path="up", is_row=is_row)
        return
    with pytest.raises(UnsupportedPlanError, match=said):
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
    job = a_job(adapters={"rank": 2, "base_bits": 4, "base_format": "bnb"})
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


def test_scales_that_are_not_packed_as_planned_are_told() -> None:
    """Those of the blocks have 32 bits: 4.5 a weight, and not 4.127."""
    module = Packed()
    replace_floating(module, CPU)
    stage: Any = SimpleNamespace(module=module)
    declared: Any = SimpleNamespace(is_whole=False, blocks="blocks")
    job = a_job(adapters={"rank": 2, "base_bits": 4})
    (said,) = packing_differences([stage], declaration=declared, job=job)
    assert said.startswith("weights of blocks take 4.5 bits each")
    assert said.endswith("planned as bnb_nested")
