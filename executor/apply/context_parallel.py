"""Context parallelism: ranks share sequences, and attention reaches over all of them.

Everything but attention treats each token alone and does not know. While a block's forward runs,
torch's `scaled_dot_product_attention` is answered by a ring (`ring_attention`) or by exchanging
heads: each rank trades its tokens of all heads for all tokens of its heads and back (DeepSpeed
Ulysses, Jacobs et al. 2023, arXiv:2309.14509).
"""

from __future__ import annotations

from collections.abc import Callable, Sequence
from dataclasses import dataclass
from functools import partial
from typing import Any

import torch
from torch import nn
from torch.distributed import ProcessGroup
from torch.distributed._functional_collectives import all_to_all_single_autograd
from torch.nn import functional
from torch.overrides import TorchFunctionMode

from executor.apply.attention_kernels import default_scale
from executor.apply.ring_attention import Ring, ring_attention
from executor.errors import UnsupportedPlanError
from executor.mesh import CONTEXT, RankMesh
from executor.models.attention import fused_attention
from executor.models.declaration import ModelDeclaration
from executor.models.positions import WHOLE_SEQUENCE, SequencePart
from executor.models.segments import causal_mask
from planner.schema.strategy import ContextParallelKind

_HEAD, _SEQUENCE = 1, 2
_OF_SEGMENTS = 2


def apply_context_parallel(
    model: nn.Module, *, declaration: ModelDeclaration, mesh: RankMesh, kind: ContextParallelKind
) -> None:
    """Let the attention of every block of the stage reach over the ranks that share a sequence.

    Raises:
        UnsupportedPlanError: if the model does not say how it learns which tokens a rank has.
    """
    if declaration.tell_sequence_part is None:
        raise UnsupportedPlanError(
            "the model does not declare how it is told which tokens of a sequence it has",
            field="strategy.context_parallel_degree",
            value=mesh.degrees[CONTEXT],
            remedy="declare tell_sequence_part, or plan with context_parallel_degree limited to 1",
        )
    declaration.tell_sequence_part(model, sequence_part(mesh, kind))
    group = mesh.axis(CONTEXT).get_group()
    for block in model.get_submodule(declaration.blocks).children():
        block.forward = partial(_forward_sharing, group, kind, block.forward)


def sequence_part(mesh: RankMesh, kind: ContextParallelKind) -> SequencePart:
    """Return which tokens of each sequence this rank has: a ring's parts are balanced."""
    if mesh.degrees[CONTEXT] == 1:
        return WHOLE_SEQUENCE
    return SequencePart(
        index=mesh.coordinate(CONTEXT),
        count=mesh.degrees[CONTEXT],
        balanced=kind is ContextParallelKind.RING,
    )


def ranks_sharing_attention(block: nn.Module) -> int:
    """Return over how many ranks the attention of `block` reaches."""
    for module in block.modules():
        forward = module.__dict__.get("forward")
        if isinstance(forward, partial) and forward.func is _forward_sharing:
            group: ProcessGroup = forward.args[0]
            return group.size()
    return 1


class SharedAttention(TorchFunctionMode):
    """While it is entered, attention is to the tokens of all ranks of `group`."""

    def __init__(self, group: ProcessGroup, kind: ContextParallelKind) -> None:
        super().__init__()
        self.answered = 0
        self._group = group
        self._kind = kind

    def __torch_function__(
        self,
        function: Callable[..., Any],
        types: Sequence[type],
        args: tuple[Any, ...] = (),
        kwargs: dict[str, Any] | None = None,
    ) -> Any:
        """Return what `function` does, attention over the group in place of the local one."""
        del types
        if function is not functional.scaled_dot_product_attention:
            return function(*args, **(kwargs or {}))
        self.answered += 1
        asked = _Asked(*args, **(kwargs or {}))
        _check_sharable(asked)
        tensors = (asked.query, asked.key, asked.value)
        scale = default_scale(asked.query) if asked.scale is None else asked.scale
        # A chain that hands over segments in place of a mask has none, and means it to be causal.
        is_causal = asked.is_causal or asked.attn_mask is not None
        if self._kind is ContextParallelKind.RING:
            ring = Ring(group=self._group, segments=asked.attn_mask)
            return ring_attention(*tensors, ring=ring, scale=scale, is_causal=is_causal)
        return exchanged_attention(
            *tensors,
            group=self._group,
            scale=scale,
            is_causal=is_causal,
            segments=asked.attn_mask,
        )


