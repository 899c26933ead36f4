"""Activation offload: what a block keeps for backward waits in host memory.

torch's `save_on_cpu` moves whatever autograd saves: parameters too, which ZeRO frees and gathers by
itself, and a tensor once for each operator that saves it. Here parameters stay, and each storage
moves once. With full checkpointing it is the block's input that moves; with selective checkpointing
also what the policy keeps, which autograd does not see.
"""

from __future__ import annotations

import weakref
from collections.abc import Hashable
from dataclasses import dataclass
from typing import Any

import torch
from torch import nn
from torch.autograd.graph import saved_tensors_hooks
from torch.distributed.algorithms._checkpoint.checkpoint_wrapper import ActivationWrapper
from torch.distributed.tensor import DTensor

from executor.apply.split import stage_blocks
from executor.host_memory import HOST, host_copy, placed, plain
from executor.models.declaration import ModelDeclaration
from planner.schema.strategy import Offload, Stage

# A transfer of its own costs more than so small a tensor saves; torchtune's OffloadActivations has
# the same bound (`min_offload_size`).
SMALLEST_BYTES = 1024


def apply_activation_offload(
    model: nn.Module, *, declaration: ModelDeclaration, stage: Stage
) -> None:
    """Wrap the blocks of each layer group that offloads activations; names of parameters stay."""
    blocks = model.get_submodule(declaration.blocks)
    for group in stage.layers:
        if Offload.ACTIVATIONS not in group.offload:
            continue
        for index in stage_blocks(Stage(stage=0, layers=(group,))):
            wrapped = OffloadedActivations(getattr(blocks, str(index)))  # type: ignore[no-untyped-call]
            setattr(blocks, str(index), wrapped)


def without_offload(block: nn.Module | None) -> nn.Module | None:
    """Return the block inside of the wrapper that offloads its activations, if there is one."""
    if not isinstance(block, OffloadedActivations):
        return block
    inner: nn.Module = block._checkpoint_wrapped_module  # noqa: SLF001 - torch's name for it
    return inner


class OffloadedActivations(ActivationWrapper):
    """A module whose saved tensors wait on the host between forward and backward."""

    def forward(self, *arguments: Any, **named: Any) -> Any:
        """Return what the module returns."""
        mover = _Mover(self._checkpoint_wrapped_module)
        with saved_tensors_hooks(mover.pack, unpack):
            result = self._checkpoint_wrapped_module(*arguments, **named)
        mover.forget()
        return result


class MovedStorage:
    """A storage's content on the host, and on the device again while someone there needs it."""

    def __init__(self, local: torch.Tensor) -> None:
        storage = local.untyped_storage()
        count = storage.nbytes() // local.element_size()
        flat = local.detach().as_strided((count,), (1,), 0)
        self._device = local.device
        self._content = host_copy(flat, is_pinned=local.device.type == "cuda")
        self._restored: weakref.ref[torch.Tensor] | None = None

    def back(self) -> torch.Tensor:
        """Return the content on its device, flat."""
        known = self._restored() if self._restored is not None else None
        if known is not None:
            return known
        if self._device == HOST:
            restored = self._content.clone()
        else:
            restored = self._content.to(self._device, non_blocking=True)
        self._restored = weakref.ref(restored)
        return restored


@dataclass(frozen=True, slots=True, kw_only=True)
class MovedTensor:
    """A tensor whose storage is on the host."""

    storage: MovedStorage
    shape: torch.Size
    stride: tuple[int, ...]
    offset: int
    placement: Any

    @staticmethod
    def of(tensor: torch.Tensor, storage: MovedStorage) -> MovedTensor:
        """Return what it takes to have `tensor` back."""
        local = plain(tensor)
        return MovedTensor(
            storage=storage,
            shape=local.shape,
            stride=local.stride(),
            offset=int(local.storage_offset()),
            placement=tensor._spec if isinstance(tensor, DTensor) else None,  # noqa: SLF001
        )

    def back(self) -> torch.Tensor:
        """Return the tensor on its device again."""
        local = self.storage.back().as_strided(self.shape, self.stride, self.offset)
        return placed(local, self.placement)

    def get_val(self, _allow_mutation: bool) -> torch.Tensor:
        """Return the tensor, as selective checkpointing asks for what its policy keeps."""
        return self.back()


def moved_if_large(kept: Any) -> Any:
    """Return what selective checkpointing keeps with its content on the host, if there is much."""
    tensor = getattr(kept, "val", None)  # what is to be computed again has none
    if isinstance(tensor, torch.Tensor) and _is_large(plain(tensor)):
        return MovedTensor.of(tensor, MovedStorage(plain(tensor)))
    return kept


def unpack(packed: Any) -> torch.Tensor:
    """Return the tensor that `_Mover.pack` was given."""
    tensor: torch.Tensor = packed.back() if isinstance(packed, MovedTensor) else packed
    return tensor


class _Mover:
    """Moves what one forward of a module saves, each storage once."""

    def __init__(self, module: nn.Module) -> None:
        self._parameters = {
            plain(parameter).untyped_storage().data_ptr() for parameter in module.parameters()
        }
        self._moved: dict[Hashable, MovedStorage] = {}

    def pack(self, tensor: torch.Tensor) -> Any:
        """Return what stands for `tensor` until backward."""
        local = plain(tensor)
        storage = local.untyped_storage()
        if not _is_large(local) or storage.data_ptr() in self._parameters:
            return tensor
        # A storage that was changed in place since has another content.
        key = (weakref.ref(storage), local.dtype, local._version)  # noqa: SLF001
        if key not in self._moved:
            self._moved[key] = MovedStorage(local)
        return MovedTensor.of(tensor, self._moved[key])

    def forget(self) -> None:
        """Leave what was moved to those who will ask for it."""
        self._moved.clear()


def _is_large(local: torch.Tensor) -> bool:
    return local.numel() * local.element_size() >= SMALLEST_BYTES
