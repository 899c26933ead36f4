"""Added losses: what a module adds to the loss in its own stage, such as a router's balance.

The value rides on the module's output: when the output's gradient comes back, the value gets the
gradient that an addend of the loss has. So it needs no way to the last stage, and is counted once
where blocks are checkpointed. Source: `MoEAuxLossAutoScaler` of Megatron-LM, for the idea.
"""

from __future__ import annotations

from collections.abc import Iterator
from contextlib import contextmanager
from dataclasses import dataclass
from typing import Any

import torch
from torch.distributed.tensor import DTensor


@dataclass(slots=True)
class AddedLoss:
    """What modules of this rank have added in one step, each value times `factor`."""

    factor: float = 1.0
    total: torch.Tensor | None = None

    def beside(self, loss: torch.Tensor | None) -> torch.Tensor | None:
        """Return `loss`, `None` off the last stage, with what was added; `None` if neither is."""
        if self.total is None:
            return loss
        whole = loss.full_tensor() if isinstance(loss, DTensor) else loss
        return self.total if whole is None else whole + self.total


_current = AddedLoss()


def add_loss(hidden: torch.Tensor, value: torch.Tensor) -> torch.Tensor:
    """Return `hidden`, with the scalar `value` added to the loss that it leads to.

    The loss of a step is the mean over micro-batches and ranks with different tokens of
    `loss_function` and of all that is added.
    """
    added: torch.Tensor = _Added.apply(hidden, value)  # type: ignore[no-untyped-call]
    return added


@contextmanager
def added_losses(factor: float) -> Iterator[AddedLoss]:
    """Multiply what is added inside the block by `factor`, and sum it up as backward meets it."""
    global _current  # noqa: PLW0603 - modules have no other way to the step that runs them
    before, _current = _current, AddedLoss(factor=factor)
    try:
        yield _current
    finally:
        _current = before


class _Added(torch.autograd.Function):
    @staticmethod
    def forward(ctx: Any, hidden: torch.Tensor, value: torch.Tensor) -> torch.Tensor:
        ctx.value, ctx.is_counted = value.detach(), False
        return hidden.view_as(hidden)

    @staticmethod
    def backward(ctx: Any, *gradients: torch.Tensor) -> tuple[torch.Tensor, torch.Tensor]:
        (gradient,) = gradients
        if not ctx.is_counted:  # a divided backward may come here again
            weighed = ctx.value * _current.factor
            _current.total = weighed if _current.total is None else _current.total + weighed
            ctx.is_counted = True
        return gradient, torch.full_like(ctx.value, _current.factor)
