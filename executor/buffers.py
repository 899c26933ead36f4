"""Buffers: what a model keeps beside its parameters, equal on all ranks that hold the same of it.

Running statistics, a router's biases and codebooks change as tokens pass, and ranks meet different
tokens. Before a step ranks take those of the first data-parallel rank, as torch's
DistributedDataParallel has it, or the mean of all, where a script asks for that.
"""

from __future__ import annotations

from collections.abc import Iterable, Iterator, Sequence
from fnmatch import fnmatchcase

import torch
from torch import distributed, nn
from torch.distributed.device_mesh import DeviceMesh

from executor.apply.materialise import unsplit_name
from executor.errors import ModelMismatchError
from executor.host_memory import plain
from executor.mesh import TENSOR, RankMesh
from executor.models.declaration import ModelDeclaration


class Buffers:
    """The persistent buffers of a rank's model; names in `averaged` are patterns of their names.

    `meshes` are those over which ranks hold the same buffers and meet different tokens.
    """

    def __init__(
        self,
        model: nn.Module,
        *,
        declaration: ModelDeclaration,
        meshes: Iterable[DeviceMesh],
        averaged: Sequence[str] = (),
    ) -> None:
        self._model = model
        self._declaration = declaration
        self._groups = [mesh.get_group() for mesh in meshes if mesh.size() > 1]
        self._averaged = tuple(averaged)

    @staticmethod
    def of(
        model: nn.Module,
        declaration: ModelDeclaration,
        mesh: RankMesh,
        *,
        splits_sequence: bool,
        averaged: Sequence[str],
    ) -> Buffers:
        """Return a rank's; tensor-parallel ranks differ where each has its own tokens."""
        split = (mesh.axis(TENSOR),) if splits_sequence else ()
        meshes = (mesh.data, *split)
        return Buffers(model, declaration=declaration, meshes=meshes, averaged=averaged)

    def named(self) -> Iterator[tuple[str, torch.Tensor]]:
        """Yield them by their names in the unsplit model."""
        for name, buffer in persistent_buffers(self._model):
            yield unsplit_name(name, self._declaration), buffer

    def agree(self) -> None:
        """Make them equal on all ranks that hold the same; a collective call."""
        means: dict[torch.dtype, list[torch.Tensor]] = {}
        firsts: dict[torch.dtype, list[torch.Tensor]] = {}
        for name, buffer in self.named() if self._groups else ():
            alike = means if _is_named(name, self._averaged) else firsts
            alike.setdefault(buffer.dtype, []).append(plain(buffer))
        for group in self._groups:
            for tensors in firsts.values():
                flat = _flat(tensors)
                distributed.broadcast(flat, group=group, group_src=0)
                _spread(flat, tensors)
            for tensors in means.values():
                flat = _flat(tensors)
                distributed.all_reduce(flat, group=group)
                _spread(flat.div_(group.size()), tensors)


def persistent_buffers(model: nn.Module) -> Iterator[tuple[str, torch.Tensor]]:
    """Yield the buffers of `model` that its `state_dict` has, by name."""
    for path, module in model.named_modules():
        passing = module._non_persistent_buffers_set  # noqa: SLF001 - torch has no public name
        for name, buffer in module.named_buffers(recurse=False):
            if name not in passing:
                yield f"{path}.{name}".lstrip("."), buffer


def check_averaged(model: nn.Module, patterns: Sequence[str]) -> None:
    """Return if each pattern names buffers of the whole `model` of which there is a mean.

    Raises:
        ModelMismatchError: naming the first that does not.
    """
    known = dict(persistent_buffers(model))
    for pattern in patterns:
        found = [name for name in known if fnmatchcase(name, pattern)]
        whole = [name for name in found if not known[name].dtype.is_floating_point]
        if not found or whole:
            problem = "names no persistent buffer" if not found else f"{whole[0]} has no mean"
            raise ModelMismatchError(
                problem,
                field="averaged_buffers",
                value=pattern,
                remedy="name floating-point buffers of the model, as '*.running_mean' does",
            )


def _is_named(name: str, patterns: Iterable[str]) -> bool:
    return any(fnmatchcase(name, pattern) for pattern in patterns)


def _flat(tensors: Iterable[torch.Tensor]) -> torch.Tensor:
    return torch.cat([tensor.detach().reshape(-1) for tensor in tensors])


def _spread(flat: torch.Tensor, tensors: Sequence[torch.Tensor]) -> None:
    pieces = torch.split(flat, [tensor.numel() for tensor in tensors])
    with torch.no_grad():
        for tensor, piece in zip(tensors, pieces, strict=True):
            tensor.copy_(piece.view(tensor.shape))
