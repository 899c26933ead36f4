"""ZeRO and data parallelism through FSDP2: what each stage shards, and when it synchronises.

| stage | parameters after forward | gradients reduced         | states sharded |
|-------|--------------------------|---------------------------|----------------|
| 0     | whole                    | all-reduce, once a step   | nothing        |
| 1     | whole until step's end   | reduce-scatter, once      | optimizer      |
| 2     | whole until step's end   | reduce-scatter, each time | + gradients    |
| 3     | sharded                  | reduce-scatter, each time | + parameters   |

FSDP averages over the ranks that see different tokens, data-parallel and context-parallel, so that
the mean loss of each rank's equal share has the gradient of the global batch's mean.
"""

from __future__ import annotations

from dataclasses import dataclass

import torch
from torch import nn
from torch.distributed._composable.replicate_with_fsdp import replicate
from torch.distributed.device_mesh import DeviceMesh
from torch.distributed.fsdp import FSDPModule, MixedPrecisionPolicy, fully_shard

from executor.apply.replicate import Replica
from executor.apply.split import stage_blocks
from executor.mesh import REPLICATE, RankMesh
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

    sharded: tuple[ShardedPart, ...] = ()
    replicas: tuple[Replica, ...] = ()

    def before_backward(self, *, is_last: bool) -> None:
        """Set every part's flags for the backward of one micro-batch.

        Whole parameters must be given up after the last backward at the latest: the optimizer
        updates the shards, and what stayed whole would be stale.
        """
        for item in self.sharded:
            item.module.set_requires_gradient_sync(is_last or item.zero_stage >= 2, recurse=False)
            item.module.set_requires_all_reduce(is_last, recurse=False)
            item.module.set_reshard_after_backward(is_last or item.zero_stage == 3, recurse=False)
        for replica in self.replicas:
            replica.before_backward(is_last=is_last)

    def before_input_gradients(self) -> None:
        """Set every part's flags for the first part of a divided backward: it reduces nothing."""
        for item in self.sharded:
            item.module.set_requires_gradient_sync(False, recurse=False)
            item.module.set_reshard_after_backward(item.zero_stage == 3, recurse=False)

    def reduce_replicas(self) -> None:
        """Reduce what autograd's hooks have not seen: the gradients of a divided backward."""
        for replica in self.replicas:
            replica.reduce()

    def finish(self) -> None:
        """Wait for what the last backward has left under way."""
        for replica in self.replicas:
            replica.finish()


def needs_data_parallel(mesh: RankMesh, precision: Precision) -> bool:
    """Return whether anything is to be done: states to share, or a copy in another format."""
    return mesh.gradient_degree > 1 or precision is not Precision.FP32


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
        return GradientSync()
    policy = _mixed_precision(precision)
    sharded: list[ShardedPart] = []
    replicas: list[Replica] = []
    tied_stage: int | None = None
    for modules, zero_stage in _pieces(model, declaration, stage, edges):
        if sharding_mesh(mesh, zero_stage) is None and precision is Precision.FP32:
            group = mesh.data.get_group()
            replicas.append(Replica(modules, group=group, degree=mesh.gradient_degree))
        elif _holds_tied_pair(model, declaration) and len(modules) > 1:
            tied_stage = zero_stage
        else:
            _keep(modules, zero_stage=zero_stage, mesh=mesh, policy=policy)
            sharded.append(ShardedPart(module=_fsdp(modules[0]), zero_stage=zero_stage))
    ignored = {parameter for replica in replicas for parameter in replica.parameters()}
    if sharded or tied_stage is not None or ignored != set(model.parameters()):
        # The root orders the parts' collectives, and holds itself what shares one weight, or what
        # a declaration leaves outside of all parts.
        root_stage = int(bool(sharded)) if tied_stage is None else tied_stage
        _keep([model], zero_stage=root_stage, mesh=mesh, policy=policy, ignored=ignored)
        sharded.append(ShardedPart(module=_fsdp(model), zero_stage=root_stage))
    return GradientSync(sharded=tuple(sharded), replicas=tuple(replicas))


def head_choice(declaration: ModelDeclaration, edges: tuple[EdgeChoice, EdgeChoice]) -> EdgeChoice:
    """Return how the head is kept: as the embedding where both share one weight."""
    return edges[0] if declaration.tied_embeddings else edges[1]


def sharding_mesh(mesh: RankMesh, zero_stage: int) -> DeviceMesh | None:
    """Return the mesh over which `zero_stage` shards, `None` where it only replicates."""
    if zero_stage == 0 or mesh.shard_degree == 1:
        return None
    return mesh.hybrid if mesh.degrees[REPLICATE] > 1 else mesh.sharding


def _pieces(
    model: nn.Module,
    declaration: ModelDeclaration,
    stage: Stage,
    edges: tuple[EdgeChoice, EdgeChoice],
) -> list[tuple[list[nn.Module], int]]:
    """Return what is kept together, with its ZeRO stage; tied edges are one piece."""
    pieces: list[tuple[list[nn.Module], int]] = []
    for group in stage.layers:
        for index in stage_blocks(Stage(stage=0, layers=(group,))):
            block = model.get_submodule(declaration.block_path(index))
            pieces.append(([block], group.zero_stage))
    embedding = part(model, declaration.embedding)
    head = part(model, declaration.head)
    norm = part(model, declaration.final_norm)
    if declaration.tied_embeddings and embedding and norm and head:
        return [*pieces, ([embedding, norm, head], edges[0].zero_stage)]
    if embedding is not None:
        pieces.insert(0, ([embedding], edges[0].zero_stage))
    last = [module for module in (norm, head) if module is not None]
    if last:
        pieces.append((last, head_choice(declaration, edges).zero_stage))
    return pieces


def _holds_tied_pair(model: nn.Module, declaration: ModelDeclaration) -> bool:
    return (
        declaration.tied_embeddings
        and part(model, declaration.embedding) is not None
        and part(model, declaration.head) is not None
    )


def _keep(
    modules: list[nn.Module],
    *,
    zero_stage: int,
    mesh: RankMesh,
    policy: MixedPrecisionPolicy,
    ignored: set[nn.Parameter] | None = None,
) -> None:
    target = modules if len(modules) > 1 else modules[0]
    sharding = sharding_mesh(mesh, zero_stage)
    if sharding is None:
        replicate(target, mesh=mesh.data, mp_policy=policy, ignored_params=ignored)
        return
    fully_shard(
        target,
        mesh=sharding,
        reshard_after_forward=zero_stage == 3,
        mp_policy=policy,
        ignored_params=ignored,
    )


def _fsdp(module: nn.Module) -> FSDPModule:
    assert isinstance(module, FSDPModule)  # noqa: S101 - `_keep` has made it one
    return module


def _mixed_precision(precision: Precision) -> MixedPrecisionPolicy:
    if precision is Precision.FP32:
        return MixedPrecisionPolicy()
    return MixedPrecisionPolicy(param_dtype=torch.bfloat16, reduce_dtype=torch.float32)
