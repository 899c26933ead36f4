"""Loss trial: a loss function called on random logits, to see how it divides.

All of it happens on the host, where a target that is no class raises, and ends no process.
"""

from __future__ import annotations

from collections.abc import Callable, Iterator, Mapping, Sequence
from typing import Any

import torch
from torch.nn import functional
from torch.overrides import TorchFunctionMode
from torch.utils._pytree import tree_iter, tree_map_only

from executor.errors import OF_NO_USE
from executor.precision import widened

_TRIED_CLASSES, _TRIED_LOGITS = 16, 2**20
_ASSUMED_CLASSES = 64
_TRIED_PAIRS = 64
_MEAN_TOLERANCE = 1e-4  # what sums in fp32 differ by is a hundredth of it
_EASY_LOGIT = 10.0  # one half of the targets tried has a small loss, so that weights of both show

AnyLoss = Callable[..., Any]


def loss_trials(loss_function: AnyLoss, class_count: int | None) -> list[LossTrial]:
    """Return trials of targets [1, N] and [N], of `class_count` classes where the loss takes these.

    Where it does not, or where they are not known, a vector that the loss uses, as weights of
    classes are, tells how many there are.
    """
    return [_trial(loss_function, class_count or _ASSUMED_CLASSES, rows) for rows in ((1,), ())]


def _trial(loss_function: AnyLoss, class_count: int, rows: tuple[int, ...]) -> LossTrial:
    trial = LossTrial(loss_function, class_count, rows)
    for vector in [] if trial.is_of_use else trial.vectors:
        other = LossTrial(loss_function, len(vector), rows)
        if other.is_of_use:
            return other
    return trial


