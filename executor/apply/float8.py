"""8-bit products: linears of blocks multiply in fp8, by torchao's own linear.

Weights, gradients and what blocks hand on keep their formats. What a linear multiplies is cast as
it runs, scaled by the greatest number of the tensor or, under `row_scaled_fp8`, of each row. As
plans are priced, embedding, head, routers and adapters stay in 16 bits. So do experts, and linears
whose sizes the kernels do not take, which is told.

Source: torchao `float8/float8_linear.py` and `float8/config.py` (recipes); which linears torchtitan
converts, `torchtitan/components/quantization/float8.py`.
"""

from __future__ import annotations

import logging
from collections.abc import Iterable, Iterator
from dataclasses import dataclass, replace
from typing import Any

import torch
from torch import nn

from executor.apply.virtual_stages import VirtualStage
from executor.errors import UnsupportedPlanError
from executor.models.adapters import is_adapter
from executor.models.declaration import ModelDeclaration
from planner.schema.job import Job, Precision

# Both sizes of a weight must be whole multiples: aten/src/ATen/native/cuda/ScaledBlas.cpp.
SIZE_MULTIPLE = 16
# Compute capability of the first tensor cores that multiply in fp8, Ada's.
FIRST_CAPABILITY = (8, 9)


@dataclass(frozen=True, slots=True, kw_only=True)
class Float8:
    """How 8-bit products are scaled, and whether they are emulated in 16 bits."""

    by_rows: bool
    is_emulated: bool

    @staticmethod
    def of(job: Job, device: torch.device) -> Float8 | None:
        """Return what `job` asks for on `device`, `None` where products have 16 bits or more.

        Raises:
            UnsupportedPlanError: if the device has no such products.
        """
        if job.precision is not Precision.FP8:
            return None
        _check_device(device)
        return Float8(by_rows=job.row_scaled_fp8, is_emulated=device.type != "cuda")


def apply_float8(
    model: nn.Module, *, declaration: ModelDeclaration, float8: Float8, tensor_degree: int
) -> None:
    """Let linears of every block of the stage multiply in fp8; names of parameters stay.

    Raises:
        UnsupportedPlanError: if the model declares no blocks.
    """
    if declaration.is_whole:
        raise UnsupportedPlanError(
            f"needs to know the blocks of the model, and {type(model).__qualname__} declares none",
            field="job.precision",
            value=Precision.FP8.value,
            remedy="pass declaration=meshwright.Declaration(blocks=...) to parallelize(), or plan "
            "with precision bf16",
        )
    torchao = _torchao()
    recipe = "rowwise" if float8.by_rows else "tensorwise"
    config = replace(
        torchao.Float8LinearConfig.from_recipe_name(recipe),
        emulate=float8.is_emulated,
        pad_inner_dim=True,  # gradients of weights sum over tokens, as many as there are
    )
    for block in model.get_submodule(declaration.blocks).children():
        chosen = {
            name
            for name, linear in _linears(block, declaration)
            if _is_taken(linear, tensor_degree)
        }
        torchao.convert_to_float8_training(
            block,
            config=config,
            module_filter_fn=lambda _, name, chosen=chosen: name in chosen,
        )


def float8_differences(
    stages: Iterable[VirtualStage],
    *,
    declaration: ModelDeclaration,
    float8: Float8 | None,
    is_compiled: bool,
) -> Iterator[str]:
    """Yield a sentence for each way in which products are not the planned ones in 8 bits."""
    if float8 is None:
        return
    if float8.is_emulated:
        yield "products are rounded to fp8 and computed in 16 bits: this device has none in fp8"
    elif not is_compiled:
        yield (
            "casts to fp8 are kernels of their own, planned as fused: plan with fused_elementwise "
            "true, so that blocks are compiled"
        )
    if declaration.shapes.expert_count > 0:
        yield "products of routed experts run in 16 bits, planned in fp8"
    kept = sorted(
        {
            f"{name} {linear.in_features} x {linear.out_features}"
            for stage in stages
            for block in stage.module.get_submodule(declaration.blocks).children()
            for name, linear in _linears(block, declaration)
            if not _is_float8(linear)
        }
    )
    if kept:
        yield (
            f"linears whose sizes on a rank are no multiples of {SIZE_MULTIPLE} run in 16 bits, "
            f"planned in fp8: {', '.join(kept)}"
        )


def _linears(block: nn.Module, declaration: ModelDeclaration) -> Iterator[tuple[str, nn.Linear]]:
    """Yield the linears of a block that are planned in 8 bits, with their paths in it."""
    routers = declaration.block.routers
    for name, module in block.named_modules():
        is_router = any(name == path or name.endswith(f".{path}") for path in routers)
        if isinstance(module, nn.Linear) and not is_router and not is_adapter(f"{name}."):
            yield name, module


def _is_taken(linear: nn.Linear, tensor_degree: int) -> bool:
    """Return whether kernels take the linear's weight, whichever size of it ranks divide."""
    sizes = (linear.in_features, linear.out_features)
    return all(size % (SIZE_MULTIPLE * tensor_degree) == 0 for size in sizes)


def _is_float8(linear: nn.Linear) -> bool:
    return type(linear).__name__ == "Float8Linear"  # torchao has no public name for it


def has_float8(device: torch.device) -> bool:
    """Return whether `device` multiplies in fp8 by itself."""
    return device.type == "cuda" and torch.cuda.get_device_capability(device) >= FIRST_CAPABILITY


def _check_device(device: torch.device) -> None:
    if device.type != "cuda" or has_float8(device):
        return
    raise UnsupportedPlanError(
        f"{torch.cuda.get_device_name(device)} has no products in fp8",
        field="job.precision",
        value=Precision.FP8.value,
        remedy="plan with precision bf16, or run on devices that have fp8",
    )


def _torchao() -> Any:
    """Return torchao's training in fp8, without its words on kernels of other GPUs and on enums."""
    for name in ("torchao", "torch.utils._pytree"):
        logging.getLogger(name).setLevel(logging.ERROR)
    from torchao import float8  # noqa: PLC0415 - only plans in fp8 need it

    return float8
