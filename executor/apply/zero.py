"""ZeRO and data parallelism through FSDP2: what each stage shards, and when it synchronises.

| stage | parameters after forward | gradients reduced         | states sharded |
|-------|--------------------------|---------------------------|----------------|
| 0     | whole                    | all-reduce, once a step   | nothing        |
| 1     | whole until step's end   | reduce-scatter, once      | optimizer      |
| 2     | whole until step's end   | reduce-scatter, each time | + gradients    |
| 3     | sharded                  | reduce-scatter, each time | + parameters   |

FSDP averages over data-parallel ranks, so that the mean loss of each rank's equal share has the
gradient of the global batch's mean.
"""

from __future__ import annotations

from dataclasses import dataclass

import torch
from torch import nn
from torch.distributed._composable.replicate_with_fsdp import replicate
from torch.distributed.device_mesh import DeviceMesh
from torch.distributed.fsdp import FSDPModule, MixedPrecisionPolicy, fully_shard

from executor.apply.split import stage_blocks
from executor.mesh import REPLICATE, SHARD, RankMesh
from executor.models.declaration import ModelDeclaration, part
from planner.schema.job import Precision
from planner.schema.strategy import EdgeChoice, Stage


@dataclass(frozen=True, slots=True, kw_only=True)
class ShardedPart:
    """A module whose model states are kept as one ZeRO stage says."""

    module: FSDPModule
    zero_stage: int


@dataclass(frozen=True, slots=True, kw_only=True)
class GradientSync:
    """When the parts of a stage reduce gradients and give up whole parameters."""

    parts: tuple[ShardedPart, ...]

    def before_backward(self, *, is_last: bool) -> None:
        """Set every part's flags for the backward of one micro-batch.

        Whole parameters must be given up after the last backward at the latest: the optimizer
        updates the shards, and what stayed whole would be stale.
        """
        for item in self.parts:
            item.module.set_requires_gradient_sync(is_last or item.zero_stage >= 2, recurse=False)
            item.module.set_requires_all_reduce(is_last, recurse=False)
            item.module.set_reshard_after_backward(is_last or item.zero_stage == 3, recurse=False)


def needs_data_parallel(mesh: RankMesh, precision: Precision) -> bool:
    """Return whether parameters need FSDP: to share them, or to keep a copy in another format."""
    return mesh.data_degree > 1 or precision is not Precision.FP32


def apply_zero(
    model: nn.Module,
    *,
    declaration: ModelDeclaration,
    mesh: RankMesh,
    stage: Stage,
    edges: tuple[EdgeChoice, EdgeChoice],
    precision: Precision,
) -> GradientSync:
    """Shard or replicate each block and edge of the stage as its group's ZeRO stage says."""
    if not needs_data_parallel(mesh, precision):
        return GradientSync(parts=())
    policy = _mixed_precision(precision)
    parts = []
    for modules, zero_stage in _pieces(model, declaration, stage, edges):
        _keep(modules, zero_stage=zero_stage, mesh=mesh, policy=policy)
        parts.append(ShardedPart(module=modules[0], zero_stage=zero_stage))  # type: ignore[arg-type]
    root_stage = _root_stage(model, declaration, edges)
    _keep([model], zero_stage=root_stage, mesh=mesh, policy=policy)
    parts.append(ShardedPart(module=model, zero_stage=root_stage))  # type: ignore[arg-type]
    return GradientSync(parts=tuple(parts))


def head_choice(declaration: ModelDeclaration, edges: tuple[EdgeChoice, EdgeChoice]) -> EdgeChoice:
    """Return how the head is kept: as the embedding where both share one weight."""
    return edges[0] if declaration.tied_embeddings else edges[1]


def sharding_mesh(mesh: RankMesh, zero_stage: int) -> DeviceMesh | None:
    """Return the mesh over which `zero_stage` shards, `None` where it only replicates."""
    if zero_stage == 0 or mesh.degrees[SHARD] == 1:
        return None
    return mesh.hybrid if mesh.degrees[REPLICATE] > 1 else mesh.axis(SHARD)


def _pieces(
    model: nn.Module,
    declaration: ModelDeclaration,
    stage: Stage,
    edges: tuple[EdgeChoice, EdgeChoice],
) -> list[tuple[list[nn.Module], int]]:
    """Return what is kept together, with its ZeRO stage; tied edges are left to the root."""
    pieces: list[tuple[list[nn.Module], int]] = []
    for group in stage.layers:
        for index in stage_blocks(Stage(stage=0, layers=(group,))):
            block = model.get_submodule(declaration.block_path(index))
            pieces.append(([block], group.zero_stage))
    if _holds_tied_pair(model, declaration):
        return pieces
    embedding = part(model, declaration.embedding)
    head = part(model, declaration.head)
    if embedding is not None:
        pieces.insert(0, ([embedding], edges[0].zero_stage))
    if head is not None:
        norm = model.get_submodule(declaration.final_norm)
        pieces.append(([norm, head], head_choice(declaration, edges).zero_stage))
    return pieces


def _holds_tied_pair(model: nn.Module, declaration: ModelDeclaration) -> bool:
    return (
        declaration.tied_embeddings
        and part(model, declaration.embedding) is not None
        and part(model, declaration.head) is not None
    )


def _root_stage(
    model: nn.Module, declaration: ModelDeclaration, edges: tuple[EdgeChoice, EdgeChoice]
) -> int:
    """Return the root's ZeRO stage, which matters only where it holds the tied pair."""
    return edges[0].zero_stage if _holds_tied_pair(model, declaration) else 1


def _keep(
    modules: list[nn.Module], *, zero_stage: int, mesh: RankMesh, policy: MixedPrecisionPolicy
) -> None:
    target = modules if len(modules) > 1 else modules[0]
    sharding = sharding_mesh(mesh, zero_stage)
    if sharding is None:
        replicate(target, mesh=mesh.data, mp_policy=policy)
        return
    fully_shard(target, mesh=sharding, reshard_after_forward=zero_stage == 3, mp_policy=policy)


def _mixed_precision(precision: Precision) -> MixedPrecisionPolicy:
    if precision is Precision.FP32:
        return MixedPrecisionPolicy()
    return MixedPrecisionPolicy(param_dtype=torch.bfloat16, reduce_dtype=torch.float32)
