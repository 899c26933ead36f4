"""Differences: what a rank really holds, compared with what the plan says it holds."""

from __future__ import annotations

from collections.abc import Iterator, Sequence

from torch import nn
from torch.distributed.algorithms._checkpoint.checkpoint_wrapper import CheckpointWrapper

from executor.apply.activation_offload import OffloadedActivations, without_offload
from executor.apply.pieces import head_choice
from executor.apply.placements import is_sharded, is_zero_sharded
from executor.apply.split import stage_blocks
from executor.apply.token_differences import token_differences
from executor.apply.virtual_stages import VirtualStage
from executor.apply.whole import whole_statements
from executor.apply.zero import needs_data_parallel
from executor.mesh import SHARD, TENSOR, RankMesh, axis_degrees
from executor.models.adapters import is_adapter
from executor.models.declaration import ModelDeclaration, part
from executor.models.quantized_linear import quantized_linears
from planner.schema.job import BaseFormat, Job, Precision
from planner.schema.strategy import (
    ActivationCheckpointing,
    EdgeChoice,
    Offload,
    Stage,
    Strategy,
)


def differences_from_plan(
    stages: Sequence[VirtualStage],
    *,
    declaration: ModelDeclaration,
    strategy: Strategy,
    precision: Precision,
    mesh: RankMesh,
) -> tuple[str, ...]:
    """Return one sentence for each way in which the applied model is not the planned one."""
    if declaration.is_whole:
        (only,) = stages
        return (*_mesh_differences(strategy, mesh), *whole_statements(only.module, strategy))
    sharding = mesh.shard_degree > 1 and needs_data_parallel(mesh, precision)
    expert_sharding = sharding if mesh.experts is None else mesh.experts.sharding.size() > 1
    found = list(_mesh_differences(strategy, mesh))
    for stage in stages:
        module, plan = stage.module, stage.plan
        found += _content_differences(stage, declaration)
        found += _checkpointing_differences(module, declaration, plan)
        found += _tensor_parallel_differences(module, declaration, mesh)
        found += token_differences(module, declaration=declaration, strategy=strategy, mesh=mesh)
        found += _zero_differences(
            module,
            declaration,
            strategy,
            plan,
            sharding=sharding,
            expert_sharding=expert_sharding,
        )
    return tuple(found)


def packing_differences(
    stages: Sequence[VirtualStage], *, declaration: ModelDeclaration, job: Job
) -> Iterator[str]:
    """Yield a sentence for each way in which matrices of blocks are not packed as planned."""
    adapters = job.adapters
    if adapters is None or adapters.base_bits == 16 or declaration.is_whole:
        return
    whole = {
        name: item.numel()
        for stage in stages
        for name, item in stage.module.get_submodule(declaration.blocks).named_parameters()
        if item.is_floating_point() and item.dim() > 1 and not is_adapter(f".{name}")
    }
    if whole:
        yield (
            f"{sum(whole.values())} parameters of blocks, such as those of {next(iter(whole))}, "
            f"are no linears of bitsandbytes: they are kept whole, planned in {adapters.base_bits} "
            "bits"
        )
    nested = {
        linear.quantization.is_nested
        for stage in stages
        for _, linear in quantized_linears(stage.module)
        if linear.quantization.bits == 4
    }
    planned = adapters.base_format is BaseFormat.BNB_NESTED
    if nested - {planned}:
        bits = "4.5" if planned else "4.127"
        yield (
            f"weights of blocks take {bits} bits each, scales of bitsandbytes among them, planned "
            f"as {adapters.base_format}"
        )


def _mesh_differences(strategy: Strategy, mesh: RankMesh) -> Iterator[str]:
    actual = dict(zip(mesh.world.mesh_dim_names or (), mesh.world.shape, strict=True))
    for axis, degree in axis_degrees(strategy).items():
        if actual.get(axis) != degree:
            yield f"mesh axis {axis} has {actual.get(axis)} ranks, planned {degree}"


def _content_differences(stage: VirtualStage, declaration: ModelDeclaration) -> Iterator[str]:
    home = stage.module.get_submodule(declaration.blocks)
    held = [int(name) for name, _ in home.named_children()]
    planned = list(stage_blocks(stage.plan))
    if held != planned:
        yield f"stage {stage.index} holds blocks {held}, planned {planned}"
    edges = ((declaration.embedding, stage.is_first), (declaration.head, stage.is_last))
    for path, expected in edges:
        if path and (part(stage.module, path) is not None) is not expected:
            yield f"{path} is {'absent' if expected else 'present'} on stage {stage.index}"


def _checkpointing_differences(
    model: nn.Module, declaration: ModelDeclaration, stage: Stage
) -> Iterator[str]:
    for group in stage.layers:
        planned = group.activation_checkpointing is not ActivationCheckpointing.NONE
        for index in stage_blocks(Stage(stage=0, layers=(group,))):
            block = part(model, declaration.block_path(index))
            if isinstance(without_offload(block), CheckpointWrapper) is not planned:
                yield f"block {index} is checkpointed: {not planned}, planned: {planned}"
            offloads = Offload.ACTIVATIONS in group.offload
            if isinstance(block, OffloadedActivations) is not offloads:
                yield f"block {index} offloads activations: {not offloads}, planned: {offloads}"


def _tensor_parallel_differences(
    model: nn.Module, declaration: ModelDeclaration, mesh: RankMesh
) -> Iterator[str]:
    planned = mesh.degrees[TENSOR] > 1
    split = (*declaration.block.column, *declaration.block.row)
    for name, block in model.get_submodule(declaration.blocks).named_children():
        for path in split:
            linear = part(block, path)
            weight = None if linear is None else linear.weight
            if isinstance(weight, nn.Parameter) and is_sharded(weight, TENSOR) is not planned:
                yield f"block {name} {path} is split over {TENSOR}: {not planned}"


def _zero_differences(
    model: nn.Module,
    declaration: ModelDeclaration,
    strategy: Strategy,
    stage: Stage,
    *,
    sharding: bool,
    expert_sharding: bool,
) -> Iterator[str]:
    embedding, head = strategy.embedding or EdgeChoice(), strategy.head or EdgeChoice()
    edge_head = head_choice(declaration, (embedding, head))
    zero_stages = [
        (declaration.embedding, embedding.zero_stage),
        (declaration.head, edge_head.zero_stage),
    ]
    zero_stages += [
        (declaration.block_path(index), group.zero_stage)
        for group in stage.layers
        for index in stage_blocks(Stage(stage=0, layers=(group,)))
    ]
    for path, zero_stage in zero_stages:
        module = part(model, path)
        for name, parameter in () if module is None else module.named_parameters():
            is_expert = bool(declaration.block.experts) and f"{declaration.block.experts}." in name
            is_shared_out = expert_sharding if is_expert else sharding
            planned = is_shared_out and zero_stage > 0 and parameter.dim() > 0
            if is_zero_sharded(parameter) is not planned:
                yield f"{path}.{name} is sharded over {SHARD}: {not planned}, planned: {planned}"
