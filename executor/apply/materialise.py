"""Materialise: real storage for this rank's shards, with values that no layout changes.

Every parameter is drawn whole from a generator seeded with its name in the unsplit model, and
each rank keeps its part. Any layout of a model therefore starts from equal weights.
"""

from __future__ import annotations

import hashlib
from collections.abc import Iterable

import torch
from torch import nn
from torch.distributed.tensor import DTensor

from executor.apply.virtual_stages import name_in_stage
from executor.host_memory import HOST
from executor.models.declaration import InitialValue, ModelDeclaration, part

_WRAPPER = "_checkpoint_wrapped_module."
_SEED_BYTES = 7


def materialise(
    model: nn.Module,
    *,
    declaration: ModelDeclaration,
    device: torch.device,
    seed: int,
    on_host: Iterable[nn.Module] = (),
) -> None:
    """Give `model`, built on the meta device, storage on `device` and its initial values.

    Parameters of the modules `on_host` get theirs there.
    """
    hosted = {id(item) for module in on_host for item in module.parameters()}
    model._apply(  # type: ignore[no-untyped-call] # noqa: SLF001 - `to_empty` to two devices
        lambda tensor: torch.empty_like(tensor, device=HOST if id(tensor) in hosted else device)
    )
    tie(model, declaration)
    declaration.restore_buffers(model, device)
    with torch.no_grad():
        for name, parameter in model.named_parameters():
            known_as = unsplit_name(name, declaration)
            _fill(parameter, declaration.initial_value, name=known_as, seed=seed)


def tie(model: nn.Module, declaration: ModelDeclaration) -> None:
    """Let head and embedding share one weight again where both are here.

    Splitting over tensor-parallel ranks, and moving off the meta device, make two of it.
    """
    embedding = part(model, declaration.embedding)
    head = part(model, declaration.head)
    if declaration.tied_embeddings and embedding is not None and head is not None:
        head.weight = embedding.weight


def unsplit_name(name: str, declaration: ModelDeclaration) -> str:
    """Return what the unsplit, unwrapped model calls the parameter `name`."""
    plain = name_in_stage(name).replace(_WRAPPER, "")
    if declaration.tied_embeddings and plain == declaration.head_weight:
        return declaration.embedding_weight
    return plain


def _fill(parameter: nn.Parameter, initial_value: InitialValue, *, name: str, seed: int) -> None:
    whole = initial_value(name, parameter.shape, _generator(name, seed))
    if not isinstance(parameter, DTensor):
        parameter.copy_(whole)
        return
    local = parameter.to_local()
    for chunk in parameter.__create_chunk_list__():  # type: ignore[no-untyped-call]
        piece = whole
        for dimension, (offset, size) in enumerate(zip(chunk.offsets, chunk.sizes, strict=True)):
            piece = piece.narrow(dimension, offset, size)
        local.copy_(piece)


def _generator(name: str, seed: int) -> torch.Generator:
    digest = hashlib.sha256(f"{seed}:{name}".encode()).digest()
    return torch.Generator().manual_seed(int.from_bytes(digest[:_SEED_BYTES], "big"))
