"""Host memory: what a plan keeps off the device, and which storages those are.

On a CUDA machine it is pinned. Where the device is the CPU itself, host and device are one memory:
content moves into a copy of its own all the same, and the copy's storage is remembered as the
host's, so that what is left on the "device" can be counted.
"""

from __future__ import annotations

import weakref
from collections.abc import Iterable, Iterator
from contextlib import contextmanager
from typing import Any

import torch
from torch.distributed._functional_collectives import AsyncCollectiveTensor
from torch.distributed.tensor import DTensor

HOST = torch.device("cpu")

_held: dict[weakref.ref[Any], int] = {}
_working_on_host = 0


def hold(tensors: Iterable[torch.Tensor]) -> None:
    """Remember the storages of `tensors` as the host's, until they are freed."""
    for tensor in tensors:
        storage = plain(tensor).untyped_storage()
        if storage.device.type == HOST.type:
            _held[weakref.ref(storage, _forget)] = storage.nbytes()
            plain(tensor).detach()  # an operator: who counts the device's bytes sees it leave


def is_held(storage: torch.UntypedStorage) -> bool:
    """Return whether `storage` is the host's."""
    return weakref.ref(storage) in _held


def held_bytes() -> int:
    """Return the bytes of all that this process keeps on the host now."""
    return sum(_held.values())


@contextmanager
def working_on_host() -> Iterator[None]:
    """Say that what is made inside the block is the host's and no matter of the device."""
    global _working_on_host  # noqa: PLW0603 - as deep as the blocks of this one process
    _working_on_host += 1
    try:
        yield
    finally:
        _working_on_host -= 1


def is_working_on_host() -> bool:
    """Return whether a block of `working_on_host` is running."""
    return _working_on_host > 0


def host_copy(tensor: torch.Tensor, *, is_pinned: bool) -> torch.Tensor:
    """Return the content of a plain `tensor` in host memory of its own.

    With pinned memory the copy is under way when this returns.
    """
    with working_on_host():
        copy = torch.empty(tensor.shape, dtype=tensor.dtype, device=HOST, pin_memory=is_pinned)
        copy.copy_(tensor, non_blocking=is_pinned)
    hold([copy])
    return copy


def plain(tensor: torch.Tensor) -> torch.Tensor:
    """Return this rank's part of `tensor`, waited for."""
    # `to_local` is itself an operator, and would be recorded.
    local = tensor._local_tensor if isinstance(tensor, DTensor) else tensor  # noqa: SLF001
    if isinstance(local, AsyncCollectiveTensor):
        local = local.wait()
    return local


def like(local: torch.Tensor, whole: torch.Tensor) -> torch.Tensor:
    """Return `local` placed on the mesh as `whole` is, on whatever device `local` lies.

    `DTensor.from_local` would move it to the mesh's device.
    """
    if not isinstance(whole, DTensor):
        return local
    return placed(local, whole._spec)  # noqa: SLF001 - a placement has no public carrier


def placed(local: torch.Tensor, placement: Any) -> torch.Tensor:
    """Return the DTensor of `local` with a DTensor's `placement`, the plain tensor without one."""
    if placement is None:
        return local
    whole: torch.Tensor = DTensor(local, placement, requires_grad=False)  # type: ignore[no-untyped-call]
    return whole


def _forget(reference: weakref.ref[Any]) -> None:
    _held.pop(reference, None)
