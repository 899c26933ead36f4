"""Script state: what a script keeps beside model and optimizer, and goes on with.

Objects are kept by name: schedulers, samplers, averages. States that are the same on all ranks are
kept once, and go on in any layout; where they differ each rank's is kept, for the same strategy. Of
schedulers, whose ranks have other groups, it is the first rank's that has some. The generators that
a script draws from are each rank's own.
"""

from __future__ import annotations

import hashlib
import io
import pickle
from collections.abc import Mapping
from typing import Any, Protocol, runtime_checkable

import torch
from torch import distributed
from torch.distributed.tensor import DTensor
from torch.optim.lr_scheduler import LRScheduler
from torch.utils._pytree import tree_flatten, tree_leaves

from executor.agreement import everyone, together
from executor.errors import CheckpointError, ModelMismatchError
from executor.randomness import generator_states, restore_generators
from executor.schedulers import Schedulers, load_scheduler

_SOME, _NOTHING = "some", "nothing"  # of a scheduler's state, whose groups are each rank's own


@runtime_checkable
class Stateful(Protocol):
    """What can be kept: it says its state, and takes one over."""

    def state_dict(self) -> Any:
        """Return the state."""

    def load_state_dict(self, state_dict: Any) -> Any:
        """Take over a state."""


class ScriptState:
    """The objects that a script has asked to keep, and what was read for them."""

    def __init__(self, device: torch.device, *, layout: str = "") -> None:
        """Make a state without objects; `layout` is another where ranks hold other parts."""
        self._device = device
        self._layout = layout
        self._objects: dict[str, Stateful] = {}
        self._read: dict[str, Any] = {}
        self._read_by_rank: dict[str, list[Any]] = {}
        self._read_layout = layout

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
            if name in self._read or name in self._read_by_rank:
                _load(item, self._state_of(name))

    def gathered(self) -> dict[str, Any]:
        """Return the states of all objects and generators; a collective call.

        Raises:
            CheckpointError: if a state cannot be written, or is a rank's part of something.
        """
        states, mine = together(self._states, _unreadable)
        marks = everyone(mine)
        kept, by_rank = {}, {}
        for name in sorted({name for held in marks for name in held}):
            first = {
                held[name]: rank for rank, held in reversed([*enumerate(marks)]) if name in held
            }
            if len(first) > 1:
                first.pop(_NOTHING, None)
            if len(first) > 1:
                by_rank[name] = _at_first_rank(states.get(name))
                continue
            (owner,) = first.values()
            held = [states.get(name)]
            if owner != 0:
                distributed.broadcast_object_list(held, src=owner)
            kept[name] = held[0]
        return {
            "kept": kept,
            "by_rank": by_rank,
            "layout": self._layout,
            "generators": everyone(generator_states(self._device)),
        }

    def _mark(self, name: str, state: Any) -> str:
        """Return what tells a state from others, and of a scheduler's only whether there is one."""
        if isinstance(self._objects[name], LRScheduler | Schedulers):
            return _SOME if state else _NOTHING
        leaves, form = tree_flatten(state)
        digest = hashlib.sha256(str(form).encode())
        for leaf in leaves:
            is_tensor = isinstance(leaf, torch.Tensor)
            said = f"{leaf.dtype} {tuple(leaf.shape)}" if is_tensor else repr(leaf)
            digest.update(f"{said}\n".encode())
            if is_tensor:
                digest.update(leaf.detach().cpu().flatten().view(torch.uint8).numpy())
        return digest.hexdigest()

    def _states(self) -> tuple[dict[str, Any], dict[str, str]]:
        states = {name: item.state_dict() for name, item in self._objects.items()}
        for name, state in states.items():
            _check_writable(name, state)
        return states, {name: self._mark(name, state) for name, state in states.items()}

    def restore(self, stored: Mapping[str, Any]) -> None:
        """Give objects and generators what was saved of them; a rank without its own has rank 0's.

        Raises:
            CheckpointError: if an object that is kept was not saved.
        """
        self._read = dict(stored["kept"])
        self._read_by_rank = stored.get("by_rank", {})
        self._read_layout = stored.get("layout", "")
        for name, item in self._objects.items():
            _load(item, self._state_of(name))
        generators = stored["generators"]
        if generators:
            rank = distributed.get_rank()
            restore_generators(generators[rank if rank < len(generators) else 0], self._device)

    def _state_of(self, name: str) -> Any:
        """Return what was read for this rank's object `name`.

        Raises:
            CheckpointError: if nothing was, or what ranks of another layout had.
        """
        if name in self._read:
            return self._read[name]
        if name not in self._read_by_rank:
            raise CheckpointError(
                f"holds no state of {name}",
                field="trainer.keep",
                value=type(self._objects[name]).__qualname__,
                remedy="keep after trainer.load() what is to begin anew",
            )
        if self._read_layout != self._layout:
            raise CheckpointError(
                "had another state on each rank, which ranks of another strategy have no use for",
                field=f"trainer.keep {name}",
                value=f"{len(self._read_by_rank[name])} states",
                remedy="go on under the strategy that it was saved under, or keep what is equal on "
                "all ranks",
            )
        return self._read_by_rank[name][distributed.get_rank()]


def _at_first_rank(state: Any) -> list[Any]:
    """Return the states of all ranks on rank 0, which writes them; a collective call."""
    is_first = distributed.get_rank() == 0
    states: list[Any] = [None] * distributed.get_world_size()
    distributed.gather_object(state, states if is_first else None, dst=0)
    return states if is_first else []


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
