"""Token differences: how ranks share sequences and experts, compared with what the plan says."""

from __future__ import annotations

from collections.abc import Iterator

from torch import nn

from executor.apply.context_parallel import ranks_sharing_attention
from executor.apply.expert_parallel import experts_of
from executor.apply.placements import is_sharded
from executor.mesh import CONTEXT, EXPERT, EXPERT_TENSOR, TENSOR, RankMesh, expert_degrees
from executor.models.declaration import ModelDeclaration
from planner.schema.strategy import Strategy


def token_differences(
    model: nn.Module, *, declaration: ModelDeclaration, strategy: Strategy, mesh: RankMesh
) -> Iterator[str]:
    """Yield a sentence for each block whose attention or experts are not as planned."""
    planned_ranks = strategy.context_parallel_degree
    for name, block in model.get_submodule(declaration.blocks).named_children():
        ranks = ranks_sharing_attention(block)
        if ranks != planned_ranks:
            yield (
                f"block {name} attends over {ranks} ranks of {CONTEXT}, planned: {planned_ranks}"
            )
    yield from _expert_mesh_differences(strategy, mesh)
    yield from _expert_differences(model, declaration, strategy, mesh)


def _expert_mesh_differences(strategy: Strategy, mesh: RankMesh) -> Iterator[str]:
    home = mesh.experts
    actual = {} if home is None else dict(zip(home.degrees, home.world.shape[-3:], strict=True))
    planned = expert_degrees(strategy) or {}
    for axis in sorted({*actual, *planned}):
        if actual.get(axis) != planned.get(axis):
            yield f"mesh axis {axis} has {actual.get(axis)} ranks, planned {planned.get(axis)}"


def _expert_differences(
    model: nn.Module, declaration: ModelDeclaration, strategy: Strategy, mesh: RankMesh
) -> Iterator[str]:
    split = strategy.expert_tensor_parallel_degree or strategy.tensor_parallel_degree
    width_axis = TENSOR if mesh.experts is None else EXPERT_TENSOR
    planned = {EXPERT: strategy.expert_parallel_degree > 1, width_axis: split > 1}
    for _, experts in experts_of(model, declaration):
        for name, parameter in experts.named_parameters():
            for axis, expected in planned.items():
                if is_sharded(parameter, axis) is not expected:
                    yield f"experts' {name} is split over {axis}: {not expected}"
