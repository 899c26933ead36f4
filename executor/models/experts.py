"""Routed experts: the feed-forwards of a mixture, of which each token passes a few.

Shapes: T tokens, k experts a token, N rows (a row is a token on its way to one expert), E experts,
F width of an expert, D hidden width, G matrices before the activation (two where it is gated).
"""

from __future__ import annotations

from collections.abc import Callable
from dataclasses import dataclass
from typing import Protocol

import torch
from torch import nn
from torch.nn.functional import grouped_mm

from executor.local_tensor import local_tensor

Activation = Callable[[torch.Tensor], torch.Tensor]
Transform = Callable[[torch.Tensor, torch.Tensor], torch.Tensor]

EXPERT_DIMENSION = 0
# Of either parameter, [E, G, F, D] and [E, D, F], the dimension that F is.
WIDTH_DIMENSION = 2

# What torch's grouped products ask for: these formats, and rows of whole pieces of so many bytes.
_GROUPED_FORMATS = {torch.bfloat16, torch.float16, torch.float32}
_GROUPED_ROW_BYTES = 16


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
        counts = by_token.new_zeros(expert_count)  # bincount would wait for a GPU
        return Rows(
            states=self.tokens[order // self.chosen.shape[1]],
            order=order,
            counts=counts.scatter_add(0, by_token, torch.ones_like(by_token)),
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
        return routed.combined(transform(rows.states, rows.counts), rows.order)


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

    def transform(self, states: torch.Tensor, counts: torch.Tensor) -> torch.Tensor:
        """Return rows [N, D], in the order of the experts here, as their experts transform them.

        `counts` says how many rows each of them has. A GPU's never come to the host, but for what
        torch's grouped products do not take.
        """
        before, after = local_tensor(self.gate_up_proj), local_tensor(self.down_proj)
        ends = counts.cumsum(0, dtype=torch.int32)
        inner = self._activation(_products(states, before[:, 0], ends))
        if before.shape[1] > 1:
            inner = inner * _products(states, before[:, 1], ends)
        return _products(inner, after, ends)


def _products(rows: torch.Tensor, weights: torch.Tensor, ends: torch.Tensor) -> torch.Tensor:
    """Return rows [N, in] times their experts' weights [E, out, in], [N, out].

    Those of each expert end where `ends` says.
    """
    sizes = (weights.shape[1], weights.shape[2])
    is_aligned = all(size * rows.element_size() % _GROUPED_ROW_BYTES == 0 for size in sizes)
    if rows.dtype in _GROUPED_FORMATS and is_aligned:
        return grouped_mm(rows, weights.transpose(1, 2), offs=ends)
    pieces = torch.tensor_split(rows, ends[:-1].tolist())
    return torch.cat([piece @ weight.T for piece, weight in zip(pieces, weights, strict=True)])
