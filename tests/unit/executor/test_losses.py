"""Which target a loss leaves out of its mean is known where it says or shows it."""

from __future__ import annotations

from collections.abc import Callable
from functools import partial
from typing import Any

import pytest
import torch
from torch import nn
from torch.nn import functional

from executor.losses import ignored_target_of, next_token_loss


def by_hand(logits: torch.Tensor, targets: torch.Tensor) -> torch.Tensor:
    """Return the mean over all targets, none of which may be left out."""
    return -logits.log_softmax(-1).gather(-1, targets.unsqueeze(-1)).mean()


def flat(logits: torch.Tensor, targets: torch.Tensor) -> torch.Tensor:
    """Return torch's loss, as scripts write it."""
    return functional.cross_entropy(logits.flatten(0, 1), targets.flatten())


def with_penalty(logits: torch.Tensor, targets: torch.Tensor) -> torch.Tensor:
    """Return the same beside a mean over all logits, which are of targets left out too."""
    return flat(logits, targets) + logits.square().mean()


def summed(logits: torch.Tensor, targets: torch.Tensor) -> torch.Tensor:
    """Return a sum over targets that count, divided by all there are."""
    losses = functional.cross_entropy(logits.flatten(0, 1), targets.flatten(), reduction="sum")
    return losses / targets.numel()


@pytest.mark.parametrize(
    ("loss", "expected"),
    [
        (next_token_loss, -100),
        (functional.cross_entropy, -100),
        (partial(functional.cross_entropy, label_smoothing=0.1), -100),
        (partial(functional.cross_entropy, ignore_index=0), 0),
        (nn.CrossEntropyLoss(), -100),
        (nn.CrossEntropyLoss(ignore_index=3), 3),
        (flat, -100),
        (by_hand, None),
        (with_penalty, None),
        (summed, None),
    ],
)
def test_a_loss_says_or_shows_what_it_leaves_out(
    loss: Callable[..., Any], expected: int | None
) -> None:
    assert ignored_target_of(loss, 8) == expected


def test_a_loss_of_no_text_is_not_tried() -> None:
    assert ignored_target_of(flat, None) is None
