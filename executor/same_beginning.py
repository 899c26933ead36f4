"""Same beginning: whether all ranks begin with the values of one model.

What a script builds with values, or loads, each rank has from its own process. Seeded otherwise on
each, replicas would differ for ever, and shards be those of several models.
"""

from __future__ import annotations

from zlib import crc32

import torch
from torch import nn

from executor.agreement import everyone
from executor.apply.materialise import unsplit_name
from executor.errors import ModelMismatchError
from executor.models.declaration import ModelDeclaration
from executor.models.first_values import AwaitedValues, DrawnValues, FirstValues
from executor.quantized_values import QuantizedValues

_LOOKED_AT = 64  # numbers of each parameter, of its first row


def check_same_beginning(
    model: nn.Module, values: FirstValues, *, declaration: ModelDeclaration
) -> None:
    """Return if ranks have the same first numbers of each parameter; a collective call.

    What is drawn by name, or is to come from a checkpoint, is the same on all of them.

    Raises:
        ModelMismatchError: on every rank, naming the first parameter that differs.
    """
    if isinstance(values, DrawnValues | AwaitedValues):
        return
    marks = {
        name: _mark(values, name=name, shape=parameter.shape)
        for given, parameter in model.named_parameters()
        for name in [unsplit_name(given, declaration)]
    }
    first, *others = everyone(marks)
    for name, mark in first.items():
        if any(other.get(name) != mark for other in others):
            raise ModelMismatchError(
                "begins with other values on other ranks",
                field="build_model",
                value=name,
                remedy="seed all ranks alike before anything draws, let build_model() build the "
                "model, or give all of them the same weights=",
            )


def _mark(values: FirstValues, *, name: str, shape: torch.Size) -> int:
    if isinstance(values, QuantizedValues):
        values, name, shape = values.whole_of(name, shape)
    ranges = tuple(slice(0, 1) for _ in shape[:-1]) + tuple(
        slice(0, min(size, _LOOKED_AT)) for size in shape[-1:]
    )
    piece = values.piece(name, shape, ranges).detach().to(torch.float64).contiguous()
    return crc32(piece.numpy().tobytes())
