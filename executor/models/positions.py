"""Positions: which tokens of a sequence a context-parallel rank holds."""

from __future__ import annotations

from dataclasses import dataclass

import torch

SEQUENCE_DIMENSION = 1


@dataclass(frozen=True, slots=True, kw_only=True)
class SequencePart:
    """Part `index` of `count` of every sequence.

    A `balanced` part is two pieces of 2 x `count`: one early, one as late, so that under a causal
    mask each rank has as much to attend to. Else it is one piece of `count`.
    """

    index: int = 0
    count: int = 1
    balanced: bool = False

    def of(self, whole: torch.Tensor) -> torch.Tensor:
        """Return this part of `whole`, [B, S, ...]."""
        if self.count == 1:
            return whole
        pieces = whole.chunk(self.piece_count, dim=SEQUENCE_DIMENSION)
        held = [pieces[piece] for piece in self._pieces]
        return torch.cat(held, dim=SEQUENCE_DIMENSION).contiguous()

    def positions(self, length: int, device: torch.device | None = None) -> torch.Tensor:
        """Return the places in the whole sequence of the `length` tokens of this part, [S]."""
        if self.count == 1:
            return torch.arange(length, device=device)
        size = length // len(self._pieces)
        held = [torch.arange(size, device=device) + piece * size for piece in self._pieces]
        return torch.cat(held)

    @property
    def piece_count(self) -> int:
        """Return into how many pieces every sequence is split."""
        return self.count * (2 if self.balanced else 1)

    @property
    def _pieces(self) -> tuple[int, ...]:
        if not self.balanced:
            return (self.index,)
        return self.index, self.piece_count - 1 - self.index


WHOLE_SEQUENCE = SequencePart()
