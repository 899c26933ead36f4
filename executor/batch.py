"""Batch: what of a loader's batch a model's forward takes, and what its loss compares with.

A loader yields tensors whose last is the targets, or a mapping with the targets under one name, as
collators of transformers do. Either becomes a `Batch`: forward's arguments and targets, each with
the sequences in front.
"""

from __future__ import annotations

from collections.abc import Callable, Iterator, Mapping, Sequence
from dataclasses import dataclass, replace
from typing import Any

import torch

from executor.errors import ModelMismatchError

GivenBatch = Sequence[torch.Tensor] | Mapping[str, Any]
Change = Callable[[torch.Tensor], torch.Tensor]
TARGETS = "targets"


@dataclass(frozen=True, slots=True, kw_only=True)
class Batch:
    """Arguments of forward, by place and by name, and targets; each tensor is [B, ...]."""

    arguments: tuple[torch.Tensor, ...]
    named: Mapping[str, torch.Tensor]
    targets: torch.Tensor

    def __iter__(self) -> Iterator[tuple[str, torch.Tensor]]:
        """Yield every tensor with its name, targets last."""
        names = ("inputs",) if len(self.arguments) == 1 else ()
        for index, tensor in enumerate(self.arguments):
            yield (names[index] if names else f"inputs {index}"), tensor
        yield from self.named.items()
        yield TARGETS, self.targets

    @property
    def first(self) -> torch.Tensor:
        """Return what stands for the samples: forward's first argument."""
        return self.arguments[0] if self.arguments else next(iter(self.named.values()))

    @property
    def row_count(self) -> int:
        """Return how many sequences it has."""
        return self.targets.shape[0]

    def changed(self, change: Change, *, but: tuple[str, ...] = ()) -> Batch:
        """Return a batch of every tensor changed, but for the named ones."""
        return Batch(
            arguments=tuple(change(tensor) for tensor in self.arguments),
            named={
                name: tensor if name in but else change(tensor)
                for name, tensor in self.named.items()
            },
            targets=change(self.targets),
        )

    def filled(self, row: Batch, count: int) -> Batch:
        """Return a batch with `count` more sequences, each that of `row`.

        What `row` has not, as where a batch has a mask and the one before had none, is zeros.
        """

        def fill(tensor: torch.Tensor, more: torch.Tensor | None) -> torch.Tensor:
            if more is None:
                more = tensor.new_zeros((1, *tensor.shape[1:]))
            further = more.expand(count, *more.shape[1:])
            return torch.cat([tensor, further]) if len(tensor) else further

        return Batch(
            arguments=tuple(map(fill, self.arguments, row.arguments)),
            named={name: fill(item, row.named.get(name)) for name, item in self.named.items()},
            targets=fill(self.targets, row.targets),
        )

    def rows(self, first: int, last: int) -> Batch:
        """Return the sequences from `first` to before `last`."""
        return self.changed(lambda tensor: tensor[first:last])

    def with_targets(self, targets: torch.Tensor) -> Batch:
        """Return the same with other targets."""
        return replace(self, targets=targets)


def changed_tensors(given: GivenBatch, change: Change) -> GivenBatch:
    """Return a batch as a loader gives it with every tensor changed; what is none stays."""
    if isinstance(given, Mapping):
        return {name: _changed(value, change) for name, value in given.items()}
    return tuple(_changed(value, change) for value in given)


def given_tensors(given: GivenBatch) -> list[torch.Tensor]:
    """Return the tensors of a batch as a loader gives it, in an order that is every rank's."""
    if isinstance(given, Mapping):
        values: list[Any] = [given[name] for name in sorted(given, key=str)]
    else:
        values = list(given)
    return [value for value in values if isinstance(value, torch.Tensor)]


def check_given(given: object, *, field: str) -> None:
    """Return if `given` is tensors, targets last, or a mapping of them.

    Raises:
        ModelMismatchError: naming what it is instead.
    """
    if isinstance(given, Mapping):
        for name, value in given.items():
            if value is not None and not isinstance(value, torch.Tensor):
                raise ModelMismatchError(
                    "every value of a batch is a tensor with its sequences in front",
                    field=field,
                    value=f"{name}: {type(value).__qualname__}",
                    remedy=f"make {name} a tensor, or leave it out of the batch",
                )
        return
    items = given if isinstance(given, tuple | list) else ()
    if len(items) > 1 and all(isinstance(item, torch.Tensor) for item in items):
        return
    held = ", ".join(type(item).__qualname__ for item in items)
    kind = type(given).__qualname__
    raise ModelMismatchError(
        "a batch is tensors, inputs before targets, or a mapping of tensors by name",
        field=field,
        value=f"{kind} of {held}" if held else kind,
        remedy="yield (inputs, targets) or {'input_ids': ..., 'labels': ...}",
    )


def _changed(value: Any, change: Change) -> Any:
    return change(value) if isinstance(value, torch.Tensor) else value
