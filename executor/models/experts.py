"""Routed experts: the feed-forwards of a mixture, of which each token passes a few.

Shapes: T tokens, k experts a token, N rows (a row is a token on its way to one expert), E experts,
F width of an expert, D hidden width, G matrices before the activation (two where it is gated).
"""

from __future__ import annotations

from collections.abc import Callable, Sequence
from dataclasses import dataclass
from typing import Protocol

import torch
from torch import nn
from torch.distributed.tensor import DTensor

Activation = Callable[[torch.Tensor], torch.Tensor]
Transform = Callable[[torch.Tensor, Sequence[int]], torch.Tensor]

EXPERT_DIMENSION = 0
# Of either parameter, [E, G, F, D] and [E, D, F], the dimension that F is.
WIDTH_DIMENSION = 2


@dataclass(frozen=True, slots=True, kw_only=True)
class Routed:
    """Tokens [T, D], and for each the experts that it passes and their weights, [T, k]."""

    tokens: torch.Tensor
    chosen: torch.Tensor
    weights: torch.Tensor

    def rows(self, expert_count: int) -> Rows:
        """Return the tokens once for each of their experts, in the order of experts."""
        by_token = self.chosen.flatten()
        order = by_token.argsort(stable=True)
        return Rows(
            states=self.tokens[order // self.chosen.shape[1]],
            order=order,
            counts=by_token.bincount(minlength=expert_count),
        )

    def combined(self, states: torch.Tensor, order: torch.Tensor) -> torch.Tensor:
        """Return each token's weighted sum of what its experts made of it, [T, D]."""
        weighted = states * self.weights.flatten()[order].unsqueeze(-1).to(states.dtype)
        return torch.zeros_like(self.tokens).index_add(
            0, order // self.chosen.shape[1], weighted.to(self.tokens.dtype)
        )


@dataclass(frozen=True, slots=True, kw_only=True)
class Rows:
    """Rows [N, D] in the order of experts, where each came from, and how many each expert has."""

    states: torch.Tensor
    order: torch.Tensor
    counts: torch.Tensor


class Dispatch(Protocol):
    """Brings routed tokens to the ranks of their experts and the results back."""

    def __call__(self, routed: Routed, transform: Transform) -> torch.Tensor:
        """Return what the experts made of the tokens, [T, D]."""


class LocalDispatch:
    """All experts are here."""

    def __init__(self, expert_count: int) -> None:
        self._expert_count = expert_count

    def __call__(self, routed: Routed, transform: Transform) -> torch.Tensor:
        """Return what the experts made of the tokens, [T, D]."""
        rows = routed.rows(self._expert_count)
        return routed.combined(transform(rows.states, rows.counts.tolist()), rows.order)


class RoutedExperts(nn.Module):
    """The experts of one block, or this rank's part of them.

    Parameters: `gate_up_proj` [E, G, F, D], where the gate comes first, and `down_proj` [E, D, F].
    """

    def __init__(
        self, gate_up_proj: nn.Parameter, down_proj: nn.Parameter, *, activation: Activation
    ) -> None:
        super().__init__()
        self.gate_up_proj = gate_up_proj
        self.down_proj = down_proj
        self.dispatch: Dispatch = LocalDispatch(gate_up_proj.shape[0])
        self._activation = activation

    def forward(
        self, tokens: torch.Tensor, chosen: torch.Tensor, weights: torch.Tensor
    ) -> torch.Tensor:
        """Return what the experts made of the tokens, [T, D]."""
        routed = Routed(tokens=tokens, chosen=chosen, weights=weights)
        return self.dispatch(routed, self.transform)

    def transform(self, states: torch.Tensor, counts: Sequence[int]) -> torch.Tensor:
        """Return rows [N, D], in the order of the experts here, as their experts transform them."""
        before, after = local_weight(self.gate_up_proj), local_weight(self.down_proj)
        outputs = []
        for expert, rows in enumerate(torch.split(states, list(counts))):
            inner = self._inner(rows, before[expert])
            outputs.append(inner @ after[expert].T)
        return torch.cat(outputs)

    def _inner(self, rows: torch.Tensor, matrices: torch.Tensor) -> torch.Tensor:
        """Return what lies between the products, [rows, F]."""
        if matrices.shape[0] == 1:
            return self._activation(rows @ matrices[0].T)
        return self._activation(rows @ matrices[0].T) * (rows @ matrices[1].T)


def local_weight(parameter: torch.Tensor) -> torch.Tensor:
    """Return this rank's part of an expert parameter."""
    return parameter.to_local() if isinstance(parameter, DTensor) else parameter
