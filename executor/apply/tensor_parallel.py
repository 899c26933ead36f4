"""Tensor parallelism, with and without sequence parallelism, from a model's declaration.

Between blocks the hidden states are plain tensors: whole on every rank, or under sequence
parallelism this rank's part of the sequence. Norm weights become replicated DTensors in both
cases, so that an optimizer meets one kind of parameter only.
"""

from __future__ import annotations

import warnings
from collections.abc import Callable
from functools import partial
from typing import Any

import torch
from torch import nn
from torch.distributed.device_mesh import DeviceMesh
from torch.distributed.tensor import (
    DTensor,
    Partial,
    Placement,
    Replicate,
    Shard,
    distribute_module,
    distribute_tensor,
)
from torch.distributed.tensor.parallel import (
    ColwiseParallel,
    ParallelStyle,
    PrepareModuleInput,
    RowwiseParallel,
    parallelize_module,
)
from torch.nn.utils.stateless import _reparametrize_module

from executor.errors import UnsupportedPlanError
from executor.mesh import TENSOR
from executor.models.adapters import ADAPTER, is_adapted, unadapted
from executor.models.declaration import BlockDeclaration, ModelDeclaration, part
from executor.models.quantized_linear import (
    QuantizedLinear,
    check_split_quantized,
    distribute_parts,
)

SEQUENCE_DIMENSION = 1


class TokenwiseParallel(ParallelStyle):
    """A module that treats each token alone: weights replicated, tokens as `layout` says."""

    def __init__(self, layout: Placement) -> None:
        super().__init__()
        self.layout = layout

    def _apply(self, module: nn.Module, device_mesh: DeviceMesh) -> nn.Module:
        return distribute_module(
            module,
            device_mesh,
            input_fn=partial(_to_dtensor, self.layout),  # type: ignore[arg-type]
            output_fn=_to_local,  # type: ignore[arg-type]
        )


class ReplicatedParallel(ParallelStyle):
    """A small module whose weights every rank has whole, and whose forward sees plain tensors.

    Its gradients are `gradient`: partial sums where each rank has other tokens or other heads.
    """

    def __init__(self, gradient: Placement) -> None:
        super().__init__()
        self.gradient = gradient

    def _apply(self, module: nn.Module, device_mesh: DeviceMesh) -> nn.Module:
        for name, parameter in list(module.named_parameters(recurse=False)):
            whole = distribute_tensor(parameter.detach(), device_mesh, (Replicate(),))
            setattr(module, name, nn.Parameter(whole, requires_grad=parameter.requires_grad))
        module.forward = partial(_with_plain_parameters, module, module.forward, self.gradient)
        return module


class PackedColumnParallel(ColwiseParallel):
    """A linear whose outputs are split, its weight packed or not."""

    def _partition_linear_fn(self, name: str, module: nn.Module, device_mesh: DeviceMesh) -> None:
        if isinstance(module, QuantizedLinear):
            distribute_parts(module, device_mesh, 0)
        else:
            super()._partition_linear_fn(name, module, device_mesh)  # type: ignore[no-untyped-call]


class PackedRowParallel(RowwiseParallel):
    """A linear whose inputs are split, its weight packed or not."""

    def _partition_linear_fn(self, name: str, module: nn.Module, device_mesh: DeviceMesh) -> None:
        if isinstance(module, QuantizedLinear):
            distribute_parts(module, device_mesh, 1)
        else:
            super()._partition_linear_fn(name, module, device_mesh)  # type: ignore[no-untyped-call]


def apply_tensor_parallel(
    model: nn.Module,
    *,
    declaration: ModelDeclaration,
    mesh: DeviceMesh,
    sequence_parallel: bool,
    sharded_logits: bool,
) -> None:
    """Distribute the stage's parameters over `mesh` and hook the collectives into forward.

    With `sharded_logits` the head returns a DTensor split over the vocabulary, for a loss that
    takes it so; else whole logits.

    Raises:
        UnsupportedPlanError: if the model cannot be split so.
    """
    if declaration.tensor_parallel_obstacle is not None:
        raise UnsupportedPlanError(
            declaration.tensor_parallel_obstacle,
            field="strategy.tensor_parallel_degree",
            value=mesh.size(),
            remedy="plan with tensor_parallel_degree limited to 1",
        )
    # The embedding's output is a view of a DTensor; the chain only ever adds out of place to it.
    warnings.filterwarnings("ignore", message="FSDP2-wrapped module .* returned a view tensor")
    layout: Placement = Shard(SEQUENCE_DIMENSION) if sequence_parallel else Replicate()
    for block in model.get_submodule(declaration.blocks).children():
        _check_quantized(block, declaration.block, mesh.size())
        parallelize_module(block, mesh, _block_styles(block, declaration.block, layout))
    edges: dict[str, ParallelStyle] = {
        declaration.embedding: RowwiseParallel(input_layouts=Replicate(), output_layouts=layout),
        declaration.final_norm: TokenwiseParallel(layout),
        declaration.head: ColwiseParallel(
            input_layouts=layout,
            output_layouts=Shard(-1) if sharded_logits else Replicate(),
            use_local_output=not sharded_logits,
        ),
    }
    present = {path: style for path, style in edges.items() if part(model, path) is not None}
    parallelize_module(model, mesh, present)


