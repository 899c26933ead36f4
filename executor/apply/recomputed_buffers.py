"""Recomputed buffers: a block that is computed again changes its buffers once.

Running statistics and counters change as tokens pass. What is computed again for backward begins
with the buffers that its forward began with, in copies: those of the block stay as they are.
"""

from __future__ import annotations

from collections.abc import Callable, Iterator, Mapping
from contextlib import AbstractContextManager, ExitStack, contextmanager, nullcontext

import torch
from torch import nn
from torch.nn.modules.batchnorm import _NormBase

Contexts = tuple[AbstractContextManager[object], AbstractContextManager[object]]
_Place = tuple[nn.Module, str]


class RecomputedBuffers:
    """The buffers of a block; its first forward shows which it changes, or their versions do.

    Versions say nothing of what torch's own batch norms change.
    """

    def __init__(self, block: nn.Module) -> None:
        self._block = block
        self._changed: set[_Place] | None = None

    def contexts(self, others: Callable[[], Contexts] | None = None) -> Contexts:
        """Return what surrounds one forward and its recomputation, around that of `others`."""
        forward, again = (nullcontext(), nullcontext()) if others is None else others()
        first: dict[_Place, torch.Tensor] = {}
        return _both(self._noted(first), forward), _both(self._replaced(first), again)

    @contextmanager
    def _noted(self, first: dict[_Place, torch.Tensor]) -> Iterator[None]:
        """Note in `first` what the buffers that change are before forward."""
        if not torch.is_grad_enabled():
            yield
            return
        before = dict(self._held())
        versions = {place: buffer._version for place, buffer in before.items()}  # noqa: SLF001
        kept = before.keys() if self._changed is None else self._changed
        copies = _copies({place: before[place] for place in kept})
        yield
        now = dict(self._held())
        if self._changed is None:
            self._changed = {
                place
                for place, copy in copies.items()
                if isinstance(place[0], _NormBase) or not torch.equal(copy, now[place])
            }
        self._changed |= {
            place
            for place, buffer in now.items()
            if place in before
            and (buffer is not before[place] or buffer._version != versions[place])  # noqa: SLF001
        }
        first.update({place: copies.get(place, now[place]) for place in self._changed})

    @contextmanager
    def _replaced(self, first: Mapping[_Place, torch.Tensor]) -> Iterator[None]:
        """Let the block have copies of what is in `first`, and its own behind that."""
        own = {place: buffer for place, buffer in self._held() if place in first}
        copies = _copies(first)
        for (module, name), copy in copies.items():
            module._buffers[name] = copy  # noqa: SLF001 - torch has no setter by name
        try:
            yield
        finally:
            for (module, name), buffer in own.items():
                module._buffers[name] = buffer  # noqa: SLF001 - as above

    def _held(self) -> Iterator[tuple[_Place, torch.Tensor]]:
        for module in self._block.modules():
            for name, buffer in module._buffers.items():  # noqa: SLF001 - shared ones too
                if buffer is not None:
                    yield (module, name), buffer


def _copies(tensors: Mapping[_Place, torch.Tensor]) -> dict[_Place, torch.Tensor]:
    """Return a copy of each tensor; places that share one share its copy."""
    made: dict[int, torch.Tensor] = {}
    for tensor in tensors.values():
        if id(tensor) not in made:
            made[id(tensor)] = tensor.detach().clone()
    return {place: made[id(tensor)] for place, tensor in tensors.items()}


@contextmanager
def _both(
    outer: AbstractContextManager[object], inner: AbstractContextManager[object]
) -> Iterator[None]:
    with ExitStack() as stack:
        stack.enter_context(outer)
        stack.enter_context(inner)
        yield
