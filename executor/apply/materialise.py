"""Materialise: real storage for this rank's shards, with values that no layout changes.

Each rank asks for its part of every parameter by the name in the unsplit model, so that any layout
of a model starts from equal weights.
"""

from __future__ import annotations

from collections.abc import Iterable

import torch
from torch import nn
from torch.distributed.tensor import DTensor

from executor.apply.virtual_stages import name_in_stage
from executor.host_memory import HOST
from executor.models.declaration import ModelDeclaration, part
from executor.models.first_values import FirstValues

_WRAPPER = "_checkpoint_wrapped_module."


def materialise(
    model: nn.Module,
    *,
    declaration: ModelDeclaration,
    device: torch.device,
    values: FirstValues,
    on_host: Iterable[nn.Module] = (),
) -> None:
    """Give `model`, built on the meta device, storage on `device` and its first values.

    Parameters of the modules `on_host` get theirs there, but for scalars, which FSDP leaves alone.
    """
    hosted = {id(item): item for module in on_host for item in module.parameters() if item.dim()}
    shared = _shared(model)

    def placed(tensor: torch.Tensor) -> torch.Tensor:
        home = HOST if id(tensor) in hosted else device
        return torch.empty_like(tensor, device=home) if tensor.is_meta else tensor.to(home)

    model._apply(placed)  # type: ignore[no-untyped-call] # noqa: SLF001 - `to_empty` to two devices
    _share_again(model, shared)
    tie(model, declaration)
    declaration.restore_buffers(model, device)
    with torch.no_grad():
        for name, parameter in model.named_parameters():
            _fill(parameter, values, name=unsplit_name(name, declaration))
        for name, buffer in model.named_buffers():
            kept = values.buffer(unsplit_name(name, declaration), buffer.shape)
            if kept is not None:
                buffer.copy_(kept)


def tie(model: nn.Module, declaration: ModelDeclaration) -> None:
    """Let head and embedding share one weight again where both are here.

    Splitting over tensor-parallel ranks, and moving off the meta device, make two of it.
    """
    embedding = part(model, declaration.embedding)
    head = part(model, declaration.head)
    if declaration.tied_embeddings and embedding is not None and head is not None:
        home, _, name = declaration.head_weight.rpartition(".")
        setattr(model.get_submodule(home), name, embedding.weight)


def unsplit_name(name: str, declaration: ModelDeclaration) -> str:
    """Return what the unsplit, unwrapped model calls the parameter `name`."""
    plain = plain_name(name)
    if declaration.tied_embeddings and plain == declaration.head_weight:
        return declaration.embedding_weight
    return plain


def plain_name(name: str) -> str:
    """Return the name of a tensor of `rank_model` without what stages and wrappers add to it."""
    return name_in_stage(name).replace(_WRAPPER, "")


def _shared(model: nn.Module) -> list[list[str]]:
    """Return the names of parameters that several modules share."""
    names: dict[int, list[str]] = {}
    for name, parameter in model.named_parameters(remove_duplicate=False):
        names.setdefault(id(parameter), []).append(name)
    return [same for same in names.values() if len(same) > 1]


def _share_again(model: nn.Module, shared: Iterable[list[str]]) -> None:
    """Let modules share parameters again: each got storage of its own."""
    for first, *others in shared:
        parameter = model.get_parameter(first)
        for other in others:
            home, _, name = other.rpartition(".")
            setattr(model.get_submodule(home), name, parameter)


def _fill(parameter: nn.Parameter, values: FirstValues, *, name: str) -> None:
    if not isinstance(parameter, DTensor):
        whole = tuple(slice(0, size) for size in parameter.shape)
        parameter.copy_(values.piece(name, parameter.shape, whole))
        return
    local = parameter.to_local()
    for chunk in parameter.__create_chunk_list__():  # type: ignore[no-untyped-call]
        ranges = tuple(
            slice(offset, offset + size)
            for offset, size in zip(chunk.offsets, chunk.sizes, strict=True)
        )
        local.copy_(values.piece(name, parameter.shape, ranges))
