"""Pipeline split: keep one stage's parts of the chain, under their names in the unsplit model."""

from __future__ import annotations

from torch import nn

from executor.errors import ModelMismatchError
from executor.mesh import RankMesh
from executor.models.declaration import ModelDeclaration, remove_part
from planner.schema.strategy import Stage


def split(
    model: nn.Module, *, declaration: ModelDeclaration, stages: tuple[Stage, ...], mesh: RankMesh
) -> None:
    """Remove from `model` all that is not on this rank's stage.

    Raises:
        ModelMismatchError: if the model does not have the blocks that were planned.
    """
    planned = sum(stage.block_count for stage in stages)
    if planned != declaration.block_count:
        raise ModelMismatchError(
            f"the plan has {planned} blocks",
            field="build_model",
            value=f"{declaration.block_count} blocks",
            remedy="build the model that was planned, or plan for this one",
        )
    kept = stage_blocks(stages[mesh.stage])
    blocks = model.get_submodule(declaration.blocks)
    for index in range(declaration.block_count):
        if index not in kept:
            del blocks[str(index)]  # type: ignore[operator]
    if not mesh.is_first_stage:
        remove_part(model, declaration.embedding)
    if not mesh.is_last_stage:
        remove_part(model, declaration.final_norm)
        remove_part(model, declaration.head)


def stage_blocks(stage: Stage) -> range:
    """Return the indices, in the unsplit model, of the blocks that `stage` holds."""
    first = stage.layers[0].first_block
    return range(first, first + stage.block_count)
