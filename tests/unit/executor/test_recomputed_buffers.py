"""A block that is computed again changes its buffers once, and has the gradients that it had."""

from __future__ import annotations

import pytest
import torch
from torch import nn

from executor.apply.checkpointing import checkpointed
from planner.schema.strategy import ActivationCheckpointing


class Counting(nn.Module):
    """Statistics of torch's own, a mean that the output depends on, written in several ways."""

    def __init__(self) -> None:
        super().__init__()
        self.linear, self.norm = nn.Linear(4, 4), nn.BatchNorm1d(4)
        self.register_buffer("mean", torch.ones(4))
        self.register_buffer("replaced", torch.zeros(4))
        self.register_buffer("hidden", torch.zeros(4))
        self.register_buffer("table", torch.arange(4.0))
        self.register_buffer("absent", None)

    def forward(self, inputs: torch.Tensor) -> torch.Tensor:
        """Return the block's output, with the mean of this forward."""
        with torch.no_grad():
            self.mean.lerp_(inputs.mean(0), 0.5)
            self.replaced = self.replaced + inputs.mean(0)
            self.hidden.data.add_(inputs.mean(0))
        mixed = self.linear(inputs) * self.mean.clone() * self.hidden.clone()
        return torch.tanh(self.norm(mixed) + self.table + self.replaced)


def trained(block: nn.Module) -> dict[str, torch.Tensor]:
    """Return buffers and gradients after an evaluation and two micro-batches in flight together."""
    inputs = torch.linspace(-1, 1, 24).view(2, 3, 4)
    block.eval()
    with torch.no_grad():
        block(inputs[0])
    block.train()
    losses = [block(rows).square().sum() for rows in inputs]
    for loss in losses:
        loss.backward()
    gradients = {
        name: item.grad for name, item in block.named_parameters() if item.grad is not None
    }
    return {**dict(block.named_buffers()), **gradients}


@pytest.mark.parametrize("mode", ["full", "selective"])
def test_buffers_and_gradients_are_those_without_checkpointing(mode: str) -> None:
    torch.manual_seed(0)
    plain = trained(Counting())
    torch.manual_seed(0)
    again = trained(checkpointed(Counting(), ActivationCheckpointing(mode)))
    named = {name.removeprefix("_checkpoint_wrapped_module."): item for name, item in again.items()}
    assert named.keys() == plain.keys()
    for name, item in plain.items():
        torch.testing.assert_close(named[name], item, rtol=0, atol=0)
    assert int(plain["norm.num_batches_tracked"]) == 2
