"""Forward inputs: the names by which a model takes the parts of a batch."""

from __future__ import annotations

import inspect
from collections.abc import Callable, Mapping, Sequence
from dataclasses import dataclass, field, replace
from typing import Any

import torch
from torch import nn

from executor.batch import Batch, Change, GivenBatch
from executor.errors import ModelMismatchError

FIRST = "input_ids"
LABELS = "labels"
Prepare = Callable[[Batch], Batch]
_BY_PLACE = (inspect.Parameter.POSITIONAL_ONLY, inspect.Parameter.POSITIONAL_OR_KEYWORD)


def as_it_is(batch: Batch) -> Batch:
    """Return the batch."""
    return batch


def with_first(name: str, batch: Batch) -> Batch:
    """Return the batch with its first input by name as well, for parts behind the first."""
    return replace(batch, named={**batch.named, name: batch.first})


def as_given(given: GivenBatch) -> GivenBatch:
    """Return the batch of a loader."""
    return given


@dataclass(frozen=True, slots=True, kw_only=True)
class ForwardInputs:
    """What a forward takes: its first argument and others by name, or whatever there is.

    A mapping's first argument is under `first`, or under `input_ids` where `first` is not in it. A
    chain hands its `first` on from part to part, so that the other names are all that a later stage
    has of a batch. `takes_any` says that forward takes other names than these too, and `is_whole`
    that all of a mapping is handed over by name. `prepare` is what becomes of a whole batch of
    sequences before any of it is split, and `complete` before that of one that has targets.

    Labels of a mapping become targets by `labels_to_targets`, unless they are `ready_targets`; then
    those that are `ignored_label` count for nothing. `translate` is what becomes of what a loader
    gives before all else. No token of an `is_causal` model changes what those before it come to.
    """

    first: str = FIRST
    others: tuple[str, ...] = ()
    takes_any: bool = False
    is_whole: bool = False
    prepare: Prepare = field(default=as_it_is)
    complete: Prepare = field(default=as_it_is)
    translate: Callable[[GivenBatch], GivenBatch] = field(default=as_given)
    labels_to_targets: Change | None = None
    ready_targets: str | None = None
    ignored_label: int | None = None
    is_causal: bool = False

    @staticmethod
    def of_module(module: nn.Module) -> ForwardInputs:
        """Return what the forward of `module`, which is called as it is, takes by its signature."""
        parameters = list(inspect.signature(module.forward).parameters.values())
        names = [item.name for item in parameters if item.kind in _BY_PLACE]
        names += [item.name for item in parameters if item.kind is inspect.Parameter.KEYWORD_ONLY]
        return ForwardInputs(
            first=names[0] if names else FIRST,
            others=tuple(names[1:]),
            takes_any=any(item.kind is inspect.Parameter.VAR_KEYWORD for item in parameters),
            is_whole=True,
        )

    @staticmethod
    def of_arguments(module: nn.Module, *, also: Sequence[str]) -> ForwardInputs:
        """Return what a chain of the parts of `module` takes: arguments that its forward asks for.

        Those with a default are taken where they are among `also`.

        Raises:
            ModelMismatchError: if forward has no argument of such a name.
        """
        parameters = inspect.signature(module.forward).parameters
        for name in also:
            if name not in parameters:
                raise ModelMismatchError(
                    f"forward of {type(module).__qualname__} has no such argument",
                    field="declaration.inputs",
                    value=name,
                    remedy=f"name some of {', '.join(parameters)}",
                )
        kinds = (*_BY_PLACE, inspect.Parameter.KEYWORD_ONLY)
        asked = [item for item in parameters.values() if item.kind in kinds]
        others = [
            item.name
            for item in asked[1:]
            if item.default is inspect.Parameter.empty or item.name in also
        ]
        return ForwardInputs(first=asked[0].name if asked else FIRST, others=tuple(others))

    def read(self, given: GivenBatch, *, target_name: str, field: str) -> Batch:
        """Return the batch that a loader gave as this forward takes it.

        Raises:
            ModelMismatchError: naming what forward does not take, or what is missing.
        """
        if isinstance(given, Mapping):
            return self._of_mapping(given, target_name, field)
        *inputs, targets = given
        if self.is_whole or len(inputs) == 1:
            return Batch(arguments=tuple(inputs), named={}, targets=targets)
        if len(inputs) - 1 > len(self.others):
            raise ModelMismatchError(
                f"the model takes {self._listed()}",
                field=field,
                value=f"{len(inputs)} inputs before the targets",
                remedy="yield what the model takes, or declare more of its inputs",
            )
        named = dict(zip(self.others, inputs[1:], strict=False))
        return Batch(arguments=(inputs[0],), named=named, targets=targets)

    def _of_mapping(self, given: Mapping[str, Any], target_name: str, field: str) -> Batch:
        held = {str(name): value for name, value in given.items() if value is not None}
        ready = held.pop(self.ready_targets, None) if self.ready_targets is not None else None
        if ready is not None:
            held[target_name] = ready
        if target_name not in held:
            raise ModelMismatchError(
                f"a mapping has its targets under {target_name!r}",
                field=field,
                value=", ".join(map(str, held)) or "an empty mapping",
                remedy=f"yield {target_name!r}, or say where they are by "
                "session.parallelize(..., target_name=...)",
            )
        targets = held.pop(target_name)
        if ready is None and self.labels_to_targets is not None:
            targets = self.labels_to_targets(targets)
        first = self.first if self.first in held or FIRST not in held else FIRST
        for name, value in held.items():
            if name != first and name not in self.others and not self.takes_any:
                raise ModelMismatchError(
                    f"the model takes {self._listed()}, and nothing else of a batch",
                    field=field,
                    value=f"{name}, {_shape(value)}",
                    remedy=f"leave {name} out of the batch, or train a model that takes it",
                )
        if first not in held:
            raise ModelMismatchError(
                f"the model's forward begins with {first}",
                field=field,
                value=", ".join(map(str, held)) or "targets alone",
                remedy=f"yield {first!r} in each batch",
            )
        if self.is_whole and first == self.first:
            ordered = {first: held.pop(first), **held}
            return Batch(arguments=(), named=ordered, targets=targets)
        return Batch(arguments=(held.pop(first),), named=held, targets=targets)

    def _listed(self) -> str:
        return " and ".join((self.first, *self.others))


def _shape(value: object) -> str:
    return f"of shape {tuple(value.shape)}" if isinstance(value, torch.Tensor) else repr(value)