@dataclass(frozen=True, slots=True)
class _Asked:
    """What `scaled_dot_product_attention` was asked, in its order.

    Keys may have as many heads as queries or a divisor of it, whatever `enable_gqa` says. A mask of
    whole numbers [B, S] is the segments of whole sequences (`executor.models.segments`).
    """

    query: torch.Tensor
    key: torch.Tensor
    value: torch.Tensor
    attn_mask: torch.Tensor | None = None
    dropout_p: float = 0.0
    is_causal: bool = False
    scale: float | None = None
    enable_gqa: bool = False


def exchanged_attention(  # noqa: PLR0913 - torch's attention has as many
    query_BNSH: torch.Tensor,  # noqa: N803
    key_BKSH: torch.Tensor,  # noqa: N803
    value_BKSH: torch.Tensor,  # noqa: N803
    *,
    group: ProcessGroup,
    scale: float,
    is_causal: bool,
    segments: torch.Tensor | None = None,
) -> torch.Tensor:
    """Return the attention of this rank's queries to the keys of all ranks, [B, N, S, H].

    Where ranks are more than key-value heads, those that share one get copies of it.
    """
    degree = group.size()
    copies = max(degree // key_BKSH.shape[_HEAD], 1)
    if copies > 1:
        key_BKSH = key_BKSH.repeat_interleave(copies, dim=_HEAD)  # noqa: N806
        value_BKSH = value_BKSH.repeat_interleave(copies, dim=_HEAD)  # noqa: N806
    query, key, value = (
        _whole_sequence(heads, group) for heads in (query_BNSH, key_BKSH, value_BKSH)
    )
    mixed = fused_attention(
        query,
        key,
        value,
        attn_mask=causal_mask(segments, WHOLE_SEQUENCE),
        is_causal=is_causal and segments is None,
        scale=scale,
    )
    return _whole_heads(mixed, group)


def _whole_sequence(heads_BNSH: torch.Tensor, group: ProcessGroup) -> torch.Tensor:  # noqa: N803
    """Return all tokens of this rank's heads: [B, N, S, H] to [B, N/c, c S, H]."""
    degree = group.size()
    batch, heads, length, width = heads_BNSH.shape
    by_rank = heads_BNSH.reshape(batch, degree, heads // degree, length, width)
    by_rank = by_rank.movedim(_HEAD, 0).contiguous()
    received = _traded(by_rank, group)
    return received.movedim(0, _SEQUENCE).flatten(_SEQUENCE, _SEQUENCE + 1)


def _whole_heads(mixed_BNSH: torch.Tensor, group: ProcessGroup) -> torch.Tensor:  # noqa: N803
    """Return this rank's tokens of all heads: [B, N/c, c S, H] to [B, N, S, H]."""
    degree = group.size()
    batch, heads, length, width = mixed_BNSH.shape
    by_rank = mixed_BNSH.reshape(batch, heads, degree, length // degree, width)
    by_rank = by_rank.movedim(_SEQUENCE, 0).contiguous()
    received = _traded(by_rank, group)
    return received.movedim(0, _HEAD).flatten(_HEAD, _HEAD + 1)


def _traded(by_rank: torch.Tensor, group: ProcessGroup) -> torch.Tensor:
    """Return, by rank, what each has for this one: an all_to_all of equal pieces."""
    traded = all_to_all_single_autograd(by_rank.flatten(0, 1), None, None, group)
    return traded.view(by_rank.shape)


def _forward_sharing(
    group: ProcessGroup,
    kind: ContextParallelKind,
    forward: Callable[..., Any],
    *arguments: Any,
    **named: Any,
) -> Any:
    with SharedAttention(group, kind) as shared:
        result = forward(*arguments, **named)
    if shared.answered == 0:
        raise UnsupportedPlanError(
            "ranks cannot share a sequence when a block does not call torch's "
            "scaled_dot_product_attention: its attention would be to this rank's tokens alone",
            field="strategy.context_parallel_degree",
            value=group.size(),
            remedy="compute attention by torch.nn.functional.scaled_dot_product_attention, or plan "
            "with context_parallel_degree limited to 1",
        )
    return result


def _check_sharable(asked: _Asked) -> None:
    mask = asked.attn_mask
    if mask is not None and (mask.dim() != _OF_SEGMENTS or mask.dtype != torch.int64):
        raise UnsupportedPlanError(
            "ranks cannot share a sequence whose attention has a mask of its own",
            field="strategy.context_parallel_degree",
            value=f"mask of shape {tuple(mask.shape)}",
            remedy="plan with context_parallel_degree limited to 1, or build the model without "
            "sliding windows shorter than the sequence",
        )
    if asked.dropout_p > 0.0:
        raise UnsupportedPlanError(
            "ranks cannot share a sequence whose attention drops weights at random",
            field="build_model",
            value=f"attention dropout {asked.dropout_p}",
            remedy="build the model without attention dropout, or plan with "
            "context_parallel_degree limited to 1",
        )
