"""Holdings: what a rank really holds of the model, for its report."""

from __future__ import annotations

from collections import Counter

from torch import nn
from torch.distributed.tensor import DTensor

from executor.apply.materialise import unsplit_name
from executor.models.declaration import ModelDeclaration

WHOLE = "whole"


def held_blocks(model: nn.Module, declaration: ModelDeclaration) -> tuple[int, ...]:
    """Return the blocks of the unsplit model that lie here; none if it declares none."""
    if declaration.is_whole:
        return ()
    prefix = f"{declaration.blocks}."
    names = (unsplit_name(name, declaration) for name, _ in model.named_parameters())
    inside = (name.removeprefix(prefix) for name in names if name.startswith(prefix))
    return tuple(sorted({int(name.partition(".")[0]) for name in inside}))


def placements(model: nn.Module) -> dict[str, int]:
    """Return how many parameters lie how: by the mesh axes that divide them, or `whole`."""
    return dict(sorted(Counter(_axes(parameter) for parameter in model.parameters()).items()))


def _axes(parameter: nn.Parameter) -> str:
    if not isinstance(parameter, DTensor):
        return WHOLE
    names = parameter.device_mesh.mesh_dim_names or ()
    dividing = [
        name
        for name, placement in zip(names, parameter.placements, strict=True)
        if not (placement.is_replicate() or placement.is_partial())
    ]
    return "+".join(dividing) or WHOLE
