"""Experts transform their tokens as a loop over tokens does, by grouped products and without."""

from __future__ import annotations

from dataclasses import dataclass

import pytest

pytest.importorskip("torch", reason="no package torch")

import torch
from torch import nn

from executor.models import experts
from executor.models.experts import RoutedExperts

EXPERTS, TOKENS, HIDDEN = 4, 20, 32


@dataclass(frozen=True, kw_only=True)
class Case:
    """A format, the experts' width and matrices before the activation, and what follows.

    `error` is what rounds three products and two sums, each of a few dozen summands.
    """

    dtype: torch.dtype
    error: float
    is_grouped: bool
    width: int = 16
    matrices: int = 2


CASES = {
    "fp64": Case(dtype=torch.float64, error=1e-13, is_grouped=False),
    "fp32": Case(dtype=torch.float32, error=1e-5, is_grouped=True),
    "fp32-plain": Case(dtype=torch.float32, error=1e-5, is_grouped=True, matrices=1),
    "fp32-odd-width": Case(dtype=torch.float32, error=1e-5, is_grouped=False, width=15),
    "bf16": Case(dtype=torch.bfloat16, error=0.05, is_grouped=True),
}


def _by_token(
    values: list[torch.Tensor], chosen: torch.Tensor, weights: torch.Tensor
) -> torch.Tensor:
    tokens, before, after = values
    outputs = []
    for token, places, shares in zip(tokens, chosen.tolist(), weights, strict=True):
        made = []
        for expert, share in zip(places, shares, strict=True):
            inner = nn.functional.silu(before[expert, 0] @ token)
            for matrix in before[expert, 1:]:
                inner = inner * (matrix @ token)
            made.append(share * (after[expert] @ inner))
        outputs.append(torch.stack(made).sum(0))
    return torch.stack(outputs)


@pytest.mark.parametrize("case", CASES.values(), ids=CASES)
def test_outputs_and_gradients_are_those_of_each_token_alone(
    case: Case, monkeypatch: pytest.MonkeyPatch
) -> None:
    """The last expert has no token, and a gradient of nought."""
    grouped: list[torch.Size] = []
    grouped_mm = experts.grouped_mm

    def counted(rows: torch.Tensor, *arguments: object, **named: object) -> torch.Tensor:
        grouped.append(rows.shape)
        return grouped_mm(rows, *arguments, **named)

    monkeypatch.setattr(experts, "grouped_mm", counted)
    draw = torch.Generator().manual_seed(7)
    shapes = [
        (TOKENS, HIDDEN),
        (EXPERTS, case.matrices, case.width, HIDDEN),
        (EXPERTS, HIDDEN, case.width),
    ]
    values = [0.2 * torch.randn(shape, generator=draw).to(case.dtype) for shape in shapes]
    chosen = torch.randint(0, EXPERTS - 1, (TOKENS, 2), generator=draw)
    weights = torch.rand((TOKENS, 2), generator=draw).to(case.dtype)
    slope = torch.randn((TOKENS, HIDDEN), generator=draw).to(case.dtype)

    here = [nn.Parameter(value.clone()) for value in values]
    module = RoutedExperts(here[1], here[2], activation=nn.functional.silu)
    output = module(here[0], chosen, weights)
    output.backward(slope)
    exact = [nn.Parameter(value.double()) for value in values]
    expected = _by_token(exact, chosen, weights.double())
    expected.backward(slope.double())

    found = [output.detach(), *(item.grad for item in here)]
    wanted = [expected.detach(), *(item.grad for item in exact)]
    for one, other in zip(found, wanted, strict=True):
        limit = case.error * float(other.abs().max())
        torch.testing.assert_close(one.double(), other, rtol=0, atol=limit)
    assert not found[2][-1].any()
    assert len(grouped) == (case.matrices + 1 if case.is_grouped else 0)
