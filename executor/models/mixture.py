"""Mixture of experts: a router, the experts that it chooses, and perhaps one that all tokens pass.

Shapes: B sequences, S tokens, D hidden width, E experts, k experts a token.
"""

from __future__ import annotations

import torch
from torch import nn
from torch.nn import functional

from executor.models.experts import RoutedExperts
from executor.models.feed_forward import FeedForward
from executor.precision import widened
from planner.schema.model import DenseFeedForward, MixtureFeedForward


class Mixture(nn.Module):
    """Top-k routing by softmax, with the k weights of a token adding up to 1.

    Source: Jiang et al. 2024, arXiv:2401.04088, section 2.1 (the softmax over the k largest logits
    is the softmax over all, renormalised). The shared expert's gate is that of Qwen2-MoE.
    """

    def __init__(self, hidden_size: int, shape: MixtureFeedForward) -> None:
        super().__init__()
        self.experts_per_token = shape.experts_per_token
        self.router = nn.Linear(hidden_size, shape.expert_count, bias=shape.router_bias)
        matrices = 2 if shape.gated else 1
        width = shape.expert_ffn_size
        self.experts = RoutedExperts(
            nn.Parameter(torch.empty(shape.expert_count, matrices, width, hidden_size)),
            nn.Parameter(torch.empty(shape.expert_count, hidden_size, width)),
            activation=functional.silu if shape.gated else functional.gelu,
        )
        shared = DenseFeedForward(ffn_size=shape.shared_ffn_size or 1, gated=shape.gated)
        self.shared = FeedForward(hidden_size, shared) if shape.shared_ffn_size else None
        gated = shape.shared_ffn_size and shape.shared_gate
        self.shared_gate = nn.Linear(hidden_size, 1, bias=False) if gated else None

    def forward(self, hidden_BSD: torch.Tensor) -> torch.Tensor:  # noqa: N803
        """Return each token's transformation by its experts, [B, S, D]."""
        shares_BSE = widened(self.router(hidden_BSD)).softmax(dim=-1)  # noqa: N806
        weights, chosen = shares_BSE.topk(self.experts_per_token, dim=-1)
        weights = (weights / weights.sum(dim=-1, keepdim=True)).to(hidden_BSD.dtype)
        tokens = hidden_BSD.flatten(0, 1)
        routed = self.experts(tokens, chosen.flatten(0, 1), weights.flatten(0, 1))
        mixed: torch.Tensor = routed.view_as(hidden_BSD)
        if self.shared is None:
            return mixed
        shared: torch.Tensor = self.shared(hidden_BSD)
        if self.shared_gate is not None:
            shared = shared * self.shared_gate(hidden_BSD).sigmoid()
        return mixed + shared
