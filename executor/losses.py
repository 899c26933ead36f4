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

from executor.errors import OF_NO_USE, ModelMismatchError
from executor.precision import widened

LossFunction = Callable[[torch.Tensor, torch.Tensor], torch.Tensor]
_MARK = "takes_sharded_logits"
_IGNORED = "ignore_index"
USUALLY_IGNORED = -100  # by torch's losses and by transformers' collators
_BELOW_CLASSES = (USUALLY_IGNORED, -1)
_TRIED_CLASSES, _TRIED_LOGITS = 16, 2**20
_ASSUMED_CLASSES = 64
_MEAN_TOLERANCE = 1e-4  # what sums in fp32 differ by is a hundredth of it
_EASY_LOGIT = 10.0  # one half of the targets tried has a small loss, so that weights of both show


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
        if any(trial.adds_up() for trial in _trials(loss_function, class_count)):
            raise ModelMismatchError(
                "adds up over targets, and the loss of a step is a mean over those of all ranks",
                field="loss_function",
                value="twice the loss for the same targets twice",
                remedy="return a mean, as torch's losses do with reduction='mean'",
            )


def is_mean_of_parts(
    loss_function: Callable[..., Any], class_count: int | None, *, ignored_target: int | None
) -> bool:
    """Return whether the loss of a batch is the mean of those of its halves, as far as is known.

    What divides by class weights, compares rows or is a root of a mean gives other numbers for
    other micro-batches. It is tried on classes, and where it has no use for them on numbers, of
    which one half has a small loss.
    """
    with warnings.catch_warnings():
        warnings.simplefilter("ignore")
        for rows in ((2,), ()):
            trial = _Trial(loss_function, class_count or _ASSUMED_CLASSES, rows)
            found = trial.is_mean_of_halves(ignored_target)
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
        if any(trial.learns() for trial in _trials(loss_function, class_count)):
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
    for trial in _trials(loss_function, class_count):
        for target in (*_BELOW_CLASSES, *trial.without_gradient()):
            if trial.leaves_out(target):
                yield target


def _trials(loss_function: Callable[..., Any], class_count: int | None) -> list[_Trial]:
    return [_Trial(loss_function, class_count or _ASSUMED_CLASSES, rows) for rows in ((1,), ())]


class _Trial:
    """A loss function, tried on random logits [*rows, N, C] and targets [*rows, N]."""

    def __init__(
        self, loss_function: Callable[..., Any], class_count: int, rows: tuple[int, ...]
    ) -> None:
        self._loss_function = loss_function
        self._class_count = class_count
        self._rows = rows
        at_each_end = max(_TRIED_CLASSES, _TRIED_LOGITS // class_count) // 2
        last = range(max(0, class_count - at_each_end), class_count)
        self._classes = sorted({*range(min(at_each_end, class_count)), *last})

    def without_gradient(self) -> list[int]:
        """Return the tried classes that move no logits."""
        logits = self._logits(len(self._classes)).requires_grad_()
        loss = self._loss(logits, self._classes)
        if loss is None or not loss.requires_grad:
            return []
        (gradient,) = torch.autograd.grad(loss, logits)
        is_moved = gradient.flatten(0, -2).any(-1).tolist()
        return [target for target, moves in zip(self._classes, is_moved, strict=True) if not moves]

    def leaves_out(self, target: int) -> bool:
        """Return whether the loss of other targets is the same with `target` among them."""
        others = [item for item in self._classes if item != target][-3:]
        logits = self._logits(len(others) + 1)
        with torch.no_grad():
            both = self._loss(logits, [*others, target])
            alone = self._loss(logits[..., : len(others), :], others)
        return both is not None and alone is not None and torch.allclose(both, alone)

    def learns(self) -> bool:
        """Return whether the loss has a gradient, of logits without one."""
        loss = self._loss(self._logits(3), self._classes[-3:])
        return loss is not None and loss.requires_grad

    def adds_up(self) -> bool:
        """Return whether the loss of some targets doubles if they come twice."""
        targets = self._classes[-3:]
        logits = self._logits(len(targets))
        with torch.no_grad():
            once = self._loss(logits, targets)
            twice = self._loss(torch.cat([logits, logits], dim=-2), [*targets, *targets])
        if once is None or twice is None or not bool(once):
            return False
        return torch.allclose(twice, 2 * once)

    def is_mean_of_halves(self, ignored_target: int | None) -> bool | None:
        """Return whether it is, of rows or samples; `None` where there is no use for either."""
        targets = torch.tensor([item for item in self._classes if item != ignored_target])
        half = (len(targets) + 1) // 2
        parts = [targets[:half], targets[len(targets) - half :]]
        joined = torch.stack(parts) if self._rows else torch.cat(parts)
        generator = torch.Generator().manual_seed(0)
        logits = torch.randn(*joined.shape, self._class_count, generator=generator)
        is_easy = torch.arange(len(joined)) < len(joined) // 2
        easy = torch.where(is_easy, _EASY_LOGIT, 0.0).view(-1, *[1] * joined.dim())
        logits = logits + easy * functional.one_hot(joined, self._class_count)
        return _is_mean_of_halves(self._loss_function, logits, joined)

    def _logits(self, count: int) -> torch.Tensor:
        generator = torch.Generator().manual_seed(0)
        return torch.randn(*self._rows, count, self._class_count, generator=generator)

    def _loss(self, logits: torch.Tensor, targets: list[int]) -> torch.Tensor | None:
        """Return the loss, `None` where the function has no use for such logits or targets."""
        try:
            loss = self._loss_function(logits, torch.tensor(targets).expand(*self._rows, -1))
        except OF_NO_USE:
            return None
        return loss if torch.is_tensor(loss) and loss.dim() == 0 else None


def _is_mean_of_numbers(loss_function: Callable[..., Any]) -> bool:
    """Return whether the loss of outputs beside targets of their shape is a mean of its halves."""
    generator = torch.Generator().manual_seed(0)
    for shape in ((8, 3), (8, 1), (8,)):
        outputs, targets = (torch.rand(shape, generator=generator) for _ in range(2))
        outputs[: len(outputs) // 2] = 0.99 * targets[: len(outputs) // 2]
        found = _is_mean_of_halves(loss_function, outputs, targets)
        if found is not None:
            return found
    return True


def _is_mean_of_halves(
    loss_function: Callable[..., Any], outputs: torch.Tensor, targets: torch.Tensor
) -> bool | None:
    """Return whether it is; `None` where the function has no use for these, or draws something."""
    half = len(outputs) // 2
    try:
        with torch.no_grad():
            whole, again = (loss_function(outputs, targets) for _ in range(2))
            first = loss_function(outputs[:half], targets[:half])
            second = loss_function(outputs[half:], targets[half:])
    except OF_NO_USE:
        return None
    found = (whole, again, first, second)
    if not all(torch.is_tensor(item) and item.dim() == 0 for item in found) or whole != again:
        return None
    return torch.allclose(whole, (first + second) / 2, rtol=_MEAN_TOLERANCE)
