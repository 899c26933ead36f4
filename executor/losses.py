"""Losses. A loss that can take logits split over the vocabulary says so, and saves the gather."""

from __future__ import annotations

from collections.abc import Callable

import torch
from torch.nn import functional

from executor.precision import widened

LossFunction = Callable[[torch.Tensor, torch.Tensor], torch.Tensor]
_MARK = "takes_sharded_logits"


def takes_sharded_logits(loss_function: LossFunction) -> bool:
    """Return whether `loss_function` may be handed a DTensor split over the vocabulary."""
    return bool(getattr(loss_function, _MARK, False))


def next_token_loss(logits: torch.Tensor, targets: torch.Tensor) -> torch.Tensor:
    """Return the mean cross-entropy of logits [B, S, V] against tokens [B, S], in nats."""
    return functional.cross_entropy(widened(logits.flatten(0, 1)), targets.flatten())


setattr(next_token_loss, _MARK, True)
