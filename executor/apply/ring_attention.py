"""Ring attention: keys and values pass round the ranks that share a sequence.

With c ranks each holds two pieces of 2c, i and 2c - 1 - i (`SequencePart`, balanced). In step s a
rank has the keys and values of rank j = i - s (mod c):

    j = i    causal over its own tokens;
    j < i    all queries see the early piece of j, whole, and nothing of the late one;
    j > i    the late queries see both pieces of j, whole, and the early ones nothing.

Partial outputs o with log-sum-exp l merge as o := (e^l o + e^l' o') / (e^l + e^l'). Backward passes
keys and values round once more, and their gradients one step behind, which come home after c steps.

Source: Liu et al. 2023, arXiv:2310.01889; balanced pieces: Dubey et al. 2024, arXiv:2407.21783,
section 3.3.2. Shapes: B sequences, N heads, K key-value heads, S tokens of a rank, H head width.
"""

from __future__ import annotations

from dataclasses import dataclass
from typing import Any

import torch
from torch import distributed
from torch.distributed import P2POp, ProcessGroup

from executor.apply.attention_kernels import Gathered, Meeting, attend, attend_backward
from executor.models.positions import SequencePart
from executor.models.segments import visible
from executor.precision import wide

_SEQUENCE = 2


@dataclass(frozen=True, slots=True, kw_only=True)
class Ring:
    """The ranks that share a sequence, in order, and this rank's place.

    With `segments` of whole sequences, [B, c S], queries see keys of their own segment alone.
    """

    group: ProcessGroup
    segments: torch.Tensor | None = None

    @property
    def degree(self) -> int:
        """Return how many ranks share a sequence."""
        return self.group.size()

    @property
    def index(self) -> int:
        """Return this rank's place."""
        return self.group.rank()

    def start_pass(self, tensor: torch.Tensor) -> Passing:
        """Start sending `tensor` to the next rank and taking the previous one's."""
        received = torch.empty_like(tensor)
        after, before = (self.index + 1) % self.degree, (self.index - 1) % self.degree
        sends = P2POp(distributed.isend, tensor, group=self.group, group_peer=after)
        receives = P2POp(distributed.irecv, received, group=self.group, group_peer=before)
        return Passing(distributed.batch_isend_irecv([sends, receives]), received)


@dataclass(frozen=True, slots=True)
class Passing:
    """A tensor on its way from the previous rank."""

    works: list[distributed.Work]
    received: torch.Tensor

    def wait(self) -> torch.Tensor:
        """Return the previous rank's tensor once it is here."""
        for work in self.works:
            work.wait()
        return self.received


def ring_attention(
    query_BNSH: torch.Tensor,  # noqa: N803
    key_BKSH: torch.Tensor,  # noqa: N803
    value_BKSH: torch.Tensor,  # noqa: N803
    *,
    ring: Ring,
    scale: float,
    is_causal: bool,
) -> torch.Tensor:
    """Return the attention of this rank's queries to the keys of all ranks, [B, N, S, H]."""
    tensors = (query_BNSH, key_BKSH, value_BKSH)
    mixed: torch.Tensor = _RingAttention.apply(*tensors, ring, scale, is_causal)  # type: ignore[no-untyped-call]
    return mixed


@dataclass(frozen=True, slots=True, kw_only=True)
class _Block:
    """Which of this rank's queries and which of the held keys meet in one step of the ring."""

    queries: slice
    keys: slice
    is_causal: bool
    source: int

    @staticmethod
    def of(ring: Ring, step: int, *, length: int, is_causal: bool) -> _Block:
        """Return what step `step` has to do, with `length` tokens a rank."""
        everything, half = slice(None), length // 2
        source = (ring.index - step) % ring.degree
        if not is_causal or source == ring.index:
            return _Block(queries=everything, keys=everything, is_causal=is_causal, source=source)
        if source < ring.index:
            return _Block(queries=everything, keys=slice(0, half), is_causal=False, source=source)
        return _Block(queries=slice(half, length), keys=everything, is_causal=False, source=source)

    def visible(self, ring: Ring) -> torch.Tensor | None:
        """Return which of the keys that are met each query sees, `None` where all."""
        segments = ring.segments
        if segments is None:
            return None
        own, met = (
            SequencePart(index=index, count=ring.degree, balanced=True).of(segments)
            for index in (ring.index, self.source)
        )
        return visible(own[:, self.queries], met[:, self.keys])

    def meeting(
        self,
        query: torch.Tensor,
        held: torch.Tensor,
        scale: float,
        visible: torch.Tensor | None,
    ) -> Meeting:
        """Return the queries and keys that meet; `held` are keys and values, [2, B, K, S, H]."""
        keys, values = _for_heads(held[:, :, :, self.keys], query.shape[1])
        return Meeting(
            query=_rows(query, self.queries),
            key=keys,
            value=values,
            scale=scale,
            is_causal=self.is_causal,
            visible=visible,
        )


