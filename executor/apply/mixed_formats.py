"""Mixed formats: what meets numbers in 16 and in 32 bits computes as it would under autocast.

Under autocast a script may keep tables in fp32 (rotary angles, running means) beside weights and
activations in bf16. Here weights are in bf16 themselves, and torch refuses products of two formats.
Only operators that would be refused are changed; what is in one format stays in it.
"""

from __future__ import annotations

from collections.abc import Callable, Iterable
from functools import partial
from typing import Any

import torch
from torch import nn
from torch.nn import functional
from torch.overrides import TorchFunctionMode
from torch.utils._pytree import tree_leaves, tree_map_only

from executor.models.declaration import ModelDeclaration

# Those of autocast's operators in lower precision that models call.
_PRODUCTS: frozenset[Callable[..., Any]] = frozenset(
    {
        functional.linear,
        functional.bilinear,
        functional.scaled_dot_product_attention,
        functional.conv1d,
        functional.conv2d,
        functional.conv3d,
        functional.conv_transpose1d,
        functional.conv_transpose2d,
        functional.conv_transpose3d,
        torch.matmul,
        torch.mm,
        torch.mv,
        torch.bmm,
        torch.addmm,
        torch.baddbmm,
        torch.einsum,
        torch.Tensor.matmul,
        torch.Tensor.mm,
        torch.Tensor.mv,
        torch.Tensor.bmm,
        torch.Tensor.__matmul__,
        torch.Tensor.__rmatmul__,
    }
)
# These take their statistics and weights in fp32, whatever their input is in.
_NORMS: frozenset[Callable[..., Any]] = frozenset(
    {functional.batch_norm, functional.instance_norm, functional.group_norm, functional.layer_norm}
)


def apply_mixed_formats(
    model: nn.Module, *, declaration: ModelDeclaration, narrow: torch.dtype
) -> None:
    """Let the blocks of a script's own stage, and what stands around them, mix formats.

    A block that is checkpointed runs forward again by itself, and so has a mode of its own.
    """
    for block in model.get_submodule(declaration.blocks).children():
        mix_formats(block, narrow)
    mix_formats(model, narrow)


def mix_formats(module: nn.Module, narrow: torch.dtype) -> None:
    """Let forward of `module`, which computes in the format `narrow`, be given wider numbers."""
    module.forward = partial(_forward_mixing, narrow, module.forward)


def _forward_mixing(
    narrow: torch.dtype, forward: Callable[..., Any], *arguments: Any, **named: Any
) -> Any:
    with _MixedFormats(narrow):
        return forward(*arguments, **named)


class _MixedFormats(TorchFunctionMode):
    def __init__(self, narrow: torch.dtype) -> None:
        super().__init__()
        self._narrow = narrow

    def __torch_function__(
        self, function: Any, types: Any, args: tuple[Any, ...] = (), kwargs: Any = None
    ) -> Any:
        """Return what `function` returns of numbers in one format."""
        del types
        named = kwargs or {}
        if function in _PRODUCTS and self._mixes((args, named)):
            args, named = _in_format(self._narrow, (args, named))
        elif function in _NORMS and self._mixes((args, named)):
            wide, named = _in_format(torch.float32, (args, named))
            return function(*wide, **named).to(args[0].dtype)
        return function(*args, **named)

    def _mixes(self, given: Any) -> bool:
        formats = set(_formats(tree_leaves(given)))
        return len(formats) > 1 and self._narrow in formats


def _formats(leaves: Iterable[Any]) -> Iterable[torch.dtype]:
    return (
        leaf.dtype
        for leaf in leaves
        if isinstance(leaf, torch.Tensor) and leaf.dtype.is_floating_point
    )


def _in_format(dtype: torch.dtype, given: Any) -> Any:
    return tree_map_only(
        torch.Tensor, lambda item: item.to(dtype) if item.dtype.is_floating_point else item, given
    )
