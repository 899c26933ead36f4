"""Activation checkpointing of a block: none, selective (per operator) or full."""

from __future__ import annotations

from collections.abc import Callable
from functools import partial
from typing import Any

import torch
from torch import nn
from torch.distributed.algorithms._checkpoint.checkpoint_wrapper import checkpoint_wrapper
from torch.utils.checkpoint import CheckpointPolicy, create_selective_checkpoint_contexts

from executor.apply.split import stage_blocks
from executor.models.declaration import ModelDeclaration
from planner.schema.strategy import ActivationCheckpointing, Stage

_ATEN = torch.ops.aten
_MATRIX_PRODUCTS = frozenset({_ATEN.mm.default, _ATEN.addmm.default})
_ALWAYS_KEPT = frozenset(
    {
        _ATEN._scaled_dot_product_flash_attention.default,
        _ATEN._scaled_dot_product_efficient_attention.default,
        _ATEN._scaled_dot_product_cudnn_attention.default,
        _ATEN._scaled_dot_product_flash_attention_for_cpu.default,
        _ATEN._scaled_dot_product_attention_math.default,
        torch.ops._c10d_functional.reduce_scatter_tensor.default,
        torch.ops._c10d_functional.all_reduce.default,
    }
)


def apply_checkpointing(
    model: nn.Module, *, declaration: ModelDeclaration, stage: Stage
) -> None:
    """Wrap the blocks of each layer group as the group asks; names of parameters stay."""
    blocks = model.get_submodule(declaration.blocks)
    for group in stage.layers:
        if group.activation_checkpointing is ActivationCheckpointing.NONE:
            continue
        context = (
            _selective_contexts
            if group.activation_checkpointing is ActivationCheckpointing.SELECTIVE
            else None
        )
        for index in stage_blocks(Stage(stage=0, layers=(group,))):
            name = str(index)
            setattr(blocks, name, _wrapped(getattr(blocks, name), context))


def _wrapped(block: nn.Module, context: Callable[[], Any] | None) -> nn.Module:
    options = {} if context is None else {"context_fn": context}
    return checkpoint_wrapper(  # type: ignore[no-any-return]
        block, preserve_rng_state=False, **options
    )


def _selective_contexts() -> Any:
    """Return the contexts under which attention, reductions and every second matrix product are
    kept, and all else is computed again.

    Source: torchtitan, `torchtitan/distributed/activation_checkpoint.py` (per-op policy).
    """
    return create_selective_checkpoint_contexts(partial(_policy, {False: 0, True: 0}))


def _policy(
    counts: dict[bool, int], context: Any, operator: Any, *_args: Any, **_kwargs: Any
) -> CheckpointPolicy:
    if operator in _MATRIX_PRODUCTS:
        counts[context.is_recompute] += 1
        keep = counts[context.is_recompute] % 2 == 1
    else:
        keep = operator in _ALWAYS_KEPT
    return CheckpointPolicy.MUST_SAVE if keep else CheckpointPolicy.PREFER_RECOMPUTE
