"""Which optimizers a plan's parts can have each for itself, and what they are given."""

from __future__ import annotations

from collections.abc import Iterable

import pytest
import torch
from torch import nn

from executor.coupling import check_uncoupled, is_coupled
from executor.errors import ModelMismatchError, UnsupportedPlanError
from executor.optimizers import made_by
from executor.updates import bit_sum


class ByNorm(torch.optim.Optimizer):
    """Steps as long as a parameter's own norm says."""

    def __init__(self, parameters: Iterable[nn.Parameter]) -> None:
        super().__init__(parameters, {"lr": 0.1})

    @torch.no_grad()
    def step(self, closure: None = None) -> None:
        """Update the parameters."""
        del closure
        for parameter in self._given():
            parameter.sub_(parameter.grad * (0.1 * float(parameter.norm())))

    def _given(self) -> list[nn.Parameter]:
        return [item for item in self.param_groups[0]["params"] if item.grad is not None]


class ByNormOfAll(ByNorm):
    """Steps as long as the norm of all gradients together says."""

    @torch.no_grad()
    def step(self, closure: None = None) -> None:
        """Update the parameters."""
        del closure
        norm = sum(float(item.grad.square().sum()) for item in self._given()) ** 0.5
        for parameter in self._given():
            parameter.sub_(parameter.grad / norm)


class Demanding(ByNorm):
    """Cannot be tried: it wants a gradient of each."""

    @torch.no_grad()
    def step(self, closure: None = None) -> None:
        """Update the parameters."""
        del closure
        for parameter in self.param_groups[0]["params"]:
            parameter.sub_(parameter.grad.view(4, 3))


def some_parameters() -> list[nn.Parameter]:
    """Return a matrix, a vector and a number."""
    return [nn.Parameter(torch.ones(shape)) for shape in ((4, 3), (5,), ())]


@pytest.mark.parametrize(
    ("kind", "expected"),
    [
        (ByNorm, False),
        (ByNormOfAll, True),
        (Demanding, False),
        (torch.optim.AdamW, False),
        (torch.optim.Adafactor, False),
    ],
)
def test_what_others_have_moves_a_parameter_of_some_optimizers(
    kind: type[torch.optim.Optimizer], expected: bool
) -> None:
    parameters = some_parameters()
    assert is_coupled(kind(parameters)) is expected
    assert all(bool((item == 1).all()) and item.grad is None for item in parameters)


def test_one_that_couples_parameters_must_have_all_of_them() -> None:
    optimizers = [ByNormOfAll(some_parameters())]
    check_uncoupled(optimizers, are_several=False)
    with pytest.raises(UnsupportedPlanError, match=r"what all others have.*ByNormOfAll"):
        check_uncoupled(optimizers, are_several=True)


def test_parameters_of_another_model_are_refused() -> None:
    other = nn.Linear(2, 2)
    given = some_parameters()
    made = made_by(lambda _parameters: torch.optim.SGD(other.parameters(), lr=0.1), ["a", "b", "c"])
    with pytest.raises(ModelMismatchError, match=r"of shape \(2, 2\) that is not given"):
        made(given)
    made_by(lambda parameters: torch.optim.SGD(parameters[:1], lr=0.1), ["a", "b", "c"])(given)


def test_bits_that_differ_differ_in_their_sum() -> None:
    values = torch.full((3, 2), 1e8)
    before = int(bit_sum(values))
    values[0, 0].copy_(torch.nextafter(values[0, 0], torch.tensor(torch.inf)))
    assert int(bit_sum(values)) == before + 1
    assert int(bit_sum(torch.tensor(1.0, dtype=torch.float64))) == 0x3FF0000000000000
    assert int(bit_sum(torch.tensor([1j], dtype=torch.complex64))) == 0x3F800000
    assert int(bit_sum(torch.ones(2, dtype=torch.bfloat16))) == 2 * 0x3F80
