"""Parameter marks: what a script notes on its parameters, for its optimizer to read.

Splitting, sharding and storage make parameters anew; attributes such as `no_weight_decay` are put
on those that take their place.
"""

from __future__ import annotations

from collections.abc import Mapping
from typing import Any

from torch import nn

from executor.apply.materialise import unsplit_name
from executor.models.declaration import ModelDeclaration

Marks = Mapping[str, Mapping[str, Any]]


def marks_of(model: nn.Module) -> Marks:
    """Return the attributes of the parameters of the unsplit `model`, by name."""
    return {name: dict(vars(item)) for name, item in model.named_parameters() if vars(item)}


def mark(model: nn.Module, marks: Marks, *, declaration: ModelDeclaration) -> None:
    """Give the parameters of `model` the attributes that they had unsplit, and no longer have."""
    for name, parameter in model.named_parameters() if marks else ():
        own = vars(parameter)
        for key, value in marks.get(unsplit_name(name, declaration), {}).items():
            own.setdefault(key, value)
