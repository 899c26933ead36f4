"""Tied embeddings under a pipeline: two copies of one weight, kept equal by summing gradients."""

from __future__ import annotations

from dataclasses import dataclass

import torch
from torch import distributed, nn
from torch.distributed.tensor import DTensor

from executor.mesh import PIPELINE, RankMesh
from executor.models.declaration import ModelDeclaration, part


@dataclass(frozen=True, slots=True, kw_only=True)
class TiedPair:
    """A rank's copy of a weight that another stage also holds, if there is one.

    Both copies are sharded alike, so the same piece of each meets in `group`.
    """

    weight: nn.Parameter | None
    group: distributed.ProcessGroup | None

    @staticmethod
    def of(model: nn.Module, *, declaration: ModelDeclaration, mesh: RankMesh) -> TiedPair:
        """Return the pair; a collective call on all ranks of a pipelined, tied model."""
        degree = mesh.degrees[PIPELINE]
        if not declaration.tied_embeddings or degree == 1:
            return TiedPair(weight=None, group=None)
        group = _ends_group(mesh)
        if mesh.is_first_stage:
            return TiedPair(weight=_weight(model, declaration.embedding), group=group)
        if mesh.is_last_stage:
            return TiedPair(weight=_weight(model, declaration.head), group=group)
        return TiedPair(weight=None, group=None)

    def sum_gradients(self) -> None:
        """Give both copies the gradient of the one weight that they stand for."""
        if self.weight is None or self.weight.grad is None:
            return
        gradient: torch.Tensor = self.weight.grad
        local = gradient.to_local() if isinstance(gradient, DTensor) else gradient
        distributed.all_reduce(local, group=self.group)


def _ends_group(mesh: RankMesh) -> distributed.ProcessGroup | None:
    """Return the group of this rank's first and last stage, made by all ranks in one order."""
    pipelines = mesh.world.mesh.movedim(0, -1).flatten(0, -2)
    mine = None
    for ranks in pipelines.tolist():
        ends = [ranks[0], ranks[-1]]
        group = distributed.new_group(ends)
        if distributed.get_rank() in ends:
            mine = group
    return mine


def _weight(model: nn.Module, path: str) -> nn.Parameter:
    module = part(model, path)
    assert module is not None, path  # noqa: S101
    weight = module.weight
    assert isinstance(weight, nn.Parameter)  # noqa: S101
    return weight
