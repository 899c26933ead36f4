"""Losses. A loss that can take logits split over the vocabulary says so, and saves the gather.

Which target a loss leaves out it says by `ignore_index`, as torch's do, or shows when it is tried.
"""

from __future__ import annotations

from collections.abc import Callable
from functools import partial
from typing import Any

import torch
from torch.nn import functional

from executor.precision import widened

LossFunction = Callable[[torch.Tensor, torch.Tensor], torch.Tensor]
_MARK = "takes_sharded_logits"
_IGNORED = "ignore_index"
_USUALLY_IGNORED = -100  # by torch's losses and by transformers' collators
_TRIED_TOKENS = 4


def takes_sharded_logits(loss_function: LossFunction) -> bool:
    """Return whether `loss_function` may be handed a DTensor split over the vocabulary."""
    return bool(getattr(loss_function, _MARK, False))


def next_token_loss(logits: torch.Tensor, targets: torch.Tensor) -> torch.Tensor:
    """Return the mean cross-entropy of logits [B, S, V] against tokens [B, S], in nats."""
    return functional.cross_entropy(widened(logits.flatten(0, 1)), targets.flatten())


setattr(next_token_loss, _MARK, True)
setattr(next_token_loss, _IGNORED, _USUALLY_IGNORED)


def ignored_target_of(loss_function: Callable[..., Any], vocabulary_size: int | None) -> int | None:
    """Return the target that `loss_function` leaves out of its mean, `None` where none is known.

    A function that does not say is tried on logits [2, 4, V] and targets whose second row is -100:
    if it gives what it gives of the first row alone, it leaves -100 out.
    """
    if _is_of_torch(loss_function):
        return _USUALLY_IGNORED
    if isinstance(loss_function, partial):
        said = loss_function.keywords.get(_IGNORED)
        if said is not None or _is_of_torch(loss_function.func):
            return _USUALLY_IGNORED if said is None else int(said)
    said = getattr(loss_function, _IGNORED, None)
    if said is not None:
        return int(said)
    if vocabulary_size is not None and _leaves_out_usual(loss_function, vocabulary_size):
        return _USUALLY_IGNORED
    return None


def _is_of_torch(loss_function: Callable[..., Any]) -> bool:
    return any(loss_function is one for one in (functional.cross_entropy, functional.nll_loss))


def _leaves_out_usual(loss_function: Callable[..., Any], vocabulary_size: int) -> bool:
    generator = torch.Generator().manual_seed(0)
    logits = torch.randn(2, _TRIED_TOKENS, vocabulary_size, generator=generator)
    targets = torch.randint(vocabulary_size, logits.shape[:2], generator=generator)
    targets[1] = _USUALLY_IGNORED
    try:
        with torch.no_grad():
            both = loss_function(logits, targets)
            first = loss_function(logits[:1], targets[:1])
    except (RuntimeError, ValueError, LookupError, TypeError, AttributeError, AssertionError):
        return False  # it has no use for such a target, or for logits of no batch of its own
    return torch.is_tensor(both) and torch.is_tensor(first) and torch.allclose(both, first)
