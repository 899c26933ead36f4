"""Whole: data parallelism and ZeRO of a module that declares nothing.

Without a list of blocks the module is one unit: one ZeRO stage for all of it, gathered and reduced
at once. What a plan asks for beyond that cannot be applied: degrees are refused, and the rest is
stated in the run's report.
"""

from __future__ import annotations

from collections.abc import Iterator

import torch
from torch import nn
from torch.distributed._composable.replicate_with_fsdp import replicate
from torch.distributed.fsdp import FSDPModule, fully_shard

from executor.apply.mixed_formats import mix_formats
from executor.apply.replicate import Replicas, Scalars, scalars_of
from executor.apply.usage import Reduced, Usage
from executor.apply.zero import (
    GradientSync,
    ShardedPart,
    _mixed_precision,
    needs_data_parallel,
    sharding_mesh,
)
from executor.errors import UnsupportedPlanError
from executor.mesh import RankMesh
from executor.precision import compute_dtype
from planner.schema.job import Precision
from planner.schema.strategy import ActivationCheckpointing, Offload, Strategy

_DEGREES = (
    "tensor_parallel_degree",
    "pipeline_parallel_degree",
    "context_parallel_degree",
    "expert_parallel_degree",
)


def check_whole(model: nn.Module, strategy: Strategy) -> None:
    """Return if `strategy` asks for nothing that only a declared model can have.

    Raises:
        UnsupportedPlanError: naming the first degree, or offload, that needs a declaration.
    """
    kind = type(model).__qualname__
    for field in _DEGREES:
        if getattr(strategy, field) != 1:
            raise UnsupportedPlanError(
                f"needs to know the parts of the model, and {kind} declares none",
                field=f"strategy.{field}",
                value=getattr(strategy, field),
                remedy="pass declaration=meshwright.Declaration(blocks=...) to parallelize(), or "
                f"plan with {field} limited to 1",
            )
    for stage in strategy.stages or ():
        for index, group in enumerate(stage.layers):
            if group.offload:
                raise UnsupportedPlanError(
                    f"needs to know the parts of the model, and {kind} declares none",
                    field=f"strategy.stages.{stage.stage}.layers.{index}.offload",
                    value=[Offload(item).value for item in group.offload],
                    remedy="pass declaration=meshwright.Declaration(blocks=...) to parallelize(), "
                    "or plan with limits.offload []",
                )


def apply_whole(
    model: nn.Module,
    *,
    mesh: RankMesh,
    strategy: Strategy,
    precision: Precision,
    device: torch.device,
) -> GradientSync:
    """Shard or replicate `model` as one unit: whole with its values on the CPU, or without any."""
    if not any(parameter.is_meta for parameter in model.parameters()):
        model.to(device)
    if precision is not Precision.FP32:
        mix_formats(model, compute_dtype(precision))
    if not needs_data_parallel(mesh, precision):
        return GradientSync()
    zero_stage = whole_zero_stage(strategy)
    policy = _mixed_precision(precision)
    sharding = sharding_mesh(mesh, zero_stage)
    apart = scalars_of((model,))
    if sharding is None:
        replicate(model, mesh=mesh.data, mp_policy=policy, ignored_params=apart)
    else:
        fully_shard(
            model,
            mesh=sharding,
            reshard_after_forward=zero_stage == 3,
            mp_policy=policy,
            ignored_params=apart,
        )
    whole, scalars = ShardedPart.of(model, zero_stage), Scalars.of(model, mesh)
    reduced: list[Reduced] = [*whole.gradients, *scalars]
    return GradientSync(
        sharded=(whole,),
        replicas=Replicas(scalars),
        usages=(Usage(mesh.data, reduced),),
    )


def whole_zero_stage(strategy: Strategy) -> int:
    """Return the largest ZeRO stage of any part of the plan: it takes the least memory."""
    return max(_zero_stages(strategy))


def whole_statements(model: nn.Module, strategy: Strategy) -> Iterator[str]:
    """Yield a sentence for each part of the plan that an undeclared model cannot follow."""
    kind = _own_kind(model)
    asked = _zero_stages(strategy)
    if len(asked) > 1:
        listed = ", ".join(str(stage) for stage in sorted(asked))
        yield (
            f"ZeRO stages {listed} of different parts were not applied: {kind} declares no "
            f"blocks, so all of it has stage {max(asked)}"
        )
    modes = {
        group.activation_checkpointing
        for stage in strategy.stages or ()
        for group in stage.layers
        if group.activation_checkpointing is not ActivationCheckpointing.NONE
    }
    for mode in sorted(modes):
        yield (
            f"activation checkpointing {mode.value} was not applied: {kind} declares no blocks; "
            "pass declaration=meshwright.Declaration(blocks=...) to parallelize()"
        )


def _zero_stages(strategy: Strategy) -> set[int]:
    groups = {group.zero_stage for stage in strategy.stages or () for group in stage.layers}
    edges = {edge.zero_stage for edge in (strategy.embedding, strategy.head) if edge is not None}
    return groups | edges or {0}


def _own_kind(model: nn.Module) -> str:
    """Return the name of the class that FSDP has mixed its own into."""
    kinds = type(model).__mro__
    return next(kind for kind in kinds if not issubclass(kind, FSDPModule)).__qualname__
