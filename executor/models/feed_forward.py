"""Dense feed-forward of the reference decoder.

Shapes: B sequences, S tokens, D hidden width.
"""

from __future__ import annotations

import torch
from torch import nn
from torch.nn import functional

from planner.schema.model import DenseFeedForward


class FeedForward(nn.Module):
    """SwiGLU, or two matrices with GELU between, [B, S, D] to [B, S, D]."""

    def __init__(self, hidden_size: int, shape: DenseFeedForward) -> None:
        super().__init__()
        self.up = nn.Linear(hidden_size, shape.ffn_size, bias=shape.bias)
        self.gate = nn.Linear(hidden_size, shape.ffn_size, bias=shape.bias) if shape.gated else None
        self.down = nn.Linear(shape.ffn_size, hidden_size, bias=shape.bias)

    def forward(self, hidden_BSD: torch.Tensor) -> torch.Tensor:  # noqa: N803
        """Return each token's own transformation."""
        if self.gate is None:
            return self.down(functional.gelu(self.up(hidden_BSD)))  # type: ignore[no-any-return]
        gated = functional.silu(self.gate(hidden_BSD)) * self.up(hidden_BSD)
        return self.down(gated)  # type: ignore[no-any-return]