class _RingAttention(torch.autograd.Function):
    @staticmethod
    def forward(context: Any, *arguments: Any) -> torch.Tensor:
        query, key, value, ring, scale, is_causal = arguments
        merged = _Merged(query)
        held = torch.stack((key, value))
        for step in range(ring.degree):
            passing = ring.start_pass(held) if step + 1 < ring.degree else None
            block = _Block.of(ring, step, length=query.shape[_SEQUENCE], is_causal=is_causal)
            visible_keys = block.visible(ring)
            merged.add(attend(block.meeting(query, held, scale, visible_keys)), block.queries)
            if passing is not None:
                held = passing.wait()
        mixed = merged.out.to(query.dtype)
        context.save_for_backward(query, key, value, mixed, merged.logsumexp)
        context.ring, context.scale, context.is_causal = ring, scale, is_causal
        return mixed

    @staticmethod
    def backward(context: Any, *gradients: Any) -> Any:
        query, key, value, mixed, logsumexp = context.saved_tensors
        ring: Ring = context.ring
        query_gradient = torch.zeros_like(query, dtype=wide(query.dtype))
        held = torch.stack((key, value))
        behind = Passing([], torch.zeros_like(held, dtype=wide(query.dtype)))
        for step in range(ring.degree):
            passing = ring.start_pass(held) if step + 1 < ring.degree else None
            block = _Block.of(
                ring, step, length=query.shape[_SEQUENCE], is_causal=context.is_causal
            )
            mine, *theirs = attend_backward(
                block.meeting(query, held, context.scale, block.visible(ring)),
                Gathered(
                    out=_rows(mixed, block.queries), logsumexp=_rows(logsumexp, block.queries)
                ),
                _rows(gradients[0], block.queries),
            )
            query_gradient[:, :, block.queries] += mine
            carried = behind.wait()
            carried[:, :, :, block.keys] += _for_key_heads(torch.stack(theirs), key.shape[1])
            behind = ring.start_pass(carried)
            if passing is not None:
                held = passing.wait()
        key_gradient, value_gradient = behind.wait().to(key.dtype)
        return query_gradient.to(query.dtype), key_gradient, value_gradient, None, None, None


class _Merged:
    """Partial outputs, merged in fp32, or in fp64 where queries are."""

    def __init__(self, query: torch.Tensor) -> None:
        self.out = torch.zeros_like(query, dtype=wide(query.dtype))
        self.logsumexp = torch.full(
            query.shape[:-1], -torch.inf, dtype=wide(query.dtype), device=query.device
        )

    def add(self, more: Gathered, queries: slice) -> None:
        """Merge what the rows `queries` have gathered from one more set of keys."""
        before = self.logsumexp[:, :, queries]
        after = torch.logaddexp(before, more.logsumexp)
        # Where no key was seen so far, on either side, there is nothing to weigh.
        whole = after.masked_fill(after == -torch.inf, 0.0)
        kept = self.out[:, :, queries] * (before - whole).exp().unsqueeze(-1)
        self.out[:, :, queries] = kept + more.out * (more.logsumexp - whole).exp().unsqueeze(-1)
        self.logsumexp[:, :, queries] = after


def _rows(tensor: torch.Tensor, rows: slice) -> torch.Tensor:
    return tensor[:, :, rows].contiguous()


def _for_heads(pair: torch.Tensor, head_count: int) -> tuple[torch.Tensor, torch.Tensor]:
    """Return keys and values, each for as many heads as queries have."""
    copies = head_count // pair.shape[2]
    whole = pair.repeat_interleave(copies, dim=2) if copies > 1 else pair.contiguous()
    return whole[0], whole[1]


def _for_key_heads(pair: torch.Tensor, key_head_count: int) -> torch.Tensor:
    """Return gradients [2, B, N, S, H] summed over the heads that share a key, [2, B, K, S, H]."""
    both, batch, heads, length, width = pair.shape
    copies = heads // key_head_count
    if copies == 1:
        return pair
    return pair.view(both, batch, key_head_count, copies, length, width).sum(dim=3)
