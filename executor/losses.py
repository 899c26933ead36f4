"""Losses. A loss that can take logits split over the vocabulary says so, and saves the gather.

Which target a loss leaves out it says by `ignore_index`, as torch's do, or shows when it is tried.
"""

from __future__ import annotations

import warnings
from collections.abc import Callable, Iterator
from functools import partial
from typing import Any

import torch
from torch.nn import functional

from executor.errors import ModelMismatchError
from executor.loss_trial import is_mean_of_halves, loss_trials
from executor.precision import widened

LossFunction = Callable[[torch.Tensor, torch.Tensor], torch.Tensor]
_MARK = "takes_sharded_logits"
_IGNORED = "ignore_index"
USUALLY_IGNORED = -100  # by torch's losses and by transformers' collators
_BELOW_CLASSES = (USUALLY_IGNORED, -1)


def takes_sharded_logits(loss_function: LossFunction) -> bool:
    """Return whether `loss_function` may be handed a DTensor split over the vocabulary."""
    return bool(getattr(loss_function, _MARK, False))


def next_token_loss(logits: torch.Tensor, targets: torch.Tensor) -> torch.Tensor:
    """Return the mean cross-entropy of logits [B, S, V] against tokens [B, S], in nats."""
    return functional.cross_entropy(widened(logits.flatten(0, 1)), targets.flatten())


setattr(next_token_loss, _MARK, True)
setattr(next_token_loss, _IGNORED, USUALLY_IGNORED)


def ignored_target_of(loss_function: Callable[..., Any], class_count: int | None) -> int | None:
    """Return the target that `loss_function` leaves out of its mean, `None` where none is known.

    A function that does not say is tried on a few targets, of rows and then of samples: it leaves
    one out if it gives with it what it gives without. -100, -1, and classes whose logits get no
    gradient are tried, of `class_count`, or where that is not known of a few.
    """
    if _is_of_torch(loss_function):
        return USUALLY_IGNORED
    if isinstance(loss_function, partial):
        said = loss_function.keywords.get(_IGNORED)
        if said is not None or _is_of_torch(loss_function.func):
            return USUALLY_IGNORED if said is None else int(said)
    said = getattr(loss_function, _IGNORED, None)
    if said is not None:
        return int(said)
    with warnings.catch_warnings():
        warnings.simplefilter("ignore")
        return next(_left_out(loss_function, class_count), None)


def check_mean(loss_function: Callable[..., Any], class_count: int | None) -> None:
    """Return unless the same targets once more double the loss: a sum depends on the layout.

    Raises:
        ModelMismatchError: if they do.
    """
    with warnings.catch_warnings():
        warnings.simplefilter("ignore")
        if any(trial.adds_up() for trial in loss_trials(loss_function, class_count)):
            raise ModelMismatchError(
                "adds up over targets, and the loss of a step is a mean over those of all ranks",
                field="loss_function",
                value="twice the loss for the same targets twice",
                remedy="return a mean, as torch's losses do with reduction='mean'",
            )


def target_weights_of(
    loss_function: Callable[..., Any], class_count: int | None, *, ignored_target: int | None
) -> torch.Tensor | None:
    """Return what targets weigh in the mean by their class [C], `None` where all weigh alike.

    So does torch's cross-entropy with `weight`, and a loss that leaves several targets out. Weights
    are looked for among the vectors that the loss uses; some have to make it the mean of its parts.
    """
    with warnings.catch_warnings():
        warnings.simplefilter("ignore")
        for trial in loss_trials(loss_function, class_count):
            found = trial.is_mean_of_parts(ignored_target)
            for weights in trial.target_weights() if found is False else ():
                if trial.is_mean_of_parts(ignored_target, weights):
                    return weights.double()
            if found is not None:
                return None
    return None


def is_mean_of_parts(
    loss_function: Callable[..., Any],
    class_count: int | None,
    *,
    ignored_target: int | None,
    target_weights: torch.Tensor | None = None,
) -> bool:
    """Return whether the loss of a batch is the mean of those of its parts, as far as is known.

    What compares rows or is a root of a mean gives other numbers for other micro-batches, and so
    does what weighs targets, unless parts weigh as theirs do by `target_weights` [C]. It is tried
    on classes, and where it has no use for them on numbers, of which one half has a small loss.
    """
    with warnings.catch_warnings():
        warnings.simplefilter("ignore")
        for trial in loss_trials(loss_function, class_count):
            found = trial.is_mean_of_parts(ignored_target, target_weights)
            if found is not None:
                return found
        return _is_mean_of_numbers(loss_function)


def check_without_parameters(loss_function: Callable[..., Any], class_count: int | None) -> None:
    """Return unless the loss has a gradient of logits that have none: by parameters of its own.

    Those of a second model that `build_model` has built, or of a loss that learns, are none of what
    is trained: ranks would not average them.

    Raises:
        ModelMismatchError: if it has.
    """
    with warnings.catch_warnings():
        warnings.simplefilter("ignore")
        if any(trial.learns() for trial in loss_trials(loss_function, class_count)):
            raise ModelMismatchError(
                "depends on parameters that are none of the model's parts on ranks",
                field="loss_function",
                value="a gradient of logits that have none",
                remedy="have a module of the model call meshwright.add_loss(hidden, value), and "
                "keep what is learned in the model",
            )


def _is_of_torch(loss_function: Callable[..., Any]) -> bool:
    return any(loss_function is one for one in (functional.cross_entropy, functional.nll_loss))


def _left_out(loss_function: Callable[..., Any], class_count: int | None) -> Iterator[int]:
    for trial in loss_trials(loss_function, class_count):
        for target in (*_BELOW_CLASSES, *trial.without_gradient()):
            if trial.leaves_out(target):
                yield target


def _is_mean_of_numbers(loss_function: Callable[..., Any]) -> bool:
    """Return whether the loss of outputs beside targets of their shape is a mean of its halves."""
    generator = torch.Generator().manual_seed(0)
    for shape in ((8, 3), (8, 1), (8,)):
        outputs, targets = (torch.rand(shape, generator=generator) for _ in range(2))
        outputs[: len(outputs) // 2] = 0.99 * targets[: len(outputs) // 2]
        found = is_mean_of_halves(loss_function, outputs, targets)
        if found is not None:
            return found
    return True
