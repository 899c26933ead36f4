"""Script state: what a script keeps beside model and optimizer, and goes on with.

Objects are kept by name: schedulers, samplers, averages. Their states are the first rank's that has
one. The generators that a script draws from are each rank's own.
"""

from __future__ import annotations

import io
import pickle
from collections.abc import Mapping
from typing import Any, Protocol, runtime_checkable

import torch
from torch import distributed
from torch.distributed.tensor import DTensor
from torch.optim.lr_scheduler import LRScheduler
from torch.utils._pytree import tree_leaves

from executor.agreement import everyone, together
from executor.errors import CheckpointError, ModelMismatchError
from executor.randomness import generator_states, restore_generators
from executor.schedulers import load_scheduler


@runtime_checkable
class Stateful(Protocol):
    """What can be kept: it says its state, and takes one over."""

    def state_dict(self) -> Any:
        """Return the state."""

    def load_state_dict(self, state_dict: Any) -> Any:
        """Take over a state."""


class ScriptState:
    """The objects that a script has asked to keep, and what was read for them."""

    def __init__(self, device: torch.device) -> None:
        self._device = device
        self._objects: dict[str, Stateful] = {}
        self._read: dict[str, Any] = {}

    def keep(self, objects: Mapping[str, Any]) -> None:
        """Keep `objects`; one whose state was read before takes it over at once.

        Raises:
            ModelMismatchError: if one cannot be kept, or its name is taken.
        """
        for name, item in objects.items():
            if not isinstance(item, Stateful):
                raise ModelMismatchError(
                    "has no state_dict() and load_state_dict()",
                    field=name,
                    value=type(item).__qualname__,
                    remedy="keep what has both, and numbers or text in trainer.save(extra=...)",
                )
            if name in self._objects:
                raise ModelMismatchError(
                    "is the name of an object that is kept already",
                    field="trainer.keep",
                    value=name,
                    remedy="keep each object by a name of its own",
                )
            self._objects[name] = item
            if name in self._read:
                _load(item, self._read[name])

    def gathered(self) -> dict[str, Any]:
        """Return the states of all objects and generators; a collective call.

        Raises:
            CheckpointError: if a state cannot be written, or is a rank's part of something.
        """
        states = together(self._states, _unreadable)
        holders = everyone({name for name, state in states.items() if state})
        for name in sorted({name for names in holders for name in names}):
            first = next(rank for rank, names in enumerate(holders) if name in names)
            if first != 0:
                held = [states.get(name)]
                distributed.broadcast_object_list(held, src=first)
                states[name] = held[0]
        return {"kept": states, "generators": everyone(generator_states(self._device))}

    def _states(self) -> dict[str, Any]:
        states = {name: item.state_dict() for name, item in self._objects.items()}
        for name, state in states.items():
            _check_writable(name, state)
        return states

    def restore(self, stored: Mapping[str, Any]) -> None:
        """Give objects and generators what was saved of them; a rank without its own has rank 0's.

        Raises:
            CheckpointError: if an object that is kept was not saved.
        """
        self._read = dict(stored["kept"])
        for name, item in self._objects.items():
            if name not in self._read:
                raise CheckpointError(
                    f"holds no state of {name}",
                    field="trainer.keep",
                    value=type(item).__qualname__,
                    remedy="keep after trainer.load() what is to begin anew",
                )
            _load(item, self._read[name])
        generators = stored["generators"]
        if generators:
            rank = distributed.get_rank()
            restore_generators(generators[rank if rank < len(generators) else 0], self._device)


def _load(item: Stateful, state: Any) -> None:
    """Give an object a state; a scheduler's is the first rank's, whose layers may be others."""
    if isinstance(item, LRScheduler):
        load_scheduler(item, state)
    else:
        item.load_state_dict(state)


def _unreadable(reason: str) -> CheckpointError:
    return CheckpointError(
        f"the state of a kept object cannot be had: {reason}",
        field="trainer.keep",
        value="state_dict()",
        remedy="let state_dict() of what is kept return its state at any time",
    )


def _check_writable(name: str, state: Any) -> None:
    """Return if `state` is whole, and can be read again without running anything."""
    if any(isinstance(leaf, DTensor) for leaf in tree_leaves(state)):
        raise CheckpointError(
            "holds a part of tensors that are shared out over ranks",
            field=f"trainer.keep {name}",
            value="DTensor",
            remedy="keep whole tensors, equal on all ranks, and averages of weights by "
            "trainer.average_weights()",
        )
    content = io.BytesIO()
    try:
        torch.save(state, content)
        content.seek(0)
        torch.load(content, weights_only=True)
    except (pickle.PickleError, AttributeError, TypeError) as error:
        raise CheckpointError(
            f"has a state that cannot be written and read safely: {str(error).splitlines()[0]}",
            field=f"trainer.keep {name}",
            value=type(state).__qualname__,
            remedy="let state_dict() return tensors, numbers, text, and lists and mappings of them",
        ) from None
