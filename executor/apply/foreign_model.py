"""Foreign model: checkpointing and ZeRO of a module whose steps another framework runs.

The module keeps its parts, its names and its own forward; pipelines and experts need the executor.
"""

from __future__ import annotations

from collections.abc import Iterable, Iterator

import torch
from torch import nn
from torch.distributed.device_mesh import DeviceMesh, init_device_mesh
from torch.distributed.fsdp import MixedPrecisionPolicy, fully_shard
from torch.distributed.tensor import DTensor

from executor.apply.checkpointing import checkpointed
from executor.errors import ModelMismatchError
from executor.precision import compute_dtype, sum_dtype, wide
from planner.schema.job import Precision
from planner.schema.strategy import ActivationCheckpointing, LayerGroup, Strategy

_LISTS = (nn.ModuleList, nn.Sequential, nn.ModuleDict)


def modules_of(objects: Iterable[object]) -> list[nn.Module]:
    """Return those of `objects` that are modules."""
    return [item for item in objects if isinstance(item, nn.Module)]


def is_trained(model: nn.Module) -> bool:
    """Return whether a forward of `model`, begun now, has a backward, and is no evaluation."""
    return model.training and records_gradients()


def records_gradients() -> bool:
    """Return whether a forward that is begun now may have a backward."""
    return torch.is_grad_enabled()


def blocks_path(model: nn.Module, block_count: int) -> str:
    """Return the path of the list that holds the plan's blocks: of those as long, the largest.

    Raises:
        ModelMismatchError: if no list is as long.
    """
    lists = {name: item for name, item in model.named_modules() if isinstance(item, _LISTS)}
    sizes: dict[str, int] = {
        name: sum(parameter.numel() for parameter in item.parameters())
        for name, item in lists.items()
        if len(item) == block_count
    }
    if not sizes:
        lengths = {name: len(item) for name, item in lists.items()}
        raise ModelMismatchError(
            f"has no list of {block_count} blocks, which the plan is for",
            field="model",
            value=lengths or type(model).__qualname__,
            remedy="train the model that was planned, with its blocks in a ModuleList",
        )
    return max(sizes, key=sizes.__getitem__)


def checkpoint_blocks(model: nn.Module, path: str, strategy: Strategy) -> None:
    """Wrap the blocks at `path` as their layer groups are planned; parameters keep their names."""
    blocks = model.get_submodule(path)
    names = [name for name, _ in blocks.named_children()]
    for name, group in zip(names, _groups(strategy), strict=True):
        if group.activation_checkpointing is not ActivationCheckpointing.NONE:
            block = blocks.get_submodule(name)
            setattr(blocks, name, checkpointed(block, group.activation_checkpointing))


def shard_blocks(
    model: nn.Module, path: str, strategy: Strategy, *, precision: Precision, mesh: DeviceMesh
) -> None:
    """Shard each block at `path`, and what else `model` has, over `mesh` as ZeRO 2 or 3."""
    policy = _policy(precision)
    blocks = model.get_submodule(path).children()
    for block, group in zip(blocks, _groups(strategy), strict=True):
        resharded = group.zero_stage == 3
        fully_shard(block, mesh=mesh, mp_policy=policy, reshard_after_forward=resharded)
    ends = [edge.zero_stage for edge in (strategy.embedding, strategy.head) if edge is not None]
    fully_shard(model, mesh=mesh, mp_policy=policy, reshard_after_forward=ends == [3, 3])


def check_tensor_parallel(model: nn.Module, strategy: Strategy) -> None:
    """Return if `model` is split over the plan's tensor-parallel ranks, by whoever does so.

    Raises:
        ModelMismatchError: if nothing of it is.
    """
    degree = strategy.tensor_parallel_degree
    if degree > 1 and not any(_is_split(item, degree) for item in model.parameters()):
        raise ModelMismatchError(
            f"is not split over {degree} tensor-parallel ranks, as planned",
            field="model",
            value=type(model).__qualname__,
            remedy="split its linears by parallelize_module before it is trained, or load it with "
            f"from_pretrained(..., tp_plan='auto', tp_size={degree})",
        )


def _is_split(parameter: nn.Parameter, degree: int) -> bool:
    """Return whether some axis of a parameter's mesh, of so many ranks, divides it."""
    if not isinstance(parameter, DTensor):
        return False
    mesh = parameter.device_mesh
    return any(
        mesh.size(axis) == degree and placement.is_shard()
        for axis, placement in enumerate(parameter.placements)
    )


def sharding_mesh(strategy: Strategy, device: torch.device) -> DeviceMesh:
    """Return the mesh of shard groups, of which there may be replicas."""
    shard, replicas = strategy.shard_degree, strategy.replicate_degree
    if replicas == 1:
        return init_device_mesh(device.type, (shard,), mesh_dim_names=("shard",))
    names = ("replicate", "shard")
    return init_device_mesh(device.type, (replicas, shard), mesh_dim_names=names)


def _groups(strategy: Strategy) -> Iterator[LayerGroup]:
    """Yield each block's layer group."""
    for stage in strategy.stages or ():
        for group in stage.layers:
            yield from [group] * group.block_count


def _policy(precision: Precision) -> MixedPrecisionPolicy:
    """Return the formats that are computed and summed in; what comes out is wide, for the loss."""
    if precision is Precision.FP32:
        return MixedPrecisionPolicy()
    narrow = compute_dtype(precision)
    return MixedPrecisionPolicy(
        param_dtype=narrow, reduce_dtype=sum_dtype(), output_dtype=wide(narrow)
    )
