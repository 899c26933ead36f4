"""Activation checkpointing of a block: none, selective (per operator) or full."""

from __future__ import annotations

from collections.abc import Callable
from functools import partial
from typing import Any

import torch
from torch import nn
from torch.distributed.algorithms._checkpoint.checkpoint_wrapper import checkpoint_wrapper
from torch.utils._pytree import tree_map
from torch.utils.checkpoint import (
    CheckpointPolicy,
    _CachingTorchDispatchMode,
    create_selective_checkpoint_contexts,
)

from executor.apply.activation_offload import moved_if_large
from executor.apply.recomputed_buffers import Contexts, RecomputedBuffers
from executor.apply.split import stage_blocks
from executor.models.declaration import ModelDeclaration
from planner.schema.strategy import ActivationCheckpointing, Offload, Stage

_MATRIX_PRODUCTS = frozenset({"aten::mm", "aten::addmm", "aten::_grouped_mm", "aten::_scaled_mm"})
_ALWAYS_KEPT = frozenset(
    {
        "aten::_scaled_dot_product_flash_attention",
        "aten::_scaled_dot_product_efficient_attention",
        "aten::_scaled_dot_product_cudnn_attention",
        "aten::_scaled_dot_product_flash_attention_for_cpu",
        "_c10d_functional::reduce_scatter_tensor",
        "_c10d_functional::all_reduce",
    }
)


def apply_checkpointing(
    model: nn.Module, *, declaration: ModelDeclaration, stage: Stage, is_compiled: bool = False
) -> None:
    """Wrap the blocks of each layer group as the group asks; names of parameters stay."""
    blocks = model.get_submodule(declaration.blocks)
    for group in stage.layers:
        mode = group.activation_checkpointing
        if mode is ActivationCheckpointing.NONE:
            continue
        for index in stage_blocks(Stage(stage=0, layers=(group,))):
            name = str(index)
            offloads = Offload.ACTIVATIONS in group.offload
            block = checkpointed(
                getattr(blocks, name), mode, offloads=offloads, is_compiled=is_compiled
            )
            setattr(blocks, name, block)


def checkpointed(
    block: nn.Module,
    mode: ActivationCheckpointing,
    *,
    offloads: bool = False,
    is_compiled: bool = False,
) -> nn.Module:
    """Return `block` in a wrapper that keeps what `mode` says, on the host if it `offloads`.

    What is computed again draws what it drew before, and changes no buffers: other dropout masks
    would give gradients of another function. Compiled code changes its buffers once by itself.
    """
    contexts: Callable[[], Contexts] | None = None
    if mode is not ActivationCheckpointing.FULL:
        contexts = _offloaded_contexts if offloads else _selective_contexts
    if not is_compiled and next(block.buffers(), None) is not None:
        contexts = partial(RecomputedBuffers(block).contexts, contexts)
    if contexts is None:
        return checkpoint_wrapper(block, preserve_rng_state=True)
    return checkpoint_wrapper(block, preserve_rng_state=True, context_fn=contexts)


def _offloaded_contexts() -> Any:
    """Return the selective contexts, of which the first moves what it keeps to the host."""
    forward, backward = _selective_contexts()
    return _MovingCache(forward.policy_fn, forward.storage), backward


class _MovingCache(_CachingTorchDispatchMode):  # type: ignore[no-untyped-call]
    """torch's cache of what the policy keeps, on the host."""

    def __torch_dispatch__(
        self, func: Any, types: Any, args: Any = (), kwargs: dict[str, Any] | None = None
    ) -> Any:
        """Return what `func` returns; where the policy keeps it, move its content."""
        result = super().__torch_dispatch__(func, types, args, kwargs)  # type: ignore[no-untyped-call]
        if func in self.storage:
            if func.namespace == "_c10d_functional":
                # A collective under way: what is moved is its outcome.
                tree_map(torch.ops._c10d_functional.wait_tensor, result)  # noqa: SLF001
            kept, place = self.storage[func], self.func_counter[func] - 1
            kept[place] = tree_map(moved_if_large, kept[place])
        return result


def _selective_contexts() -> Any:
    """Return contexts that keep attention, reductions and every second matrix product.

    All else is computed again. Under tensor parallelism reductions are kept, so that recomputation
    does not repeat their communication.

    Source: torchtitan, `torchtitan/distributed/activation_checkpoint.py` (per-op policy).
    """
    policy = partial(_policy, {False: 0, True: 0})
    return create_selective_checkpoint_contexts(policy)  # type: ignore[no-untyped-call]


def _policy(
    counts: dict[bool, int], context: Any, operator: Any, *_args: Any, **_kwargs: Any
) -> CheckpointPolicy:
    name = operator._schema.name  # noqa: SLF001 - an operator's name has no other home
    keep = name in _ALWAYS_KEPT
    if name in _MATRIX_PRODUCTS:
        counts[context.is_recompute] += 1
        keep = counts[context.is_recompute] % 2 == 1
    return CheckpointPolicy.MUST_SAVE if keep else CheckpointPolicy.PREFER_RECOMPUTE
