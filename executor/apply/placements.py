"""Placements: whether a parameter is divided along an axis of the mesh."""

from __future__ import annotations

from torch import nn
from torch.distributed.tensor import DTensor

from executor.mesh import ZERO_AXES


def is_zero_sharded(parameter: nn.Parameter) -> bool:
    """Return whether ZeRO has divided `parameter`."""
    return any(is_sharded(parameter, axis) for axis in ZERO_AXES)


def is_sharded(parameter: nn.Parameter, axis: str) -> bool:
    """Return whether `parameter` is divided along the mesh axis called `axis`."""
    if not isinstance(parameter, DTensor):
        return False
    mesh = parameter.device_mesh
    names = mesh.mesh_dim_names or ()
    return any(
        name == axis and ranks > 1 and not (placement.is_replicate() or placement.is_partial())
        for name, ranks, placement in zip(names, mesh.shape, parameter.placements, strict=True)
    )
