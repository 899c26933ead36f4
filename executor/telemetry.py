"""Telemetry: peak memory of one step on this rank.

CUDA's allocator keeps the peak by itself. On a CPU the bytes of live tensors are counted at every
operator, which is what the planner predicts, but slow: only metered steps do it. What is offloaded
lies in the same memory there; it is the host's, and not counted.
"""

from __future__ import annotations

import weakref
from collections.abc import Callable, Iterable, Iterator
from contextlib import contextmanager
from typing import Any

import torch
from torch._subclasses.fake_tensor import FakeTensor
from torch.distributed.tensor import DTensor
from torch.utils._python_dispatch import TorchDispatchMode
from torch.utils._pytree import tree_leaves

from executor.host_memory import is_held, is_working_on_host


class MemoryMeter:
    """Knows the peak bytes of the step between `start` and `peak_bytes`."""

    def __init__(self, device: torch.device) -> None:
        self._device = device
        self._live_peak_bytes: int | None = None

    def start(self) -> None:
        """Forget earlier peaks."""
        self._live_peak_bytes = None
        if self._device.type == "cuda":
            torch.cuda.reset_peak_memory_stats(self._device)

    def peak_bytes(self) -> int | None:
        """Return the peak since `start`, `None` on a CPU whose step was not metered."""
        if self._device.type == "cuda":
            return torch.cuda.max_memory_allocated(self._device)
        return self._live_peak_bytes

    @contextmanager
    def live_tensors(self, held: Iterable[torch.Tensor]) -> Iterator[None]:
        """Count live tensors inside the block, beginning with those `held` (CPU only)."""
        if self._device.type == "cuda":
            yield
            return
        counter = LiveBytes(held)
        with counter, counter.resizes():
            yield
        self._live_peak_bytes = counter.peak_bytes


def device_bytes(tensors: Iterable[torch.Tensor]) -> int:
    """Return the bytes of the storages of `tensors` that are not kept on the host."""
    counter = LiveBytes(tensors)
    return counter.peak_bytes


class LiveBytes(TorchDispatchMode):  # type: ignore[no-untyped-call]
    """Counts the bytes of storages that operators return, until they are freed."""

    def __init__(self, held: Iterable[torch.Tensor]) -> None:
        super().__init__()  # type: ignore[no-untyped-call]
        self.peak_bytes = 0
        self._current_bytes = 0
        self._sizes: dict[weakref.ref[Any], int] = {}
        for tensor in held:
            self._see(tensor)

    def __torch_dispatch__(
        self,
        operator: Any,
        types: tuple[type, ...],
        args: tuple[Any, ...] = (),
        kwargs: dict[str, Any] | None = None,
    ) -> Any:
        """Run `operator` and see what it returns; DTensors come again as local tensors."""
        if any(issubclass(kind, DTensor | FakeTensor) for kind in types):
            return NotImplemented
        result = operator(*args, **(kwargs or {}))
        for leaf in tree_leaves(result):
            if isinstance(leaf, torch.Tensor):
                self._see(leaf)
        return result

    @contextmanager
    def resizes(self) -> Iterator[None]:
        """See storages that FSDP frees and takes in place, which no operator tells of."""
        original: Callable[..., Any] = torch.UntypedStorage.resize_

        def resize(storage: torch.UntypedStorage, size: int) -> Any:
            result = original(storage, size)
            self._see_storage(storage)
            return result

        torch.UntypedStorage.resize_ = resize  # type: ignore[method-assign, assignment]
        try:
            yield
        finally:
            torch.UntypedStorage.resize_ = original  # type: ignore[method-assign]

    def _see(self, tensor: torch.Tensor) -> None:
        # `to_local` is itself an operator, and would be seen.
        local = tensor._local_tensor if isinstance(tensor, DTensor) else tensor  # noqa: SLF001
        if isinstance(local, FakeTensor) or local.device.type == "meta":
            return
        self._see_storage(local.untyped_storage())

    def _see_storage(self, storage: torch.UntypedStorage) -> None:
        if storage.device.type == "meta" or is_working_on_host():
            return
        reference = weakref.ref(storage, self._forget)
        if is_held(storage):
            self._forget(reference)
            return
        size = storage.nbytes()
        self._current_bytes += size - self._sizes.get(reference, 0)
        self._sizes[reference] = size
        self.peak_bytes = max(self.peak_bytes, self._current_bytes)

    def _forget(self, reference: weakref.ref[Any]) -> None:
        self._current_bytes -= self._sizes.pop(reference, 0)