def shard_embedding_gradient(model: nn.Module, declaration: ModelDeclaration) -> None:
    """Let the embedding's gradient be split as its weight is.

    DTensor's embedding backward returns it whole on every rank: the vocabulary's memory again,
    and no match for the head's gradient where the two are tied across stages. Where FSDP keeps the
    weight it does so itself.
    """
    embedding = part(model, declaration.embedding)
    weight = getattr(embedding, "weight", None)
    if not isinstance(weight, DTensor) or not weight.requires_grad:
        return
    if weight.device_mesh.mesh_dim_names == (TENSOR,):
        placements = weight.placements
        weight.register_hook(  # type: ignore[no-untyped-call]
            lambda gradient: gradient.redistribute(placements=placements)
        )


def _check_quantized(block: nn.Module, declaration: BlockDeclaration, degree: int) -> None:
    for paths, is_row in ((declaration.column, False), (declaration.row, True)):
        for path in paths:
            linear = unadapted(part(block, path))
            if linear is not None:
                check_split_quantized(linear, degree, path=path, is_row=is_row)


def _block_styles(
    block: nn.Module, declaration: BlockDeclaration, layout: Placement
) -> dict[str, ParallelStyle]:
    styles: dict[str, ParallelStyle] = {}
    for path in declaration.norms:
        styles[path] = TokenwiseParallel(layout)
    for path in declaration.head_norms:
        styles[path] = ReplicatedParallel(Partial())
    for path in declaration.routers:
        styles[path] = ReplicatedParallel(Replicate() if layout.is_replicate() else Partial())
    for path, argument in declaration.gathered.items():
        if not _holds_experts(block, path, declaration):
            styles[path] = _gathered(layout, argument)
    for path in declaration.column:
        styles |= _column_styles(path, is_adapted=is_adapted(part(block, path)))
    for path in declaration.row:
        styles |= _row_styles(path, layout, is_adapted=is_adapted(part(block, path)))
    return {path: style for path, style in styles.items() if part(block, path) is not None}


def _column_styles(path: str, *, is_adapted: bool) -> dict[str, ParallelStyle]:
    """Return the styles of a linear whose outputs are split; of adapters the second is so too."""
    if not is_adapted:
        return {path: PackedColumnParallel()}
    return {
        f"{path}.base_layer": PackedColumnParallel(),
        f"{path}.lora_A.{ADAPTER}": TokenwiseParallel(Replicate()),
        f"{path}.lora_B.{ADAPTER}": ColwiseParallel(),
    }


def _row_styles(path: str, layout: Placement, *, is_adapted: bool) -> dict[str, ParallelStyle]:
    """Return the styles of a linear whose inputs are split; of adapters the first has these."""
    if not is_adapted:
        return {path: PackedRowParallel(output_layouts=layout)}
    return {
        f"{path}.base_layer": PackedRowParallel(output_layouts=layout),
        f"{path}.lora_A.{ADAPTER}": RowwiseParallel(output_layouts=layout),
        f"{path}.lora_B.{ADAPTER}": TokenwiseParallel(layout),
    }


def _holds_experts(block: nn.Module, path: str, declaration: BlockDeclaration) -> bool:
    """Return whether the module at `path` is a mixture, which brings tokens together itself."""
    experts = declaration.experts
    return (
        experts is not None and experts.startswith(f"{path}.") and part(block, experts) is not None
    )


def _gathered(layout: Placement, argument: str | None) -> PrepareModuleInput:
    """Return the style that hands a module its whole input once, for all its column linears."""
    if argument is None:
        return PrepareModuleInput(input_layouts=layout, desired_input_layouts=Replicate())
    return PrepareModuleInput(
        input_kwarg_layouts={argument: layout},
        desired_input_kwarg_layouts={argument: Replicate()},
    )


def _with_plain_parameters(
    module: nn.Module,
    forward: Callable[..., Any],
    gradient: Placement,
    *arguments: Any,
    **named: Any,
) -> Any:
    plain = {
        name: parameter.to_local(grad_placements=(gradient,))
        for name, parameter in module.named_parameters(recurse=False)
        if isinstance(parameter, DTensor)
    }
    # torch's public `functional_call` would call the module's hooks again.
    with _reparametrize_module(module, plain):
        return forward(*arguments, **named)


def _to_dtensor(
    layout: Placement, _module: nn.Module, inputs: tuple[torch.Tensor, ...], mesh: DeviceMesh
) -> tuple[DTensor]:
    (tokens,) = inputs
    if isinstance(tokens, DTensor):  # gathered already, for all linears that read it
        return (tokens,)
    return (DTensor.from_local(tokens, mesh, (layout,), run_check=False),)


def _to_local(_module: nn.Module, output: DTensor, _mesh: DeviceMesh) -> torch.Tensor:
    return output.to_local()
