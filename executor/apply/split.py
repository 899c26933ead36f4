"""Pipeline split: the parts of the chain that a rank's stages hold, under their own names."""

from __future__ import annotations

import copy
from collections.abc import Sequence

from torch import nn

from executor.errors import ModelMismatchError
from executor.models.declaration import ModelDeclaration, remove_part
from planner.schema.strategy import Stage


def split(
    model: nn.Module,
    *,
    declaration: ModelDeclaration,
    stages: Sequence[Stage],
    held: Sequence[int],
) -> tuple[nn.Module, ...]:
    """Return one module for each of the `held` stages; `model`, whole before, is the first.

    Names are those of the unsplit model in each. What is neither block nor edge (tables of
    positions, say) is in all of them.

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
    blocks = _taken_out(model, declaration)
    modules = [model, *(copy.deepcopy(model) for _ in held[1:])]
    for module, index in zip(modules, held, strict=True):
        home = module.get_submodule(declaration.blocks)
        for block in stage_blocks(stages[index]):
            home.add_module(str(block), blocks[block])
        if index != 0:
            for path in (declaration.embedding, *declaration.beside_embedding):
                remove_part(module, path)
        if index != len(stages) - 1:
            remove_part(module, declaration.final_norm)
            remove_part(module, declaration.head)
    return tuple(modules)


def stage_blocks(stage: Stage) -> range:
    """Return the indices, in the unsplit model, of the blocks that `stage` holds."""
    first = stage.layers[0].first_block
    return range(first, first + stage.block_count)


def _taken_out(model: nn.Module, declaration: ModelDeclaration) -> list[nn.Module]:
    """Return the chain's blocks, which the model has no more."""
    home = model.get_submodule(declaration.blocks)
    names = [str(index) for index in range(declaration.block_count)]
    blocks = [home.get_submodule(name) for name in names]
    for name in names:
        delattr(home, name)
    return blocks