class LossTrial:
    """A loss function, tried on random logits [*rows, N, C] and targets [*rows, N].

    It `is_of_use` if the loss takes such logits and targets. `vectors` are those that it has used.
    """

    def __init__(self, loss_function: AnyLoss, class_count: int, rows: tuple[int, ...]) -> None:
        self._loss_function = loss_function
        self._class_count = class_count
        self._rows = rows
        at_each_end = max(_TRIED_CLASSES, _TRIED_LOGITS // class_count) // 2
        last = range(max(0, class_count - at_each_end), class_count)
        self._classes = sorted({*range(min(at_each_end, class_count)), *last})
        self.vectors: list[torch.Tensor] = []
        given = torch.tensor(self._classes[-3:]).expand(*rows, -1)
        tried = _called(loss_function, self._logits(given.shape[-1]), given, self.vectors)
        self.is_of_use = tried is not None
        weights = [vector for vector in self.vectors if len(vector) == class_count]
        extremes = {int(item) for vector in weights for item in (vector.argmin(), vector.argmax())}
        self._classes = sorted({*self._classes, *extremes})

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

    def target_weights(self) -> Iterator[torch.Tensor]:
        """Yield what classes [C] may weigh: vectors that the loss uses, and 0 where none moves."""
        yield from (vector for vector in self.vectors if len(vector) == self._class_count)
        without = torch.tensor(self.without_gradient(), dtype=torch.int64)
        yield torch.ones(self._class_count).index_fill(0, without, 0.0)

    def is_mean_of_parts(
        self, ignored_target: int | None, target_weights: torch.Tensor | None = None
    ) -> bool | None:
        """Return whether the loss is that of its parts, which weigh as their targets do by weights.

        Parts are halves of the tried classes, and then classes, each beside one. Targets weigh
        alike where `target_weights` [C] are left out. `None` where the loss has no use for them, or
        draws something.
        """
        weights = target_weights
        if weights is not None and len(weights) != self._class_count:
            return None
        targets = torch.tensor([item for item in self._classes if item != ignored_target])
        heaviest = targets[:1] if weights is None else targets[weights[targets].argmax()][None]
        half = (len(targets) + 1) // 2
        found = self._is_mean_of(targets[:half], targets[len(targets) - half :], weights)
        if not found:
            return found
        some = targets[:: -(-len(targets) // _TRIED_PAIRS)]
        return all(self._is_mean_of(target[None], heaviest, weights) for target in some)

    def _is_mean_of(
        self, first: torch.Tensor, second: torch.Tensor, weights: torch.Tensor | None
    ) -> bool | None:
        parts = [first, second]
        joined = torch.stack(parts) if self._rows else torch.cat(parts)
        logits = torch.randn(
            *joined.shape, self._class_count, generator=torch.Generator().manual_seed(0)
        )
        is_easy = torch.arange(len(joined)) < len(joined) // 2
        easy = torch.where(is_easy, _EASY_LOGIT, 0.0).view(-1, *[1] * joined.dim())
        logits = logits + easy * functional.one_hot(joined, self._class_count)
        counts = [len(part) if weights is None else float(weights[part].sum()) for part in parts]
        return is_mean_of_halves(self._loss_function, logits, joined, counts)

    def _logits(self, count: int) -> torch.Tensor:
        generator = torch.Generator().manual_seed(0)
        return torch.randn(*self._rows, count, self._class_count, generator=generator)

    def _loss(self, logits: torch.Tensor, targets: list[int]) -> torch.Tensor | None:
        """Return the loss, `None` where the function has no use for such logits or targets."""
        given = torch.tensor(targets).expand(*self._rows, -1)
        return _called(self._loss_function, logits, given)


def is_mean_of_halves(
    loss_function: AnyLoss,
    outputs: torch.Tensor,
    targets: torch.Tensor,
    counts: Sequence[float] = (1.0, 1.0),
) -> bool | None:
    """Return whether a loss is its halves' mean, which weigh as `counts`; `None` without a use.

    There is none for a loss that takes no such tensors, or draws something.
    """
    half = len(outputs) // 2
    with torch.no_grad():
        whole, again = (_called(loss_function, outputs, targets) for _ in range(2))
        first = _called(loss_function, outputs[:half], targets[:half])
        second = _called(loss_function, outputs[half:], targets[half:])
    if whole is None or again is None or first is None or second is None or whole != again:
        return None
    parts = [loss * count for loss, count in zip((first, second), counts, strict=True) if count]
    mean = sum(parts, torch.zeros(())) / sum(counts)
    return torch.allclose(whole, mean.to(whole.dtype), rtol=_MEAN_TOLERANCE)


def _called(
    loss_function: AnyLoss,
    outputs: torch.Tensor,
    targets: torch.Tensor,
    vectors: list[torch.Tensor] | None = None,
) -> torch.Tensor | None:
    """Return the loss, `None` where the function has no use for these; note `vectors` it uses."""
    try:
        with _OnHost([] if vectors is None else vectors):
            loss = loss_function(outputs, targets)
    except OF_NO_USE:
        return None
    return loss if torch.is_tensor(loss) and loss.dim() == 0 else None


class _OnHost(TorchFunctionMode):
    """Give torch's functions copies on the host of what lies elsewhere, and note all vectors.

    What a loss has in 16 bits, as weights beside such logits, is in 32 here: it meets logits of the
    default format, and what parts differ by shows.
    """

    def __init__(self, vectors: list[torch.Tensor]) -> None:
        super().__init__()
        self._vectors = vectors

    def __torch_function__(
        self,
        func: Callable[..., Any],
        types: Sequence[type],
        args: Sequence[Any] = (),
        kwargs: Mapping[str, Any] | None = None,
    ) -> Any:
        given = tree_map_only(torch.Tensor, _on_host, (tuple(args), dict(kwargs or {})))
        self._vectors += [item.detach() for item in tree_iter(given) if _is_vector(item)]
        return func(*given[0], **given[1])


def _on_host(tensor: torch.Tensor) -> torch.Tensor:
    here = tensor if tensor.device.type in ("cpu", "meta") else tensor.cpu()
    return widened(here) if here.is_floating_point() else here


def _is_vector(item: object) -> bool:
    if not isinstance(item, torch.Tensor):
        return False
    return item.dim() == 1 and item.is_floating_point() and len(item) > 1
