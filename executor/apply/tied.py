"""Tied embeddings under a pipeline: two copies of one weight, kept equal by summing gradients.

The first and the last stage of the chain hold one each. They lie on two ranks, or on one where the
chain comes back to where it began.
"""

from __future__ import annotations

from collections.abc import Sequence
from dataclasses import dataclass

import torch
from torch import distributed, nn

from executor.apply.virtual_stages import VirtualStage, held_stages
from executor.host_memory import HOST
from executor.local_tensor import local_gradient
from executor.mesh import PIPELINE, RankMesh
from executor.models.declaration import ModelDeclaration
from planner.schema.strategy import Strategy


@dataclass(frozen=True, slots=True, kw_only=True)
class TiedPair:
    """A rank's copies of a weight that two stages hold: none, one or both.

    Both are sharded alike, so the same piece of each meets in `group` where they are apart, on
    `device`: gradients of offloaded parameters lie on the host, where NCCL does not reach.
    """

    weights: tuple[nn.Parameter, ...] = ()
    group: distributed.ProcessGroup | None = None
    device: torch.device = HOST

    @staticmethod
    def of(
        stages: Sequence[VirtualStage],
        *,
        declaration: ModelDeclaration,
        strategy: Strategy,
        mesh: RankMesh,
        device: torch.device,
    ) -> TiedPair:
        """Return the pair; a collective call on all ranks of a pipelined, tied model."""
        degree = mesh.degrees[PIPELINE]
        if not declaration.tied_embeddings or degree == 1:
            return TiedPair()
        weights = [
            item.module.get_parameter(declaration.embedding_weight)
            for item in stages
            if item.is_first
        ]
        weights += [
            item.module.get_parameter(declaration.head_weight) for item in stages if item.is_last
        ]
        last = strategy.virtual_stage_count - 1
        (end,) = (rank for rank in range(degree) if last in held_stages(strategy, rank))
        group = None if end == 0 else _group(mesh, (0, end))
        return TiedPair(weights=tuple(weights), group=group, device=device)

    def sum_gradients(self) -> None:
        """Give both copies the gradient of the one weight that they stand for."""
        gradients = [local_gradient(weight) for weight in self.weights if weight.grad is not None]
        if len(gradients) == 2:
            first, second = gradients
            second.copy_(first.add_(second))
        elif gradients:
            _all_reduce(gradients[0], self.group, device=self.device)


def second_copies(
    stages: Sequence[VirtualStage], declaration: ModelDeclaration
) -> list[nn.Parameter]:
    """Return the weights here of which the first stage holds the copy that counts."""
    if not declaration.tied_embeddings:
        return []
    ends = [stage for stage in stages if stage.is_last and not stage.is_first]
    return [stage.module.get_parameter(declaration.head_weight) for stage in ends]


def _all_reduce(
    gradient: torch.Tensor, group: distributed.ProcessGroup | None, *, device: torch.device
) -> None:
    met = gradient.to(device)
    distributed.all_reduce(met, group=group)
    if met is not gradient:
        gradient.copy_(met)


def _group(mesh: RankMesh, places: tuple[int, int]) -> distributed.ProcessGroup | None:
    """Return this rank's group of two places of its pipeline, made by all ranks in one order."""
    pipelines = mesh.world.mesh.movedim(0, -1).flatten(0, -2)
    mine = None
    for ranks in pipelines.tolist():
        ends = [ranks[place] for place in places]
        group = distributed.new_group(ends)
        if distributed.get_rank() in ends:
            mine = group
    return mine
